"""The memory layouts of packed weights: what the product kernels read, and the conversion back."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from functools import cache, cached_property
from typing import Any

import numpy as np

from rlx._ext import cpu as compiled
from rlx.abi.calls import kernel, struct_of
from rlx.abi.products import PACKINGS, SCHEMES
from rlx.dataclasses import dataclass
from rlx.ir.dtype import HALVES, DType
from rlx.ir.opdef import Array

# Bytes from which on the kernel for copies gains more than it takes to call it.
_LEAST = 1 << 16


@cache
def _kernels() -> dict[str, int]:
    """Returns the addresses of the kernels by name."""
    return compiled.kernels(compiled.isas()[0])


def call_kernel(name: str, type: str, params: Mapping[str, Any], *places: Array) -> None:
    """Calls a kernel on this thread, with an operand and a result."""
    words = struct_of(kernel(name), params).placed()
    addresses = [place.ctypes.data for place in (*places, words)]
    compiled.call_once(_kernels()[f"{name}_{type}"], *addresses)


def _copy(target: Array, source: Array) -> None:
    """Copies an array to one of the same shape, by the kernel for copies where it is large."""
    each = target.itemsize
    steps = [[step // each for step in array.strides] for array in (source, target)]
    plain = source.dtype == target.dtype and each in (1, 2, 4, 8) and source.ctypes.data % each == 0
    if not plain or target.nbytes < _LEAST or any(step % each for step in source.strides):
        target[...] = source
        return
    axes = [axis for axis, size in enumerate(target.shape) if size > 1]
    params = {
        "rank": len(axes), "dims": [target.shape[axis] for axis in axes],
        "source_steps": [steps[0][axis] for axis in axes], "target_steps": [steps[1][axis] for axis in axes],
    }  # fmt: skip
    call_kernel("strided_copy", f"b{each}", params, source, target)


class Layout(ABC):
    """An order of the elements of matrices. Two that are equal are the same.

    Attributes:
        matrices: How many matrices there are.
    """

    matrices: int

    @property
    @abstractmethod
    def stride(self) -> int:
        """Bytes from one matrix to the next."""

    @property
    def packing(self) -> str:
        """Names the packing in ``PACKINGS``."""
        return "same"

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self.matrices * self.stride

    @property
    def linked(self) -> dict[str, int]:
        """The fields of a kernel's signature that say how its operand is packed."""
        return {"packing": PACKINGS.index(self.packing), "packed_stride": self.stride}

    @abstractmethod
    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the matrices to memory of ``nbytes`` bytes, in this order."""

    def unpack(self, memory: Array, plain: Array) -> None:
        """The opposite: writes to an array of the matrices. Nobody asks it of transformed ones, which are kept plain besides."""
        raise NotImplementedError


class _Moved(Layout):
    """A layout whose parts are copied unchanged."""

    @abstractmethod
    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """Each part of the packed memory, beside the elements that it holds."""

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        for packed, part in self.moves(plain, memory):
            _copy(packed, part)

    def unpack(self, memory: Array, plain: Array) -> None:
        """See ``Layout``."""
        for packed, part in self.moves(plain, memory):
            part[...] = packed


@dataclass(frozen=True)
class Panels(_Moved):
    """Matrices in panels: some columns, row by row, one panel after the other (kernels/products/micro.h).

    Attributes:
        dtype: Of the elements.
        matrices: How many matrices there are.
        k: Rows of each.
        n: Columns of each.
        transposed: Whether they are ``[n, k]`` where they are not packed.
        columns: Panel width. The last panel is narrower: padded to a multiple of ``lanes``.
        lanes: Elements of a vector.
    """

    dtype: DType
    matrices: int
    k: int
    n: int
    transposed: bool
    columns: int
    lanes: int

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return self.k * (-(-self.n // self.lanes) * self.lanes) * self.dtype.itemsize

    @property
    def packing(self) -> str:
        """See ``Layout``."""
        return str(self.dtype) if self.dtype in HALVES else "same"

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """The whole panels, then the last one, each beside the elements in it."""
        shape = (
            (self.matrices, self.n, self.k) if self.transposed else (self.matrices, self.k, self.n)
        )
        whole = plain.reshape(shape)
        elements = memory[: self.matrices * self.stride]
        each = self.stride // self.dtype.itemsize
        packed = elements.view(self.dtype.numpy).reshape(self.matrices, each)
        full = self.n // self.columns
        edge = full * self.columns
        panels = packed[:, : edge * self.k].reshape(self.matrices, full, self.k, self.columns)
        if self.transposed:
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


@dataclass(frozen=True)
class TapPanels(_Moved):
    """Filters in panels: a matrix for each run of taps of each group (kernels/windows/conv_last.h).

    Its rows are the channels of the first tap, then those of the next, and its columns are outputs. 8 bytes behind the matrices
    tell whether all elements are finite.

    Attributes:
        dtype: Of the elements.
        groups: Groups of filters.
        outputs: Of a group.
        channels: Of a group.
        taps: Of a filter.
        joined: Taps of a run.
        columns: Panel width. The last panel is narrower: padded to a multiple of ``lanes``.
        lanes: Elements of a vector.
    """

    dtype: DType
    groups: int
    outputs: int
    channels: int
    taps: int
    joined: int
    columns: int
    lanes: int

    @property
    def matrices(self) -> int:  # type: ignore[override]
        """See ``Layout``."""
        return self.groups * self.taps // self.joined

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        columns = -(-self.outputs // self.lanes) * self.lanes
        return self.joined * self.channels * columns * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        """Returns the bytes of all matrices, and of what stands behind them."""
        return super().nbytes + 8

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """The whole panels, then the last one, each beside the elements in it."""
        runs, depth = self.taps // self.joined, (self.joined, self.channels)
        whole = plain.reshape(self.groups, self.outputs, self.channels, runs, self.joined)
        whole = whole.transpose(0, 3, 4, 2, 1)
        elements = memory[: self.matrices * self.stride].view(self.dtype.numpy)
        packed = elements.reshape(self.groups, runs, -1)
        full = self.outputs // self.columns
        edge, rows = full * self.columns, self.joined * self.channels
        panels = packed[..., : edge * rows].reshape(self.groups, runs, full, *depth, self.columns)
        some = whole[..., :edge].reshape(self.groups, runs, *depth, full, self.columns)
        yield panels, some.transpose(0, 1, 4, 2, 3, 5)
        if edge < self.outputs:
            last = packed[..., edge * rows :].reshape(self.groups, runs, *depth, -1)
            yield last[..., : self.outputs - edge], whole[..., edge:]

    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the matrices, and what stands behind them, to memory of ``nbytes`` bytes."""
        super().pack(plain, memory)
        memory[self.nbytes - 8 : self.nbytes].view(np.int64)[0] = np.isfinite(plain).all()


@dataclass(frozen=True)
class BytePanels(Layout):
    """Matrices of 8-bit integers in panels: for every column some rows side by side (kernels/products/integers.h).

    Before the rows of a panel stands the sum of each column. Unsigned values are 128 less.

    Attributes:
        signed: Whether the values are signed.
        matrices: How many matrices there are.
        k: Rows of each.
        n: Columns of each.
        columns: Panel width. The last panel is narrower: padded to a multiple of ``lanes``.
        lanes: Elements of a vector.
        deep: Rows side by side, a multiple of 4.
    """

    signed: bool
    matrices: int
    k: int
    n: int
    columns: int
    lanes: int
    deep: int

    @property
    def rows(self) -> int:
        """Rows of a panel, with those of zeros at its end."""
        return -(-self.k // self.deep) * self.deep

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return (self.rows + 4) * (-(-self.n // self.lanes) * self.lanes)

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        for sums, panel, part in self.moves(plain, memory):
            values = part.view(np.int8) if self.signed else (part ^ np.uint8(128)).view(np.int8)
            columns = part.shape[1]
            rows = np.zeros((self.rows, columns), np.int8)
            rows[: self.k] = values
            panel[:, :columns] = rows.reshape(-1, self.deep, columns).swapaxes(1, 2)
            sums[:columns] = values.sum(0, dtype=np.int32)[:, None].view(np.int8)

    def unpack(self, memory: Array, plain: Array) -> None:
        """See ``Layout``."""
        for _, panel, part in self.moves(plain, memory):
            columns = part.shape[1]
            rows = panel[:, :columns].swapaxes(1, 2).reshape(-1, columns)[: self.k]
            part[...] = rows if self.signed else rows.view(np.uint8) ^ np.uint8(128)

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array, Array]]:
        """The sums ``[columns, 4]`` and the rows ``[k / deep, columns, deep]`` of every panel, beside its columns."""
        whole = plain.reshape(self.matrices, self.k, self.n)
        packed = memory[: self.nbytes].view(np.int8).reshape(self.matrices, self.stride)
        for matrix, into in zip(whole, packed, strict=True):
            for j in range(0, self.n, self.columns):
                some = min(self.columns, -(-(self.n - j) // self.lanes) * self.lanes)
                panel = into[(self.rows + 4) * j :][: (self.rows + 4) * some]
                sums, rows = panel[: 4 * some], panel[4 * some :]
                columns = matrix[:, j : j + self.columns]
                yield sums.reshape(some, 4), rows.reshape(-1, some, self.deep), columns


@dataclass(frozen=True)
class BlockPanels(Layout):
    """A quantised matrix in panels of 16 rows, the same for every instruction set (kernels/products/block_forms.h).

    Attributes:
        scheme: Its format.
        n: Its rows.
        k: Weights of a row.
    """

    scheme: str
    n: int
    k: int
    matrices = 1

    @cached_property
    def stride(self) -> int:
        """See ``Layout``. It is 0 for a format that is not made into panels."""
        return compiled.panels_bytes(SCHEMES.index(self.scheme), self.n, self.k)

    @property
    def packing(self) -> str:
        """See ``Layout``."""
        return "blocks"

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        self._move(np.ascontiguousarray(plain), memory, False)

    def unpack(self, memory: Array, plain: Array) -> None:
        """See ``Layout``."""
        self._move(plain, memory, True)

    def _move(self, plain: Array, memory: Array, back: bool) -> None:
        args = SCHEMES.index(self.scheme), self.n, self.k, memory.ctypes.data, plain.ctypes.data
        compiled.move_blocks(*args, back)


@dataclass(frozen=True)
class Transposed(_Moved):
    """Matrices with rows and columns exchanged (kernels/windows/conv_transpose.h).

    Attributes:
        dtype: Of the elements.
        matrices: How many matrices there are.
        rows: Rows of each where they are not packed.
        columns: Columns of each where they are not packed.
    """

    dtype: DType
    matrices: int
    rows: int
    columns: int

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return self.rows * self.columns * self.dtype.itemsize

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """All matrices at once."""
        packed = memory[: self.nbytes].view(self.dtype.numpy)
        whole = plain.reshape(self.matrices, self.rows, self.columns)
        yield packed.reshape(self.matrices, self.columns, self.rows), whole.swapaxes(1, 2)


@dataclass(frozen=True)
class Gates(_Moved):
    """Weights of a recurrence: for each direction the panels of each of its products (kernels/recurrent/recurrent.h).

    Attributes:
        dtype: Of the elements.
        matrices: How many directions there are.
        hidden: Columns of the weights.
        products: Rows of the weights that each product takes, in their order.
        columns: Panel width. The last panel of a product is padded to it.
    """

    dtype: DType
    matrices: int
    hidden: int
    products: tuple[int, ...]
    columns: int

    def _panels(self) -> list[Panels]:
        """The layout of each product."""
        return [
            Panels(self.dtype, 1, self.hidden, rows, True, self.columns, self.columns)
            for rows in self.products
        ]

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return sum(panel.nbytes for panel in self._panels())

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """The parts of every product's panels."""
        pos = 0
        for direction in plain.reshape(self.matrices, sum(self.products), self.hidden):
            row = 0
            for panels in self._panels():
                rows = direction[row : row + panels.n]
                yield from panels.moves(rows, memory[pos : pos + panels.nbytes])
                row, pos = row + panels.n, pos + panels.nbytes


@dataclass(frozen=True)
class BytePairs(_Moved):
    """Weights in 8 bits, two rows of a column side by side, in panels (kernels/products/rounded.h).

    Attributes:
        matrices: How many matrices there are, each ``[sum(products), k]`` where it is not packed.
        k: Their columns, which are rows of the panels.
        products: Rows of a matrix that each product takes, in their order.
        columns: Panel width. The last panel of a product is padded to it.
    """

    matrices: int
    k: int
    products: tuple[int, ...]
    columns: int

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        panels = sum(-(-rows // self.columns) for rows in self.products)
        return panels * self.columns * 2 * -(-self.k // 2)

    def moves(self, plain: Array, memory: Array) -> Iterator[tuple[Array, Array]]:
        """The first rows of all pairs of a panel, then the second ones."""
        pairs = -(-self.k // 2)
        panels = memory[: self.nbytes].view(np.int8).reshape(-1, pairs, self.columns, 2)
        pos = 0
        for matrix in plain.reshape(self.matrices, sum(self.products), self.k):
            row = 0
            for rows in self.products:
                for j in range(row, row + rows, self.columns):
                    some = matrix[j : min(j + self.columns, row + rows)]
                    yield panels[pos, :, : len(some), 0], some[:, 0::2].T
                    yield panels[pos, : self.k // 2, : len(some), 1], some[:, 1::2].T
                    pos += 1
                row += rows
