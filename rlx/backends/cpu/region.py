"""Elementwise programs as parameters of the C kernel ``region``: registers, blocks and loops."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.errors import UnsupportedOpError, describe
from rlx.ir.dtype import DType
from rlx.ir.plan import Call
from rlx.ir.shape import broadcast_strides, collapse, size, strides

# cython_src/kernels/elementwise/elementwise.h has the same figures.
REGION_BYTES = 49152
DIRECT, SCALAR, STRIDED = 0, 1, 2
_LARGEST_BLOCK = 1024


def region_params(call: Call, loops: Mapping[str, int]) -> list[int]:
    """The parameters of one region.

    Args:
        call: A call of the kernel "elementwise".
        loops: Addresses of the compiled loops.

    Returns:
        64-bit words in the order that ``elementwise.h`` states.
    """
    program: Sequence[Any] = call.params["program"]
    shapes: Sequence[Any] = call.params["shapes"]
    shape: Any = call.params["shape"]
    dtypes = [value.type.dtype for value in call.inputs if value is not None]
    count = len(dtypes)

    steps = [broadcast_strides(operand, shape) for operand in shapes]
    dims, merged = collapse(shape, strides(shape), *steps)
    modes = []
    for operand, walk in zip(shapes, merged[1:], strict=True):
        # A dimension of size 1 hides nothing: equal sizes mean equal walks.
        direct = size(operand) == size(shape)
        modes.append(DIRECT if direct else STRIDED if any(walk) else SCALAR)

    registers = _Registers(count, program)
    inputs: list[int] = []
    for at, (mode, dtype) in enumerate(zip(modes, dtypes, strict=True)):
        register = registers.reserve() if mode != DIRECT else 0
        registers.place[at] = register
        inputs += [mode, dtype.itemsize, register, *merged[1 + at]]
    literals: list[int] = []
    lines: list[int] = []
    for at, (op, _, dtype, value) in enumerate(program):
        if op == "literal":
            register = registers.reserve()
            registers.place[count + at] = register
            literals += [dtype.itemsize, register, _bits(value, dtype)]
            dtypes.append(dtype)
        else:
            dtypes.append(dtype)
    for at, (op, operands, dtype, _) in enumerate(program):
        if op == "literal":
            continue
        last = at == len(program) - 1
        source = [o if o < count else count + registers.place[o] for o in operands]
        register = -1 if last else registers.take(count + at)
        registers.release(at, operands)
        name = _loop_name(op, [dtypes[o] for o in operands], dtype)
        if name not in loops:
            what = f"the CPU has no loop {name!r}"
            raise UnsupportedOpError(describe(what, where=call.node.where()))
        loop = loops[name]
        padded = [*source, *[source[0]] * (3 - len(source))]
        lines += [loop, register, *padded]
    block = min(_LARGEST_BLOCK, REGION_BYTES // 8 // max(1, registers.used) // 64 * 64)
    output = call.outputs[0].type
    head = [
        count,
        len(literals) // 3,
        len(lines) // 5,
        output.size,
        output.dtype.itemsize,
        len(dims),
        block,
    ]
    return [*head, *dims, *inputs, *literals, *lines]


class _Registers:
    """Registers of a program: a step's is free again after its last reader."""

    def __init__(self, inputs: int, program: Sequence[Any]) -> None:
        self.place: dict[int, int] = {}
        self.used = 0
        self._free: list[int] = []
        self._inputs = inputs
        self._last = {o: at for at, step in enumerate(program) for o in step[1]}
        self._fixed: set[int] = {
            inputs + at for at, step in enumerate(program) if step[0] == "literal"
        }

    def reserve(self) -> int:
        """A register that is never given back: filled once, or once a block."""
        self.used += 1
        return self.used - 1

    def take(self, value: int) -> int:
        """A register for the result of a step."""
        register = self._free.pop() if self._free else self.reserve()
        self.place[value] = register
        return register

    def release(self, at: int, operands: Sequence[int]) -> None:
        """Gives back the registers of steps that ``at`` was the last to read."""
        for operand in set(operands):
            step = operand >= self._inputs and operand not in self._fixed
            if step and self._last[operand] == at:
                self._free.append(self.place[operand])


def _loop_name(op: str, operands: Sequence[DType], result: DType) -> str:
    if op == "cast":
        return f"cast_{operands[0]}_{result}"
    return f"where_{result}" if op == "where" else f"{op}_{operands[0]}"


_FORMATS = {
    DType.F32: "<f",
    DType.F64: "<d",
    DType.I32: "<i",
    DType.U32: "<I",
    DType.I64: "<q",
    DType.BOOL: "<?",
}


def _bits(value: Any, dtype: DType) -> int:
    """The bytes of a literal as a 64-bit word."""
    return int.from_bytes(
        struct.pack(_FORMATS[dtype], value).ljust(8, b"\0"), "little", signed=True
    )
