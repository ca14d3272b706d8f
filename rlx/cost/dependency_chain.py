"""Steps that a kernel does one after the other, however many units a device has beside each other.

A GPU's time for little work does not shrink with the work: a product waits for its longest sum, a recurrent
layer for its sequence. What a step takes is measured once per kind of work, on a kernel of few elements.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from rlx.cost.op_classes import kind_of
from rlx.ir.graph import Node
from rlx.ir.shape import size

# Elements of a row that the lanes of a workgroup take at once.
_LANES = 256
# The part of a recurrent layer's step that does not grow with its states, in states.
_FIXED = 32


def _taps(node: Node) -> float:
    weights = node.inputs[1].shape
    return float(size(weights) / max(1, weights[0]))


def _keys(node: Node) -> float:
    # Each key is read twice: against the query, and for its value.
    _, k, v = (operand.shape for operand in node.inputs[:3])
    heads = 1 if len(k) == 4 else max(1, node.attrs["num_kv_heads"] or 1)
    keys = k[-3] if len(k) == 4 and node.attrs["layout"] == "bshd" else k[-2]
    return float(keys * (k[-1] + v[-1]) / heads)


def _row(node: Node) -> float:
    shape = node.inputs[0].shape
    axis = node.attrs.get("axis", -1)
    length = shape[axis] if shape and isinstance(axis, int) else 1
    return max(1.0, length / _LANES)


def _reduced(node: Node) -> float:
    return max(1.0, (size(node.inputs[0].shape) / max(1, size(node.shape))) / _LANES)


def _stages(node: Node) -> float:
    stages = math.log2(max(2, node.inputs[0].shape[-1]))
    return stages * (stages + 1) / 2


def _length(node: Node) -> float:
    return float(max(1, node.inputs[0].shape[-1]))


# In the order in which they are measured. What is not listed takes no longer than a dispatch where it does little.
SERIAL: Mapping[str, Callable[[Node], float]] = {
    "product": lambda node: float(node.inputs[0].shape[-1]) if node.inputs[0].shape else 1.0,
    "recurrence": lambda node: float(node.inputs[0].shape[0] * (node.inputs[1].shape[-1] + _FIXED)),
    "filter": _length,
    "attention": _keys,
    "convolution": _taps,
    **dict.fromkeys(("softmax", "norm", "running"), _row),
    **dict.fromkeys(("reduce", "extreme"), _reduced),
    "sort": _stages,
    "select": _length,
    "peaks": _length,
    **dict.fromkeys(("fourier", "real_fourier", "pool", "mel"), lambda node: 1.0),
    "state_space": lambda node: float(node.inputs[0].shape[-2]),
}


def serial_steps(node: Node) -> dict[str, float]:
    """The steps of a node's kernel by kind of work; nothing for kinds without."""
    kind = kind_of(node)
    return {kind: SERIAL[kind](node)} if kind in SERIAL and node.inputs else {}
