"""A graph computed in float64 throughout, and how far results are from that."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np

from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType
from rlx.ops.declare import evaluate, evaluate_reference
from rlx.ops.interpret import results_of
from rlx.regress.record_schema import Difference

# Digits of a dtype: bits of the significand, and the smallest exponent of a normal number.
_DIGITS = {
    DType.F64: (53, -1021),
    DType.F32: (24, -125),
    DType.F16: (11, -13),
    DType.BF16: (8, -125),
}


def exact_outputs(graph: Graph, leaves: Mapping[str, Array]) -> list[Array]:
    """The outputs, floats as float64 that nothing rounded but the casts of the graph itself.

    Args:
        graph: A verified graph.
        leaves: Value of every input and param by name, in its dtype.
    """
    values = results_of(graph.nodes, lambda node: widen(leaves[node.name], node.dtype), _evaluated)
    return [values[node.id][0] for node in graph.outputs]


def _evaluated(node: Node, operands: Sequence[Array]) -> tuple[Array, ...]:
    if not any(a.dtype == np.float64 for a in operands) or node.opdef.name == "cast":
        # A cast is there to round. The node as it is, on operands in their own dtypes.
        own = [store(a, item.dtype) for a, item in zip(operands, node.inputs, strict=True)]
        results = zip(evaluate(node, own), node.types, strict=True)
        return tuple(widen(item, type.dtype) for item, type in results)
    dtypes = [
        DType.F64 if operand.dtype == np.float64 else item.dtype
        for operand, item in zip(operands, node.inputs, strict=True)
    ]
    types = [TensorType(t.shape, DType.F64 if t.dtype.is_float else t.dtype) for t in node.types]
    return evaluate_reference(node.opdef, node.attrs, dtypes, operands, types)


def difference(got: Array, dtype: DType, expected: Array) -> Difference:
    """Computes the difference of an output from the reference.

    Args:
        got: The output, in the storage of its dtype.
        dtype: Its dtype.
        expected: The reference, in float64 for floats.
    """
    wide = np.asarray(widen(got, dtype), np.float64)
    want = np.asarray(expected, np.float64)
    nan, nan_expected = np.isnan(wide), np.isnan(want)
    # Numbers beyond the range of the dtype are infinite in it, and numbers below it are zero.
    want = np.where(np.abs(want) > _largest(dtype), np.copysign(np.inf, want), want)
    want = np.where(np.abs(want) <= _smallest(dtype) / 2, np.copysign(0.0, want), want)
    inf, inf_expected = np.isinf(wide), np.isinf(want)
    finite = ~(nan | nan_expected | inf | inf_expected)
    with np.errstate(all="ignore"):
        apart = np.abs(wide[finite] - want[finite])
        elsewhere = not (
            np.array_equal(nan, nan_expected)
            and np.array_equal(wide[inf | inf_expected], want[inf | inf_expected])
        )
        scale = float(np.max(np.abs(want[finite]), initial=0.0)) or 1.0
        largest = float(np.max(apart, initial=0.0))
        rms = float(np.sqrt(np.mean(np.square(apart)))) if apart.size else 0.0
        ulp = (
            float(np.max(apart / _ulp(want[finite], dtype), initial=0.0))
            if dtype.is_float
            else None
        )
    return Difference(
        max_abs=_known(largest),
        max_ulp=None if ulp is None else _known(ulp),
        rms=_known(rms),
        relative=None if elsewhere else _known(largest / scale),
        nan=int(nan.sum()),
        nan_expected=int(nan_expected.sum()),
        inf=int(inf.sum()),
        inf_expected=int(inf_expected.sum()),
    )


def _known(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _largest(dtype: DType) -> float:
    if not dtype.is_float:
        return math.inf
    bits, least = _DIGITS[dtype]
    limit = 3 - least  # the exponent range of IEEE formats is symmetric up to this
    # Half a unit above the largest number still rounds to it.
    return math.inf if dtype is DType.F64 else math.ldexp(1.0 - 2.0 ** -(bits + 1), limit)


def _smallest(dtype: DType) -> float:
    if not dtype.is_float:
        return 0.0
    bits, least = _DIGITS[dtype]
    return math.ldexp(1.0, least - bits)


def _ulp(values: Array, dtype: DType) -> Array:
    """The distance of neighbouring numbers of a dtype around some values."""
    bits, least = _DIGITS[dtype]
    _, exponents = np.frexp(values)
    result: Array = np.ldexp(1.0, np.maximum(exponents, least) - bits)
    return result
