"""Signatures of the matrix products (kernels/products)."""

from __future__ import annotations

from typing import Any, Literal, get_args

from rlx.abi.constants import (
    BYTE_ROWS,
    EXPERT_COLUMNS,
    EXPERT_ROWS,
    PANEL,
    PANEL_COLUMNS,
    PANEL_DEPTH,
    ROUNDED_BYTES,
    ROUNDED_PANEL,
    ROUNDED_ROWS,
)
from rlx.abi.signature import (
    FLAG,
    FLOATS,
    INT,
    INTS,
    LINKED,
    Group,
    Parallel,
    ParamField,
    Scratch,
    Signature,
    choice,
)
from rlx.sizes import largest, smallest

# The activation after a product, applied to each result before it is stored.
Activation = Literal["none", "relu", "gelu", "gelu_approx", "silu", "sigmoid", "tanh", "hard_swish"]
ACTIVATIONS: tuple[Activation, ...] = get_args(Activation)
ACTIVATION = choice("ACT", *ACTIVATIONS)

# Formats of quantised weights: blocks of GGUF files, then plain groups with scales of their own.
SCHEMES = (
    "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K", "IQ4_NL", "IQ4_XS", "MXFP4",
    "Q8_K", "int4", "int8",
)  # fmt: skip
SCHEME = choice("SCHEME", *SCHEMES)
# Those that products read in panels on the CPU (kernels/products/block_forms.h).
PANEL_SCHEMES = SCHEMES[: SCHEMES.index("Q8_K")]

# How the right operand of a product is packed: not at all, or in panels of these elements.
PACKINGS = ("none", "same", "f16", "bf16", "blocks")
PACKING = ParamField(choices=PACKINGS, enum="PACKING", linked=True)

# The batch axes of a product: their sizes, and the steps of both operands along them, in matrices.
_BATCH = {"rank": INT, "dims": INTS, "a_steps": INTS, "b_steps": INTS}

_WEIGHTS = Group(
    "rlx_quantized",
    {"scheme": SCHEME, "k": INT, "row_bytes": INT, "group": INT, "scale_bytes": INT, "zero_bytes": INT},
)  # fmt: skip


def rounded_bytes(k: Any) -> Any:
    """Bytes of a row of ``k`` elements that ``round_rows`` rounds (kernels/products/block_rounding.h)."""
    return -(-k // 256) * ROUNDED_BYTES


def _listed_rows(p: Any) -> Any:
    """Bytes: some rows, their results, and the order of all rows."""
    row = largest(rounded_bytes(p.k), 4 * p.k)  # rounded or not
    rows = EXPERT_ROWS * (row + 4 * EXPERT_COLUMNS) + 8 * (p.experts + 1 + p.m)
    return rows if p.experts else 0


def _byte_rows(p: Any) -> Any:
    """Bytes: where the sums of rows begin, these rows as 16-bit numbers, and a panel with its sums."""
    fours = -(-p.k // 8) * 2
    columns = smallest(-(-p.n // 16) * 16, PANEL_COLUMNS)
    return 4 * BYTE_ROWS + 8 * fours * smallest(p.m, BYTE_ROWS) + 4 * columns * (fours + 1)


def _rounded_rows(p: Any) -> Any:
    """Bytes: scales of rows, these rows as 16-bit numbers, and a panel."""
    pairs = -(-p.k // 2)
    return 4 * ROUNDED_ROWS + 4 * pairs * smallest(p.m, ROUNDED_ROWS) + 2 * pairs * ROUNDED_PANEL


KERNELS = (
    Signature(
        "matmul",
        "Batched products [m, k] @ [k, n], a bias added and an activation applied. `rows` holds those of a in bf16, or windows "
        "of a, if there are taps.",
        {
            "m": INT, "k": INT, "n": INT, "batch": INT, "bias_at": INT, "act": ACTIVATION, "transposed_b": FLAG, "bf16": INT,
            "taps": INT, "packing": PACKING, "packed_stride": LINKED, **_BATCH,
        },
        {"a": "T", "b": "T|f16|bf16", "bias": "T?", "rows": "u8?"},
        {"y": "T"},
        {"panel": Scratch("T", lambda p: smallest(p.k, PANEL_DEPTH) * PANEL_COLUMNS)},
        FLOATS,
        variants=("tiles",),
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "gated_product",
        "act(a @ gate + gate_bias) * (a @ up + up_bias), of so many columns at a time.",
        {"m": INT, "k": INT, "n": INT, "act": ACTIVATION, "columns": INT, "packing": PACKING},
        {"a": "T", "gate": "T", "up": "T", "gate_bias": "T?", "up_bias": "T?"},
        {"y": "T"},
        {"panel": Scratch("T", lambda p: PANEL), "gates": Scratch("T", lambda p: p.m * (p.columns + PANEL_COLUMNS))},
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "grouped_matmul",
        "Each row of x times the matrix of its expert. With `partial` rows of negative experts are 0.",
        {
            "m": INT, "k": INT, "n": INT, "experts": INT, "index_bytes": INT, "partial": FLAG,
            "packing": PACKING, "packed_stride": LINKED,
        },
        {"x": "T", "weights": "T", "expert": "i32|i64"},
        {"y": "T"},
        {
            "panel": Scratch("T", lambda p: PANEL),
            "rows": Scratch("T", lambda p: EXPERT_ROWS * p.k),
            "results": Scratch("T", lambda p: EXPERT_ROWS * EXPERT_COLUMNS),
        },
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "matmul_integer",
        "Batched products of 8-bit integers in i32, exact.",
        {
            "m": INT, "k": INT, "n": INT, "batch": INT, "a_signed": FLAG, "b_signed": FLAG,
            "packing": PACKING, "packed_stride": LINKED, **_BATCH,
        },
        {"a": "i8|u8", "b": "i8|u8"},
        {"y": "i32"},
        {"rows": Scratch("u8", _byte_rows)},
        variants=("dots", "mmla"),
        parallel=Parallel(),
    ),
    Signature(
        "rounded_matmul",
        "x [m, k], each row rounded to 16 bits, @ transpose(w [n, k]), a scale for each row of w, and a bias.",
        {"m": INT, "n": INT, "k": INT, "packing": PACKING, "packed_stride": LINKED},
        {"x": "T", "w": "i8", "scales": "T", "bias": "T?"},
        {"y": "T"},
        {"rows": Scratch("u8", _rounded_rows)},
        ("f32",),
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "dequant_matmul",
        "x [m, k] @ transpose(w [n, k]), w quantised; w [experts, n, k] by row where there are experts. The rounded rows "
        "are read in place of x where w is packed.",
        {
            "weights": _WEIGHTS, "m": INT, "n": INT, "experts": INT, "index_bytes": INT, "bf16": INT,
            "packing": PACKING, "packed_stride": LINKED,
        },
        {"x": "T", "w": "u8", "scales": "f32|f16?", "zeros": "any?", "rows": "u8?", "expert": "i32|i64?"},
        {"y": "T"},
        {
            "panel": Scratch("T", lambda p: largest(PANEL, p.k // 16)),
            # Some rows of an expert, one after the other; their results; all rows in the order of their experts.
            "listed": Scratch("u8", _listed_rows),
        },
        ("f32",),
        variants=("dots", "tiles"),
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "dequant_products",
        "Up to three products of rows x [m, k], which `rows` holds rounded.",
        {
            "m": INT, "k": INT, "n": INTS, "schemes": INTS, "row_bytes": INTS, "bf16": INT, "packing": PACKING, "packed_stride": LINKED,
        },
        {"x": "T", "rows": "u8", "w": "u8", "w1": "u8?", "w2": "u8?"},
        {"y": "T", "y1": "T?", "y2": "T?"},
        types=("f32",),
        variants=("dots", "tiles"),
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "round_rows",
        "Rows of x [m, k] in 8 bits, with a scale for every 32 elements, or in bf16 where the processor multiplies that in tiles.",
        {"m": INT, "k": INT, "bf16": INT},
        {"x": "T"},
        {"rows": "u8"},
        types=("f32",),
        variants=("tiles",),
        parallel=Parallel("m", lambda p: ((p.k,), (rounded_bytes(p.k),))),
    ),
    Signature(
        "quantize_q8_0",
        "Numbers in blocks of Q8_0, so many blocks.",
        {"count": INT},
        {"x": "T"},
        {"y": "u8"},
        types=("f32",),
        parallel=Parallel("count", lambda _: ((32,), (34,))),
    ),
    Signature(
        "dequantize_blocks",
        "Rows of a quantised table, all in order (index_bytes 0) or those that an index names.",
        {"weights": _WEIGHTS, "count": INT, "table": INT, "index_bytes": INT, "packing": PACKING, "packed_stride": LINKED},
        {"w": "u8", "scales": "f32|f16?", "zeros": "any?", "index": "i32|i64?"},
        {"y": "f32"},
        types=("u8",),
        parallel=Parallel(most=lambda p: p.count),
    ),
)  # fmt: skip
