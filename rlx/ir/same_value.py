"""Finds nodes that compute the same value."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.view import NodeView
from rlx.sizes import SizeExpr

# Operations on the way to leaves that are compared. Values are taken for different beyond.
_DEEPEST = 64
# Elements of constants that are compared.
_FEW = 64


def is_same_value(a: NodeView, b: NodeView) -> bool:
    """Returns whether two nodes of a graph surely compute the same value. Nothing is decided about sizes."""
    return _same_nodes(a, b, _DEEPEST)


def _same_nodes(a: NodeView, b: NodeView, deepest: int) -> bool:
    if a is b:
        return True
    if a.opdef is not b.opdef or a.op in ("input", "param", "custom") or not deepest:
        return False
    if len(a.inputs) != len(b.inputs) or a.attrs.keys() != b.attrs.keys():
        return False
    if not all(_same(a.attrs[name], b.attrs[name]) for name in a.attrs):
        return False
    return all(_same_nodes(x, y, deepest - 1) for x, y in zip(a.inputs, b.inputs, strict=True))


def _same(a: Any, b: Any) -> bool:
    """Returns whether two attributes are the same."""
    if a is b:
        return True
    if type(a) is not type(b):
        return False
    if isinstance(a, SizeExpr):
        return bool(a.terms == b.terms)
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(_same, a, b))
    if isinstance(a, np.ndarray):
        few = a.size <= _FEW and a.shape == b.shape and a.dtype == b.dtype
        return bool(few and a.tobytes() == b.tobytes())
    return isinstance(a, int | float | str) and bool(a == b)
