"""The elementwise records: one per row of the table, ``where``, ``cast``, and the fused ``region``."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.errors import DTypeError
from rlx.ir.dtype import ALL, FLOATS, INTEGERS, DType, DTypeLike
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, Sample, Step, TensorType, lookup
from rlx.ir.shape import broadcast, size
from rlx.ops.declare import op
from rlx.ops.elementwise.table import C_TYPES, TABLE, ElementwiseRow

_KINDS = {"f": FLOATS, "i": INTEGERS, "b": frozenset({DType.BOOL})}
CPU_DTYPES = frozenset(DType(name) for name in C_TYPES)


def lower_elementwise(node: Node, emitter: Emitter) -> None:
    """A single elementwise node is a region of one step."""
    program = node.attrs.get("program")
    if program is None:
        program = ((node.op, tuple(range(len(node.inputs))), node.dtype, None),)
    emitter.elementwise(
        program, [emitter.operand(i) for i in range(len(node.inputs))], emitter.result()
    )


KERNELS = Kernels((), lower_elementwise)


def _samples(row: ElementwiseRow) -> tuple[Sample, ...]:
    shapes = (
        ((3, 5), (3, 5)),
        ((1,), (7,)),
        ((), ()),
        ((0, 4), (4,)),
        ((2, 1, 3), (5, 1)),
        ((2, 3, 4, 5, 2), (3, 1, 5, 1)),
        ((1027,), (1027,)),
    )
    results = [Sample((*s, s[0])[: row.operands], low=row.low, high=row.high) for s in shapes]
    bench = Sample(((256, 1024),) * row.operands, low=row.low, high=row.high, bench=True)
    return (*results, bench)


def _reference(row: ElementwiseRow) -> Any:
    """The table's NumPy function under the parameter names of the builder."""

    def unary(x: Array) -> Array:
        return np.asarray(row.numpy(x))

    def binary(a: Array, b: Array) -> Array:
        return np.asarray(row.numpy(a, b))

    def ternary(a: Array, b: Array, c: Array) -> Array:
        return np.asarray(row.numpy(a, b, c))

    reference: Any = (unary, binary, ternary)[row.operands - 1]
    reference.__name__ = row.name
    return reference


def _make(row: ElementwiseRow) -> OpDef:
    def infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
        shape = broadcast(*(type.shape for type in types), where=row.name)
        return TensorType(shape, DType.BOOL if row.result == "bool" else types[0].dtype)

    dtypes = frozenset().union(*(_KINDS[kind] for kind in row.kinds)) & CPU_DTYPES
    reference = _reference(row)
    reference.__doc__ = (
        f"{row.doc}\n\nElementwise"
        + (", with NumPy broadcasting" if row.operands > 1 else "")
        + ("; the result is bool." if row.result == "bool" else ".")
    )
    return op(
        infer=infer,
        flops=lambda node: row.flops * size(node.shape),
        cpu=KERNELS,
        webgpu=KERNELS,
        dtypes=dtypes,
        samples=lambda: _samples(row),
        elementwise=True,
        # The GPU's exp, log and pow are a few units in the last place off, and WGSL allows it:
        # exp 3 + 2|x| ULP, log 2^-21 absolute near 1, pow that of exp2(y * log2(x)).
        tolerance={DType.F32: 1e-5} if row.flops >= 8 else {},
        internal=row.name in ("copy", "expm1", "power_half"),
    )(reference)


ROWS = {row.name: row for row in TABLE}
RECORDS = {row.name: _make(row) for row in TABLE}


def _infer_where(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    if types[0].dtype is not DType.BOOL:
        raise DTypeError(
            "[where] the condition is not bool",
            got=types[0].dtype,
            expected="bool",
            hint="compare it: g.ne(condition, 0)",
        )
    return TensorType(broadcast(*(type.shape for type in types), where="where"), types[1].dtype)


@op(
    free=("cond",),
    infer=_infer_where,
    flops=lambda node: size(node.shape),
    cpu=KERNELS,
    webgpu=KERNELS,
    dtypes=CPU_DTYPES,
    elementwise=True,
    samples=lambda: tuple(
        Sample(shapes, dtypes=(DType.BOOL, dtype, dtype))
        for dtype in (DType.F32, DType.I32)
        for shapes in (
            ((3, 5), (3, 5), (3, 5)),
            ((), (4,), (1,)),
            ((0,), (1,), ()),
            ((3, 1), (5,), (2, 3, 5)),
            ((1031,), (1031,), (1031,)),
        )
    ),
)
def where(cond: Array, a: Array, b: Array) -> Array:
    """``a`` where ``cond`` is true, ``b`` elsewhere, with NumPy broadcasting of all three.

    Args:
        cond: bool.
        a: Any dtype.
        b: The dtype of ``a``.
    """
    return np.where(cond, a, b)


def _infer_cast(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    attrs["dtype"] = DType.parse(attrs["dtype"])
    return TensorType(types[0].shape, attrs["dtype"])


@op(
    infer=_infer_cast,
    flops=lambda node: size(node.shape),
    cpu=KERNELS,
    webgpu=KERNELS,
    webgpu_dtypes=ALL - {DType.F64},
    elementwise=True,
    samples=lambda: tuple(
        Sample(
            (shape,),
            {"dtype": target},
            (source,),
            low=0 if {DType.U32, DType.U8} & {source, target} else -50,
            high=50,
        )
        for source in DType
        for target in DType
        for shape in ((5, 7), (1,), (0, 3))
    ),
)
def cast(x: Array, dtype: DTypeLike) -> Array:
    """``x`` converted to ``dtype``: floats to integers truncate toward zero, anything to bool is != 0.

    A float outside the integer's range gives an unspecified value, as in C and NumPy.
    """
    target = DType.parse(dtype)
    # Storing the result rounds it to the float's width.
    return x if target.is_float else x.astype(target.numpy)


def _infer_region(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    shape = broadcast(*(type.shape for type in types), where="region")
    return TensorType(shape, attrs["program"][-1][2])


@op(
    free=("xs",),
    infer=_infer_region,
    flops=lambda node: (
        size(node.shape) * sum(ROWS[s[0]].flops if s[0] in ROWS else 1 for s in node.attrs["program"])
    ),
    cpu=KERNELS,
    webgpu=KERNELS,
    dtypes=CPU_DTYPES,
    tolerance={DType.F32: 2e-5},  # a chain adds up the errors of its members
    internal=True,
    samples=lambda: tuple(
        Sample(
            shapes,
            {"program": (("mul", (0, 1), DType.F32, None), ("literal", (), DType.F32, 0.5),
                         ("add", (2, 3), DType.F32, None), ("gelu", (4,), DType.F32, None),
                         ("gt", (5, 1), DType.BOOL, None),
                         ("where", (6, 5, 0), DType.F32, None))},
            (DType.F32, DType.F32),
        )
        for shapes in (((3, 5), (5,)), ((1,), (1,)), ((0, 4), (4,)), ((5, 1, 3), (2, 1)))
    ),
)  # fmt: skip
def region(xs: Sequence[Array], program: tuple[Step, ...]) -> Array:
    """A chain of elementwise steps computed in one pass over memory; the last step is the result."""
    values = list(xs)
    for name, operands, dtype, literal in program:
        if name == "literal":
            values.append(np.asarray(literal, dtype.numpy))
            continue
        opdef = lookup(name)
        extra = {"dtype": dtype} if name == "cast" else {}
        values.append(opdef.reference(*(values[i] for i in operands), **extra))
    return np.broadcast_to(values[-1], broadcast(*(x.shape for x in xs), where="region"))
