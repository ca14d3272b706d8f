"""Matrix products: batched ``matmul`` and its fusion with bias and activation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.products import ACTIVATIONS, Activation, rounded_bytes
from rlx.dataclasses import dataclass
from rlx.errors import ShapeError, UnknownNameError, did_you_mean
from rlx.ir.dtype import DType
from rlx.ir.fragments import BF16
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, Sample, TensorType, lookup
from rlx.ir.shape import Shape, broadcast, broadcast_strides, collapse, size, strides
from rlx.ops.declare import FLOAT_KERNELS, op
from rlx.ops.movement.strided import emit_strided_copy
from rlx.sizes import smallest

# Rows from which on a processor's tiles of 16 rows gain more than it takes to round the operands.
_TILE_ROWS = 9


@dataclass(frozen=True)
class Product:
    """A batched product as the kernels see it: ``batch`` times [m, k] @ [k, n].

    Attributes:
        m: Rows of the left matrix.
        k: Inner size.
        n: Columns of the right matrix.
        batch: Number of products.
        dims: The batch dimensions, collapsed.
        a_steps: For each of them the distance between left matrices, in matrices.
        b_steps: The same for the right ones; all 0 when there is one right matrix.
    """

    m: int
    k: int
    n: int
    batch: int
    dims: Shape
    a_steps: tuple[int, ...]
    b_steps: tuple[int, ...]

    @staticmethod
    def of(a: Shape, b: Shape, merged: bool = True) -> Product:
        """The product of two operand shapes, 1-D ones promoted as NumPy does.

        Args:
            a: Shape of the left operand.
            b: Shape of the right one.
            merged: Whether left matrices stand one below the other, so that those of one right matrix are
                one matrix of all their rows.
        """
        a = (1, *a) if len(a) == 1 else a
        b = (*b, 1) if len(b) == 1 else b
        m, k, n = a[-2], a[-1], b[-1]
        if size(b[:-2]) == 1 and (merged or size(a[:-2]) == 1):
            # With one right matrix, the batch of the left operand is more rows of one matrix.
            return Product(size(a[:-1]), k, n, 1, (1,), (0,), (0,))
        dims = broadcast(a[:-2], b[:-2], where="matmul")
        walk, (a_steps, b_steps) = collapse(
            dims, broadcast_strides(a[:-2], dims), broadcast_strides(b[:-2], dims)
        )
        return Product(m, k, n, size(dims), walk, a_steps, b_steps)


def matmul_type(types: Sequence[TensorType]) -> TensorType:
    """Shape of a product, and the dtype of its first operand.

    Raises:
        ShapeError: The operands do not fit.
    """
    a, b = types[0].shape, types[1].shape
    if not a or not b or a[-1] != b[-2 if len(b) > 1 else 0]:
        raise ShapeError(
            "[matmul] shapes do not fit",
            got=f"{a} and {b}",
            expected="the last dimension of the left = the second last of the right",
            hint="g.transpose one of them?" if a and b and a[-1] == b[-1] else None,
        )
    rows = a[-2:-1]
    columns = b[-1:] if len(b) > 1 else ()
    return TensorType((*broadcast(a[:-2], b[:-2], where="matmul"), *rows, *columns), types[0].dtype)


def _product(node: Node) -> Product:
    a, b = (operand.shape for operand in node.inputs[:2])
    left, right = _exchanged(node)
    return Product.of(_swapped(a) if left else a, _swapped(b) if right else b, not left)


def _exchanged(node: Node) -> tuple[bool, bool]:
    """Returns which operands have their last two axes exchanged."""
    if node.op != "matmul_transposed":
        return False, False
    return node.attrs["left"], node.attrs["right"]


def _swapped(shape: Shape) -> Shape:
    return (*shape[:-2], shape[-1], shape[-2])


def _flops(node: Node) -> float:
    p = _product(node)
    return 2.0 * p.batch * p.m * p.k * p.n


def product_params(
    p: Product,
    dtype: DType,
    act: str = "none",
    has_bias: bool = False,
    bias_at: int = 0,
    transposed_b: bool = False,
    transposed_a: bool = False,
) -> dict[str, Any]:
    """Returns the parameters of the product kernels; only the WGSL kernels read left matrices ``[k, m]``."""
    return {
        "m": p.m,
        "k": p.k,
        "n": p.n,
        "batch": p.batch,
        "has_bias": int(has_bias),
        "bias_at": bias_at,
        "act": ACTIVATIONS.index(act),
        "transposed_b": int(transposed_b),
        "rank": len(p.dims),
        "dims": p.dims,
        "a_steps": p.a_steps,
        "b_steps": p.b_steps,
        "half": int(dtype is DType.F16),
        **({"transposed_a": 1} if transposed_a else {}),
    }


def call_product_cpu(
    emitter: Emitter, operands: Sequence[Any], result: Any, params: dict[str, Any], rows: Any = None
) -> None:
    """Writes the call of the C kernel.

    Args:
        emitter: Takes the call.
        operands: a, b and a bias, where there is one.
        result: The product.
        params: Those of ``product_params``.
        rows: The rows of a in bf16, where they are made already.
    """
    shared = (
        "m", "k", "n", "batch", "bias_at", "act", "transposed_b", "rank", "dims", "a_steps", "b_steps",
    )  # fmt: skip
    known = {**{key: params[key] for key in shared}, "bf16": 0, "taps": params.get("taps", 0)}
    a, b, *bias = operands
    few = isinstance(params["m"], int) and params["m"] < _TILE_ROWS
    # Weights that are known are packed when they are set.
    tiled = not few and params["batch"] == 1 and b.kind in ("param", "constant")
    if rows is not None:
        known["bf16"] = 1
    elif tiled and a.type.dtype is DType.F32 and emitter.limits.get(BF16):
        rows, sizes = rounded_rows(emitter, a, params["m"], params["k"], fewer=False)
        known |= sizes
    if rows is not None:
        operands = [a, b, *(bias or [None]), rows]
    emitter.call("matmul", operands, [result], known)


def rounded_rows(
    emitter: Emitter, x: Any, m: Any, k: Any, fewer: bool = True
) -> tuple[Any, dict[str, Any]]:
    """Writes the call that rounds rows to 8 bits, or to bf16 for tiles of a processor.

    Args:
        emitter: Takes the call.
        x: f32 ``[m, k]``.
        m: The number of rows.
        k: Elements of a row.
        fewer: Whether rows are rounded to 8 bits where they are too few for tiles.

    Returns:
        The rounded rows, and the parameters that products share with ``round_rows``.
    """
    tiles = smallest(1, m // _TILE_ROWS) if emitter.limits.get(BF16) else 0
    sizes = {"m": m, "k": k, "bf16": tiles}
    rows = emitter.temp(TensorType((m, rounded_bytes(k)), DType.U8))
    emitter.call("round_rows", [x], [rows], sizes if fewer else {**sizes, "m": m * sizes["bf16"]})
    return rows, sizes


def _params(node: Node, left: bool = False) -> dict[str, Any]:
    act = node.attrs.get("act", "none")
    transposed_b = _exchanged(node)[1]
    biased = len(node.inputs) > 2
    return product_params(_product(node), node.dtype, act, biased, 0, transposed_b, left)


def _lower_cpu(node: Node, emitter: Emitter) -> None:
    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    if _exchanged(node)[0]:
        operands[0] = _transposed_copy(node.inputs[0].shape, node.dtype, emitter, operands[0])
    call_product_cpu(emitter, operands, emitter.result(), _params(node))


def _transposed_copy(shape: Shape, dtype: DType, emitter: Emitter, value: Any) -> Any:
    """A copy of matrices with their last two axes exchanged: the C kernel reads left ones by rows."""
    transposed = _swapped(shape)
    copy = emitter.temp(TensorType(transposed, dtype))
    steps = strides(shape)
    walk = (*steps[:-2], steps[-1], steps[-2])
    emit_strided_copy(emitter, value, copy, dtype, transposed, walk, strides(transposed))
    return copy


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    from rlx.ops.products.calls import call_product_webgpu

    operands = [emitter.operand(i) for i in range(len(node.inputs))]
    params = _params(node, _exchanged(node)[0])
    call_product_webgpu(emitter, operands, [emitter.result()], params)


_CPU = Kernels(("matmul", "round_rows"), _lower_cpu)
_WEBGPU = Kernels(("matmul", "matmul_fragments", "split_sum", "gemv"), _lower_webgpu)


@op(
    infer=lambda types, attrs: matmul_type(types),
    flops=_flops,
    cpu=_CPU,
    webgpu=_WEBGPU,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    samples=lambda: (
        Sample(((2, 4), (4, 3))),
        Sample(((1, 1), (1, 1))),
        Sample(((65, 130), (130, 67))),
        Sample(((1, 257), (257, 129))),
        Sample(((7,), (7, 5))),
        Sample(((5, 7), (7,))),
        Sample(((7,), (7,))),
        Sample(((3, 2, 5, 7), (3, 2, 7, 4))),
        Sample(((3, 1, 5, 7), (2, 7, 4))),
        Sample(((2, 5, 7), (7, 4))),
        Sample(((5, 0), (0, 4))),
        Sample(((0, 3), (3, 4))),
        Sample(((1, 64), (64, 64)), bench=True),
        Sample(((256, 256), (256, 256)), bench=True),
    ),
)
def matmul(a: Array, b: Array) -> Array:
    """Matrix product over the last two axes, the others broadcast (NumPy's ``matmul``).

    Args:
        a: ``[..., m, k]`` or ``[k]``.
        b: ``[..., k, n]`` or ``[k]``.
    """
    return np.matmul(a, b)


def _infer_turned(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    a, b = types
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ShapeError("[matmul_transposed] operands of rank 2 or more", got=f"{a}, {b}")
    results = [a, b]
    for i, (side, usual) in enumerate((("left", False), ("right", True))):
        if attrs.setdefault(side, usual):
            results[i] = TensorType(_swapped(results[i].shape), results[i].dtype)
    return matmul_type(results)


@op(
    infer=_infer_turned,
    flops=_flops,
    cpu=_CPU,
    webgpu=_WEBGPU,
    internal=True,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    samples=lambda: (
        Sample(((2, 4), (3, 4))),
        Sample(((1, 1), (1, 1))),
        Sample(((65, 130), (67, 130))),
        Sample(((68, 64), (72, 64))),
        Sample(((1, 257), (129, 257))),
        Sample(((3, 19), (5, 19))),
        Sample(((3, 2, 5, 7), (3, 2, 4, 7))),
        Sample(((3, 1, 5, 7), (2, 4, 7))),
        Sample(((5, 0), (4, 0))),
        Sample(((0, 3), (4, 3))),
        *(Sample(shapes, {"left": True, "right": False})
          for shapes in (((4, 2), (4, 3)), ((1, 1), (1, 1)), ((130, 65), (130, 67)), ((64, 68), (64, 72)),
                         ((257, 1), (257, 129)), ((19, 3), (19, 5)), ((96, 16), (96, 40)),
                         ((3, 2, 7, 5), (3, 2, 7, 4)), ((3, 1, 7, 5), (2, 7, 4)), ((3, 20, 36), (20, 32)),
                         ((2, 7, 3), (7, 4)), ((0, 5), (0, 4)), ((3, 0), (3, 4)))),
        *(Sample(shapes, {"left": True, "right": True})
          for shapes in (((4, 2), (3, 4)), ((130, 65), (67, 130)), ((3, 20, 36), (3, 32, 20)))),
    ),
)  # fmt: skip
def matmul_transposed(a: Array, b: Array, left: bool = False, right: bool = True) -> Array:
    """``matmul`` of operands of which the left one, the right one or both have their last two axes exchanged."""
    return np.matmul(np.swapaxes(a, -1, -2) if left else a, np.swapaxes(b, -1, -2) if right else b)


def check_activation(where: str, act: Any) -> None:
    """Refuses unknown activations.

    Raises:
        UnknownNameError: It is not one of ``ACTIVATIONS``.
    """
    if act not in ACTIVATIONS:
        raise UnknownNameError(
            f"[{where}] no such activation: {act!r}", hint=did_you_mean(str(act), ACTIVATIONS)
        )


def activated(y: Array, act: str) -> Array:
    """The specification of an activation behind a product."""
    return y if act == "none" else np.asarray(lookup(act).reference(y))


def _infer_fused(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_activation("fused_matmul_bias_act", attrs["act"])
    result = matmul_type(types[:2])
    w = types[1].shape
    if len(w) != 2 or types[2].shape != w[1:]:
        raise ShapeError(
            "[fused_matmul_bias_act] weight and bias do not fit",
            got=f"w {w}, bias {types[2].shape}",
            expected="w [k, n], bias [n]",
        )
    return result


@op(
    infer=_infer_fused,
    flops=lambda node: _flops(node) + 21.0 * size(node.shape),
    cpu=_CPU,
    webgpu=_WEBGPU,
    dtypes=FLOAT_KERNELS,
    webgpu_f16=True,
    tolerance={DType.F32: 1e-5},  # the activation's own error, see elementwise
    samples=lambda: (
        *(Sample(((5, 7), (7, 9), (9,)), {"act": act}) for act in ACTIVATIONS),
        Sample(((1, 64), (64, 64), (64,)), {"act": "gelu"}, bench=True),
        Sample(((2, 3, 70), (70, 66), (66,)), {"act": "silu"}),
        Sample(((0, 7), (7, 9), (9,)), {"act": "relu"}),
        Sample(((1, 1), (1, 1), (1,)), {"act": "tanh"}),
        Sample(((3, 0), (0, 4), (4,)), {"act": "relu"}),
    ),
)
def fused_matmul_bias_act(x: Array, w: Array, bias: Array, act: Activation = "none") -> Array:
    """act(x @ w + bias) in one kernel.

    Args:
        x: ``[..., k]``.
        w: ``[k, n]``.
        bias: ``[n]``.
        act: none, relu, gelu, gelu_approx, silu, sigmoid, tanh or hard_swish.
    """
    return activated(np.matmul(x, w) + bias, act)
