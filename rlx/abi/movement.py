"""Signatures of kernels that move elements (kernels/movement)."""

from __future__ import annotations

from typing import Literal, get_args

from rlx.abi.signature import BYTES, INT, INTS, NUMBERS, Parallel, Signature, choice

# How an update joins what is there.
Reduction = Literal["none", "add", "mul", "min", "max"]
REDUCTIONS: tuple[Reduction, ...] = get_args(Reduction)
# The padding around a tensor: its nearest element, a mirror image, or a repetition.
PADS = ("edge", "reflect", "wrap")

# An index of `depth` numbers names a place of axes of these sizes, by these strides.
_INDEX = {"depth": INT, "index_bytes": INT, "sizes": INTS, "axis_steps": INTS}

KERNELS = (
    Signature(
        "strided_copy",
        "Elements from one layout to another. A counter moves both offsets by its advances; all in elements.",
        {
            "rank": INT, "dims": INTS, "source_steps": INTS, "target_steps": INTS, "source_offset": INT,
            "target_offset": INT, "source_advance": INT, "target_advance": INT,
        },
        {"source": "T", "counter": "i32?"},
        {"target": "T"},
        types=BYTES,
        parallel=Parallel(),
    ),
    Signature(
        "pad",
        "Elements with one value around them: sizes of the result, of the operand, and what stands before it.",
        {"rank": INT, "dims": INTS, "inside": INTS, "before": INTS},
        {"x": "T", "value": "T"},
        {"y": "T"},
        types=BYTES,
        parallel=Parallel(),
    ),
    Signature(
        "pad_repeat",
        "Elements with borders that repeat some of them: sizes of the result and of the operand in units of "
        "neighbouring elements, and how many stand before it.",
        {"rank": INT, "mode": choice("PAD", *PADS), "unit": INT, "dims": INTS, "inside": INTS, "before": INTS},
        {"x": "T"},
        {"y": "T"},
        types=BYTES,
        parallel=Parallel(),
    ),
    Signature(
        "gather",
        "Elements at the places that indices name.",
        {"rank": INT, "count": INT, "dims": INTS, "data_steps": INTS, "index_steps": INTS, **_INDEX},
        {"x": "T", "index": "i32|i64"},
        {"y": "T"},
        types=BYTES,
        parallel=Parallel(),
    ),
    Signature(
        "scatter",
        "Updates start to stop of each of some lines, at the places that indices name, in order. The result holds "
        "a copy of the data.",
        {
            "rank": INT, "reduction": choice("REDUCTION", *REDUCTIONS), "start": INT, "stop": INT, "index_step": INT,
            "update_step": INT, "lines": INT, "dims": INTS, "data_steps": INTS, "index_steps": INTS,
            "update_steps": INTS, **_INDEX,
        },
        {"updates": "T", "index": "i32|i64"},
        {"y": "T"},
        types=(*NUMBERS, "bool"),
        # Lines do not meet.
        parallel=Parallel(most=lambda p: p.lines // 64, once=True),
    ),
)  # fmt: skip
