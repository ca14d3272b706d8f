"""Floats of 8 and 4 bits: what each code stands for, and the code of a number, as arrays and as nodes.

Graphs hold the codes as bytes. A code is looked up in a table of numbers; a number becomes a code by steps that
are exact in f32.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Graph, Node

Array = np.ndarray[Any, Any]


class Format(NamedTuple):
    """The encoding of a narrow float: sign, exponent, mantissa.

    Attributes:
        exponent: Bits of the exponent.
        mantissa: Bits of the mantissa.
        bias: The number that is subtracted from the exponent.
        special: "ieee" with infinities and NaN, "fn" with NaN in the last code only, "fnuz" with NaN in the
            place of -0, "finite" with neither, "power" without sign and mantissa.
    """

    exponent: int
    mantissa: int
    bias: int
    special: str

    @property
    def sign(self) -> int:
        """The code of the sign's bit."""
        return 1 << (self.exponent + self.mantissa)

    @property
    def largest(self) -> int:
        """The code of the largest finite number."""
        spare = {"ieee": 1 + (1 << self.mantissa), "fn": 2}.get(self.special, 1)
        return self.sign - spare

    @property
    def nan(self) -> int:
        """The code of NaN."""
        return self.sign if self.special == "fnuz" else self.sign - 1


FORMATS: dict[str, Format] = {
    "float8e4m3fn": Format(4, 3, 7, "fn"),
    "float8e4m3fnuz": Format(4, 3, 8, "fnuz"),
    "float8e5m2": Format(5, 2, 15, "ieee"),
    "float8e5m2fnuz": Format(5, 2, 16, "fnuz"),
    "float4e2m1": Format(2, 1, 1, "finite"),
    "float8e8m0": Format(8, 0, 127, "power"),
}


def table(name: str) -> Array:
    """The number of every code, in f32."""
    form = FORMATS[name]
    if form.special == "power":
        powers = np.ldexp(np.float32(1), np.arange(255) - form.bias)
        return np.append(powers, np.float32(np.nan)).astype(np.float32)
    codes = np.arange(form.sign)
    exponent, mantissa = codes >> form.mantissa, codes & ((1 << form.mantissa) - 1)
    normal = exponent > 0
    whole = mantissa + np.where(normal, 1 << form.mantissa, 0)
    shift = np.where(normal, exponent, 1) - form.bias - form.mantissa
    numbers = np.ldexp(whole.astype(np.float32), shift)
    if form.special == "ieee":
        numbers[form.largest + 1], numbers[form.largest + 2 :] = np.inf, np.nan
    elif form.special == "fn":
        numbers[form.nan] = np.nan
    both: Array = np.concatenate([numbers, -numbers])
    if form.special == "fnuz":
        both[form.nan] = np.nan
    return both


def decoded(g: Graph, codes: Node, name: str) -> Node:
    """The numbers of a tensor of codes, in f32."""
    return g.gather(g.constant(table(name)), g.cast(codes, "i32"), 0)


def encoded(g: Graph, x: Node, name: str, saturate: bool = True) -> Node:
    """The codes of the numbers nearest to those of a tensor, the even one of two.

    With ``saturate`` what is too large becomes the largest number; otherwise infinity or NaN.

    Raises:
        RefusedError: There is no way to that format here.
    """
    form = FORMATS[name]
    if form.special == "power":
        raise RefusedError(f"numbers as {name}")
    size = g.abs(x)
    # The distance of numbers near x, and how many times it has doubled since the smallest ones.
    least = 2.0 ** (1 - form.bias - form.mantissa)
    distance, doublings = g.constant(np.float32(least)), g.constant(np.float32(0))
    for step in range(1, (1 << form.exponent) - 1):
        limit = least * 2.0 ** (form.mantissa + step)
        distance = g.where(g.ge(size, limit), g.constant(np.float32(least * 2.0**step)), distance)
        doublings = g.where(g.ge(size, limit), g.constant(np.float32(step)), doublings)
    count = g.round(g.div(size, distance))
    code = g.add(count, g.mul(doublings, float(1 << form.mantissa)))
    over = form.largest if saturate or form.special == "finite" else form.largest + 1
    if not saturate and form.special == "fnuz":
        over = form.nan
    code = g.where(g.gt(code, float(form.largest)), g.constant(np.float32(over)), code)
    negative = g.lt(x, 0.0)
    if form.special != "fnuz":
        # -0 keeps its sign: 1 / -0 is below 0.
        zero = g.constant(np.float32(0))
        negative = g.logical_or(negative, g.logical_and(g.eq(x, zero), g.lt(g.reciprocal(x), 0.0)))
    elif over == form.nan or saturate:
        # -0 has no code, and NaN has no sign.
        negative = g.logical_and(
            negative, g.logical_and(g.gt(code, 0.0), g.ne(code, float(form.nan)))
        )
    code = g.where(negative, g.add(code, float(form.sign)), code)
    # Some GPUs take NaN for a large number in comparisons. Formats without NaN have 0 for it.
    missing = 0 if form.special == "finite" else form.nan
    return g.cast(g.where(g.is_nan(x), g.constant(np.float32(missing)), code), "u8")
