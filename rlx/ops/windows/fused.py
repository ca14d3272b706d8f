"""Convolution with an epilogue: an optional residual add, then an activation."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from rlx.abi.products import ACTIVATIONS
from rlx.errors import ShapeError
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.opdef import Array, Emitter, Kernels, OpDef, Sample, Step, TensorType
from rlx.ir.shape import Shape, size
from rlx.ops.declare import FLOAT_KERNELS, op, operand_names
from rlx.ops.products.matmul import activated, check_activation
from rlx.ops.windows.convolution import (
    CONVOLUTIONS,
    WEBGPU_NAMES,
    call_webgpu,
    convolution_flops,
    infer_convolution,
)
from rlx.ops.windows.convolution_cpu import CPU

# The fused form of each convolution, by the convolution's name.
FUSED = {name: f"fused_{name}" for name in ("conv1d", "conv2d", "conv3d")}


def _infer(name: str, rank: int, types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    check_activation(name, attrs["act"])
    own = types[:-1] if "residual" in attrs["present"] else types
    result = infer_convolution(name, rank, own, attrs)
    if len(own) < len(types) and types[-1].shape != result.shape:
        raise ShapeError(
            f"[{name}] the added operand has the wrong shape",
            got=types[-1].shape,
            expected=result.shape,
        )
    return result


def _lower_webgpu(node: Node, emitter: Emitter) -> None:
    """The convolution, then one pass for the rest."""
    act = node.attrs["act"]
    args = operand_names(node)
    operands = [emitter.operand(i) for i, name in enumerate(args) if name != "residual"]
    if act == "none" and "residual" not in args:
        call_webgpu(node, emitter, operands, emitter.result())
        return
    convolved = emitter.temp(node.type)
    call_webgpu(node, emitter, operands, convolved)
    program: list[Step] = []
    values = [convolved]
    if "residual" in args:
        values.append(emitter.operand(args.index("residual")))
        program.append(("add", (0, 1), node.dtype, None))
    if act != "none":
        program.append((act, (len(values) if program else 0,), node.dtype, None))
    emitter.elementwise(program, values, emitter.result(), [node.shape] * len(values))


def _samples(rank: int) -> tuple[Sample, ...]:
    """Operands, attributes and what follows, for each way in which the kernels make a convolution."""
    cases: tuple[tuple[Shape, Shape, dict[str, Any]], ...] = (
        ((2, 3, 1, 9, 70), (7, 3, 1, 3, 3), {"padding": (0, 1, 1)[-rank:]}),
        ((1, 20, 1, 4, 11), (33, 20, 1, 1, 1), {}),
        ((3, 4, 1, 5, 6), (9, 4, 1, 2, 3), {"stride": (1, 2, 2)[-rank:]}),
        ((2, 6, 1, 9, 23), (6, 1, 1, 3, 3), {"groups": 6, "padding": (0, 1, 1)[-rank:]}),
        ((1, 3, 1, 8, 40), (2, 3, 1, 2, 3), {}),
        ((0, 2, 1, 5, 5), (3, 2, 1, 3, 3), {}),
    )
    plain = {"stride": 1, "padding": 0, "dilation": 1, "groups": 1, "present": ()}
    results = []
    forms = [("bias", "residual"), ("residual",), ("bias",), ()]
    for i, act in enumerate(ACTIVATIONS):
        for pos, (x, w, attrs) in enumerate(cases):
            present = forms[(i + pos) % 4]
            if act == "none" and "residual" not in present:
                present = ("residual",)
            x, w = (*x[:2], *x[-rank:]), (*w[:2], *w[-rank:])
            out = CONVOLUTIONS[rank].infer(
                [TensorType(x, DType.F32), TensorType(w, DType.F32)], {**plain, **attrs}
            )
            assert isinstance(out, TensorType)
            more = {"bias": (w[0],), "residual": out.shape}
            shapes = (x, w, *(more[name] for name in present))
            results.append(Sample(shapes, {**plain, **attrs, "act": act, "present": present}))
    return tuple(results)


def _fused(rank: int) -> OpDef:
    name = f"fused_conv{rank}d"

    def reference(  # noqa: PLR0913 - the operation's own signature
        x: Array,
        w: Array,
        bias: Array | None = None,
        residual: Array | None = None,
        act: str = "none",
        stride: Any = 1,
        padding: Any = 0,
        dilation: Any = 1,
        groups: int = 1,
    ) -> Array:
        y = CONVOLUTIONS[rank].reference(x, w, bias, stride, padding, dilation, groups)
        return activated(y if residual is None else y + residual, act)

    reference.__doc__ = f"""act(conv{rank}d(x, w, bias) + residual) in one kernel.

    Args:
        x: As for ``conv{rank}d``.
        w: Likewise.
        bias: Likewise.
        residual: The shape of the result, or None for 0.
        act: One of ``ACTIVATIONS``.
        stride: As for ``conv{rank}d``.
        padding: Likewise.
        dilation: Likewise.
        groups: Likewise.
    """
    record = op(
        name=name,
        infer=partial(_infer, name, rank),
        flops=lambda node: convolution_flops(node) + 21.0 * size(node.shape),
        cpu=CPU,
        webgpu=Kernels(WEBGPU_NAMES, _lower_webgpu),
        internal=True,
        dtypes=FLOAT_KERNELS,
        tolerance={DType.F32: 1e-5},  # as the convolution
        samples=lambda: _samples(rank),
    )
    return record(reference)


fused_conv1d, fused_conv2d, fused_conv3d = map(_fused, (1, 2, 3))
