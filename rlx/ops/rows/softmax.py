"""Softmax and its logarithm."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, Sample, TensorType
from rlx.ir.shape import as_axis, size
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.f16_via_f32 import lower_widened
from rlx.ops.rows.reduce_rows import as_rows, emit_reduce

# Longest line of one workgroup on a GPU: of neighbouring elements, and of elements that are apart.
_LONGEST, _LONGEST_APART = 1 << 24, 1 << 20


def _infer_softmax(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    attrs["axis"] = as_axis(attrs["axis"], len(types[0].shape), where="softmax")
    return types[0]


def _lower_softmax(node: Node, emitter: Emitter) -> None:
    rows = as_rows(node.shape, (node.attrs["axis"],))
    assert rows is not None, "one axis is always side by side with itself"
    outer, n, inner = rows
    emitter.call(
        "softmax",
        [emitter.operand(0)],
        [emitter.result()],
        {"outer": outer, "n": n, "inner": inner, "log": int(node.op == "log_softmax")},
        outer * inner,
        wgsl={"half": int(node.dtype is DType.F16)},
    )


def _lower_softmax_webgpu(node: Node, emitter: Emitter) -> None:
    rows = as_rows(node.shape, (node.attrs["axis"],))
    assert rows is not None, "one axis is always side by side with itself"
    outer, n, inner = rows
    if n > (_LONGEST if inner == 1 else _LONGEST_APART):
        lower_widened(node, emitter, lambda item, wide: _lower_long(item, wide, rows))
        return
    from rlx.ops.rows.tiles import ROWS, Rows, row_call

    problem = Rows(outer, n)
    variant = ROWS.choose(problem, emitter)
    if inner != 1 or variant.name == "plain":
        _lower_softmax(node, emitter)
        return
    params, groups = row_call(problem, variant, emitter.limits)
    shape = {
        "rows": outer,
        "n": n,
        "log": int(node.op == "log_softmax"),
        "half": int(node.dtype is DType.F16),
    }
    emitter.call(
        "softmax_rows", [emitter.operand(0)], [emitter.result()], {**shape, **params}, groups
    )


def _lower_long(node: Node, emitter: Emitter, rows: tuple[int, int, int]) -> None:
    """Lowers long rows to reductions and elementwise passes, whose workgroups share a line."""
    axis, f32 = node.attrs["axis"], DType.F32
    line = (*node.shape[:axis], 1, *node.shape[axis + 1 :])
    x, result = emitter.operand(0), emitter.result()
    top, total = (emitter.temp(TensorType(line, f32)) for _ in "12")
    powers = emitter.temp(TensorType(node.shape, f32))
    emit_reduce(emitter, "max", x, top, rows)
    program: tuple[Any, ...] = (("sub", (0, 1), f32, None), ("exp", (2,), f32, None))
    emitter.elementwise(program, [x, top], powers, (node.shape, line))
    emit_reduce(emitter, "sum", powers, total, rows)
    if node.op == "softmax":
        program = (("div", (0, 1), f32, None),)
        emitter.elementwise(program, [powers, total], result, (node.shape, line))
        return
    program = (("sub", (0, 1), f32, None), ("log", (2,), f32, None), ("sub", (3, 4), f32, None))
    emitter.elementwise(program, [x, top, total], result, (node.shape, line, line))


def _softmax(**fields: Any) -> Callable[[Any], OpDef]:
    return op(
        infer=_infer_softmax,
        flops=lambda node: 12.0 * size(node.shape),
        cpu=Kernels(("softmax",), _lower_softmax),
        webgpu=Kernels(
            ("softmax", "softmax_rows", "reduce", "reduce_tiles"), _lower_softmax_webgpu
        ),
        dtypes=FLOAT_KERNELS,
        webgpu_f16=True,
        tolerance={DType.F32: 5e-6},  # the GPU's exp is 3 + 2|x| ULP
        samples=lambda: (
            Sample(((4, 8),)),
            Sample(((1, 1),)),
            Sample(((0, 8),)),
            Sample(((2, 3, 5),), {"axis": 1}),
            Sample(((3, 1000),), low=-30, high=30),
            Sample(((2, 7),), low=1e4, high=1.1e4),
            *(
                Sample((shape,), low=-30, high=30)
                for shape in (
                    (70, 12),
                    (33, 128),
                    (9, 300),
                    (5, 1028),
                    (2, 4101),
                    (3, 9000),
                    (2, 20000),
                    (1, 50257),
                )
            ),
            Sample(((128, 2048),), bench=True),
        ),
        **fields,
    )


@_softmax()
def softmax(x: Array, axis: int = -1) -> Array:
    """exp(x - max) / sum along ``axis``; a row of all -inf gives NaN, as in NumPy."""
    e = np.exp(x - np.max(x, axis=axis, keepdims=True, initial=-np.inf))
    return e / np.sum(e, axis=axis, keepdims=True)


@_softmax()
def log_softmax(x: Array, axis: int = -1) -> Array:
    """The logarithm of ``softmax`` along ``axis``, computed as x - max - log(sum(exp(x - max)))."""
    shifted = x - np.max(x, axis=axis, keepdims=True, initial=-np.inf)
    return shifted - np.log(np.sum(np.exp(shifted), axis=axis, keepdims=True))
