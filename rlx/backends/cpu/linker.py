"""From kernel calls to addresses: what the compiled program of the CPU is made of."""

from __future__ import annotations

import copy
import struct
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx._ext import cpu as compiled
from rlx.backends.cpu.layouts import Layout
from rlx.backends.cpu.memory import aligned, view_of
from rlx.backends.cpu.packed import FIXED, layouts_of
from rlx.backends.cpu.region import region_params
from rlx.backends.cpu.split import Split, split_of
from rlx.backends.cpu.weights import Block, Weight
from rlx.errors import UnsupportedOpError, describe
from rlx.ir.opdef import Array
from rlx.ir.plan import Call, Value
from rlx.threads import usable_cores

# Whether products of bytes may take the instruction made for them.
HAS_VNNI = compiled.has_vnni()
# The fields of struct rlx_split (parallel.h).
Shared = tuple[int, int, bool, list[int], int, int, int, int, tuple[int, ...], tuple[int, ...]]
Row = tuple[int, list[int], list[int], Array, str, Shared | None]


def kernel_for(name: str, call: Call, kernels: dict[str, int]) -> str:
    """The exported kernel that a name stands for, by the dtype of the first input.

    Raises:
        UnsupportedOpError: There is none for that dtype.
    """
    if f"{name}_vnni" in kernels and HAS_VNNI:
        return f"{name}_vnni"
    if name in kernels:
        return name
    first = next(value for value in call.inputs if value is not None)
    dtype = first.type.dtype
    for full in (f"{name}_{dtype}", f"{name}_b{dtype.itemsize}"):
        if full in kernels:
            return full
    raise UnsupportedOpError(
        describe(f"the CPU has no kernel {name!r} for {dtype}", where=call.node.where())
    )


def _check_room(call: Call) -> None:
    """The record of a compiled call has room for so many addresses.

    Raises:
        UnsupportedOpError: The call has more inputs or outputs.
    """
    for what, found, most in (
        ("inputs", len(call.inputs), compiled.MOST_INPUTS),
        ("outputs", len(call.outputs), compiled.MOST_OUTPUTS),
    ):
        if found > most:
            raise UnsupportedOpError(
                describe(
                    f"a call of the CPU kernel {call.kernel!r} has too many {what}",
                    where=call.node.where(),
                    got=found,
                    expected=f"at most {most}",
                    hint="a custom operation registered without c= has no such limit"
                    if call.kernel == "custom"
                    else None,
                )
            )


class Linker:
    """Turns calls into addresses.

    Args:
        isa: The instruction set.
        place: The memory of a value of the arena, from its first byte on.
        weight: The params and constants.
        threads: Threads that may make a call together.

    Attributes:
        spare: Scratch of the threads but the first.
        blocks: The memory of weights whose addresses the calls hold.
        functions: The Python functions among the calls.
        viewed: Addresses that they have views of.
    """

    def __init__(
        self,
        isa: str,
        place: Callable[[Value], Array],
        weight: Callable[[Value], Weight],
        threads: int,
    ) -> None:
        self._kernels, self._loops = compiled.kernels(isa), compiled.loops(isa)
        self._isa, self._place, self._weight, self._threads = isa, place, weight, threads
        self._spin = threads <= usable_cores()
        self.spare = aligned(0)
        self.blocks: set[Block] = set()
        self.functions: list[Any] = []
        self.viewed: set[int] = set()

    def link(self, calls: Sequence[Call]) -> list[Row]:
        """Kernel, inputs, outputs, parameters, name and split of every call."""
        splits = [split_of(call, self._threads) for call in calls]
        # Calls are made one after the other, so that all use the same.
        self.spare = aligned(max(((s.threads - 1) * s.apart for s in splits if s), default=0))
        return [(*self._call(c), self._shared(s)) for c, s in zip(calls, splits, strict=True)]

    def _shared(self, split: Split | None) -> Shared | None:
        if split is None:
            return None
        start: int = self.spare.ctypes.data
        scratch = [0 if offset < 0 else start + offset for offset in split.scratch]
        return split.parts, split.threads, self._spin, scratch, *split[3:]

    def _call(self, call: Call) -> tuple[int, list[int], list[int], Array, str]:
        if call.kernel == "python":
            return self._python(call)
        _check_room(call)
        packed = self._packed(call)
        if call.kernel == "elementwise":
            name, words = "region", region_params(call, self._loops)
        else:
            name, params = kernel_for(call.kernel, call, self._kernels), call.params
            for layout, _ in packed.values():
                params = {**params, **layout.params()}
            words = _words(params)
        inputs = [
            0 if value is None else _address(packed[at][1] if at in packed else self._start(value))
            for at, value in enumerate(call.inputs)
        ]
        outputs = [_address(self._start(value)) for value in call.outputs]
        return (
            self._kernels[name],
            inputs,
            outputs,
            np.array(words, np.int64),
            f"{name}, {call.node.where()}",
        )

    def _python(self, call: Call) -> tuple[int, list[int], list[int], Array, str]:
        """A Python function amid the kernels, on views of the memory that it reads and writes."""
        # Every executable has its own: the schedule is shared between clones.
        function: Any = copy.copy(call.params["function"])
        function.inputs = [self._memory(value) for value in call.inputs if value is not None]
        for view in function.inputs:
            view.setflags(write=False)
        function.outputs = [self._memory(value) for value in call.outputs]
        self.functions.append(function)
        self.viewed.update(view.ctypes.data for view in function.inputs)
        params = np.array([id(function)], np.int64)
        return compiled.python_kernel(), [], [], params, f"python, {call.node.where()}"

    def _packed(self, call: Call) -> dict[int, tuple[Layout, Array]]:
        """The operands that the call reads packed: all that it can read so, or none."""
        found = {}
        layouts = layouts_of(call, self._isa)
        for at, layout in layouts.items():
            value = call.inputs[at]
            if value is not None and value.kind in FIXED:
                block = self._weight(value).packed(layout)
                if block is not None:
                    found[at] = layout, block
        if len(found) < len(layouts):
            return {}
        return {at: (layout, self._held(block)) for at, (layout, block) in found.items()}

    def _start(self, value: Value) -> Array:
        """The memory of a value, from its first byte on."""
        if value.kind in FIXED:
            return self._held(self._weight(value).plain)
        return self._place(value)

    def _held(self, block: Block) -> Array:
        self.blocks.add(block)
        return block.memory

    def _memory(self, value: Value) -> Array:
        return view_of(self._start(value), 0, value.type)


def _address(memory: Array) -> int:
    address: int = memory.ctypes.data
    return address


def _words(params: Any) -> list[int]:
    """Parameters as 64-bit words, tuples laid out flat, floats by their bits."""
    words: list[int] = []
    for value in params.values():
        for item in value if isinstance(value, tuple) else (value,):
            if isinstance(item, float):
                words.append(int.from_bytes(struct.pack("<d", item), "little", signed=True))
            else:
                words.append(int(item))
    return words
