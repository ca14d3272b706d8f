"""Weights in fewer bytes: large f32 params become f16, or i8 with a scale per channel."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from rlx.errors import InputError, did_you_mean
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.rewrite import Rewriter, users

# Params with fewer elements, or with one axis, stay f32: they are few bytes, and their precision matters most.
_LEAST = 4096
_MAX_F16 = 65504.0
# Ops whose weights have one row per result channel on the first axis. In other ops the channel is the last axis.
_ROWS_FIRST = frozenset({"conv1d", "conv2d", "conv3d", "gather"})
WEIGHTS: Mapping[str, str] = MappingProxyType(
    {"f16": "half precision", "int8": "8 bits, a scale per channel"}
)


def shrunk(graph: Graph, weights: str) -> tuple[Graph, list[str]]:
    """A graph that computes the same from smaller weights, which it widens when they are set, and notes.

    Raises:
        InputError: There is no such way.
    """
    if weights not in WEIGHTS:
        hint = did_you_mean(str(weights), tuple(WEIGHTS))
        raise InputError("no such weights", got=repr(weights), hint=hint)
    readers = users(graph)
    rewriter, notes = Rewriter(graph), list[str]()
    new = rewriter.new
    for node in graph.nodes:
        value = graph.param_values.get(node.name) if node.op == "param" else None
        large = node.dtype is DType.F32 and len(node.shape) > 1 and node.type.size >= _LEAST
        if value is None or not large:
            rewriter.keep(node)
            continue
        result = np.asarray(value, np.float32)
        largest = float(np.max(np.abs(result)))
        if not np.isfinite(largest) or (weights == "f16" and largest > _MAX_F16):
            notes.append(f"{node.name} is left as it is: its values reach {largest:g}")
            rewriter.keep(node)
        elif weights == "f16":
            new.param_values[node.name] = result.astype(np.float16)
            rewriter.replace(node, new.cast(new.param(node.name, node.shape, DType.F16), DType.F32))
            notes.append(f"{node.name}: f16")
        else:
            rows_first = any(reader.op in _ROWS_FIRST for reader in readers[node.id])
            _int8(rewriter, node, result, 0 if rows_first else len(node.shape) - 1)
            notes.append(f"{node.name}: i8")
    return rewriter.finish(), notes


def _int8(rewriter: Rewriter, node: Node, value: Array, axis: int) -> None:
    """Symmetric: the largest value of a channel is 127 of its steps."""
    others = tuple(a for a in range(value.ndim) if a != axis)
    scale = np.max(np.abs(value), others, keepdims=True) / np.float32(127)
    steps = np.rint(value / np.where(scale == 0, np.float32(1), scale))
    new, name = rewriter.new, f"{node.name}:scale"
    new.param_values |= {node.name: steps.astype(np.int8), name: scale.astype(np.float32)}
    packed = new.param(node.name, node.shape, DType.I8)
    rewriter.replace(node, new.mul(new.cast(packed, DType.F32), new.param(name, scale.shape)))
