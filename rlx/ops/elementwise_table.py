"""Elementwise operations, one line each: the table that the records, the C loops and the WGSL share.

This file is also run by ``setup.py`` while rlx is not importable, so it imports nothing of rlx.

``c`` is a C expression over operands ``x``, ``y``, ``z`` of type ``T``; ``FN(exp)`` is the function
for that type in ``cython_src/kernels/vecmath.h``. ``wgsl`` is a WGSL expression over operands of
type ``V`` (four lanes of ``T``); functions that WGSL lacks are in ``shaders/lib/math.wgsl``.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Any) -> Any:
    """The error function in float64; NumPy has none."""
    return np.asarray(_erf(x), dtype=np.float64)


def _sigmoid(x: Any) -> Any:
    return 0.5 * (1.0 + np.tanh(0.5 * x))


def _gelu_approx(x: Any) -> Any:
    return 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3)))


def _div(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind == "f":
        return x / y
    wide = np.where(y == 0, 1, y).astype(np.float64)
    quotient = np.trunc(x.astype(np.float64) / wide)
    return np.where(y == 0, 0, quotient)


class Row(NamedTuple):
    """One elementwise operation.

    Attributes:
        name: The op.
        operands: Number of operands.
        kinds: Operand dtypes taken: f float, i integer, b bool.
        result: "same" as the operands, or "bool".
        numpy: The meaning.
        wgsl: The WGSL expression.
        c: The C expression.
        flops: Floating-point operations per element, an exponential counting as 8.
        doc: What it computes.
        low: Smallest operand the function is tested with.
        high: Largest.
    """

    name: str
    operands: int
    kinds: str
    result: str
    numpy: Callable[..., Any]
    wgsl: str
    c: str
    flops: int
    doc: str
    low: float = -4.0
    high: float = 4.0


TABLE: tuple[Row, ...] = (
    Row("copy", 1, "fib", "same", lambda x: x, "x", "x", 0, "x itself, in memory of its own."),
    Row("neg", 1, "fi", "same", np.negative, "-x", "NEG(x)", 1, "-x."),
    Row("abs", 1, "fi", "same", np.abs, "abs(x)", "FN(abs)(x)", 1, "Absolute value."),
    Row("exp", 1, "f", "same", np.exp, "exp(x)", "FN(exp)(x)", 8, "e to the power x."),
    Row("log", 1, "f", "same", np.log, "log(x)", "FN(log)(x)", 8, "Natural logarithm.", 0.01, 9.0),
    Row("sqrt", 1, "f", "same", np.sqrt, "sqrt(x)", "FN(sqrt)(x)", 4, "Square root.", 0.0, 9.0),
    Row("rsqrt", 1, "f", "same", lambda x: 1 / np.sqrt(x), "inverseSqrt(x)", "1 / FN(sqrt)(x)", 5,
        "1 / sqrt(x).", 0.01, 9.0),
    Row("reciprocal", 1, "f", "same", lambda x: 1 / x, "1.0 / x", "1 / x", 4, "1 / x.", 0.1, 9.0),
    Row("tanh", 1, "f", "same", np.tanh, "safe_tanh(x)", "FN(tanh)(x)", 12, "Hyperbolic tangent."),
    Row("erf", 1, "f", "same", erf, "erf(x)", "FN(erf)(x)", 16, "Error function."),
    Row("sigmoid", 1, "f", "same", _sigmoid, "sigmoid(x)", "FN(sigmoid)(x)", 10,
        "1 / (1 + exp(-x))."),
    Row("relu", 1, "fi", "same", lambda x: np.maximum(x, 0), "max(x, V(0))", "x < 0 ? (T)0 : x", 1,
        "max(x, 0)."),
    Row("gelu", 1, "f", "same", lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))),
        "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
        "(T)0.5 * x * (1 + FN(erf)(x * (T)0.70710678118654752440))", 20,
        "x/2 * (1 + erf(x / sqrt 2)) (Hendrycks & Gimpel 2016, arXiv:1606.08415)."),
    Row("gelu_approx", 1, "f", "same", _gelu_approx,
        "0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
        "(T)0.5 * x * (1 + FN(tanh)((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)))",
        20, "The tanh form of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415)."),
    Row("silu", 1, "f", "same", lambda x: x * _sigmoid(x), "x * sigmoid(x)",
        "x * FN(sigmoid)(x)", 11, "x * sigmoid(x)."),
    Row("add", 2, "fi", "same", np.add, "x + y", "ADD(x, y)", 1, "a + b."),
    Row("sub", 2, "fi", "same", np.subtract, "x - y", "SUB(x, y)", 1, "a - b."),
    Row("mul", 2, "fi", "same", np.multiply, "x * y", "MUL(x, y)", 1, "a * b."),
    Row("div", 2, "fi", "same", _div, "x / y", "FN(div)(x, y)", 4,
        "a / b; integers are truncated toward zero, and give 0 for b = 0.", 0.5, 9.0),
    Row("maximum", 2, "fi", "same", np.maximum, "max(x, y)", "x > y || x != x ? x : y", 1,
        "The larger of a and b; NaN where either is."),
    Row("minimum", 2, "fi", "same", np.minimum, "min(x, y)", "x < y || x != x ? x : y", 1,
        "The smaller of a and b; NaN where either is."),
    Row("pow", 2, "f", "same", np.power, "power(x, y)", "FN(pow)(x, y)", 20,
        "a to the power b.", 0.1, 4.0),
    Row("eq", 2, "fib", "bool", np.equal, "x == y", "x == y", 1, "Whether a == b."),
    Row("ne", 2, "fib", "bool", np.not_equal, "x != y", "x != y", 1, "Whether a != b."),
    Row("lt", 2, "fi", "bool", np.less, "x < y", "x < y", 1, "Whether a < b."),
    Row("le", 2, "fi", "bool", np.less_equal, "x <= y", "x <= y", 1, "Whether a <= b."),
    Row("gt", 2, "fi", "bool", np.greater, "x > y", "x > y", 1, "Whether a > b."),
    Row("ge", 2, "fi", "bool", np.greater_equal, "x >= y", "x >= y", 1, "Whether a >= b."),
)  # fmt: skip

# C type and kind of each dtype that has compiled loops.
C_TYPES = {
    "f32": ("float", "f"),
    "f64": ("double", "f"),
    "i32": ("int32_t", "i"),
    "u32": ("uint32_t", "i"),
    "i64": ("int64_t", "i"),
    "bool": ("uint8_t", "b"),
}


def loop_names() -> list[str]:
    """Names of the compiled loops: ``add_f32``, ``where_i32``, ``cast_f32_i32``."""
    rows = [f"{r.name}_{d}" for r in TABLE for d, (_, kind) in C_TYPES.items() if kind in r.kinds]
    wheres = [f"where_{dtype}" for dtype in C_TYPES]
    casts = [f"cast_{source}_{target}" for source in C_TYPES for target in C_TYPES]
    return rows + wheres + casts


def c_header() -> str:
    """The table as C macro calls, one list per dtype; ``kernels/elementwise.h`` expands them."""
    lines = ["/* Generated from rlx/ops/elementwise_table.py by setup.py. */"]
    for dtype, (ctype, kind) in C_TYPES.items():
        lines.append(f"#define T {ctype}")
        lines.append(f"#define FN(name) rlx_##name##_{dtype}")
        for row in (r for r in TABLE if kind in r.kinds):
            out = "uint8_t" if row.result == "bool" else ctype
            lines.append(f"LOOP{row.operands}({row.name}_{dtype}, {out}, ({row.c}))")
        lines.append(f"LOOP_WHERE(where_{dtype})")
        lines += ["#undef T", "#undef FN"]
    for source, (stype, _) in C_TYPES.items():
        for target, (ttype, _) in C_TYPES.items():
            convert = "CAST_BOOL" if target == "bool" else "CAST_PLAIN"
            lines.append(f"LOOP_CAST(cast_{source}_{target}, {stype}, {ttype}, {convert})")
    names = loop_names()
    lines.append(f"#define LOOP_COUNT {len(names)}")
    lines.append("#define LOOP_TABLE \\")
    lines += [f'    ENTRY("{name}", {name}) \\' for name in names]
    return "\n".join(lines) + "\n\n"
