"""The results of this domain's models from their scores: transforms, labels, and scores of two classes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.values import RefusedError, RefusedResult, as_dtype
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node

ML = "ai.onnx.ml"
ml = partial(onnx_op, domain=ML)
# Strings are said to be missing in one place, with what to do.
STRINGS = "strings; convert the model with integer labels and categories, or take only outputs that are numbers"
# The constant of Winitzki's approximation of the inverse error function.
_A = 0.147


def _probit(g: Graph, x: Node) -> Node:
    """The inverse of the normal distribution, by an approximation that is good to two digits."""
    y = g.sub(g.mul(x, 2.0), 1.0)
    log = g.log(g.mul(g.sub(g.constant(1.0, x.dtype), y), g.add(y, 1.0)))
    v = g.add(g.mul(log, 0.5), 2 / (math.pi * _A))
    root = g.sqrt(g.sub(g.sqrt(g.sub(g.mul(v, v), g.mul(log, 1 / _A))), v))
    return g.mul(g.where(g.lt(y, 0.0), g.neg(root), root), math.sqrt(2))


def _softmax_zero(g: Graph, x: Node) -> Node:
    """Softmax in which zeros stay zeros."""
    axis = len(x.shape) - 1
    top = g.max(x, (axis,), True)
    grown = g.exp(g.sub(x, top))
    retained = g.where(g.gt(g.abs(x), 1e-7), grown, g.mul(x, g.exp(g.neg(top))))
    return g.div(retained, g.sum(retained, (axis,), True))


TRANSFORMS: Mapping[str, Callable[[Graph, Node], Any]] = {
    "NONE": lambda g, x: x,
    "LOGISTIC": lambda g, x: g.sigmoid(x),
    "SOFTMAX": lambda g, x: g.softmax(x),
    "SOFTMAX_ZERO": _softmax_zero,
    "PROBIT": _probit,
}


def floats(call: OnnxCall, index: int = 0) -> Node:
    """An operand in f32, or in f64 as it is."""
    x = call.x(index)
    return x if x.dtype in (DType.F32, DType.F64) else call.g.cast(x, "f32")


def as_float(g: Graph, x: Node) -> Node:
    """A result in f32, which this domain gives whatever the operands are."""
    return as_dtype(g, x, DType.F32)


def rows(call: OnnxCall, index: int = 0) -> Node:
    """An operand ``[N, features]`` as floats; one row may come without its first axis."""
    x = floats(call, index)
    if len(x.shape) == 1:
        return call.g.unsqueeze(x, (0,))
    call.need(len(x.shape) == 2, f"rows of features in a tensor of shape {x.shape}")
    return x


def transformed(call: OnnxCall, x: Node, name: str | None = None) -> Node:
    """Scores after the node's ``post_transform``."""
    chosen = call.text("post_transform", "NONE") if name is None else name
    result: Node = TRANSFORMS[chosen](call.g, x)
    return result


class Labels:
    """The names of a classifier's classes.

    Args:
        call: The node.
        numbers: Attribute of labels that are integers.
        texts: Attribute of labels that are strings.
    """

    def __init__(self, call: OnnxCall, numbers: str, texts: str = "classlabels_strings") -> None:
        self.strings = bool(call.text_list(texts, ()))
        self.numbers = tuple(call.int_list(numbers, ()) or ())
        self.count = len(self.numbers) or len(call.text_list(texts, ()) or ())
        call.need(self.count > 0, "a classifier without labels of its classes")

    def of(self, g: Graph, places: Node) -> Node | RefusedResult:
        """The label of each place; strings are refused where they are used."""
        if self.strings:
            return RefusedResult(f"labels are {STRINGS}")
        table = np.array(self.numbers, np.int64)
        if np.array_equal(table, np.arange(len(table))):
            return g.cast(places, "i64")
        return g.gather(g.constant(table), places, 0)

    def best(self, g: Graph, scores: Node) -> Node | RefusedResult:
        """The label of the first largest score of each row."""
        return self.of(g, g.argmax(scores, 1))

    def second_if(self, g: Graph, chosen: Node) -> Node | RefusedResult:
        """The second label where a condition holds, and the first elsewhere."""
        return self.of(g, g.cast(chosen, "i32"))


def two_columns(call: OnnxCall, score: Node, opposite: str) -> Node:
    """The scores of two classes, ``[N, 2]``, from that of the second; of the transforms only LOGISTIC applies.

    The first class has 1 less the score where ``opposite`` is "one", and its negative where it is "negative".

    Raises:
        RefusedError: The transform has no meaning for one score.
    """
    g, name = call.g, call.text("post_transform", "NONE")
    if name == "PROBIT":
        raise RefusedError("post_transform 'PROBIT' of one score for two classes")
    if name == "LOGISTIC":
        parts = [g.sigmoid(g.neg(score)), g.sigmoid(score)]
    elif opposite == "one":
        parts = [g.sub(g.constant(1.0, score.dtype), score), score]
    else:
        parts = [g.neg(score), score]
    return g.concat(parts, 1)
