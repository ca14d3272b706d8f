"""Peaks of signals: the ``find_peaks`` record."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType
from rlx.ir.shape import as_size, size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.sizes import largest

Bounds = tuple[float | None, float | None]
# The least value, or a pair (`rlx.ir.opdef.NodeLike` explains).
BoundsLike = Annotated[Any, "float | tuple[float | None, float | None]"]

_WORKGROUP = 64
# WebGPU: minimum samples of a block. A table holds the least and the largest sample of each block, so that walks along
# a row can skip whole blocks.
_BLOCK = 64
# Rows of more samples have larger blocks.
_LONG = 1 << 19
# Steps that an invocation takes at most, far below the 65,535 after which lavapipe (Mesa 22.3)
# silently ends a loop.
_ITERATIONS = 50_000
# Most peaks that one dispatch goes through in the order of their height; each costs a few steps.
_SPACED = 5_000
# Rounds in which all peaks are compared with their neighbours at once. Peaks still undecided after them (on signals
# whose peaks rise one after the other) are decided one by one, the highest first.
_ROUNDS = 12
_F32_MOST = 3.4028234e38


def _bounds(name: str, value: Any) -> Bounds | None:
    """A condition as (least, largest), either of them None; None when there is no condition."""
    if value is None:
        return None
    pair = tuple(value) if np.ndim(value) else (value, None)
    if len(pair) != 2 or any(v is not None and math.isnan(float(v)) for v in pair):
        raise InputError(
            f"[find_peaks] {name}", got=value, expected="a number, or a pair (least, largest)"
        )
    low, high = (None if v is None or math.isinf(v) else float(v) for v in pair)
    return low, high


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> tuple[TensorType, ...]:
    shape = types[0].shape
    if not shape:
        raise ShapeError("[find_peaks] x has no axis", got=shape)
    for name in ("height", "prominence", "width"):
        attrs[name] = _bounds(name, attrs[name])
    if attrs["distance"] is not None:
        if not attrs["distance"] >= 1:
            raise InputError("[find_peaks] distance", got=attrs["distance"], expected="at least 1")
        attrs["distance"] = math.ceil(attrs["distance"])
    limit = attrs["max_peaks"]
    slots = _candidates(shape[-1]) if limit is None else as_size(limit)
    if slots < 1:
        raise InputError("[find_peaks] max_peaks", got=limit, expected="at least 1")
    attrs["max_peaks"] = slots
    results = (*shape[:-1], slots)
    return (
        TensorType(results, DType.I32),
        TensorType(shape[:-1], DType.I32),
        TensorType(results, types[0].dtype),
    )


def _candidates(n: int) -> int:
    """Local maxima that n samples can have; 1 at least, so that no value is empty."""
    return largest(1, (n - 1) // 2)


def _params(node: Node) -> dict[str, Any]:
    shape = node.inputs[0].shape
    return {
        "rows": size(shape[:-1]),
        "n": shape[-1],
        "candidates": _candidates(shape[-1]),
        "slots": node.attrs["max_peaks"],
        "distance": node.attrs["distance"] or 1,
    }


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    params = _params(node)
    limits: list[float] = []
    for name in ("height", "prominence", "width"):
        low, high = node.attrs[name] or (None, None)
        limits += [-math.inf if low is None else low, math.inf if high is None else high]
    params.update(widths=int(node.attrs["width"] is not None), limits=tuple(limits))
    emitter.call("find_peaks", [emitter.operand(0)], emitter.results(), params)


@dataclass(frozen=True)
class _Search:
    """The calls of one search for peaks on WebGPU; every kernel has the same parameters."""

    emitter: Emitter
    params: dict[str, Any]

    @property
    def rows(self) -> int:
        """Rows of the signal."""
        return int(self.params["rows"])

    @property
    def most(self) -> int:
        """Candidates of a row, at most."""
        return int(self.params["candidates"])

    def temp(self, count: int, dtype: DType = DType.I32) -> Any:
        """Memory for so many numbers of each row."""
        return self.emitter.temp(TensorType((self.rows, count), dtype))

    def call(
        self, kernel: str, inputs: list[Any], outputs: list[Any], threads: int, **more: Any
    ) -> None:
        """A kernel of so many threads."""
        self.by_row(kernel, inputs, outputs, math.ceil(threads / _WORKGROUP), **more)

    def by_row(
        self, kernel: str, inputs: list[Any], outputs: list[Any], groups: int, **more: Any
    ) -> None:
        """A kernel of so many workgroups."""
        params = {**self.params, **more}
        self.emitter.call(f"find_peaks_{kernel}", inputs, outputs, params, groups)

    def space(self, x: Any, positions: Any, counts: Any, keep: Any, order: Any) -> None:
        """Drops peaks that are too near to a higher one: rounds for all at once, then one by one."""
        threads, limit = self.rows * self.most, self.most
        near = min(self.params["distance"] // 2 + 1, limit)
        rounds = _ROUNDS if 2 * near < _ITERATIONS else 0
        for i in range(rounds):
            last = {"settle": int(i == rounds - 1)}
            self.call("contest", [x, positions, counts], [keep], threads, **last)
        ranks = self.temp(limit)
        for start in range(0, limit, _ITERATIONS):
            end = min(start + _ITERATIONS, limit)
            part = {"start": start, "end": end, "last": int(end == limit)}
            self.call("rank", [x, positions, counts, keep], [ranks, order], threads, **part)
        for start in range(0, limit, _SPACED):
            part = {"start": start, "end": min(start + _SPACED, limit)}
            self.by_row("space", [positions, counts, order], [keep], self.rows, **part)


def _as_wgsl(node: Node, name: str) -> dict[str, str]:
    """Both bounds of a condition as WGSL text, "" for none; f32 has to hold them."""
    low, high = node.attrs[name] or (None, None)
    return {
        key: "" if value is None else repr(max(-_F32_MOST, min(_F32_MOST, value)))
        for key, value in ((f"{name}_low", low), (f"{name}_high", high))
    }


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    params = _params(node)
    rows, n, limit = params["rows"], params["n"], params["candidates"]
    x = emitter.operand(0)
    # A walk takes steps within two blocks and steps over blocks. It is shortest where both are about as many.
    block = max(_BLOCK, 1 << (math.isqrt(n // 2).bit_length() - 1) if n > _LONG else 0)
    blocks = math.ceil(n / block)
    search = _Search(emitter, {**params, "blocks": blocks, "block": block})
    # Where the local maxima are, and how many.
    extremes, marks = search.temp(2 * max(1, blocks), DType.F32), search.temp(max(1, n))
    search.call("blocks", [x], [extremes], rows * blocks)
    search.call("mark", [x, extremes], [marks], rows * n, **_as_wgsl(node, "height"))
    positions, counts = search.temp(limit), search.temp(1)
    keep, prominences = search.temp(limit), search.temp(limit, DType.F32)
    spaced = params["distance"] > 1
    order = search.temp(limit) if spaced else None
    listed = [positions, counts, *((keep, order) if spaced else ())]
    search.by_row("pack", [marks], listed, rows, stage="first", spaced=int(spaced))
    if spaced:
        search.space(x, positions, counts, keep, order)
    told = {
        "spaced": int(spaced),
        "widths": int(node.attrs["width"] is not None),
        **_as_wgsl(node, "prominence"),
        **_as_wgsl(node, "width"),
    }
    read = [x, extremes, positions, counts]
    search.call("prominence", read, [keep, prominences], rows * limit, **told)
    read = [keep, positions, counts, prominences]
    search.by_row("pack", read, list(emitter.results()), rows, stage="last", spaced=0)


_STAGES = ("blocks", "mark", "pack", "contest", "rank", "space", "prominence")
_STEPS = np.array([[0, 1, 1, 0, 2, 2, 2, 1, 3, 0, 1, 0, 3, 3, 1, 2, 2]], np.float32)


@op(
    infer=_infer,
    flops=lambda node: 10.0 * size(node.inputs[0].shape),
    cpu=Kernels(("find_peaks",), _lower_cpu),
    webgpu=Kernels(tuple(f"find_peaks_{stage}" for stage in _STAGES), _lower_webgpu),
    dtypes=FLOAT_KERNELS,
    samples=lambda: (
        Sample(((3, 200),)),
        Sample(((3, 200),), {"height": 0.5}),
        Sample(((200,),), {"height": (-1.0, 1.0), "distance": 5}),
        Sample(((2, 2, 301),), {"distance": 9.5, "prominence": 1.0}),
        Sample(((5, 301),), {"prominence": (0.5, 2.0), "width": (1.2, 4)}),
        Sample(((5, 301),), {"width": 1.5, "max_peaks": 7}),
        # Plateaus, and peaks of equal height.
        *(
            Sample(((1, 17),), {"distance": d, "prominence": 1}, values=(_STEPS,))
            for d in (1, 3, 6)
        ),
        Sample(
            ((1, 900),), {"distance": 40}, values=(np.tile(np.repeat(_STEPS[0, :9], 10), 10)[None],)
        ),
        Sample(((2, 400),), values=(np.ones((2, 400), np.float32),)),
        Sample(((4, 2),)),
        Sample(((1,),)),
        Sample(((2, 0),), {"distance": 2}),
        Sample(((0, 10),)),
        Sample(((64, 4096),), {"distance": 20, "prominence": 0.5}, bench=True),
    ),
)
def find_peaks(
    x: Array,
    height: BoundsLike | None = None,
    distance: float | None = None,
    prominence: BoundsLike | None = None,
    width: BoundsLike | None = None,
    max_peaks: int | None = None,
) -> tuple[Array, Array, Array]:
    """Local maxima along the last axis, as ``scipy.signal.find_peaks`` defines them.

    A maximum is a sample, or the middle of a run of equal samples, with smaller neighbours on both
    sides. The conditions are applied in the order of the parameters.

    Args:
        x: ``[..., n]``.
        height: Least value of a peak, or a pair (least, largest).
        distance: Least distance between peaks, >= 1; smaller peaks go first, of equal ones the
            earlier.
        prominence: Least drop on both sides before a larger sample, or a pair.
        width: Least width in samples at half the prominence, or a pair.
        max_peaks: Peaks that the result has room for; all that could be by default.

    Returns:
        Indices i32 ``[..., max_peaks]`` in rising order, -1 where there is no peak; the number of
        peaks found i32 ``[...]``, which may be more than there is room for; their prominences.
    """
    assert max_peaks is not None, "inference states it"
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    indices = np.full((len(rows), max_peaks), -1)
    counts, prominences = np.zeros(len(rows), np.int64), np.zeros((len(rows), max_peaks))
    for i, row in enumerate(rows):
        peaks = _maxima(row)
        peaks = peaks[_within(row[peaks], height)]
        if distance is not None:
            peaks = peaks[_spaced(peaks, row[peaks], distance)]
        drops = np.array([_prominence(row, peak) for peak in peaks])
        retained = _within(drops, prominence)
        if width is not None:
            widths = [_width(row, peak, drop) for peak, drop in zip(peaks, drops, strict=True)]
            retained &= _within(np.array(widths), width)
        peaks, drops = peaks[retained][:max_peaks], drops[retained][:max_peaks]
        counts[i] = np.count_nonzero(retained)
        indices[i, : len(peaks)], prominences[i, : len(peaks)] = peaks, drops
    shape = (*x.shape[:-1], max_peaks)
    return indices.reshape(shape), counts.reshape(x.shape[:-1]), prominences.reshape(shape)


def _maxima(row: Array) -> Array:
    """Middles of the runs of equal samples that are higher than what is beside them."""
    if len(row) < 3:
        return np.zeros(0, np.int64)
    starts = np.flatnonzero(np.r_[True, row[1:] != row[:-1]])
    ends = np.r_[starts[1:], len(row)] - 1
    values = row[starts]
    inner = np.arange(1, len(starts) - 1)
    high = inner[(values[inner - 1] < values[inner]) & (values[inner + 1] < values[inner])]
    return (starts[high] + ends[high]) // 2


def _within(values: Array, bounds: Bounds | None) -> Array:
    low, high = bounds or (None, None)
    retained = np.ones(len(values), np.bool_)
    if low is not None:
        retained &= values >= low
    if high is not None:
        retained &= values <= high
    return retained


def _spaced(peaks: Array, heights: Array, distance: float) -> Array:
    retained = np.ones(len(peaks), np.bool_)
    for i in np.argsort(heights, kind="stable")[::-1]:
        if retained[i]:
            retained &= np.abs(peaks - peaks[i]) >= distance
            retained[i] = True
    return retained


def _prominence(row: Array, peak: int) -> float:
    """Height above the higher of the two lowest points on the way to a larger sample."""
    lowest = []
    for side in (row[peak::-1], row[peak:]):
        larger = np.flatnonzero(side > row[peak])
        lowest.append(np.min(side[: larger[0]] if len(larger) else side))
    return float(row[peak] - max(lowest))


def _width(row: Array, peak: int, prominence: float) -> float:
    """Distance between the two crossings of half the prominence, by linear interpolation."""
    level, total = row[peak] - 0.5 * prominence, 0.0
    for side in (row[peak::-1], row[peak:]):
        i = int(np.argmax(side <= level))
        total += i - (level - side[i]) / (side[i - 1] - side[i])
    return total
