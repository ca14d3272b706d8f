"""Elementwise operations, one line each: the table that the records, the C loops and the WGSL share.

This file is also run by ``setup.py`` while rlx is not importable, so it imports nothing of rlx.

``c`` is a C expression over operands ``x``, ``y``, ``z`` of type ``T``; ``FN(exp)`` is the function
for that type in ``cython_src/kernels/elementwise/functions.h``; ``VECTOR_FUNCTIONS`` stand in place of it in f32.
``wgsl`` is a WGSL expression over operands of type ``V`` (four lanes of the element type; ``U`` is
four lanes of u32); functions that WGSL lacks are in ``shaders/lib/math.wgsl``, and a name that ends
in ``_T`` stands for one per element type. i64, for which WGSL has no type, is computed by the function
``wide_<name>`` of ``shaders/lib/wide.wgsl`` instead. WGSL lets max, min and != lose a NaN, so those are written
with comparisons that keep it.
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


def _softplus(x: Any) -> Any:
    return np.maximum(x, 0) + np.log1p(np.exp(-np.abs(x)))


def _div(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind == "f":
        return x / y
    by = np.where(y == 0, np.ones_like(y), y)
    quotient = np.floor_divide(x, by)
    # Rounds toward zero: the floor plus one where the signs differ and the division leaves a remainder.
    below = (x != quotient * by) & ((x < 0) != (by < 0))
    return np.where(y == 0, np.zeros_like(x), quotient + below.astype(quotient.dtype))


def _pow(x: Any, y: Any) -> Any:
    if np.asarray(x).dtype.kind == "f":
        # np.power takes the square root where y is the number 0.5, which differs for -0 and -inf.
        return np.float_power(x, y)
    # A negative exponent of an integer gives 1 / x**-y rounded toward zero: 1, -1 or 0.
    whole = np.power(x, np.maximum(y, 0))
    unit = np.where(x == 1, 1, np.where(x + 1 == 0, 1 - 2 * (y & 1), 0))
    return np.where(y < 0, unit, whole)


# Klambauer et al. 2017, arXiv:1706.02515.
SELU_SCALE = 1.0507009873554805
SELU_ALPHA = 1.6732632423543772


class ElementwiseRow(NamedTuple):
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
        doc: The description of its result.
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


TABLE: tuple[ElementwiseRow, ...] = (
    ElementwiseRow("copy", 1, "fib", "same", lambda x: x, "x", "x", 0, "x itself, in memory of its own."),
    ElementwiseRow("neg", 1, "fi", "same", np.negative, "negative_T(x)", "NEG(x)", 1, "-x."),
    ElementwiseRow("abs", 1, "fi", "same", np.abs, "abs(x)", "FN(abs)(x)", 1, "Absolute value."),
    ElementwiseRow("sign", 1, "fi", "same", np.sign, "sign_T(x)", "FN(sign)(x)", 1,
        "-1, 0 or 1 by the sign of x; NaN for NaN."),
    ElementwiseRow("exp", 1, "f", "same", np.exp, "exponential(x)", "FN(exp)(x)", 8, "e to the power x."),
    ElementwiseRow("exp2", 1, "f", "same", np.exp2, "keep_nan(x, exp2(x))", "FN(exp2)(x)", 8, "2 to the power x."),
    ElementwiseRow("expm1", 1, "f", "same", np.expm1, "expm1(x)", "FN(expm1)(x)", 10,
        "exp(x) - 1, exact near 0."),
    ElementwiseRow("log", 1, "f", "same", np.log, "logarithm(x)", "FN(log)(x)", 8, "Natural logarithm.", 0.01, 9.0),
    ElementwiseRow("log1p", 1, "f", "same", np.log1p, "log1p(x)", "FN(log1p)(x)", 12,
        "log(1 + x), exact near 0.", -0.9, 9.0),
    ElementwiseRow("sqrt", 1, "f", "same", np.sqrt, "sqrt(x)", "FN(sqrt)(x)", 4, "Square root.", 0.0, 9.0),
    ElementwiseRow("rsqrt", 1, "f", "same", lambda x: 1 / np.sqrt(x), "inverseSqrt(x)", "1 / FN(sqrt)(x)", 5,
        "1 / sqrt(x).", 0.01, 9.0),
    ElementwiseRow("power_half", 1, "f", "same", lambda x: np.float_power(x, 0.5), "power_half(x)",
        "FN(sqrt)(x == -(T)INFINITY ? (T)INFINITY : x + 0)", 5,
        "x to the power 1/2: the square root, but 0 for -0 and infinity for minus infinity.", 0.0, 9.0),
    ElementwiseRow("reciprocal", 1, "f", "same", lambda x: 1 / x, "1.0 / x", "1 / x", 4, "1 / x.", 0.1, 9.0),
    ElementwiseRow("sin", 1, "f", "same", np.sin, "sine(x)", "FN(sin)(x)", 12,
        "Sine of an angle in radians; on the GPU for |x| up to 1e5.", -40.0, 40.0),
    ElementwiseRow("cos", 1, "f", "same", np.cos, "cosine(x)", "FN(cos)(x)", 12,
        "Cosine of an angle in radians; on the GPU for |x| up to 1e5.", -40.0, 40.0),
    ElementwiseRow("tan", 1, "f", "same", np.tan, "sine(x) / cosine(x)", "FN(tan)(x)", 26,
        "Tangent of an angle in radians; on the GPU for |x| up to 1e5.", -1.4, 1.4),
    ElementwiseRow("asin", 1, "f", "same", np.arcsin, "asine(x)", "FN(asin)(x)", 20,
        "Inverse sine in radians; NaN outside -1 to 1.", -1.0, 1.0),
    ElementwiseRow("acos", 1, "f", "same", np.arccos, "acosine(x)", "FN(acos)(x)", 20,
        "Inverse cosine in radians; NaN outside -1 to 1.", -1.0, 1.0),
    ElementwiseRow("atan", 1, "f", "same", np.arctan, "atangent(x)", "FN(atan)(x)", 16,
        "Inverse tangent in radians."),
    ElementwiseRow("sinh", 1, "f", "same", np.sinh, "hyperbolic_sine(x)", "FN(sinh)(x)", 14,
        "Hyperbolic sine."),
    ElementwiseRow("cosh", 1, "f", "same", np.cosh, "hyperbolic_cosine(x)", "FN(cosh)(x)", 14,
        "Hyperbolic cosine."),
    ElementwiseRow("tanh", 1, "f", "same", np.tanh, "safe_tanh(x)", "FN(tanh)(x)", 12, "Hyperbolic tangent."),
    ElementwiseRow("asinh", 1, "f", "same", np.arcsinh, "area_sine(x)", "FN(asinh)(x)", 20,
        "Inverse hyperbolic sine."),
    ElementwiseRow("acosh", 1, "f", "same", np.arccosh, "area_cosine(x)", "FN(acosh)(x)", 20,
        "Inverse hyperbolic cosine; NaN below 1.", 1.0, 9.0),
    ElementwiseRow("atanh", 1, "f", "same", np.arctanh, "area_tangent(x)", "FN(atanh)(x)", 20,
        "Inverse hyperbolic tangent; NaN outside -1 to 1.", -0.99, 0.99),
    ElementwiseRow("erf", 1, "f", "same", erf, "erf(x)", "FN(erf)(x)", 16, "Error function."),
    ElementwiseRow("ceil", 1, "f", "same", np.ceil, "ceil(x)", "FN(ceil)(x)", 1, "Least integer >= x."),
    ElementwiseRow("floor", 1, "f", "same", np.floor, "floor(x)", "FN(floor)(x)", 1,
        "Greatest integer <= x."),
    ElementwiseRow("round", 1, "f", "same", np.rint, "round(x)", "FN(round)(x)", 1,
        "Nearest integer, halves to the even one."),
    ElementwiseRow("sigmoid", 1, "f", "same", _sigmoid, "sigmoid(x)", "FN(sigmoid)(x)", 10,
        "1 / (1 + exp(-x))."),
    ElementwiseRow("relu", 1, "fi", "same", lambda x: np.maximum(x, 0), "relu_T(x)",
        "x < 0 ? (T)0 : x", 1, "max(x, 0)."),
    ElementwiseRow("gelu", 1, "f", "same", lambda x: 0.5 * x * (1 + erf(x * math.sqrt(0.5))),
        "0.5 * x * (1.0 + erf(x * 0.7071067811865476))",
        "(T)0.5 * x * (1 + FN(erf)(x * (T)0.70710678118654752440))", 20,
        "x/2 * (1 + erf(x / sqrt 2)) (Hendrycks & Gimpel 2016, arXiv:1606.08415)."),
    ElementwiseRow("gelu_approx", 1, "f", "same",
        lambda x: 0.5 * x * (1.0 + np.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x**3))),
        "0.5 * x * (1.0 + safe_tanh(0.7978845608028654 * (x + 0.044715 * x * x * x)))",
        "(T)0.5 * x * (1 + FN(tanh)((T)0.79788456080286535588 * (x + (T)0.044715 * x * x * x)))",
        20, "The tanh form of gelu (Hendrycks & Gimpel 2016, arXiv:1606.08415)."),
    ElementwiseRow("silu", 1, "f", "same", lambda x: x * _sigmoid(x), "x * sigmoid(x)",
        "x * FN(sigmoid)(x)", 11, "x * sigmoid(x)."),
    ElementwiseRow("selu", 1, "f", "same",
        lambda x: SELU_SCALE * np.where(x > 0, x, SELU_ALPHA * np.expm1(np.minimum(x, 0))),
        f"{SELU_SCALE} * select({SELU_ALPHA} * expm1(x), x, x > V(0))",
        f"(T){SELU_SCALE} * (x > 0 ? x : (T){SELU_ALPHA} * FN(expm1)(x > 0 ? (T)0 : x))", 14,
        "The self-normalising unit s * (x if x > 0 else a * (exp(x) - 1)) (arXiv:1706.02515)."),
    ElementwiseRow("softplus", 1, "f", "same", _softplus, "softplus(x)", "FN(softplus)(x)", 22,
        "log(1 + exp(x))."),
    ElementwiseRow("softsign", 1, "f", "same", lambda x: x / (1 + np.abs(x)), "x / (1.0 + abs(x))",
        "x / (1 + FN(abs)(x))", 6, "x / (1 + |x|)."),
    ElementwiseRow("hard_swish", 1, "f", "same", lambda x: x * np.clip(x / 6 + 0.5, 0, 1),
        "x * clamp(x * 0.16666666666666667 + 0.5, V(0.0), V(1.0))",
        "x * FN(unit)(x * (T)0.16666666666666666667 + (T)0.5)", 5,
        "x * clip(x / 6 + 1/2, 0, 1) (arXiv:1905.02244)."),
    ElementwiseRow("mish", 1, "f", "same", lambda x: x * np.tanh(_softplus(x)), "x * safe_tanh(softplus(x))",
        "x * FN(tanh)(FN(softplus)(x))", 36, "x * tanh(softplus(x)) (arXiv:1908.08681)."),
    ElementwiseRow("is_nan", 1, "f", "bool", np.isnan,
        "(bitcast<U>(x) & U(0x7fffffffu)) > U(0x7f800000u)", "x != x", 1, "Whether x is NaN."),
    ElementwiseRow("is_inf", 1, "f", "bool", np.isinf,
        "(bitcast<U>(x) & U(0x7fffffffu)) == U(0x7f800000u)",
        "x == (T)INFINITY || x == -(T)INFINITY", 1, "Whether x is infinite."),
    ElementwiseRow("logical_not", 1, "b", "bool", np.logical_not, "!x", "!x", 1, "Not x."),
    ElementwiseRow("add", 2, "fi", "same", np.add, "x + y", "ADD(x, y)", 1, "a + b."),
    ElementwiseRow("sub", 2, "fi", "same", np.subtract, "x - y", "SUB(x, y)", 1, "a - b."),
    ElementwiseRow("mul", 2, "fi", "same", np.multiply, "x * y", "MUL(x, y)", 1, "a * b."),
    ElementwiseRow("div", 2, "fi", "same", _div, "quotient_T(x, y)", "FN(div)(x, y)", 4,
        "a / b; integers are truncated toward zero, and give 0 for b = 0.", 0.5, 9.0),
    ElementwiseRow("mod", 2, "fi", "same", np.mod, "modulo_T(x, y)", "FN(mod)(x, y)", 8,
        "Remainder with the sign of b (Python's %); integers give 0 for b = 0.", 0.5, 9.0),
    ElementwiseRow("fmod", 2, "fi", "same", np.fmod, "remainder_T(x, y)", "FN(fmod)(x, y)", 8,
        "Remainder with the sign of a (C's fmod); integers give 0 for b = 0.", 0.5, 9.0),
    ElementwiseRow("maximum", 2, "fi", "same", np.maximum, "maximum_T(x, y)",
        "x > y || x != x ? x : y", 1, "The larger of a and b; NaN where either is."),
    ElementwiseRow("minimum", 2, "fi", "same", np.minimum, "minimum_T(x, y)",
        "x < y || x != x ? x : y", 1, "The smaller of a and b; NaN where either is."),
    ElementwiseRow("pow", 2, "fi", "same", _pow, "power_T(x, y)", "FN(pow)(x, y)", 20,
        "a to the power b; an integer to a negative power is 0, or 1 or -1 for a = 1 or -1.",
        0.1, 4.0),
    ElementwiseRow("atan2", 2, "f", "same", np.arctan2, "atangent2(x, y)", "FN(atan2)(x, y)", 20,
        "Angle of the point (b, a) in radians, -pi to pi."),
    ElementwiseRow("bit_and", 2, "ib", "same", np.bitwise_and, "x & y", "x & y", 1, "Bitwise and."),
    ElementwiseRow("bit_or", 2, "ib", "same", np.bitwise_or, "x | y", "x | y", 1, "Bitwise or."),
    ElementwiseRow("bit_xor", 2, "ib", "same", np.bitwise_xor, "exclusive_T(x, y)", "x ^ y", 1,
        "Bitwise exclusive or."),
    ElementwiseRow("shift_left", 2, "i", "same", np.left_shift,
        "select(x << (U(y) & U(31u)), V(0), U(y) > U(31u))", "FN(shift_left)(x, y)", 1,
        "a << b; 0 where b is not below the bits of the type.", 0.0, 12.0),
    ElementwiseRow("shift_right", 2, "i", "same", np.right_shift, "shift_right_T(x, U(y))",
        "FN(shift_right)(x, y)", 1, "a >> b; signed types keep the sign.", 0.0, 12.0),
    ElementwiseRow("logical_and", 2, "b", "bool", np.logical_and, "x & y", "x && y", 1, "a and b."),
    ElementwiseRow("logical_or", 2, "b", "bool", np.logical_or, "x | y", "x || y", 1, "a or b."),
    ElementwiseRow("logical_xor", 2, "b", "bool", np.logical_xor, "x != y", "x != y", 1, "Either a or b."),
    ElementwiseRow("eq", 2, "fib", "bool", np.equal, "x == y", "x == y", 1, "Whether a == b."),
    # Naga compiles != to a comparison that is false for NaN.
    ElementwiseRow("ne", 2, "fib", "bool", np.not_equal, "!(x == y)", "x != y", 1, "Whether a != b."),
    ElementwiseRow("lt", 2, "fi", "bool", np.less, "x < y", "x < y", 1, "Whether a < b."),
    ElementwiseRow("le", 2, "fi", "bool", np.less_equal, "x <= y", "x <= y", 1, "Whether a <= b."),
    ElementwiseRow("gt", 2, "fi", "bool", np.greater, "x > y", "x > y", 1, "Whether a > b."),
    ElementwiseRow("ge", 2, "fi", "bool", np.greater_equal, "x >= y", "x >= y", 1, "Whether a >= b."),
    ElementwiseRow("prelu", 2, "fi", "same", lambda x, y: np.where(x < 0, x * y, x),
        "select(x, x * y, x < V(0))", "x < 0 ? MUL(x, y) : x", 2,
        "x where x >= 0, slope * x below (arXiv:1502.01852)."),
    ElementwiseRow("fma", 3, "fi", "same", lambda x, y, z: x * y + z, "x * y + z", "ADD(MUL(x, y), z)", 2,
        "a * b + c."),
)  # fmt: skip

# Rows that are computed in whole vectors in f32, by the function of that name in functions.h, angles.h and
# powers.h of kernels/elementwise.
VECTOR_FUNCTIONS = frozenset(
    "exp exp2 expm1 log log1p tanh erf sigmoid gelu gelu_approx silu selu softplus mish "
    "sin cos tan asin acos atan sinh cosh asinh acosh atanh".split()
)
# The same of two operands.
VECTOR_PAIRS = frozenset({"pow"})

# Loops that stand for several steps of a program on the CPU, whose operands but the first are literals. In clip y is less
# than z; NaN stays.
JOINED_LOOPS = {"clip": "x > y ? (x < z ? x : z) : x == x ? y : x"}

# C type and kind of each dtype that has compiled loops.
C_TYPES = {
    "f32": ("float", "f"),
    "f64": ("double", "f"),
    "i32": ("int32_t", "i"),
    "u32": ("uint32_t", "i"),
    "i64": ("int64_t", "i"),
    "bool": ("uint8_t", "b"),
}


# Types that have no loops but casts, the C type that holds one, and the type they are cast through.
NARROW_TYPES = {
    "f16": ("rlx_f16", "f32"),
    "bf16": ("rlx_bf16", "f32"),
    "i8": ("int8_t", "i32"),
    "u8": ("uint8_t", "i32"),
}


# Casts by functions of half.h that take n elements: processors have instructions for them.
HALF_CASTS = {("f16", "f32"): "widen_f16", ("f32", "f16"): "narrow_f16"}


# Casts from these types would round twice if they went through f32.
ROUNDED_ONCE = (("f64", "f16"), ("f64", "bf16"), ("i32", "bf16"), ("u32", "bf16"), ("i64", "bf16"))


def casts() -> list[tuple[str, str, str]]:
    """The compiled casts: source, target and the C macro that converts one element."""
    wide = [(a, b, "CAST_BOOL" if b == "bool" else "CAST_PLAIN") for a in C_TYPES for b in C_TYPES]
    narrow = []
    for name, (_, through) in NARROW_TYPES.items():
        floating = through == "f32"
        narrow.append((name, through, f"CAST_FROM_{name}" if floating else "CAST_PLAIN"))
        narrow.append((through, name, f"CAST_TO_{name}" if floating else "CAST_PLAIN"))
    return wide + narrow + [(a, b, f"CAST_{b}_OF_{a}") for a, b in ROUNDED_ONCE]


def loop_names() -> list[str]:
    """Names of the compiled loops: ``add_f32``, ``where_i32``, ``cast_f32_i32``."""
    rows = [f"{r.name}_{d}" for r in TABLE for d, (_, kind) in C_TYPES.items() if kind in r.kinds]
    wheres = [f"where_{dtype}" for dtype in C_TYPES]
    joined = [
        f"{name}_{d}" for name in JOINED_LOOPS for d, (_, kind) in C_TYPES.items() if kind == "f"
    ]
    return rows + wheres + joined + [f"cast_{source}_{target}" for source, target, _ in casts()]


def c_header() -> str:
    """The table as C macro calls, one list per dtype; ``kernels/elementwise/elementwise.h`` expands them."""
    lines = ["/* Generated from rlx/ops/elementwise/table.py by setup.py. */"]
    for dtype, (ctype, kind) in C_TYPES.items():
        lines.append(f"#define T {ctype}")
        lines.append(f"#define FN(name) rlx_##name##_{dtype}")
        for row in (r for r in TABLE if kind in r.kinds):
            if dtype == "f32" and row.name in VECTOR_FUNCTIONS | VECTOR_PAIRS:
                loop = "LOOP_VECTOR" if row.operands == 1 else "LOOP_VECTOR2"
                lines.append(f"{loop}({row.name}_f32, v_{row.name})")
                continue
            out = "uint8_t" if row.result == "bool" else ctype
            lines.append(f"LOOP{row.operands}({row.name}_{dtype}, {out}, ({row.c}))")
        lines.append(f"LOOP_WHERE(where_{dtype})")
        for name, text in JOINED_LOOPS.items() if kind == "f" else ():
            lines.append(f"LOOP_LITERALS({name}_{dtype}, ({text}))")
        lines += ["#undef T", "#undef FN"]
    stored = {name: ctype for name, (ctype, _) in (C_TYPES | NARROW_TYPES).items()}
    for source, target, convert in casts():
        if (source, target) in HALF_CASTS:
            lines.append(
                f"LOOP_HALF(cast_{source}_{target}, {stored[source]}, {stored[target]}, {HALF_CASTS[source, target]})"
            )
            continue
        lines.append(
            f"LOOP_CAST(cast_{source}_{target}, {stored[source]}, {stored[target]}, {convert})"
        )
    entries = "".join(f" \\\n    ENTRY({name})" for name in loop_names())
    lines.append(f"#define LOOPS(ENTRY){entries}")
    return "\n".join(lines) + "\n"
