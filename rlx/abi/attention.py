"""The signature of attention (kernels/attention)."""

from __future__ import annotations

from rlx.abi.constants import ATTENTION_KEYS, ATTENTION_QUERIES, PANEL_COLUMNS, VECTOR_ELEMENTS
from rlx.abi.signature import (
    FLAG,
    FLOATS,
    INT,
    INT3,
    REAL,
    Parallel,
    ParamField,
    Scratch,
    Signature,
    choice,
)
from rlx.sizes import largest

# Which keys a query sees: all, those up to its own, those of a window before its own, those that a mask
# names, or all with a bias added to their scores.
KINDS = ("none", "causal", "sliding", "custom", "bias")
# How keys and values are kept.
KEPT = ("same", "f16", "q8_0")

KERNELS = (
    Signature(
        "attention",
        "Scaled dot-product attention. Strides are of batch, head and position; those of the mask of batch, head, "
        "query and key. With `many` queries share tiles of keys. Keys and values are of the queries' "
        "type, f16, or in blocks of Q8_0.",
        {
            "batch": INT, "heads": INT, "kv_heads": INT, "sq": INT, "sk": INT, "d": INT, "dv": INT, "q_steps": INT3,
            "k_steps": INT3, "v_steps": INT3, "o_steps": INT3, "mask_steps": ParamField(length=4),
            "kind": choice("SEES", *KINDS), "window": INT, "scale": REAL, "softcap": REAL, "many": FLAG,
            "kv_format": choice("KEPT", *KEPT),
        },
        {"q": "T", "k": "T|f16|u8", "v": "T|f16|u8", "mask": "T|bool?"},
        {"y": "T"},
        {
            # Tiles of keys, values and scores, and the largest score and the sum of each query; rows that are widened.
            "tiles": Scratch(
                "T",
                lambda p: p.many
                * (ATTENTION_KEYS * (p.d + p.dv + VECTOR_ELEMENTS + ATTENTION_QUERIES) + 2 * p.sq
                   + (p.kv_format > 0) * ATTENTION_KEYS * largest(p.d, PANEL_COLUMNS)),
            )
        },
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
)  # fmt: skip
