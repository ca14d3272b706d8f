"""Streams of frames: samples are collected to hops, and every hop completes a frame."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError, UnknownNameError, did_you_mean
from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.signal.checks import integer
from rlx.signal.framing import narrow
from rlx.signal.streaming.stream import Stream

# Samples that each way of continuing a signal has to know: so many, and so many for each that it adds.
_NEEDS = {"constant": (0, 0), "edge": (1, 0), "reflect": (1, 1)}


class Lead:
    """Continues a signal before its first sample and after its last one, as ``extend`` does.

    Args:
        where: The stream's name, for messages.
        count: Samples at each end.
        mode: "constant" (zeros), "edge" or "reflect".
        outer: Leading dimensions of the samples.
        dtype: Their dtype.

    Raises:
        UnknownNameError: There is no such mode.
    """

    def __init__(self, where: str, count: int, mode: str, outer: Shape, dtype: Any) -> None:
        if mode not in _NEEDS:
            raise UnknownNameError(
                f"[{where}] no padding is named {mode!r}", hint=did_you_mean(str(mode), _NEEDS)
            )
        self._where, self._count, self._mode = where, count, mode
        fixed, each = _NEEDS[mode]
        self._least = fixed + each * count if count else 0
        self._none = np.empty((*outer, 0), dtype)
        self.reset()

    def reset(self) -> None:
        """The next sample is the first one."""
        self._last, self._begun = self._none, False

    def begin(self, x: Array) -> Array:
        """Returns the available part of the continued signal, these samples included."""
        known = np.concatenate([self._last, x], -1)
        if self._begun:
            self._last = known[..., max(0, known.shape[-1] - self._least) :]
            return x
        if known.shape[-1] < self._least:
            self._last = known
            return self._none
        self._begun = True
        self._last = known[..., max(0, known.shape[-1] - self._least) :]
        front = self._sides(known[..., : self._least][..., ::-1])[..., ::-1]
        return np.concatenate([front, known], -1)

    def end(self) -> Array:
        """The samples after the last one.

        Raises:
            ShapeError: The signal was too short to be continued.
        """
        if not self._begun:
            if self._last.shape[-1] == 0:
                return self._none
            raise ShapeError(
                f"[{self._where}] too short for {self._mode} padding",
                got=f"{self._last.shape[-1]} samples",
                expected=f"at least {self._least} samples",
            )
        return self._sides(self._last)

    def _sides(self, known: Array) -> Array:
        """``count`` samples after the last one of ``known``."""
        if self._mode == "constant" or not self._count:
            return np.zeros((*self._none.shape[:-1], self._count), self._none.dtype)
        if self._mode == "edge":
            return np.repeat(known[..., -1:], self._count, -1)
        return known[..., :-1][..., ::-1]


class Framed(Stream):
    """A stream whose graph makes something of every frame.

    A run takes a block of whole hops, in front of which the device keeps the end of the samples before
    them: each hop completes one frame. What is left over of the samples waits in the block.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        length: Samples per frame.
        hop: Samples from one frame to the next.
        block: Samples that a run takes at most, a multiple of the hop; the hop by default.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: The policy for samples that are NaN or infinite.

    Raises:
        InputError: A length does not fit.
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        length: int,
        hop: int,
        block: int | None,
        dtype: DTypeLike,
        device: Any,
        nan: str,
    ) -> None:
        super().__init__(shape, dtype, device, nan)
        length, hop = integer(self._where, "n_fft", length), integer(self._where, "hop", hop)
        block = hop if block is None else integer(self._where, "block", block)
        if block % hop:
            raise InputError(
                f"[{self._where}] block",
                got=f"block {block}, hop {hop}",
                expected="a multiple of the hop",
            )
        self._length, self._hop, self._block = length, hop, block
        self._per_block = block // hop
        self._overlap, self._gap = max(0, length - hop), max(0, hop - length)
        self._lead: Lead | None = None

    def _begin(self) -> tuple[Node, dict[str, Node]]:
        """The samples that the frames of a block are cut from, and the states of the graph."""
        graph = Graph(self._where)
        x = graph.input("block", (*self._outer, self._block), self._dtype)
        if not self._overlap:
            # A frame is the end of its hop; what stands before it belongs to no frame.
            return narrow(x, self._gap, self._block - self._gap), {}
        before = graph.input("tail", (*self._outer, self._overlap), self._dtype)
        whole: Node = graph.concat([before, x], -1)
        if self._per_block == 1:  # every run takes a whole block
            return whole, {"tail": narrow(whole, self._block, self._overlap)}
        place = graph.input("tail_from", (self._overlap,), "i32")
        return whole, {"tail": graph.gather(whole, place, -1)}

    def reset(self) -> None:
        """Forgets everything: the next sample is the first one."""
        super().reset()
        self._views["block"][...] = 0
        self._held = self._gap  # samples in the block; the first hop has none before its frame
        self._first = np.empty((*self._outer, self._overlap), self._dtype.numpy)
        self._known = 0  # samples in ``_first``: the beginning, which completes no frame
        self._position = self._frame = 0  # of the next sample and frame
        self._bad = np.empty(0, np.int64)  # positions of samples that were left out
        if self._lead is not None:
            self._lead.reset()

    def _take(self, samples: Any) -> list[Array]:
        """The results of the runs that a piece of the signal makes possible."""
        x = self._intake.take(samples)
        return self._feed(x if self._lead is None else self._lead.begin(x))

    def _feed(self, x: Array) -> list[Array]:
        block, result, count = self._views["block"], [], x.shape[-1]
        pos = min(count, self._overlap - self._known)
        if pos:
            self._first[..., self._known : self._known + pos] = self._clean(x[..., :pos])
            self._known += pos
            if self._known == self._overlap:
                self._set_state("tail", self._first)
        while pos < count:
            taken = min(self._block - self._held, count - pos)
            block[..., self._held : self._held + taken] = self._clean(x[..., pos : pos + taken])
            self._held += taken
            pos += taken
            if self._held == self._block or (pos == count and self._held >= self._hop):
                left = count - pos + self._held % self._hop
                result.append(self._advance(more=left >= self._hop))
        return result

    def _advance(self, more: bool) -> Array:
        """A run on the hops that are complete; where ``more`` follow, an average is not asked for yet."""
        block, frames = self._views["block"], self._held // self._hop
        count = frames * self._hop
        rest = block[..., count : self._held].copy() if count < self._held else None
        if count < self._block:
            # Later frames must not disturb the sums that the run makes over all its frames.
            block[..., count:] = 0
        if "tail_from" in self._views:
            self._views["tail_from"][...] = np.arange(count, count + self._overlap)
        result = self._make_frames(frames, self._retain(frames) if self._bad.size else None, more)
        self._held -= count
        if rest is not None:
            block[..., : self._held] = rest
        self._frame += frames
        return result

    def _make_frames(self, frames: int, retained: Array | None, more: bool) -> Array:
        """Runs on so many frames; ``retained`` says which of them count, None that all do."""
        view = self._step()[..., :frames, :]
        return view.copy() if retained is None else view[..., retained, :]

    def _clean(self, x: Array) -> Array:
        """Samples without those that are left out, whose positions are kept; 0 stands for them."""
        if self._intake.skips:
            finite = np.isfinite(x)
            if not finite.all():
                bad = np.flatnonzero(~finite.all(axis=tuple(range(x.ndim - 1))))
                self._bad = np.append(self._bad, bad + self._position)
                x = np.where(finite, x, x.dtype.type(0))
        self._position += x.shape[-1]
        return x

    def _retain(self, frames: int) -> Array:
        """Selects those next frames that hold only samples that count."""
        begin = (self._frame + np.arange(frames)[:, None]) * self._hop
        inside = (begin <= self._bad) & (self._bad < begin + self._length)
        self._bad = self._bad[self._bad >= (self._frame + frames) * self._hop]
        return np.asarray(~inside.any(1))


class Frames(Framed):
    """A stream that gives its frames, ``[..., frames, values]``. They may be centred on multiples of the hop."""

    def _make(self, center: bool, pad_mode: str, features: Callable[[Node], Node]) -> None:
        if center:
            about = self._where, self._length // 2, pad_mode, self._outer, self._dtype.numpy
            self._lead = Lead(*about)
        whole, states = self._begin()
        result = features(whole)
        self._values = result.shape[-1]
        self._load(result, states)

    def push(self, samples: Any) -> Array:
        """Takes the next samples.

        Args:
            samples: Real numbers ``[..., n]``, any number of them.

        Returns:
            The frames that they complete, ``[..., frames, values]``; there may be none.

        Raises:
            ShapeError: The samples have other leading dimensions.
            DTypeError: They are not real numbers.
            InputError: One is NaN or infinite, and ``nan`` is "raise"; the stream is as it was before.
        """
        return self._joined(self._take(samples))

    def flush(self) -> Array:
        """Ends the signal: with ``center`` that completes more frames. The next sample is a first one.

        Returns:
            The frames that were still to come, ``[..., frames, values]``.

        Raises:
            ShapeError: The signal is shorter than what ``center`` continues it by.
        """
        result = [] if self._lead is None else self._feed(self._lead.end())
        self.reset()
        return self._joined(result)

    def _joined(self, results: list[Array]) -> Array:
        if len(results) == 1:
            return results[0]
        if not results:
            return np.empty((*self._outer, 0, self._values), self._dtype.numpy)
        return np.concatenate(results, -2)
