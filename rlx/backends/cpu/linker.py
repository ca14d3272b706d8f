"""Links kernel calls to addresses: the parts of the CPU's compiled program."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx._ext import cpu as compiled
from rlx._ext.program import python_kernel
from rlx.abi import calls
from rlx.abi.calls import Given, Struct
from rlx.abi.kernels import KERNELS
from rlx.abi.signature import Signature
from rlx.backends.cpu.elementwise_program import program_fields
from rlx.backends.cpu.layouts import Layout
from rlx.backends.cpu.split import WorkSplit, flushes, split_of
from rlx.backends.cpu.weight_packing import FIXED, layouts_of, variant_of
from rlx.backends.cpu.weights import Weight, WeightBlock
from rlx.backends.executable import aligned, view_of
from rlx.errors import CompileError, describe
from rlx.ir.opdef import Array
from rlx.ir.plan import KernelCall, Value
from rlx.ir.spans import checkpoint

Unshared = tuple[int, list[int], list[int], Array, str]
Row = tuple[int, list[int], list[int], Array, str, list[int] | None]
# The split of a call, and whether it flushes subnormal operands to 0 where that is allowed.
Share = tuple[WorkSplit | None, int]
# The first operand of a kernel that reads none.
NOTHING = Given("nothing", 0)


def given(value: Value) -> Given:
    """The dtype of a value, as signatures name it."""
    return Given(str(value.type.dtype), value.type.dtype.itemsize)


class Linker:
    """Turns calls into addresses.

    Args:
        isa: The instruction set.
        place: The memory of a value of the arena, from its first byte on.
        weight: The params and constants.
        threads: Threads that may make a call together.
        flush: Whether subnormal operands count as 0 where kernels allow it.

    Attributes:
        spare: Scratch of the threads but the first.
        blocks: The memory of weights whose addresses the calls hold.
        functions: The Python functions among the calls.
        viewed: Addresses of values that they have views of.
    """

    def __init__(
        self,
        isa: str,
        place: Callable[[Value], Array],
        weight: Callable[[Value], Weight],
        threads: int,
        flush: bool,
    ) -> None:
        self._flush = flush
        self._kernels, self._loops = compiled.kernels(isa), compiled.loops(isa)
        self._isa, self._place, self._weight, self._threads = isa, place, weight, threads
        # Equal calls are checked and written once: layers of a model repeat themselves.
        self._structs: dict[Any, tuple[str, Struct]] = {}
        self.spare = aligned(0)
        self.blocks: set[WeightBlock] = set()
        self.functions: list[Any] = []
        self.viewed: set[int] = set()

    def link(self, calls: Sequence[KernelCall], shares: Sequence[Share] | None = None) -> list[Row]:
        """Kernel, inputs, outputs, parameters, name and split of every call.

        Args:
            calls: The calls.
            shares: The split of each, and whether it flushes subnormal operands; None to choose them.
        """
        results = []
        for call in calls:
            checkpoint()
            results.append(self._call(call))
        if shares is None:
            shares = [(split_of(call, self._threads), flushes(call)) for call in calls]
        # Calls are made one after the other, so that all use the same.
        self.spare = aligned(max(((s.threads - 1) * s.apart for s, _ in shares if s), default=0))
        shared = [self._shared(call, *share) for call, share in zip(calls, shares, strict=True)]
        return [(*first, other) for first, other in zip(results, shared, strict=True)]

    def _shared(self, call: KernelCall, split: WorkSplit | None, flushes: int) -> list[int] | None:
        """The words of struct rlx_split (parallel.h)."""
        signature, flush = KERNELS.get(call.kernel), self._flush and bool(flushes)
        parallel = signature.parallel if signature else None
        if parallel is None and not flush:
            return None
        if split is None:  # one thread makes it, whichever that is
            split = WorkSplit(1, 1, (), 0, 0, 0, 0, 0, (), ())
        once = parallel is not None and parallel.once
        return split.numbers(flush, once, self.spare.ctypes.data)

    def _call(self, call: KernelCall) -> Unshared:
        if call.kernel == "python":
            return self._python(call)
        packed = self._packed(call)
        linked: dict[str, int] = {}
        for layout, _ in packed.values():
            linked |= layout.linked
        reads = tuple(value and value.type.dtype for value in call.inputs)
        # In text 0.0 and -0.0 differ, and so do 1 and True.
        key = (
            call.kernel,
            repr(call.params),
            reads,
            tuple(o.type for o in call.outputs),
            repr(linked),
        )
        if key not in self._structs:
            self._structs[key] = self._struct(call, linked)
        name, struct = self._structs[key]
        inputs = [
            0 if value is None else _address(packed[i][1] if i in packed else self._start(value))
            for i, value in enumerate(call.inputs)
        ]
        outputs = [_address(self._start(value)) for value in call.outputs]
        where = f"{name}, {call.node.where()}"
        return self._kernels[name], inputs, outputs, struct.placed(), where

    def _struct(self, call: KernelCall, linked: Mapping[str, int]) -> tuple[str, Struct]:
        """The exported kernel of a call, and its checked parameters with those that the linker sets."""
        params = call.params
        if "program" in params:
            params = program_fields(call, self._loops)
        try:
            signature = calls.kernel(call.kernel)
            name = self._checked(signature, call, params)
        except CompileError as error:
            raise type(error)(describe(str(error), where=call.node.where())) from None
        return name, calls.struct_of(signature, {**params, **linked})

    def _checked(self, signature: Signature, call: KernelCall, params: Mapping[str, Any]) -> str:
        """The name of the exported kernel that makes a call which fits its signature.

        Raises:
            SignatureError: The call does not fit.
            UnsupportedOpError: There is no kernel for the dtype.
        """
        reads = [given(value) if value is not None else None for value in call.inputs]
        first, results = next((read for read in reads if read), NOTHING), len(signature.writes)
        type = calls.type_of(signature, first)
        calls.check_operands(signature, reads, [given(v) for v in call.outputs[:results]], type)
        stored = [(str(v.type.dtype), v.type.size) for v in call.outputs[results:]]
        calls.check_scratch(signature, params, first, stored)
        name = f"{call.kernel}_{type}" if type else call.kernel
        variant = variant_of(name, self._isa)
        return f"{name}_{variant}" if variant else name

    def _python(self, call: KernelCall) -> Unshared:
        """A Python function amid the kernels, on views of the memory that it reads and writes."""
        # Every executable has its own: the schedule is shared between clones.
        function: Any = copy.copy(call.params["function"])
        function.inputs = [self._memory(value) for value in call.inputs if value is not None]
        for view in function.inputs:
            view.setflags(write=False)
        function.outputs = [self._memory(value) for value in call.outputs]
        self.functions.append(function)
        self.viewed.update(view.ctypes.data for view in (*function.inputs, *function.outputs))
        struct = calls.struct_of(calls.kernel("python"), {"function": id(function)})
        return python_kernel(), [], [], struct.placed(), f"python, {call.node.where()}"

    def _packed(self, call: KernelCall) -> dict[int, tuple[Layout, Array]]:
        """The operands that the call reads packed: all that it can read so, or none."""
        results = {}
        layouts = layouts_of(call, self._isa)
        for key, layout in layouts.items():
            value = call.inputs[key]
            if value is not None and value.kind in FIXED:
                block = self._weight(value).packed(layout)
                if block is not None:
                    results[key] = layout, block
        if len(results) < len(layouts):
            return {}
        return {
            key: (layout, self._weight_memory(block)) for key, (layout, block) in results.items()
        }

    def _start(self, value: Value) -> Array:
        """The memory of a value, from its first byte on."""
        if value.kind in FIXED:
            return self._weight_memory(self._weight(value).plain)
        return self._place(value)

    def _weight_memory(self, block: WeightBlock) -> Array:
        self.blocks.add(block)
        return block.memory

    def _memory(self, value: Value) -> Array:
        return view_of(self._start(value), 0, value.type)


def _address(memory: Array) -> int:
    return memory.ctypes.data
