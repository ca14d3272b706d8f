"""Packed weights that are transformed: not copies of the elements, which are kept besides."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.abi.constants import WINOGRAD_POINTS
from rlx.backends.cpu.layouts import Panels, linked_fields
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array


class Spectra(NamedTuple):
    """Long filters as their Fourier transforms (kernels/windows/long_conv.h), computed in float64.

    Attributes:
        filters: How many filters there are.
        taps: Of each.
        block: Samples that they are transformed over.
    """

    filters: int
    taps: int
    block: int

    @property
    def nbytes(self) -> int:
        """Bytes of all spectra."""
        return self.filters * 2 * self.block * 4

    @property
    def linked(self) -> dict[str, int]:
        """The fields of a kernel's signature that say how its operand is packed."""
        return linked_fields("same", self.nbytes // self.filters)

    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the spectra to memory of ``nbytes`` bytes."""
        from rlx.ops.windows.fft_conv import spectra

        into = memory[: self.nbytes].view(np.float32).reshape(self.filters, -1)
        for spectrum, item in zip(into, plain.reshape(self.filters, 1, self.taps), strict=True):
            spectrum[...] = spectra(item, self.block)[0]

    def unpack(self, memory: Array, plain: Array) -> None:
        """The filters, but for rounding: the exact ones are always kept besides."""
        from rlx.ops.windows.fft_conv import filters_of

        packed = memory[: self.nbytes].view(np.float32).reshape(self.filters, -1)
        plain[...] = filters_of(packed, self.taps).reshape(plain.shape)


class TileFilters(NamedTuple):
    """3x3 filters at the points of tiles (kernels/windows/winograd.h), computed in float64.

    For each group and point there is a matrix of channels times outputs, in panels.

    Attributes:
        groups: How many groups there are.
        channels: Of a group.
        outputs: Of a group.
        columns: Panel width. The last panel is narrower: padded to a multiple of ``lanes``.
        lanes: Elements of a vector.
    """

    groups: int
    channels: int
    outputs: int
    columns: int
    lanes: int

    @property
    def _panels(self) -> Panels:
        matrices = self.groups * WINOGRAD_POINTS
        sizes = self.channels, self.outputs
        return Panels(DType.F32, matrices, *sizes, True, self.columns, self.lanes)

    @property
    def nbytes(self) -> int:
        """Bytes of all matrices."""
        return self._panels.nbytes

    @property
    def linked(self) -> dict[str, int]:
        """The fields of a kernel's signature that say how its operand is packed."""
        return self._panels.linked

    def pack(self, plain: Array, memory: Array) -> None:
        """Writes the filters at all points to memory of ``nbytes`` bytes."""
        from rlx.ops.windows.winograd import filters_at_points

        points = filters_at_points(plain.reshape(-1, 3, 3))
        whole = points.reshape(self.groups, self.outputs * self.channels, WINOGRAD_POINTS)
        self._panels.pack(whole.swapaxes(1, 2), memory)

    def unpack(self, memory: Array, plain: Array) -> None:
        """The filters, but for rounding: the exact ones are always kept besides."""
        from rlx.ops.windows.winograd import filters_of

        count = self.outputs * self.channels
        points = np.empty((self.groups, WINOGRAD_POINTS, count), np.float32)
        self._panels.unpack(memory, points)
        filters = filters_of(points.swapaxes(1, 2).reshape(-1, WINOGRAD_POINTS))
        plain[...] = filters.reshape(plain.shape)
