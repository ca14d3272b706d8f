"""A filter over a signal that arrives piece by piece."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import real_numbers
from rlx.signal.coefficients import sections_of, taps_of
from rlx.signal.filters import convolution, is_finite
from rlx.signal.framing import narrow
from rlx.signal.streaming.stream import Stream, dimensions


class StreamingFilter(Stream):
    """``sosfilt`` or ``lfilter`` of a signal that arrives piece by piece: as many results as samples.

    On devices that compute f64 the state of a recursive filter is f64 for signals of f32, too, so that
    the results do not depend on how the signal is cut.

    Args:
        shape: Leading dimensions of the samples, then how many of them one run takes at most. Longer
            pieces take several runs.
        sos: Second-order sections, ``[sections, 6]``; or instead of them
        b: numerator coefficients, and
        a: denominator coefficients.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: The policy for samples that are NaN or infinite. "raise": ``push`` raises ``InputError``
            and takes nothing. "propagate": results are those of ``sosfilt`` and ``lfilter``; a recursive
            filter gives NaN from then on, until ``reset()``. "skip": the last good value of the channel
            stands for such a sample, 0 before the first one.

    Raises:
        InputError: Neither or both kinds of coefficients were given, or they are no filter.

    Example:
        >>> import numpy as np
        >>> stream = StreamingFilter((16,), b=[0.5, 0.5])
        >>> [stream.push(np.ones(n, np.float32)).tolist() for n in (2, 0, 1)]
        [[0.5, 1.0], [], [1.0]]
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        sos: Any = None,
        b: Any = None,
        a: Any = 1.0,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
        nan: str = "raise",
    ) -> None:
        if (sos is None) == (b is None):
            raise InputError("[StreamingFilter] coefficients", expected="either sos, or b and a")
        *outer, self._block = dimensions("StreamingFilter", shape) or (0,)
        super().__init__(outer, dtype, device, nan)
        if self._block < 1:
            raise InputError(
                "[StreamingFilter] shape",
                got=shape,
                expected="leading dimensions, then samples per run, at least 1",
            )
        g = Graph("StreamingFilter")
        x = g.input("block", (*outer, self._block), self._dtype)
        if sos is not None:
            rows = sections_of("StreamingFilter", sos)
            state = (len(rows), *outer, 2)
            y, after = self._recursive(x, state, lambda x, zi, count: g.sosfilt(x, rows, zi, count))
        else:
            b, a = taps_of("StreamingFilter", b, a)
            state = (*outer, max(len(b), len(a)) - 1)
            y, after = (
                self._finite(x, b / a[0], state)
                if is_finite(b, a)
                else self._recursive(x, state, lambda x, zi, count: g.lfilter(b, a, x, zi, count))
            )
        self._sections = sos is not None
        self._load(y, {"state": after})

    def _recursive(self, x: Node, state: tuple[int, ...], kernel: Any) -> tuple[Node, Node]:
        """A recursive filter that stops after ``count`` samples."""
        g, wide = x.graph, self._wide()
        before, count = g.input("state", state, wide), g.input("count", (1,), "i32")
        y, after = kernel(g.cast(x, wide) if wide is not x.dtype else x, before, count)
        return (g.cast(y, x.dtype) if wide is not x.dtype else y), after

    def _finite(self, x: Node, taps: Array, state: tuple[int, ...]) -> tuple[Node, Node]:
        """A finite filter; the samples after the last one have to be 0.

        What the convolution has after the last sample is the state.
        """
        g, order = x.graph, len(taps) - 1
        before = g.input("state", state, x.dtype)
        place = g.input("state_from", (order,), "i32")
        whole = convolution(x, taps, before)
        return narrow(whole, 0, self._block), g.gather(whole, place, -1)

    def reset(self) -> None:
        """Forgets everything: the next sample is the first one."""
        super().reset()
        self._last = np.zeros((*self._outer, 1), self._dtype.numpy)
        self._shown: Array | None = None

    @property
    def state(self) -> Array:
        """The state before the next sample, writable: the ``zi`` of ``sosfilt`` or ``lfilter``.

        ``stream.state = zi`` and ``stream.state[...] = zi`` set it. The array is the state until the
        next ``push``; ask for it again after that.
        """
        if self._shown is None:
            view = self._views["state"]
            self._shown = (
                view if self._local or not view.size else self._runs.read_gpu_handle("state")
            )
        return self._shown

    @state.setter
    def state(self, zi: Any) -> None:
        state = self.state
        value = real_numbers(zi, "StreamingFilter")
        if not np.isfinite(value).all():
            raise InputError(
                "[StreamingFilter] state", got="NaN or infinity", expected="finite numbers"
            )
        if self._sections and value.shape == (len(state), 2):  # the same state for every channel
            value = value.reshape(len(state), *(1,) * len(self._outer), 2)
        try:
            state[...] = value
        except ValueError:
            raise ShapeError(
                "[StreamingFilter] state", got=value.shape, expected=state.shape
            ) from None

    def push(self, samples: Any) -> Array:
        """Takes the next samples.

        Args:
            samples: Real numbers ``[..., n]``, any number of them.

        Returns:
            The filtered samples, ``[..., n]``.

        Raises:
            ShapeError: The samples have other leading dimensions.
            DTypeError: They are not real numbers.
            InputError: One is NaN or infinite, and ``nan`` is "raise"; the stream is as it was before.
        """
        x = self._intake.take(samples)
        if self._intake.skips:
            x = self._fill_gaps(x)
        if self._shown is not None and not self._local:
            self._set_state("state", self._shown)
        self._shown = None
        result = np.empty(x.shape, self._dtype.numpy)
        block, count = self._views["block"], self._views.get("count")
        for i in range(0, x.shape[-1], self._block):
            piece = x[..., i : i + self._block]
            n = piece.shape[-1]
            block[..., :n] = piece
            if count is not None:
                count[0] = n
            else:
                block[..., n:] = 0
                place = self._views["state_from"]
                place[...] = np.arange(n, n + place.size)
            result[..., i : i + n] = self._step()[..., :n]
        return result

    def _fill_gaps(self, x: Array) -> Array:
        """The samples with the last good value in the place of each that is not finite."""
        known = np.concatenate([self._last, x], -1)
        finite = np.isfinite(known)
        if not finite.all():
            latest = np.maximum.accumulate(np.where(finite, np.arange(known.shape[-1]), 0), -1)
            known = np.take_along_axis(known, latest, -1)
        self._last = known[..., -1:].copy()
        return known[..., 1:]
