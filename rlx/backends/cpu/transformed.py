"""Packed weights that are transformed: not copies of the elements, which are kept besides."""

from __future__ import annotations

import numpy as np

from rlx.abi.constants import WINOGRAD_POINTS
from rlx.backends.cpu.layouts import Layout, Panels, call_kernel
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

    def pack(self, plain: Array, memory: Array) -> None:
        """See ``Layout``."""
        taps = np.zeros(self._taps.nbytes, np.uint8)
        self._taps.pack(plain.reshape(self.groups, -1, 9).swapaxes(1, 2), taps)
        sizes = {"groups": self.groups, "count": self.stride // 4}
        call_kernel("winograd_filters", "f32", sizes, taps, memory)
