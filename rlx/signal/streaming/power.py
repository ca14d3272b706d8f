"""Power spectra and band powers of a signal that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.bands import Bands, of_bands
from rlx.signal.spectrum import Estimate, Segments, segment_powers
from rlx.signal.streaming.averages import Average, average_of
from rlx.signal.streaming.framed import Framed
from rlx.signal.window_functions import WindowLike


class _Averaged(Framed):
    """A stream that gives something of the average of its frames."""

    def _average(
        self,
        mean: Average,
        settings: Estimate,
        cut: Segments,
        finish: Callable[[Node], Node] = lambda power: power,
    ) -> None:
        """Builds the graph: ``finish`` of the mean power of the segments."""
        self._mean = mean
        whole, states = self._begin()
        power, more = mean.build(segment_powers(whole, cut, settings, self._where))
        if power.dtype is not self._dtype:
            power = power.graph.cast(power, self._dtype)
        result = finish(power)
        self._none = np.full(result.shape, np.nan, self._dtype.numpy)
        self._load(result, {**states, **more})

    def reset(self) -> None:
        """Forgets everything: the next sample is the first one."""
        super().reset()
        self._mean.reset()
        self._counted, self._latest = 0, self._none

    @property
    def segments(self) -> int:
        """Segments that were averaged so far."""
        return self._counted

    def push(self, samples: Any) -> Array:
        """Takes the next samples.

        Args:
            samples: Real numbers ``[..., n]``, any number of them.

        Returns:
            The average after them; NaN as long as there is no whole segment.

        Raises:
            ShapeError: The samples have other leading dimensions.
            DTypeError: They are not real numbers.
            InputError: One is NaN or infinite, and ``nan`` is "raise"; the stream is as it was before.
        """
        if result := self._take(samples):
            self._latest = result[-1]
        return self._latest.copy()

    def _make_frames(self, frames: int, retained: Array | None, more: bool) -> Array:
        which = range(frames) if retained is None else np.flatnonzero(retained).tolist()
        self._mean.plan(self._settings, which)
        self._counted += len(which)
        view = self._step(wanted=not more)
        return view.copy() if self._counted else self._none


class StreamingWelch(_Averaged):
    """``welch`` of a signal that arrives piece by piece: an average over its segments so far.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: Samples per segment.
        noverlap: Samples that neighbouring segments share; half a segment by default.
        nfft: Length of the transform.
        detrend: See ``welch``.
        scaling: See ``welch``.
        block: Samples that one run takes at most, a multiple of nperseg - noverlap, which is the
            default.
        dtype: "f32" or "f64".
        device: Where it runs.
        average: "mean" of all segments so far, which is what ``welch`` gives; "exponential": y = P of
            the first segment, then (1 - alpha) y + alpha P; "sliding": the mean of the last segments.
        alpha: Weight of the newest segment for "exponential", above 0 and at most 1.
        last: Number of segments for "sliding".
        nan: The policy for samples that are NaN or infinite. "raise": ``push`` raises ``InputError``
            and takes nothing. "propagate": the average is NaN, with "sliding" until the segment is no
            longer among the last. "skip": segments that hold one, in any channel, are left out.

    Raises:
        InputError: A setting has no such value.

    Example:
        >>> import numpy as np
        >>> stream = StreamingWelch(1, fs=256, average="sliding", last=4)
        >>> wave = np.sin(2 * np.pi * 10 * np.arange(1000) / 256)
        >>> int(stream.push(wave[None, :700])[0].argmax()), stream.segments
        (10, 4)
    """

    def __init__(  # noqa: PLR0913 - a public signature
        self,
        shape: int | Sequence[int],
        fs: float = 1.0,
        window: WindowLike = "hann",
        nperseg: int = 256,
        noverlap: int | None = None,
        nfft: int | None = None,
        detrend: str | bool = "constant",
        scaling: str = "density",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        average: str = "mean",
        alpha: float | None = None,
        last: int | None = None,
        nan: str = "raise",
    ) -> None:
        settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend, scaling)
        cut = settings.segments(nperseg, "StreamingWelch")
        super().__init__(shape, cut.length, cut.hop, block, dtype, device, nan)
        self._average(average_of(self._where, average, alpha, last, self._wide()), settings, cut)


class StreamingBandPower(_Averaged):
    """``band_power`` of a signal that arrives piece by piece.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        bands: Bands in Hz, see ``band_power``.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: Samples per segment.
        noverlap: Samples that neighbouring segments share; half a segment by default.
        nfft: Length of the transform.
        detrend: See ``welch``.
        block: See ``StreamingWelch``.
        dtype: "f32" or "f64".
        device: Where it runs.
        average: See ``StreamingWelch``.
        alpha: See ``StreamingWelch``.
        last: See ``StreamingWelch``.
        nan: See ``StreamingWelch``.

    Raises:
        InputError: A setting has no such value.

    Example:
        >>> import numpy as np
        >>> stream = StreamingBandPower(1, [(8, 13), (13, 30)], fs=256)
        >>> wave = np.sin(2 * np.pi * 10 * np.arange(1000) / 256)
        >>> stream.push(wave[None]).round(3).tolist()
        [[0.5, 0.0]]
    """

    def __init__(  # noqa: PLR0913 - a public signature
        self,
        shape: int | Sequence[int],
        bands: Bands,
        fs: float = 1.0,
        window: WindowLike = "hann",
        nperseg: int = 256,
        noverlap: int | None = None,
        nfft: int | None = None,
        detrend: str | bool = "constant",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        average: str = "mean",
        alpha: float | None = None,
        last: int | None = None,
        nan: str = "raise",
    ) -> None:
        settings = Estimate(fs, window, nperseg, noverlap, nfft, detrend)
        cut = settings.segments(nperseg, "StreamingBandPower")
        super().__init__(shape, cut.length, cut.hop, block, dtype, device, nan)
        mean = average_of(self._where, average, alpha, last, self._wide())
        self._average(mean, settings, cut, lambda power: of_bands(power, bands, fs, cut.n_fft))
