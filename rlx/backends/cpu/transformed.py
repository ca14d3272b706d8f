"""Packed weights that are transformed: not copies of the elements, which are kept besides."""

from __future__ import annotations

import numpy as np

from rlx.abi.constants import WINOGRAD_POINTS
from rlx.backends.cpu.layouts import Layout, Panels
from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.opdef import Array


@dataclass(frozen=True)
class Spectra(Layout):
    """Long filters as their Fourier transforms (kernels/windows/long_conv.h), computed in float64.

    Attributes:
        matrices: How many filters there are.
        taps: Of each.
        block: Samples that they are transformed over.
    """

    matrices: int
    taps: int
    block: int

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return 2 * self.block * 4

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        from rlx.ops.windows.fft_conv import spectra

        into = memory[: self.nbytes].view(np.float32).reshape(self.matrices, -1)
        for spectrum, item in zip(into, plain.reshape(self.matrices, 1, self.taps), strict=True):
            spectrum[...] = spectra(item, self.block)[0]

    def unpack(self, memory: Array, plain: Array) -> None:
        """The filters, but for rounding: the exact ones are always kept besides."""
        from rlx.ops.windows.fft_conv import filters_of

        packed = memory[: self.nbytes].view(np.float32).reshape(self.matrices, -1)
        plain[...] = filters_of(packed, self.taps).reshape(plain.shape)


@dataclass(frozen=True)
class TileFilters(Layout):
    """3x3 filters at the points of tiles (kernels/windows/winograd_last.h), computed in float64.

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
    def _taps(self) -> Panels:
        """The filters as they are, a matrix for each tap, in the same order."""
        sizes = self.channels, self.outputs
        return Panels(DType.F32, self.groups * 9, *sizes, True, self.columns, self.lanes)

    @property
    def matrices(self) -> int:  # type: ignore[override]
        """See ``Layout``."""
        return self.groups * WINOGRAD_POINTS

    @property
    def stride(self) -> int:
        """See ``Layout``."""
        return self._taps.stride

    def _groups(self, memory: Array, matrices: int) -> Array:
        """The matrices of each group, as rows: ``[groups, matrices, elements]``."""
        elements = memory[: self.groups * matrices * self.stride].view(np.float32)
        return elements.reshape(self.groups, matrices, -1)

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        from rlx.ops.windows.winograd import to_points

        taps = np.zeros(self._taps.nbytes, np.uint8)
        self._taps.pack(plain.reshape(self.groups, -1, 9).swapaxes(1, 2), taps)
        to_points(self._groups(taps, 9), self._groups(memory, WINOGRAD_POINTS))

    def unpack(self, memory: Array, plain: Array) -> None:
        """The filters, but for rounding: the exact ones are always kept besides."""
        from rlx.ops.windows.winograd import from_points

        taps = np.empty(self._taps.nbytes, np.uint8)
        from_points(self._groups(memory, WINOGRAD_POINTS), self._groups(taps, 9))
        filters = np.empty((self.groups, 9, self.outputs * self.channels), np.float32)
        self._taps.unpack(taps, filters)
        plain[...] = filters.swapaxes(1, 2).reshape(plain.shape)
