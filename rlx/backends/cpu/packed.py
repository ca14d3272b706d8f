"""Weights in the order in which the kernels of products read them: which ones, how, and their memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx._ext import cpu as compiled
from rlx.backends.cpu.memory import aligned, view_of
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array
from rlx.ir.plan import Call, Schedule, Value
from rlx.ir.shape import size
from rlx.ops.convolution import is_few

# Kinds of values that have memory of their own, which clones share.
FIXED = ("param", "constant")
# Elements of a weight below which packing gains nothing.
_LEAST = 1024


class Layout(NamedTuple):
    """Matrices in panels: some columns, row by row, one panel after the other (kernels/micro.h).

    Attributes:
        dtype: Of the elements.
        matrices: How many matrices there are.
        k: Rows of each.
        n: Columns of each.
        turned: Whether they stand as ``[n, k]`` where they are not packed.
        columns: Of a panel. The last one has only as many as it needs,
        lanes: in whole vectors of so many.
    """

    dtype: DType
    matrices: int
    k: int
    n: int
    turned: bool
    columns: int
    lanes: int

    @property
    def each(self) -> int:
        """Elements from one matrix to the next."""
        return self.k * (-(-self.n // self.lanes) * self.lanes)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.matrices * self.each * self.dtype.itemsize

    def params(self) -> dict[str, int]:
        """What the kernel has to know."""
        return {"packed": 1, "each": self.each}

    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the panels of the matrices to memory of ``nbytes`` bytes."""
        for panels, part in self._parts(plain, memory):
            panels[...] = part

    def unpack(self, memory: Array, plain: Array) -> None:
        """The opposite: writes to an array of the matrices."""
        for panels, part in self._parts(plain, memory):
            part[...] = panels

    def _parts(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """The whole panels, then the last one, each beside the elements in it."""
        shape = (self.matrices, self.n, self.k) if self.turned else (self.matrices, self.k, self.n)
        whole = plain.reshape(shape)
        packed = memory[: self.nbytes].view(self.dtype.numpy).reshape(self.matrices, self.each)
        full = self.n // self.columns
        edge = full * self.columns
        panels = packed[:, : edge * self.k].reshape(self.matrices, full, self.k, self.columns)
        if self.turned:
            some = whole[:, :edge].reshape(self.matrices, full, self.columns, self.k)
            yield panels, some.swapaxes(2, 3)
            rest = whole[:, edge:].swapaxes(1, 2)
        else:
            some = whole[:, :, :edge].reshape(self.matrices, self.k, full, self.columns)
            yield panels, some.swapaxes(1, 2)
            rest = whole[:, :, edge:]
        if edge < self.n:
            last = packed[:, edge * self.k :].reshape(self.matrices, self.k, -1)
            yield last[..., : self.n - edge], rest


class Filters(NamedTuple):
    """The left matrices of convolutions: some columns of all rows, then the next ones.

    Rows of them that are made together stand side by side (kernels/micro.h, micro_rows).

    Attributes:
        dtype: Of the elements.
        matrices: How many matrices there are.
        m: Rows of each.
        k: Columns of each.
        deep: Columns that stand together.
    """

    dtype: DType
    matrices: int
    m: int
    k: int
    deep: int

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.matrices * self.m * self.k * self.dtype.itemsize

    def params(self) -> dict[str, int]:
        """What the kernel has to know."""
        return {"packed": 1}

    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the matrices to memory of ``nbytes`` bytes."""
        for together, part in self._parts(plain, memory):
            together[...] = part

    def unpack(self, memory: Array, plain: Array) -> None:
        """The opposite: writes to an array of the matrices."""
        for together, part in self._parts(plain, memory):
            part[...] = together

    def _parts(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """Rows that are made together, beside where they stand in the matrices."""
        whole = plain.reshape(self.matrices, self.m, self.k)
        packed = memory[: self.nbytes].view(self.dtype.numpy).reshape(self.matrices, -1)
        at = 0
        for p in range(0, self.k, self.deep):
            depth = min(self.deep, self.k - p)
            row = 0
            for rows, times in _together(self.m):
                end = at + rows * times * depth
                blocks = packed[:, at:end].reshape(self.matrices, times, depth, rows)
                part = whole[:, row : row + rows * times, p : p + depth]
                part = part.reshape(self.matrices, times, rows, depth)
                yield blocks, part.swapaxes(2, 3)
                row, at = row + rows * times, end


def _together(rows: int) -> list[tuple[int, int]]:
    """How many rows the micro-kernel makes together, and how many times, from the first to the last."""
    sixes, rest = (rows - 8) // 6 if rows % 6 == 2 and rows > 2 else rows // 6, 0
    rest = rows - 6 * sixes
    found = [(6, sixes)] if sixes else []
    for some in (4, 2, 1):
        if rest // some:
            found.append((some, rest // some))
        rest %= some
    return found


AnyLayout = Layout | Filters


def _panels(dtype: DType, matrices: int, k: int, n: int, turned: bool, isa: str) -> Layout:
    """Panels as wide as an instruction set reads them."""
    width, vectors = compiled.panel(isa)
    lanes = width // dtype.itemsize
    return Layout(dtype, matrices, k, n, turned, vectors * lanes, lanes)


def _matmul(call: Call, isa: str) -> dict[int, AnyLayout]:
    p, weight = call.params, call.inputs[1]
    assert weight is not None
    each = p["k"] * p["n"]
    if not each or weight.type.size % each:
        return {}
    count = weight.type.size // each
    return {1: _panels(weight.type.dtype, count, p["k"], p["n"], bool(p["turned"]), isa)}


def _conv(call: Call, isa: str) -> dict[int, AnyLayout]:
    p, weight = call.params, call.inputs[1]
    assert weight is not None
    if not weight.type.size:
        return {}
    dtype, groups = weight.type.dtype, p["parts"]
    m, k = p["outputs"] // groups, weight.type.size // p["outputs"]
    if is_few(p):
        return {1: _panels(dtype, groups, k, m, True, isa)}
    return {1: Filters(dtype, groups, m, k, p["deep"])}


# Which operands a kernel can read packed, and in which layout.
READERS: Mapping[str, Callable[[Call, str], dict[int, AnyLayout]]] = {
    "matmul": _matmul,
    "conv": _conv,
}


def layouts_of(call: Call, isa: str) -> dict[int, AnyLayout]:
    """The operands of a call that may be packed, with their layouts."""
    reader = READERS.get(call.kernel)
    return reader(call, isa) if reader else {}


class Weight:
    """A param or constant in memory: as it is, packed, or both where it is read in both ways.

    Args:
        value: The param or constant.
        layout: How it is packed; None for not at all.
        plain: Whether it is also kept as it is.
    """

    def __init__(self, value: Value, layout: AnyLayout | None = None, plain: bool = True) -> None:
        self._type, self.layout = value.type, layout
        self._packed = aligned(max(1, layout.nbytes)) if layout else None
        self._plain = aligned(max(1, self._type.nbytes)) if plain or not layout else None
        if value.array is not None:
            self.set(value.array)

    @property
    def nbytes(self) -> int:
        """Bytes of all copies."""
        return sum(memory.nbytes for memory in (self._plain, self._packed) if memory is not None)

    @property
    def plain(self) -> Array:
        """Its memory as it is. Whoever asks for it first makes it."""
        if self._plain is None:
            self._plain = aligned(max(1, self._type.nbytes))
            view_of(self._plain, 0, self._type)[...] = self.read()
        return self._plain

    def packed(self, layout: AnyLayout | None) -> Array | None:
        """Its memory in a layout; None where it is not packed like this."""
        return self._packed if layout is not None and layout == self.layout else None

    def set(self, array: Any) -> None:
        """Copies values to where the kernels read them."""
        if self._plain is not None:
            view_of(self._plain, 0, self._type)[...] = array
        if self._packed is not None:
            assert self.layout is not None
            given = np.asarray(array, self._type.dtype.numpy)
            self.layout.pack(np.broadcast_to(given, self._type.shape), self._packed)

    def read(self) -> Array:
        """A copy of the values."""
        if self._plain is not None:
            return view_of(self._plain, 0, self._type).copy()
        assert self.layout is not None
        assert self._packed is not None
        values: Array = np.empty(self._type.shape, self._type.dtype.numpy)
        self.layout.unpack(self._packed, values)
        return values


def weights_for(schedule: Schedule, isa: str) -> dict[int, Weight]:
    """Memory for the params and constants of a schedule, by value id."""
    reads: dict[int, list[AnyLayout | None]] = {}
    for call in schedule.calls:
        layouts = layouts_of(call, isa)
        for at, value in enumerate(call.inputs):
            if value is not None and value.kind in FIXED:
                reads.setdefault(value.id, []).append(layouts.get(at))
    found = {}
    for value in schedule.values:
        if value.kind in FIXED:
            found[value.id] = _weight(value, reads.get(value.id, ()))
    return found


def _weight(value: Value, reads: Sequence[AnyLayout | None]) -> Weight:
    """Packed once where all who read it can do so; beside it where a product of many elements can."""
    wanted = [layout for layout in reads if layout is not None]
    if not wanted or size(value.type.shape) < _LEAST:
        return Weight(value)
    return Weight(value, wanted[0], any(layout != wanted[0] for layout in reads))
