"""Another sample rate for a signal that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DTypeLike
from rlx.ir.opdef import Array
from rlx.signal.analytic import polyphase
from rlx.signal.checks import integer
from rlx.signal.filters import banded
from rlx.signal.streaming.framed import Framed, Lead
from rlx.signal.window_functions import WindowLike


class StreamingResampler(Framed):
    """``resample_poly`` of a signal that arrives piece by piece.

    Results come as soon as the samples that they are made of are there, ``up`` of them at a time;
    ``flush`` gives the last ones. All of them together are those of ``resample_poly``.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        up: Factor up, >= 1.
        down: Factor down, >= 1.
        window: The window of the low-pass filter, or the filter's coefficients.
        block: Samples that one run takes at most; it is rounded up to a multiple of ``down`` (after
            common factors of ``up`` and ``down``). About 64 samples by default.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: The policy for samples that are NaN or infinite. "raise": ``push`` raises ``InputError``
            and takes nothing. "propagate": the results that they reach are NaN, and so may others be
            that one run makes. "skip": 0 stands for such a sample.

    Raises:
        InputError: A factor is below 1, or there is no such window.

    Example:
        >>> import numpy as np
        >>> stream = StreamingResampler((), up=2, down=5)
        >>> parts = [stream.push(np.ones(n, np.float32)) for n in (300, 0, 700)] + [stream.flush()]
        >>> np.concatenate(parts).shape
        (400,)
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        up: int,
        down: int,
        window: WindowLike = ("kaiser", 5.0),
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        nan: str = "raise",
    ) -> None:
        taps, up, down, middle = polyphase("StreamingResampler", up, down, window)
        # A frame is what ``up`` results are made of: samples low to high of a signal that begins at 0.
        first = middle + 1 - len(taps)
        low, high = -(-first // up), ((up - 1) * down + middle) // up
        block = 64 if block is None else integer("StreamingResampler", "block", block)
        block = -(-block // down) * down
        super().__init__(shape, high - low + 1, down, block, dtype, device, nan)
        self._up = up
        self._lead = Lead(self._where, -low, "constant", self._outer, self._dtype.numpy)
        self._front = -low
        whole, states = self._begin()
        result = banded(whole, taps[::-1], up, down, first - low * up, self._per_block * up)
        self._load(result, states)

    def push(self, samples: Any) -> Array:
        """Takes the next samples.

        Args:
            samples: Real numbers ``[..., n]``, any number of them.

        Returns:
            The part of the resampled signal that is known, ``[..., m]``; m may be 0.

        Raises:
            ShapeError: The samples have other leading dimensions.
            DTypeError: They are not real numbers.
            InputError: One is NaN or infinite, and ``nan`` is "raise"; the stream is as it was before.
        """
        return self._joined(self._take(samples))

    def flush(self) -> Array:
        """Ends the signal, which counts as 0 from there on. The next sample is a first one.

        Returns:
            The results that were still to come, ``[..., m]``.
        """
        args = self._intake.taken
        total = -(-args * self._up // self._hop)
        ready = self._frame * self._up
        # Zeros, until the last wanted result's frame is whole.
        frames = -(-total // self._up)
        missing = (frames - 1) * self._hop + self._length - self._front - args
        results: list[Array] = []
        if total > ready:
            results = self._feed(np.zeros((*self._outer, max(0, missing)), self._dtype.numpy))
        rest = self._joined(results)[..., : total - ready]
        self.reset()
        return rest

    def _make_frames(self, frames: int, retained: Array | None, more: bool) -> Array:
        # A sample that is left out counts as 0; the results are all there.
        return self._step()[..., : frames * self._up].copy()

    def _joined(self, results: list[Array]) -> Array:
        none = np.empty((*self._outer, 0), self._dtype.numpy)
        return np.concatenate([none, *results], -1)
