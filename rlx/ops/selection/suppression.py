"""Boxes that do not overlap better ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError, ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, NodeLike, Sample, TensorType
from rlx.ir.shape import MAX_SIZE, as_size, estimated, same_size, size
from rlx.ops.declare import composite, one_call, op
from rlx.ops.rows.sorting import SORT_KERNELS, emit_ordered, padded_length
from rlx.ops.selection.positions import where_true
from rlx.sizes import SizeExpr, smallest

# Boxes that a workgroup looks at together; trips of its loops in a call.
_BLOCK = 256
_TRIPS = 60_000


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    boxes, scores = types[:2]
    rank = len(boxes.shape) == len(scores.shape) == 3
    if not rank or boxes.shape != (scores.shape[0], scores.shape[2], 4):
        raise ShapeError(
            "[non_max_suppression] boxes and scores do not fit",
            got=f"{boxes.shape} and {scores.shape}",
            expected="(batches, boxes, 4) and (batches, classes, boxes)",
        )
    dtypes = (DType.F32, DType.F32, DType.I64, DType.F32, DType.F32)
    for type, dtype in zip(types, dtypes, strict=True):
        if type.dtype is not dtype:
            raise DTypeError("[non_max_suppression] an operand", got=type.dtype, expected=dtype)
    for type in types[2:]:
        if type.shape:
            raise ShapeError("[non_max_suppression] not one number", got=type.shape, expected="()")
    most = attrs["most"] = as_size(attrs["most"])
    attrs["center_point_box"] = bool(attrs["center_point_box"])
    return TensorType((*scores.shape[:2], most), DType.I32)


def _params(node: Node) -> dict[str, Any]:
    sizes = dict(zip(("batches", "classes", "n"), node.inputs[1].shape, strict=True))
    return {**sizes, "most": node.attrs["most"], "centred": int(node.attrs["center_point_box"])}


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    batches, classes, n = node.inputs[1].shape
    rows, most = batches * classes, node.attrs["most"]
    if same_size(rows * most, 0):
        return
    boxes, scores, *numbers = (emitter.operand(i) for i in range(5))
    ordered, places = (emitter.temp(TensorType((rows, n), kind)) for kind in (DType.F32, DType.I32))
    progress = emitter.temp(TensorType((rows, 2), DType.U32))
    params = {"rows": rows, "n": n, "k": n, "largest": 1}
    emit_ordered(emitter, scores, [ordered, places], params, False)
    longest, _ = padded_length(n)
    bound = most.bounds()[1] if isinstance(most, SizeExpr) else most
    most_kept = longest if bound is None else min(longest, bound)
    # The trips of a block, and the blocks of a call: lavapipe ends longer loops early.
    trips = math.ceil(most_kept / 8) + 3 * _BLOCK
    blocks = max(1, _TRIPS // trips)
    params = {
        "rows": rows,
        "classes": classes,
        "n": n,
        "most": most,
        "most_kept": most_kept,
        "blocks": blocks,
        "centred": int(node.attrs["center_point_box"]),
    }
    operands, results = [boxes, ordered, places, *numbers], [emitter.result(), progress]
    for call in range(math.ceil(longest / _BLOCK / blocks)):
        emitter.call("suppress_boxes", operands, results, {**params, "first": int(call == 0)}, rows)


def _corners(boxes: Array, centred: bool) -> Array:
    """Boxes ``[n, 4]`` as the low corner, then the high one. One of negative size overlaps none."""
    if centred:
        a, b, c, d = boxes.T
        return np.stack([a - c / 2, b - d / 2, a + c / 2, b + d / 2], 1)
    low, high = boxes[:, :2], boxes[:, 2:]
    return np.concatenate([np.minimum(low, high), np.maximum(low, high)], 1)


def _overlap(box: Array, others: Array) -> Array:
    """Intersection over union of a box with each of others."""
    low, high = np.maximum(box[:2], others[:, :2]), np.minimum(box[2:], others[:, 2:])
    common = np.prod(np.maximum(high - low, 0), axis=1)
    area = np.prod(box[2:] - box[:2]) + np.prod(others[:, 2:] - others[:, :2], axis=1) - common
    return np.asarray(np.where(area > 0, common / np.where(area > 0, area, 1), 0))


def _row(corners: Array, scores: Array, limit: int, overlap: float, least: float) -> list[int]:
    """The places of the boxes of one row that are kept, the best first."""
    left = [i for i in np.argsort(-scores, kind="stable") if scores[i] > least]
    kept: list[int] = []
    while left and len(kept) < limit:
        best = left.pop(0)
        kept.append(int(best))
        if left:
            free = _overlap(corners[best], corners[left]) <= overlap
            left = [i for i, ok in zip(left, free, strict=True) if ok]
    return kept


@op(
    infer=_infer,
    flops=lambda node: float(estimated(size(node.inputs[1].shape) * node.attrs["most"])),
    cpu=one_call("non_max_suppression", _params),
    webgpu=Kernels(("suppress_boxes", *SORT_KERNELS), _lower_webgpu),
    free=("scores", "limit", "overlap", "least"),
    dtypes=frozenset({DType.F32}),
    internal=True,
    samples=lambda: tuple(
        Sample(
            ((batches, n, 4), (batches, classes, n), (), (), ()),
            {"most": most, "center_point_box": centred},
            low=(low, 0, 0, 0.1, 0),
            high=(1, 1, 9, 0.6, 0.5),
            dtypes=(DType.F32, DType.F32, DType.I64, DType.F32, DType.F32),
        )
        for batches, classes, n, most, centred, low in (
            (1, 2, 9, 4, False, 0),
            (2, 1, 40, 40, True, 0),
            (2, 1, 60, 60, True, -1),
            (1, 1, 1, 1, False, 0),
            (1, 2, 0, 0, False, 0),
            (1, 3, 300, 7, True, 0),
        )
    ),
)
def kept_boxes(
    boxes: Array,
    scores: Array,
    limit: Array,
    overlap: Array,
    least: Array,
    most: int,
    center_point_box: bool,
) -> Array:
    """The boxes of each row of scores that are kept, i32 ``[batches, classes, most]``: the best first, -1 behind them."""
    results = np.full((*scores.shape[:2], most), -1, np.int32)
    if not 0 <= overlap <= 1:
        raise ValueError(f"an overlap of {overlap}")
    for batch, classes in enumerate(scores):
        corners = _corners(boxes[batch], center_point_box)
        for number, row in enumerate(classes):
            kept = _row(corners, row, min(int(limit), most), float(overlap), float(least))
            results[batch, number, : len(kept)] = kept
    return results


def _suppressed(
    g: Graph,
    boxes: Node,
    scores: Node,
    max_output_boxes_per_class: Any,
    iou_threshold: Any,
    score_threshold: Any,
    center_point_box: bool,
) -> Node:
    boxes, scores = (x if x.dtype is DType.F32 else g.cast(x, DType.F32) for x in (boxes, scores))
    limit, n = max_output_boxes_per_class, scores.shape[-1]
    # A number beyond any size is none.
    bound = isinstance(limit, SizeExpr) or (isinstance(limit, int) and limit < MAX_SIZE)
    most = smallest(limit, n) if bound else n
    numbers = [
        g.as_node(limit, DType.I64, where="non_max_suppression"),
        g.as_node(iou_threshold, DType.F32, where="non_max_suppression"),
        g.as_node(
            -np.inf if score_threshold is None else score_threshold,
            DType.F32,
            where="non_max_suppression",
        ),
    ]
    attrs = {"most": most, "center_point_box": center_point_box}
    kept = g.add_node("kept_boxes", [boxes, scores, *numbers], attrs)
    positions = where_true(g, g.ge(kept, 0))
    chosen = g.cast(g.gather_nd(kept, positions), DType.I64)
    return g.concat([g.narrow(positions, 1, 0, 2), g.unsqueeze(chosen, 1)], 1)


@composite(
    _suppressed,
    free=("scores",),
    dtypes=frozenset({DType.F32}),
    samples=lambda: (
        Sample(((1, 9, 4), (1, 2, 9)), {"max_output_boxes_per_class": 5, "iou_threshold": 0.2}, low=0, high=1),
        Sample(((2, 40, 4), (2, 1, 40)), {"max_output_boxes_per_class": 40, "iou_threshold": 0.5,
                                          "score_threshold": 0.3, "center_point_box": True}, low=0, high=1),
        Sample(((1, 60, 4), (1, 2, 60)), {"max_output_boxes_per_class": 60, "iou_threshold": 0.1,
                                          "center_point_box": True}, low=-1, high=1),
        Sample(((1, 3, 4), (1, 1, 3)), {"max_output_boxes_per_class": 0}, low=0, high=1),
        Sample(((1, 0, 4), (1, 2, 0)), {"max_output_boxes_per_class": 3}),
    ),
)  # fmt: skip
def non_max_suppression(
    boxes: Array,
    scores: Array,
    max_output_boxes_per_class: NodeLike,
    iou_threshold: NodeLike = 0.0,
    score_threshold: NodeLike | None = None,
    center_point_box: bool = False,
) -> Array:
    """The best boxes of each class that do not overlap a better one of it (ONNX's NonMaxSuppression).

    Args:
        boxes: f32 ``[batches, boxes, 4]``: two opposite corners, or centre and size.
        scores: f32 ``[batches, classes, boxes]``. NaN is never chosen.
        max_output_boxes_per_class: A number, or a node of one.
        iou_threshold: A box is dropped where intersection over union with a better one is above this: a number from 0 to
            1, or a node of one. Another number is an ``InputError`` on the CPU; WebGPU, which can't tell, takes 0 for less.
        score_threshold: Boxes have scores above this: a number, or a node of one; None for no threshold.
        center_point_box: Whether boxes are ``(x, y, width, height)`` around a centre. One of negative size overlaps none.

    Returns:
        i64 ``[count, 3]``: batch, class and box of each, with a dim for their number.
    """
    limit = min(int(max_output_boxes_per_class), scores.shape[-1])
    least = -np.inf if score_threshold is None else score_threshold
    args = (boxes, scores, limit, iou_threshold, least, limit, center_point_box)
    kept = kept_boxes.reference(*args)
    positions = np.argwhere(kept >= 0)
    boxes_of = kept[tuple(positions.T)].reshape(-1, 1)
    return np.concatenate([positions[:, :2], boxes_of], 1).astype(np.int64)
