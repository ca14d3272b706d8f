"""Elementwise programs as parameters of the C kernel ``elementwise``: registers, blocks and loops."""

from __future__ import annotations

import math
import struct
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, cast

from rlx.abi.constants import LARGEST_BLOCK, REGISTER_BYTES
from rlx.abi.elementwise import MODES
from rlx.errors import UnsupportedOpError
from rlx.ir.dtype import DType
from rlx.ir.plan import KernelCall
from rlx.ir.shape import Shape, broadcast_strides, collapse, size, strides
from rlx.sizes import SizeExpr

_DIRECT, _SCALAR, _STRIDED = map(MODES.index, ("direct", "scalar", "strided"))


def program_fields(call: KernelCall, loops: Mapping[str, int]) -> dict[str, Any]:
    """The parameters of one program.

    Args:
        call: A call of the kernel "elementwise".
        loops: Addresses of the compiled loops.

    Returns:
        The fields of its signature.
    """
    shapes: Sequence[Any] = call.params["shapes"]
    shape: Any = call.params["shape"]
    dtypes = [value.type.dtype for value in call.inputs if value is not None]
    count = len(dtypes)
    program = _clipped(call.params["program"], count)

    walks = [broadcast_strides(operand, shape) for operand in shapes]
    dims, merged = collapse(shape, strides(shape), *walks)
    modes = []
    for operand, walk in zip(shapes, merged[1:], strict=True):
        # A dimension of size 1 hides nothing: equal sizes mean equal walks.
        direct = not _repeats(operand, shape) and size(operand) == size(shape)
        modes.append(_DIRECT if direct else _STRIDED if any(walk) else _SCALAR)

    registers = _Registers(count, program)
    places = []
    for index, mode in enumerate(modes):
        places.append(registers.reserve() if mode != _DIRECT else 0)
        registers.place[index] = places[index]
    literals = []
    for index, (op, _, dtype, value) in enumerate(program):
        if op == "literal":
            registers.place[count + index] = registers.reserve()
            literals.append((dtype.itemsize, registers.place[count + index], _bits(value, dtype)))
        dtypes.append(dtype)
    steps = [
        _step(i, step, program, dtypes, registers, loops, call)
        for i, step in enumerate(program)
        if step[0] != "literal"
    ]
    output = call.outputs[0].type
    return {
        "inputs": count,
        "literals": len(literals),
        "steps": len(steps),
        "count": output.size,
        "result_bytes": output.dtype.itemsize,
        "rank": len(dims),
        "block": min(LARGEST_BLOCK, REGISTER_BYTES // 8 // max(1, registers.used) // 64 * 64),
        "dims": dims,
        "modes": tuple(modes),
        "input_bytes": tuple(dtype.itemsize for dtype in dtypes[:count]),
        "input_registers": tuple(places),
        "strides": tuple(step for walk in merged[1:] for step in walk),
        "literal_bytes": tuple(nbytes for nbytes, _, _ in literals),
        "literal_registers": tuple(register for _, register, _ in literals),
        "literal_bits": tuple(bits for _, _, bits in literals),
        "loops": tuple(loop for loop, _, _ in steps),
        "targets": tuple(target for _, target, _ in steps),
        "operands": tuple(operand for _, _, operands in steps for operand in operands),
    }


def _repeats(operand: Shape, shape: Shape) -> bool:
    """Returns whether an axis of 1 stands for one of any size; its walk is right for a size of 1, too."""
    beyond = len(shape) - len(operand)
    axes = zip((*(1,) * beyond, *operand), shape, strict=True)
    return any(type(own) is int and own == 1 and isinstance(n, SizeExpr) for own, n in axes)


def _clipped(program: Sequence[Any], count: int) -> Sequence[Any]:
    """The program with one step in place of a maximum and a minimum with literals, the first below the second.

    Args:
        program: Steps.
        count: Operands that come before them in the numbering.
    """

    def literal(operand: int) -> Any:
        step = program[operand - count] if operand >= count else (None,) * 4
        return step[3] if step[0] == "literal" else math.nan

    readers = Counter(operand for step in program for operand in step[1])
    result, dropped = list(program), set()
    for index, (op, operands, dtype, _) in enumerate(program):
        inner = program[operands[0] - count] if op == "minimum" and operands[0] >= count else None
        if inner is None or inner[0] != "maximum" or readers[operands[0]] > 1:
            continue
        x, low = inner[1]
        if dtype.is_float and literal(low) < literal(operands[1]):
            result[index] = ("clip", (x, low, operands[1]), dtype, None)
            dropped.add(operands[0])
    retained = [
        *range(count),
        *(count + i for i in range(len(program)) if count + i not in dropped),
    ]
    number = {old: new for new, old in enumerate(retained)}
    return [
        (op, tuple(number[o] for o in operands), dtype, value)
        for i, (op, operands, dtype, value) in enumerate(result)
        if count + i not in dropped
    ]


def _step(
    index: int,
    step: Any,
    program: Sequence[Any],
    dtypes: Sequence[DType],
    registers: _Registers,
    loops: Mapping[str, int],
    call: KernelCall,
) -> tuple[int, int, tuple[int, ...]]:
    """The address of a step's loop, the register of its result (-1: the result itself), and its operands.

    Operands below the number of inputs are inputs, the others registers, counted on from there.
    """
    op, operands, dtype, _ = step
    count = len(dtypes) - len(program)
    source = [o if o < count else count + registers.place[o] for o in operands]
    target = -1 if index == len(program) - 1 else registers.take(count + index)
    registers.release(index, operands)
    name = _loop_name(op, [dtypes[o] for o in operands], dtype)
    if name not in loops:
        what = f"the CPU has no loop {name!r}"
        raise UnsupportedOpError(what, where=call.node.where())
    # A loop takes three operands, whether it reads them or not.
    return loops[name], target, (*source, *[source[0]] * (3 - len(source)))


class _Registers:
    """Registers of a program: a step's is free again after its last reader."""

    def __init__(self, inputs: int, program: Sequence[Any]) -> None:
        self.place: dict[int, int] = {}
        self.used = 0
        self._free: list[int] = []
        self._inputs = inputs
        self._last = {o: i for i, step in enumerate(program) for o in step[1]}
        self._fixed: set[int] = {
            inputs + i for i, step in enumerate(program) if step[0] == "literal"
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

    def release(self, index: int, operands: Sequence[int]) -> None:
        """Gives back the registers of steps that ``index`` was the last to read."""
        for operand in set(operands):
            step = operand >= self._inputs and operand not in self._fixed
            if step and self._last[operand] == index:
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
    """The bytes of a literal as a 64-bit word; a size stands for itself."""
    if isinstance(value, SizeExpr) and dtype is DType.I64:
        return cast(int, value)
    return int.from_bytes(
        struct.pack(_FORMATS[dtype], value).ljust(8, b"\0"), "little", signed=True
    )
