"""Filters as SciPy defines them: recursive, finite, forward and backward."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import InputError, ShapeError, did_you_mean
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.resource_limits import charge
from rlx.signal.arrays import on_arrays
from rlx.signal.axes import moved, position
from rlx.signal.checks import integer
from rlx.signal.coefficients import sections_of, taps_of, warn_of_order
from rlx.signal.framing import extend, frame, narrow

# Samples that one product with a banded matrix gives; more would multiply more zeros.
_BLOCK = 64


def sosfilt(sos: Any, x: Any, axis: int = -1, zi: Any = None, *, device: Any = None) -> Any:
    """A cascade of second-order sections (``scipy.signal.sosfilt``).

    Args:
        sos: ``[sections, 6]`` numbers, as ``scipy.signal.butter(..., output="sos")`` gives them.
        x: Samples along ``axis``, a node or an array.
        axis: The axis of time.
        zi: The state before the first sample; 0 by default. ``[sections, ...]``, and then the shape of
            x with 2 in the place of its samples. See ``sosfilt_zi``.
        device: Where an array is computed, "cpu" by default.

    Returns:
        The filtered signal; with ``zi`` also the state after its last sample, the ``zi`` of what
        follows.

    Raises:
        InputError: ``sos`` is not that.
        ShapeError: ``zi`` has another shape.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.sosfilt([[0.5, 0, 0, 1, -0.5, 0]], np.ones(3, np.float32)).tolist()
        [0.5, 0.75, 0.875]
    """
    return _sosfilt(x, sections_of("sosfilt", sos), axis, zi, device=device)


@on_arrays
def _sosfilt(x: Node, sos: Any, axis: int, zi: Node | None) -> Any:
    last, restore = moved("sosfilt", x, axis)
    if zi is None:
        return restore(x.graph.sosfilt(last, sos)[0])
    index = position("sosfilt", len(x.shape), axis)
    expected = (len(sos), *x.shape[:index], 2, *x.shape[index + 1 :])
    _check_state("sosfilt", zi, expected)
    state, restore_state = moved("sosfilt", zi, index + 1)
    y, after = x.graph.sosfilt(last, sos, state)
    return restore(y), restore_state(after)


def lfilter(b: Any, a: Any, x: Any, axis: int = -1, zi: Any = None, *, device: Any = None) -> Any:
    """A filter from its coefficients (``scipy.signal.lfilter``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients. With one of them the filter is finite and runs as a product of
            matrices, every sample at once.
        x: Samples along ``axis``, a node or an array.
        axis: The axis of time.
        zi: The state before the first sample; 0 by default. The shape of x with
            ``max(len(a), len(b)) - 1`` in the place of its samples. See ``lfilter_zi``.
        device: Where an array is computed, "cpu" by default.

    Returns:
        The filtered signal; with ``zi`` also the state after its last sample, the ``zi`` of what
        follows.

    Raises:
        InputError: The coefficients are not finite numbers, or a[0] is 0.
        ShapeError: ``zi`` has another shape.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.lfilter([0.5], [1, -0.5], np.ones(3, np.float32)).tolist()
        [0.5, 0.75, 0.875]
    """
    b, a = taps_of("lfilter", b, a)
    warn_of_order(b, x)
    return _lfilter(x, b, a, axis, zi, device=device)


@on_arrays
def _lfilter(x: Node, b: Any, a: Any, axis: int, zi: Node | None) -> Any:
    last, restore = moved("lfilter", x, axis)
    if zi is None:
        return restore(along_last(b, a, last, None)[0])
    index = position("lfilter", len(x.shape), axis)
    order = max(len(b), len(a)) - 1
    _check_state("lfilter", zi, (*x.shape[:index], order, *x.shape[index + 1 :]))
    state, restore_state = moved("lfilter", zi, index)
    y, after = along_last(b, a, last, state)
    return restore(y), restore_state(after)


def along_last(b: Array, a: Array, x: Node, zi: Node | None) -> tuple[Node, Node]:
    """``lfilter`` along the last axis; the results are the signal and the state after it."""
    if not is_finite(b, a) or 0 in x.shape:
        return x.graph.lfilter(b, a, x, zi)
    n, order = x.shape[-1], len(b) - 1
    whole = convolution(x, b / a[0], zi)
    return narrow(whole, 0, n), narrow(whole, n, order)


def is_finite(b: Array, a: Array) -> bool:
    """Returns whether a filter runs as a product of matrices: it has no feedback, and more than a gain."""
    return len(a) == 1 and len(b) > 1


def convolution(x: Node, taps: Array, zi: Node | None) -> Node:
    """The whole convolution: n samples, then what is still to come, which is the state.

    Args:
        x: ``[..., n]``.
        taps: Coefficients, the one of the newest sample first.
        zi: ``[..., len(taps) - 1]``, the state before the first sample.

    Returns:
        ``[..., n + len(taps) - 1]``.
    """
    order = len(taps) - 1
    whole = fir(extend(x, order, order), taps)
    return whole if zi is None else whole + extend(zi, 0, x.shape[-1])


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
    """
    g, n = x.graph, x.shape[-1]
    repeat = max(1, min(_BLOCK // max(up, down), -(-count // up)))
    hop, result = down * repeat, up * repeat
    # Samples that the results 0 to made - 1 reach: from ``low`` on, a whole number of hops.
    low = -(-first // up)
    reach = ((result - 1) * down + first + len(taps) - 1) // up - low + 1
    length = -(-max(reach, 1) // hop) * hop
    blocks = -(-count // result)
    # Sample i of a block stands at low + i; result j starts with tap index 0 at j * down + first.
    charge("[resample]", elements=length * result)
    index = (low + np.arange(length)[:, None]) * up - np.arange(result) * down - first
    inside = (index >= 0) & (index < len(taps))
    matrix = np.where(inside, taps[np.clip(index, 0, len(taps) - 1)], 0.0)
    total = (blocks - 1) * hop + length
    begin, end = max(0, low), min(n, low + total)
    cut = narrow(x, begin, max(0, end - begin)) if begin < n else narrow(x, 0, 0)
    missing = total - cut.shape[-1]
    before = min(max(0, -low), missing)
    padded = extend(cut, before, missing - before)
    product = frame(padded, length, hop) @ g.constant(matrix.astype(x.dtype.numpy))
    return narrow(g.reshape(product, (*x.shape[:-1], blocks * result)), 0, count)


def sosfiltfilt(
    sos: Any,
    x: Any,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    *,
    device: Any = None,
) -> Any:
    """Second-order sections forward and backward: no delay (``scipy.signal.sosfiltfilt``).

    Args:
        sos: ``[sections, 6]`` numbers.
        x: Samples along ``axis``, a node or an array.
        axis: The axis of time.
        padtype: How x is continued at both ends: "odd", "even", "constant" (the end's value) or None.
        padlen: Samples of continuation at both ends, below n; SciPy's default.
        device: Where an array is computed, "cpu" by default.

    Returns:
        The filtered signal, like ``x``.

    Raises:
        InputError: ``sos`` is not that.
        ShapeError: x is too short for the continuation.
    """
    rows = sections_of("sosfiltfilt", sos)
    idle = min(np.sum(rows[:, 2] == 0), np.sum(rows[:, 5] == 0))
    edge = 3 * (2 * len(rows) + 1 - int(idle)) if padlen is None else padlen
    return _sosfiltfilt(x, rows, axis, padtype, edge, device=device)


@on_arrays
def _sosfiltfilt(x: Node, rows: Any, axis: int, padtype: str | None, edge: int) -> Node:
    steady = sosfilt_zi(rows)
    shape = (len(rows), *(1,) * (len(x.shape) - 1), 2)

    def once(signal: Node) -> Node:
        state = signal.graph.constant(steady.reshape(shape).astype(x.dtype.numpy))
        start = signal.graph.reshape(signal[..., :1], (1, *signal.shape[:-1], 1))
        return signal.graph.sosfilt(signal, rows, state * start)[0]

    return _there_and_back("sosfiltfilt", x, axis, once, padtype, edge)


def filtfilt(
    b: Any,
    a: Any,
    x: Any,
    axis: int = -1,
    padtype: str | None = "odd",
    padlen: int | None = None,
    *,
    device: Any = None,
) -> Any:
    """A filter forward and backward: no delay, squared magnitude (``scipy.signal.filtfilt``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients.
        x: Samples along ``axis``, a node or an array.
        axis: The axis of time.
        padtype: See ``sosfiltfilt``.
        padlen: Samples of continuation at both ends, below n; SciPy's default.
        device: Where an array is computed, "cpu" by default.

    Returns:
        The filtered signal, like ``x``.

    Raises:
        InputError: The coefficients are not finite numbers, or a[0] is 0.
        ShapeError: x is too short for the continuation.
    """
    b, a = taps_of("filtfilt", b, a)
    warn_of_order(b, x)
    edge = 3 * max(len(b), len(a)) if padlen is None else padlen
    return _filtfilt(x, b, a, axis, padtype, edge, device=device)


@on_arrays
def _filtfilt(x: Node, b: Any, a: Any, axis: int, padtype: str | None, edge: int) -> Node:
    steady = lfilter_zi(b, a)

    def once(signal: Node) -> Node:
        state = signal.graph.constant(steady.astype(x.dtype.numpy)) if steady.size else None
        return along_last(b, a, signal, None if state is None else signal[..., :1] * state)[0]

    return _there_and_back("filtfilt", x, axis, once, padtype, edge)


def lfilter_zi(b: Any, a: Any) -> Array:
    """The state of ``lfilter`` in which a constant input 1 stays constant (``scipy.signal.lfilter_zi``).

    Args:
        b: Numerator coefficients.
        a: Denominator coefficients.

    Returns:
        float64 ``[max(len(a), len(b)) - 1]``; times the first sample it starts a filter without a jump.

    Raises:
        InputError: The coefficients are not finite numbers, a[0] is 0, or the filter has no such state.

    Example:
        >>> lfilter_zi([0.5, 0.5], [1.0]).tolist()
        [0.5]
    """
    b, a = taps_of("lfilter_zi", b, a)
    taps = max(len(b), len(a))
    num, den = (np.pad(v / a[0], (0, taps - len(v))) for v in (b, a))
    # The state obeys z[m] = z[m + 1] + b[m + 1] - a[m + 1] y with the steady y = b[0] + z[0].
    step = np.eye(taps - 1) - np.eye(taps - 1, k=1)
    step[:, :1] += den[1:, None]
    try:
        return np.asarray(np.linalg.solve(step, num[1:] - den[1:] * num[0]))
    except np.linalg.LinAlgError:
        raise InputError(
            "[lfilter_zi] a", got="a pole at 1", expected="a filter that settles"
        ) from None


def sosfilt_zi(sos: Any) -> Array:
    """The state of ``sosfilt`` in which a constant input 1 stays constant (``scipy.signal.sosfilt_zi``).

    Args:
        sos: ``[sections, 6]`` numbers.

    Returns:
        float64 ``[sections, 2]``.

    Raises:
        InputError: ``sos`` is not that, or the filter has no such state.

    Example:
        >>> sosfilt_zi([[0.5, 0.5, 0, 1, 0, 0]]).tolist()
        [[0.5, 0.0]]
    """
    rows, level = [], 1.0
    for section in sections_of("sosfilt_zi", sos):
        rows.append(level * lfilter_zi(section[:3], section[3:]))
        level *= section[:3].sum() / section[3:].sum()
    return np.array(rows)


# How SciPy names ways of continuing a signal, and how ``extend`` does.
_PADS = {"odd": "odd", "even": "reflect", "constant": "edge"}


def _there_and_back(
    where: str, x: Node, axis: int, once: Any, padtype: str | None, edge: int
) -> Node:
    last, restore = moved(where, x, axis)
    if padtype is None:
        edge = 0
    elif padtype not in _PADS:
        raise InputError(
            f"[{where}] padtype",
            got=repr(padtype),
            expected=", ".join([*map(repr, _PADS), "None"]),
            hint=did_you_mean(str(padtype), _PADS),
        )
    edge = integer(where, "padlen", edge, 0)
    if 0 in x.shape:
        return x
    if edge >= last.shape[-1]:
        raise ShapeError(
            f"[{where}] too short for the continuation",
            got=f"{last.shape[-1]} samples along axis {axis}, padlen {edge}",
            expected="more samples than padlen",
            hint="pass a smaller padlen",
        )
    forward = once(extend(last, edge, edge, _PADS.get(str(padtype), "odd")))
    return restore(narrow(once(forward[..., ::-1])[..., ::-1], edge, last.shape[-1]))


def _check_state(name: str, zi: Node, expected: tuple[int, ...]) -> None:
    if zi.shape != expected:
        raise ShapeError(f"[{name}] zi", got=zi.shape, expected=expected)
