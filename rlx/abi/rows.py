"""Signatures of kernels along one axis of [outer, n, inner] (kernels/rows)."""

from __future__ import annotations

from math import ceil
from typing import Any

from rlx.abi.constants import LINE_COLUMNS, TREE_ROWS
from rlx.abi.signature import FLAG, FLOATS, INT, NUMBERS, REAL, Parallel, Scratch, Signature, choice
from rlx.sizes import flag, largest

_AXIS = {"outer": INT, "n": INT, "inner": INT}

# Threads share outer positions or columns, whichever are more.
_LINES = Parallel(most=lambda p: largest(p.outer, p.inner // LINE_COLUMNS))


def _pieces(p: Any) -> int:
    """Results of a reduction that threads share: of outer positions, and of the pieces of their lines."""
    result: int = largest(p.outer * ceil(p.n / p.length), p.inner // LINE_COLUMNS)
    return result


def _pairs(p: Any) -> Any:
    """Pairs of a value and a place: the first few and the values of a row, or, of many, the row and a copy."""
    return (p.k + p.n // 2 + 1 + p.n * flag(2 * p.k - p.n + 1)) * (2 if p.itemsize == 8 else 1)


def _reduction(kind: str, doc: str, types: tuple[str, ...]) -> Signature:
    return Signature(
        f"reduce_{kind}",
        f"{doc} Lines of more than `length` elements have a result for each piece of as many.",
        {**_AXIS, "length": INT, "divisor": INT},
        {"x": "T"},
        {"y": "T"},
        types=types,
        parallel=Parallel(most=_pieces),
    )


KERNELS = (
    Signature(
        "softmax",
        "Softmax over the middle axis, or its logarithm.",
        {**_AXIS, "log": FLAG},
        {"x": "T"},
        {"y": "T"},
        types=FLOATS,
        parallel=_LINES,
    ),
    Signature(
        "layer_norm",
        "Rows normalised; with rms the mean stays in. With a residual the rows are those of x + residual: they are "
        "the second result where one is asked for.",
        {"rows": INT, "n": INT, "eps": REAL, "rms": FLAG},
        {"x": "T", "weight": "T?", "bias": "T?", "residual": "T?"},
        {"y": "T", "sum": "T?"},
        types=FLOATS,
        parallel=Parallel("rows", lambda p: ((p.n, 0, 0, p.n), (p.n, p.n))),
    ),
    _reduction("sum", "Sums over the middle axis.", NUMBERS),
    _reduction("mean", "Sums over the middle axis, divided by `divisor`.", FLOATS),
    _reduction("sum_squares", "Sums of squares over the middle axis.", FLOATS),
    _reduction("sum_abs", "Sums of absolute values over the middle axis.", FLOATS),
    _reduction("max", "Maxima over the middle axis; NaN is larger than any number.", NUMBERS),
    _reduction("min", "Minima over the middle axis; NaN is smaller than any number.", NUMBERS),
    _reduction("prod", "Products over the middle axis.", NUMBERS),
    Signature(
        "arg_reduce",
        "Where the extreme of the middle axis is: the first, or the last of equals.",
        {**_AXIS, "largest": FLAG, "last": FLAG},
        {"x": "T"},
        {"y": "i32"},
        types=NUMBERS,
        parallel=_LINES,
    ),
    Signature(
        "cumulate",
        "Running sums or products over the middle axis.",
        {**_AXIS, "product": FLAG, "exclusive": FLAG, "reverse": FLAG},
        {"x": "T"},
        {"y": "T"},
        types=NUMBERS,
        parallel=_LINES,
    ),
    Signature(
        "topk",
        "The k first of every row in order, with their places. Ties go to the lower place, NaN comes last.",
        {"rows": INT, "n": INT, "k": INT, "largest": FLAG},
        {"x": "T"},
        {"values": "T", "places": "i32"},
        {"pairs": Scratch("i64", _pairs)},
        NUMBERS,
        parallel=Parallel(most=lambda p: p.rows),
    ),    Signature(
        "tree_scores",
        "What the leaves of trees hold that rows come to, joined for each target. With `copied` a row is followed by a "
        "copy in which -inf stands for NaN. Entries of a node are those that `spans` says, or without it the one of its "
        "own number. Without `questions` all nodes ask whether the feature is at most the split.",
        {
            "rows": INT, "features": INT, "count": INT, "trees": INT, "join": choice("JOIN", "sum", "min", "max"),
            "copied": FLAG,
        },
        {
            "x": "T", "nodes": "i32", "roots": "i32", "targets": "i32", "weights": "T", "spans": "i32?",
            "questions": "i32?",
        },
        {"y": "T"},
        {
            "totals": Scratch("f64", lambda p: min(p.rows, TREE_ROWS) * p.count),
            "copies": Scratch("T", lambda p: 2 * min(p.rows, TREE_ROWS) * p.features * p.copied),
        },
        FLOATS,
        parallel=Parallel(most=lambda p: p.rows),
    ),
)  # fmt: skip
