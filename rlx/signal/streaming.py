"""Signals that arrive in blocks: compiled once for a block size, the state carried from call to call.

The results of all calls, one after the other, are those of the function on the whole signal.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError, describe
from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.signal.arrays import Runs, compiled
from rlx.signal.filters import lfilter, sosfilt
from rlx.signal.fourier import stft
from rlx.signal.framing import narrow
from rlx.signal.spectrum import segment_powers, segments
from rlx.signal.window_functions import WindowLike


class _Stream:
    """A compiled graph: block, state and settings in, result and next state out."""

    _runs: Runs

    def _start(self, graph: Graph, outputs: Sequence[Node], states: int, device: Any) -> None:
        graph.set_outputs(list(outputs))
        self._runs = compiled(graph, device)
        self._block, *rest = self._runs.input_views
        self._states, self._settings = rest[:states], rest[states:]
        self.reset()

    def reset(self) -> None:
        """Forgets everything: the next block is the first one."""
        for state in self._states:
            state[...] = 0

    def _take(self, block: Any) -> None:
        """Checks a block and puts it where the graph reads it."""
        if np.shape(block) != self._block.shape:
            raise ShapeError(
                describe(
                    f"[{type(self).__name__}] block",
                    got=np.shape(block),
                    expected=self._block.shape,
                )
            )
        self._block[...] = block

    def _run(self) -> Array:
        """Runs and keeps the state; gives a view that the next run overwrites."""
        result, *after = self._runs.run_slots()
        for state, value in zip(self._states, after, strict=True):
            state[...] = value
        return result


class _Framed(_Stream):
    """A stream of frames: every block completes block / hop of them.

    The signal is thought to be preceded by zeros; frames that reach into those are not real ones.
    """

    def _frames(
        self, shape: int | Sequence[int], length: int, hop: int, block: int | None, dtype: DTypeLike
    ) -> tuple[Graph, Node, Node]:
        """The graph with its inputs and ``[..., tail + block]`` samples, and the next tail."""
        size = hop if block is None else block
        if hop < 1 or size < 1 or size % hop:
            raise InputError(
                describe(
                    f"[{type(self).__name__}] block",
                    got=f"block {block}, hop {hop}",
                    expected="a multiple of the hop, at least 1",
                )
            )
        self._phantoms = -(-length // hop) - 1  # frames that start before the signal does
        self._per_block, self._begun = size // hop, 0
        outer, tail = _outer(shape), self._phantoms * hop
        graph = Graph(type(self).__name__)
        x = graph.input("block", (*outer, size), dtype)
        before = graph.input("tail", (*outer, tail), dtype)
        whole: Node = graph.concat([before, x], -1)
        return graph, whole, narrow(whole, size, tail)

    def reset(self) -> None:
        """Forgets everything: the next block is the first one."""
        super().reset()
        self._begun = 0

    def _real(self) -> int:
        """How many frames of the next block are real; they are the last ones."""
        self._begun += self._per_block
        return min(self._per_block, max(0, self._begun - self._phantoms))


class StreamingStft(_Framed):
    """``stft`` of a signal that arrives in blocks.

    Args:
        shape: Leading dimensions of a block, or their one size.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: See ``stft``.
        block: Samples per block, a multiple of the hop; the hop by default.
        dtype: "f32" or "f64".
        device: Where it runs.

    Example:
        >>> import numpy as np
        >>> stream = StreamingStft(2, n_fft=256, hop=128)
        >>> [stream.push(np.zeros((2, 128), np.float32)).shape for _ in range(3)]
        [(2, 0, 258), (2, 1, 258), (2, 1, 258)]
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        n_fft: int,
        hop: int,
        window: WindowLike = "hann",
        block: int | None = None,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
    ) -> None:
        graph, whole, tail = self._frames(shape, n_fft, hop, block, dtype)
        spec = stft(whole, n_fft, hop, window)
        self._start(graph, [spec, tail], 1, device)

    def push(self, block: Any) -> Array:
        """Takes the next block, ``[..., block]``.

        Returns:
            The frames that it completes, ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout; none
            as long as there are less than ``n_fft`` samples.

        Raises:
            ShapeError: The block has another shape.
        """
        self._take(block)
        real = self._real()
        return self._run()[..., self._per_block - real :, :].copy()


class StreamingWelch(_Framed):
    """``welch`` of a signal that arrives in blocks: the mean over all segments so far.

    Args:
        shape: Leading dimensions of a block, or their one size.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: Samples per segment.
        noverlap: Samples that neighbouring segments share; half a segment by default.
        nfft: Length of the transform.
        detrend: See ``welch``.
        scaling: See ``welch``.
        block: Samples per block, a multiple of nperseg - noverlap, which is the default.
        dtype: "f32" or "f64".
        device: Where it runs.
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
    ) -> None:
        cut = segments(nperseg, nperseg, noverlap, nfft)
        graph, whole, tail = self._frames(shape, cut.length, cut.hop, block, dtype)
        power = segment_powers(whole, cut, fs, window, detrend, scaling)
        mean = graph.input("mean", (*power.shape[:-2], power.shape[-1]), dtype)
        # The share of the mean so far, and of each segment of this block, in the mean after it.
        kept = graph.input("kept", (1,), dtype)
        shares = graph.input("shares", (self._per_block, 1), dtype)
        after = mean * kept + graph.sum(power * shares, -2)
        self._counted = 0
        self._start(graph, [after, tail, after], 2, device)

    def reset(self) -> None:
        """Forgets everything: the next block is the first one."""
        super().reset()
        self._counted = 0

    @property
    def segments(self) -> int:
        """Whole segments so far."""
        return self._counted

    def push(self, block: Any) -> Array:
        """Takes the next block, ``[..., block]``.

        Returns:
            The power over all segments so far, ``[..., nfft // 2 + 1]``; NaN as long as there is none.

        Raises:
            ShapeError: The block has another shape.
        """
        self._take(block)
        real = self._real()
        self._counted += real
        kept, shares = self._settings
        count = max(1, self._counted)
        kept[0] = (count - real) / count
        shares[: self._per_block - real] = 0
        shares[self._per_block - real :] = 1 / count
        result = self._run().copy()
        if self._counted == 0:
            result.fill(np.nan)
        return result


class StreamingFilter(_Stream):
    """``sosfilt`` or ``lfilter`` of a signal that arrives in blocks.

    Args:
        shape: Shape of a block, ``[..., block]``.
        sos: Second-order sections, ``[sections, 6]``; or instead of them
        b: numerator coefficients, and
        a: denominator coefficients.
        dtype: "f32" or "f64".
        device: Where it runs.

    Raises:
        InputError: Neither or both kinds of coefficients were given.

    Example:
        >>> import numpy as np
        >>> stream = StreamingFilter((2,), b=[0.5, 0.5])
        >>> [stream.push(np.ones(2, np.float32)).tolist() for _ in range(2)]
        [[0.5, 1.0], [1.0, 1.0]]
    """

    def __init__(
        self,
        shape: int | Sequence[int],
        sos: Any = None,
        b: Any = None,
        a: Any = 1.0,
        dtype: DTypeLike = "f32",
        device: Any = "cpu",
    ) -> None:
        if (sos is None) == (b is None):
            raise InputError(
                describe("[StreamingFilter] coefficients", expected="either sos, or b and a")
            )
        graph = Graph("StreamingFilter")
        x = graph.input("block", _outer(shape), dtype)
        outer = x.shape[:-1]
        if sos is None:
            order = max(np.size(b), np.size(a)) - 1
            y, after = lfilter(b, a, x, graph.input("state", (*outer, order), dtype))
        else:
            state = graph.input("state", (np.shape(sos)[0], *outer, 2), dtype)
            y, after = sosfilt(x, sos, state)
        self._start(graph, [y, after], 1, device)

    @property
    def state(self) -> Array:
        """The state before the next block, writable: the ``zi`` of ``sosfilt`` or ``lfilter``."""
        return self._states[0]

    def push(self, block: Any) -> Array:
        """Takes the next block and returns it filtered.

        Raises:
            ShapeError: The block has another shape.
        """
        self._take(block)
        return self._run().copy()


def _outer(shape: int | Sequence[int]) -> Shape:
    return (shape,) if isinstance(shape, int) else tuple(shape)
