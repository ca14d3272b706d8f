"""Filters along the last axis, as SciPy defines them: recursive, finite, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.budget import spend
from rlx.errors import InputError, ShapeError, describe
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.signal.arrays import on_arrays
from rlx.signal.framing import extend, frame, narrow

# Samples that one product with a banded matrix gives; more would multiply more zeros.
_BLOCK = 64


@on_arrays
def sosfilt(x: Node, sos: Any, zi: Node | None = None) -> tuple[Node, Node]:
    """A cascade of second-order sections (``scipy.signal.sosfilt``).

    Args:
        x: ``[..., n]``.
        sos: ``[sections, 6]`` numbers, as ``scipy.signal.butter(..., output="sos")`` gives them.
        zi: ``[sections, ..., 2]``, the state before the first sample; 0 by default.

    Returns:
        The filtered signal, and the state after its last sample: the ``zi`` of what follows.

    Raises:
        InputError: ``sos`` is not that.
        ShapeError: ``zi`` has another shape.

    Example:
        >>> import numpy as np, rlx
        >>> y, state = rlx.signal.sosfilt(np.ones(3, np.float32), [[0.5, 0, 0, 1, -0.5, 0]])
        >>> y.tolist()
        [0.5, 0.75, 0.875]
    """
    result: tuple[Node, Node] = x.graph.sosfilt(x, sos, zi)
    return result


@on_arrays
def lfilter(b: Any, a: Any, x: Node, zi: Node | None = None) -> tuple[Node, Node]:
    """A filter from its coefficients (``scipy.signal.lfilter``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients. With one of them the filter is finite and runs as a product of
            matrices, every sample at once.
        x: ``[..., n]``.
        zi: ``[..., max(len(a), len(b)) - 1]``, the state before the first sample; 0 by default.

    Returns:
        The filtered signal, and the state after its last sample: the ``zi`` of what follows.

    Raises:
        InputError: The coefficients are not finite numbers, or a[0] is 0.
        ShapeError: ``zi`` has another shape.
    """
    taps, scale = np.atleast_1d(np.asarray(b, np.float64)), np.atleast_1d(np.asarray(a, np.float64))
    finite = taps.ndim == scale.ndim == 1 and taps.size > 1 and scale.size == 1 and scale[0] != 0
    if not finite or not x.shape or 0 in x.shape:
        result: tuple[Node, Node] = x.graph.lfilter(b, a, x, zi)
        return result
    n, order = x.shape[-1], taps.size - 1
    # The whole convolution: n samples, then what is still to come, which is the state.
    whole = fir(extend(x, order, order), taps / scale[0])
    if zi is not None:
        _check_state("lfilter", zi, (*x.shape[:-1], order))
        whole = whole + extend(zi, 0, n)
    return narrow(whole, 0, n), narrow(whole, n, order)


def fir(x: Node, taps: Array) -> Node:
    """The part of the convolution with ``taps`` that needs no samples outside of x.

    Args:
        x: ``[..., n]``, n >= len(taps).
        taps: Coefficients, the one of the newest sample first.

    Returns:
        ``[..., n - len(taps) + 1]``.
    """
    return banded(x, taps[::-1], 1, 1, 0, x.shape[-1] - len(taps) + 1)


def banded(x: Node, taps: Array, up: int, down: int, first: int, count: int) -> Node:
    """y[m] = sum over k of taps[k * up - m * down - first] x[k], for m < count, x 0 outside.

    It is one matrix product: blocks of ``down`` samples give blocks of ``up`` results, with one
    banded matrix for all blocks (the polyphase filters, side by side).

    Args:
        x: ``[..., n]``.
        taps: Coefficients.
        up: Step of the taps from one sample to the next.
        down: Step of the taps back from one result to the next.
        first: Tap 0 belongs to the sample at (m * down + first) / up.
        count: Number of results.

    Returns:
        ``[..., count]``.
    """
    g, n = x.graph, x.shape[-1]
    repeat = max(1, min(_BLOCK // max(up, down), -(-count // up)))
    hop, made = down * repeat, up * repeat
    # Samples that the results 0 to made - 1 reach: from ``low`` on, a whole number of hops.
    low = -(-first // up)
    reach = ((made - 1) * down + first + len(taps) - 1) // up - low + 1
    length = -(-max(reach, 1) // hop) * hop
    blocks = -(-count // made)
    # Sample i of a block stands at low + i; result j starts with tap index 0 at j * down + first.
    spend("[resample]", elements=length * made)
    index = (low + np.arange(length)[:, None]) * up - np.arange(made) * down - first
    inside = (index >= 0) & (index < len(taps))
    matrix = np.where(inside, taps[np.clip(index, 0, len(taps) - 1)], 0.0)
    total = (blocks - 1) * hop + length
    begin, end = max(0, low), min(n, low + total)
    cut = narrow(x, begin, max(0, end - begin)) if begin < n else narrow(x, 0, 0)
    missing = total - cut.shape[-1]
    before = min(max(0, -low), missing)
    padded = extend(cut, before, missing - before)
    product = frame(padded, length, hop) @ g.constant(matrix.astype(x.dtype.numpy))
    return narrow(g.reshape(product, (*x.shape[:-1], blocks * made)), 0, count)


@on_arrays
def sosfiltfilt(x: Node, sos: Any, padlen: int | None = None) -> Node:
    """Second-order sections forward and backward: no delay (``scipy.signal.sosfiltfilt``).

    Args:
        x: ``[..., n]``.
        sos: ``[sections, 6]`` numbers.
        padlen: Samples of odd continuation at both ends, below n; SciPy's default.

    Returns:
        The filtered signal, like ``x``.

    Raises:
        ShapeError: x is too short for the continuation.
    """
    rows = np.atleast_2d(np.asarray(sos, np.float64))
    if rows.shape[-1] != 6:
        raise InputError(describe("[sosfiltfilt] sos", got=rows.shape, expected="[sections, 6]"))
    idle = min(np.sum(rows[:, 2] == 0), np.sum(rows[:, 5] == 0))
    edge = 3 * (2 * len(rows) + 1 - int(idle)) if padlen is None else padlen
    steady = sosfilt_zi(rows)
    shape = (len(rows), *(1,) * (len(x.shape) - 1), 2)

    def once(signal: Node) -> Node:
        state = signal.graph.constant(steady.reshape(shape).astype(x.dtype.numpy))
        start = signal.graph.reshape(signal[..., :1], (1, *signal.shape[:-1], 1))
        done: Node = sosfilt(signal, rows, state * start)[0]
        return done

    return _there_and_back(x, once, edge)


@on_arrays
def filtfilt(b: Any, a: Any, x: Node, padlen: int | None = None) -> Node:
    """A filter forward and backward: no delay, squared magnitude (``scipy.signal.filtfilt``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients.
        x: ``[..., n]``.
        padlen: Samples of odd continuation at both ends, below n; SciPy's default.

    Returns:
        The filtered signal, like ``x``.

    Raises:
        ShapeError: x is too short for the continuation.
    """
    taps = max(np.size(b), np.size(a))
    steady = lfilter_zi(b, a)

    def once(signal: Node) -> Node:
        state = signal.graph.constant(steady.astype(x.dtype.numpy)) if steady.size else None
        zi = None if state is None else signal[..., :1] * state
        done: Node = lfilter(b, a, signal, zi)[0]
        return done

    return _there_and_back(x, once, 3 * taps if padlen is None else padlen)


def lfilter_zi(b: Any, a: Any) -> Array:
    """The state of ``lfilter`` in which a constant input 1 stays constant (SciPy's), float64."""
    taps = max(np.size(b), np.size(a))
    b0, a0 = (np.atleast_1d(np.asarray(v, np.float64)) for v in (b, a))
    num, den = (np.pad(v / a0[0], (0, taps - v.size)) for v in (b0, a0))
    # The state obeys z[m] = z[m + 1] + b[m + 1] - a[m + 1] y with the steady y = b[0] + z[0].
    step = np.eye(taps - 1) - np.eye(taps - 1, k=1)
    step[:, :1] += den[1:, None]
    return np.asarray(np.linalg.solve(step, num[1:] - den[1:] * num[0]))


def sosfilt_zi(sos: Any) -> Array:
    """The state of ``sosfilt`` in which a constant input 1 stays constant, ``[sections, 2]``."""
    rows, level = [], 1.0
    for section in np.asarray(sos, np.float64):
        rows.append(level * lfilter_zi(section[:3], section[3:]))
        level *= section[:3].sum() / section[3:].sum()
    return np.array(rows)


def _there_and_back(x: Node, once: Any, edge: int) -> Node:
    if not x.shape or 0 in x.shape:
        return x
    forward = once(extend(x, edge, edge, "odd"))
    back = once(forward[..., ::-1])
    return narrow(back[..., ::-1], edge, x.shape[-1])


def _check_state(name: str, zi: Node, expected: tuple[int, ...]) -> None:
    if zi.shape != expected:
        raise ShapeError(describe(f"[{name}] zi", got=zi.shape, expected=expected))
