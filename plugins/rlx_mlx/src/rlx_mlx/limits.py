"""Selects the nodes that MLX leaves to the host, with the reasons."""

from __future__ import annotations

from rlx.plugin import PART, DType, Node

# Limits of Metal hold on MLX's CPU, too: tests there show the behaviour of a Mac.
_NO_F64 = "Metal has no f64"
_INTEGERS = "MLX multiplies floats alone"
_LOOP = "MLX compiles no loops"
_STEPS = "MLX compiles no loops, and a run would be a kernel for every step"
_ORDER = "updates of MLX have no order"
_EMPTY = "MLX has no kernels for tensors without elements"
_WORDS = "MLX has no products of whole numbers with 64 bits"
# By operation; every other one is traced.
HOSTED = {
    "custom": "a custom operation",
    "while_": _LOOP,
    "scan": _LOOP,
    "matmul_integer": _INTEGERS,
    "scaled_matmul_integer": _INTEGERS,
    "scatter_elements": _ORDER,
    "scatter_nd": _ORDER,
    "recurrence": _STEPS,
    "rounded_recurrence": _STEPS,
    "selective_scan": _STEPS,
    "kept_boxes": _STEPS,
    "sosfilt": _STEPS,
    "lfilter": _STEPS,
    "random": _WORDS,
    "tree_scores": "its trees walk by tables of 64 bits",
    "find_peaks": "the number of peaks is known only as it runs",
}

_WHOLE = frozenset(item for item in DType if item.is_integer)
_DIVISION = "a division of whole numbers by 0 is undefined in MLX"
_SHIFT = "a shift by more than the bits of a number is undefined in MLX"
# By operation: dtypes that run on the host, and why.
_BY_DTYPE = {
    "mod": (_WHOLE, _DIVISION),
    "fmod": (_WHOLE, _DIVISION),
    "shift_left": (_WHOLE, _SHIFT),
    "shift_right": (_WHOLE, _SHIFT),
}


def reason(node: Node) -> str | None:
    """Why a node runs on the host; None where MLX runs it."""
    if node.op == PART:
        return None
    types = [*(item.type for item in node.inputs), *node.types]
    if not all(type.size for type in types):
        return _EMPTY
    dtypes = {item.dtype for item in node.inputs} | {type.dtype for type in node.types}
    if DType.F64 in dtypes:
        return _NO_F64
    if node.op in _BY_DTYPE and dtypes & _BY_DTYPE[node.op][0]:
        return _BY_DTYPE[node.op][1]
    if node.op.endswith("conv3d") and node.attrs["groups"] != 1:
        return "MLX has no groups of channels in three dimensions"
    return HOSTED.get(node.op)
