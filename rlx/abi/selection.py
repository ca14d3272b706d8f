"""Signatures of kernels whose results are as many as the data say (kernels/selection)."""

from __future__ import annotations

from rlx.abi.signature import FLAG, INT, INTS, Parallel, Scratch, Signature

KERNELS = (
    Signature(
        "true_positions",
        "The coordinates of the first `count` elements that are true, in order. Rows past the last one are 0.",
        {"rank": INT, "count": INT, "dims": INTS},
        {"mask": "bool"},
        {"y": "i64"},
        alone="The place of a result is the number of those before it.",
    ),
    Signature(
        "non_max_suppression",
        "The boxes of each row of scores that are kept, the best first, and -1 behind them: a box is dropped where its "
        "overlap with a kept one is above a threshold. Boxes are those of the batch that the row belongs to.",
        {"batches": INT, "classes": INT, "n": INT, "most": INT, "centred": FLAG},
        {"boxes": "f32", "scores": "f32", "limit": "i64", "overlap": "f32", "least": "f32"},
        {"kept": "i32"},
        {
            # Two copies of a row as pairs of a key and a place, and its keys.
            "pairs": Scratch("i64", lambda p: 2 * p.n),
            "keys": Scratch("i32", lambda p: p.n),
            # Corners and areas of the kept boxes, each of the five in a line of its own.
            "corners": Scratch("f32", lambda p: 5 * (p.most + 16)),
        },
        parallel=Parallel(most=lambda p: p.batches * p.classes),
    ),
)
