"""The kinds of work that kernels do: ops whose time grows alike with their operations or bytes.

A device's speed is measured once per kind. A kind that could not be measured takes the speed of its stand-in: one whose kernels
wait for each other in the same way, which is what slow devices are slow at, and so many times its time: what was found on
software adapters and GPUs, whose ratios agree within a few times.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from rlx.ir.graph import PART, Graph, Node
from rlx.ir.rewrite import subgraphs
from rlx.ir.shape import HOST_CONTROL, READ_SIZE, UPDATE, estimated, size

# Elementwise steps of so many operations call a function; the others are an instruction or a few.
_FUNCTION_FLOPS = 8


class OpClass(NamedTuple):
    """Ops of one kind.

    Attributes:
        ops: Their names.
        stand_in: The kind whose speed is taken where this one's was not measured; "" for none.
        slower: How many times longer a unit of work takes then.
        moves: The work is counted in bytes, not in floating-point operations.
    """

    ops: tuple[str, ...]
    stand_in: str = ""
    slower: float = 1.0
    moves: bool = False


# Elementwise ops are sorted into the first two by the table of their steps.
KINDS: Mapping[str, OpClass] = {
    "arithmetic": OpClass(("custom", "tree_scores", "size")),
    "function": OpClass(("random",), "arithmetic", 0.3),
    "move": OpClass(
        ("narrow", "slice", "expand", "concat", "pad_constant", "pad_repeat", "frames", UPDATE),
        moves=True,
    ),
    "transpose": OpClass(("transpose",), "move", 1.5, moves=True),
    "gather": OpClass(
        ("gather", "gather_elements", "gather_nd", "scatter_elements", "scatter_nd"),
        "transpose",
        moves=True,
    ),
    "reduce": OpClass(("sum", "mean", "prod", "sum_squares", "sum_abs"), "softmax", 8.0),
    # These look at every element for a NaN.
    "extreme": OpClass(("max", "min", "argmax", "argmin"), "reduce", 1.3),
    "running": OpClass(("cumsum", "cumprod", "true_positions"), "reduce", 2.0),
    "softmax": OpClass(("softmax", "log_softmax"), "function", 20.0),
    "norm": OpClass(("layer_norm", "rms_norm", "residual_norm"), "softmax", 1.5),
    # A full sort; a choice of few is of the kind "select".
    "sort": OpClass(("ordered",), "running", 1.5),
    "select": OpClass(("kept_boxes", "draw_token"), "sort", 0.15),
    "product": OpClass(
        (
            *("matmul", "matmul_transposed", "fused_matmul_bias_act", "gated_product"),
            *("shared_products", "half_matmul", "rounded_matmul", "grouped_matmul"),
            "partial_grouped_matmul",
        )
    ),
    "packed": OpClass(
        (
            *("dequant_matmul", "grouped_dequant_matmul", "dequantize_blocks", "coarse_weights"),
            *("matmul_integer", "scaled_matmul_integer", "packed_products", "half_rows"),
            "quantize_q8_0",
        ),
        "product",
    ),
    "convolution": OpClass(
        (
            *(f"{form}conv{rank}d" for form in ("", "fused_", "turned_") for rank in (1, 2, 3)),
            *("conv_last", "conv_transpose1d", "conv_transpose2d"),
        ),
        "product",
    ),
    "pool": OpClass(("max_pool", "window_sum", "interpolate", "interpolate_plane"), "reduce", 0.2),
    "attention": OpClass(("attention", "narrow_attention"), "softmax", 0.2),
    "recurrence": OpClass(("recurrence", "rounded_recurrence"), "softmax"),
    "state_space": OpClass(("selective_scan",), "function", 5.0),
    "fourier": OpClass(("fft",), "softmax", 0.5),
    "real_fourier": OpClass(("rfft", "frame_spectra", "frame_peaks"), "fourier"),
    "filter": OpClass(("sosfilt", "lfilter"), "running", 0.02),
    "peaks": OpClass(("find_peaks", "welch_peaks", "spectrum_peaks"), "sort"),
    "mel": OpClass(("log_mel", "log_mel_backward", "spectrum_mel"), "product"),
}
_KIND_OF = {op: name for name, kind in KINDS.items() for op in kind.ops}
# Several products of one left operand by matrices.
JOINED = frozenset({"gated_product", "shared_products"})
# Products whose time is looked up by their size.
SIZED = JOINED | {"matmul", "matmul_transposed", "fused_matmul_bias_act", "half_matmul"}
# Ops that read only a part of their first operand: as much as they write.
PICKS = frozenset({"narrow", "slice", "gather", "gather_elements", "gather_nd"})
# Kinds whose kernels also take time for every row (of a contiguous piece, where they move), however
# short it is. Their speed is measured on rows of so many elements.
ROWED = frozenset(
    {
        "move", "gather", "reduce", "extreme", "running", "softmax", "norm", "sort", "select",
        "fourier", "real_fourier",
    }
)  # fmt: skip
ROW = 256
CONTROL = frozenset({"if_", "while_", "scan"})
# Leaves and views, moved for free or folded into their reader; and the host's own nodes, whose subgraphs it compiles apart.
FREE = frozenset(
    {"input", "param", "constant", "reshape", "leading", READ_SIZE, *HOST_CONTROL, PART}
)
_KIND_MOVES = frozenset(KINDS["move"].ops + KINDS["gather"].ops)


def kind_of(node: Node) -> str:
    """Returns the kind of a node that runs and holds no graphs; arithmetic if no list has it."""
    if node.opdef.elementwise:
        return "function" if _step_flops(node.op) >= _FUNCTION_FLOPS else "arithmetic"
    if node.op == "ordered" and 4 * node.attrs["k"] <= min(256, node.inputs[0].shape[-1]):
        return "select"
    return _KIND_OF.get(node.op, "arithmetic")


def _step_flops(name: str) -> float:
    """Returns the operations per element of an elementwise step; 1 if the table lacks the step."""
    from rlx.ops.elementwise.records import ROWS

    return ROWS[name].flops if name in ROWS else 1


def work_of(node: Node) -> dict[str, float]:
    """The work of a node by kind: operations, or bytes for kinds that move them.

    Wide elements count twice: the units that compute f32 do half as many of them.
    """
    return {kind: float(estimated(amount)) for kind, amount in sized_work_of(node).items()}


def sized_work_of(node: Node) -> dict[str, Any]:
    """``work_of`` as sizes, where it depends on sizes that are known only when the graph runs."""
    if node.op == "region":
        return _region(node)
    kind = kind_of(node)
    if KINDS[kind].moves:
        return {kind: traffic(node)}
    wide = max(1.0, node.dtype.itemsize / 4)
    return {kind: node.opdef.flops(node) * wide}


def _region(node: Node) -> dict[str, Any]:
    results: dict[str, Any] = {}
    for name, _, dtype, _ in node.attrs["program"]:
        if name in ("literal", "copy"):
            continue
        flops = _step_flops(name)
        kind = "function" if flops >= _FUNCTION_FLOPS else "arithmetic"
        amount = flops * size(node.shape) * max(1.0, dtype.itemsize / 4)
        results[kind] = results.get(kind, 0.0) + amount
    return results


def traffic(node: Node) -> int:
    """Bytes that a node reads and writes, each operand once; of a table only the rows picked."""
    if node.op == UPDATE and node.inputs[0].op in ("input", UPDATE):  # in place
        return 2 * node.inputs[1].type.nbytes
    written = sum(type.nbytes for type in node.types)
    reads = [operand.type.nbytes for operand in node.inputs]
    if node.op in PICKS:
        reads[0] = min(reads[0], written)
    return written + sum(reads)


def more_rows(node: Node) -> float:
    """Returns the rows of a node beyond rows of ``ROW`` elements, for kinds in ``ROWED``; it may be negative."""
    elements = size(node.shape if node.op in _KIND_MOVES else node.inputs[0].shape)
    return elements / max(1, _row(node)) - elements / ROW


def _row(node: Node) -> int:
    """Elements of a row, or of a contiguous piece."""
    shape = node.inputs[0].shape
    if node.op == "gather":
        return size(shape[node.attrs["axis"] + 1 :])
    if node.op == "gather_nd":
        return size(node.shape[len(node.inputs[1].shape) - 1 :])
    if node.op in ("gather_elements", "scatter_elements", "scatter_nd"):
        return 1
    if node.op == "concat":
        return size(node.shape[node.attrs["axis"] :]) // max(1, len(node.inputs))
    if node.op == "narrow":
        return size(node.shape[node.attrs["axis"] :])
    if kind_of(node) in ("reduce", "extreme") and len(node.inputs) == 1:
        # Sums over an axis in the middle read all that lies inside of it in one go.
        axes = node.attrs.get("axes") or (node.attrs.get("axis", 0),)
        return size(shape[min(axis % len(shape) for axis in axes) :]) if shape else 1
    axis = node.attrs.get("axis", -1)
    shape = node.shape if node.op in _KIND_MOVES else shape
    return shape[axis] if shape and isinstance(axis, int) else 1


def product_size(node: Node) -> tuple[int, int, int, int]:
    """``(batch, m, k, n)`` of a product, so that ``2 * batch * m * k * n`` are its operations.

    Of several products of one left operand the columns are added up.
    """
    x, w = node.inputs[0].shape, node.inputs[1].shape
    k = x[-1] if x else 1
    n = node.shape[-1] if len(w) > 1 and node.shape else 1
    rows = size(node.shape) // max(1, n)
    if node.op in JOINED:
        weights = (o.shape for o in node.inputs[1:] if len(o.shape) == 2)
        return 1, max(1, size(x[:-1])), max(1, k), max(1, sum(shape[1] for shape in weights))
    # A weight without batches makes one product of all rows.
    m = rows if len(w) <= 2 or not node.op.startswith("matmul") else (x[-2] if len(x) > 1 else 1)
    return max(1, rows // max(1, m)), max(1, m), max(1, k), max(1, n)


def nested(node: Node) -> list[tuple[Graph, float]]:
    """The graphs inside of a node, and how often each runs."""
    if node.op == "if_":
        then, other = node.attrs["then_graph"], node.attrs["else_graph"]
        return [(then, 1.0)] if then is other else [(then, 0.5), (other, 0.5)]
    if node.op == "scan":
        return [(node.attrs["body_graph"], float(node.inputs[-1].shape[0]))]
    # As the record counts it: 16 where the number of trips is open.
    trips = float(node.attrs["max_trips"] or 16)
    return [(graph, trips) for graph in subgraphs(node)]
