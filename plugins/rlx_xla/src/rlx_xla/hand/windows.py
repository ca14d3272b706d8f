"""Convolutions and pools, by XLA's own."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.ops.windows.geometry import Window
from rlx.ops.windows.hwio_weights import usual_order
from rlx.ops.windows.pooling import _counts, _window
from rlx_xla.products import operands, product
from rlx_xla.references import REBOUND
from rlx_xla.values import XlaTracedArray, arithmetic


def _pair(x: Any, w: Any) -> tuple[Any, dict[str, Any]]:
    """Operands of a convolution and what to tell it. Operands that were rounded are f32 again, as the result is.

    Units for TF32 hold what f16 and bf16 hold; a convolution of 16 bits with a result of 32 is none of cuDNN's.
    """
    pair, how = operands(x, w)
    if how.get("preferred_element_type") == jnp.float32 and pair[0].dtype != jnp.float32:
        pair = [item.astype(jnp.float32) for item in pair]
    return pair, how


def _biased(y: Any, bias: Any) -> XlaTracedArray:
    result = product(y)
    return result if bias is None else result + bias.reshape(-1, *(1,) * (y.ndim - 2))


def convolution(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> XlaTracedArray:
    """``conv1d``, ``conv2d`` and ``conv3d``."""
    window = Window.of(x.shape[2:], w.shape[2:], stride, dilation, padding, where="conv")
    shape = (x.shape[0], w.shape[0], *window.out)
    if not x.size or not w.size or not math.prod(shape):
        return _biased(jnp.zeros(shape, arithmetic().real), bias)
    (left, right), how = _pair(x, w)
    y = lax.conv_general_dilated(
        left,
        right,
        window.stride,
        [
            (before, reach - n - before)
            for (before, _), reach, n in zip(window.pads, window.reach, window.dims)
        ],
        rhs_dilation=window.dilation,
        feature_group_count=groups,
        **how,
    )
    return _biased(y, bias)


def turned_convolution(x: Any, w: Any, *rest: Any, **named: Any) -> XlaTracedArray:
    """A convolution whose weights lie in another order."""
    return convolution(x, usual_order(w), *rest, **named)


def fused_convolution(  # noqa: PLR0913 - the reference's own parameters
    x: Any,
    w: Any,
    bias: Any = None,
    residual: Any = None,
    act: str = "none",
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> Any:
    """A convolution, then a sum and an activation."""
    y = convolution(x, w, bias, stride, padding, dilation, groups)
    y = y if residual is None else y + residual
    return y if act == "none" else REBOUND.reference(act)(y)


def transposed_convolution(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> XlaTracedArray:
    """A convolution of the operand with zeros between its entries, the kernel turned around."""
    taps = [(k - 1) * d for k, d in zip(w.shape[2:], dilation)]
    sizes = list(zip(x.shape[2:], taps, stride, output_padding, padding))
    out = [s * (n - 1) + t + 1 + more - before - after for n, t, s, more, (before, after) in sizes]
    shape = (x.shape[0], w.shape[1] * groups, *out)
    if not x.size or not w.size or not math.prod(shape):
        return _biased(jnp.zeros(shape, arithmetic().real), bias)
    (left, right), how = _pair(x, w)
    right = right.reshape(groups, w.shape[0] // groups, *w.shape[1:]).swapaxes(1, 2)
    right = jnp.flip(
        right.reshape(shape[1], w.shape[0] // groups, *w.shape[2:]), range(2, right.ndim - 1)
    )
    y = lax.conv_general_dilated(
        left,
        right,
        (1,) * len(out),
        [(t - before, t - after + more) for _, t, _, more, (before, after) in sizes],
        lhs_dilation=stride,
        rhs_dilation=dilation,
        feature_group_count=groups,
        **how,
    )
    return _biased(y, bias)


def _reduced(x: Any, window: Window, start: Any, join: Any) -> Any:
    """Every window of an operand reduced to one element."""
    axes = range(len(window.dims))
    # Elements that no window reaches are cut off: padding is never negative.
    cut = [slice(None)] * 2 + [slice(0, window.reach[a] - window.pads[a][0]) for a in axes]
    after = [max(window.reach[a] - window.dims[a] - window.pads[a][0], 0) for a in axes]
    return lax.reduce_window(
        x[tuple(cut)],
        np.asarray(start, x.dtype),
        join,
        (1, 1, *window.kernel),
        (1, 1, *window.stride),
        [(0, 0), (0, 0), *((window.pads[a][0], after[a]) for a in axes)],
        window_dilation=(1, 1, *window.dilation),
    )


_PARAMETERS = ("kernel", "stride", "padding", "dilation", "ceil_mode")


def max_pool(x: Any, *window: Any) -> XlaTracedArray:
    """The largest element of each window; NaN where there is one."""
    result = _window("max_pool", x.shape[2:], dict(zip(_PARAMETERS, window, strict=True)))
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return XlaTracedArray(_reduced(x.raw, result, lowest, lax.max))


def window_sum(x: Any, *window: Any) -> XlaTracedArray:
    """The sum of each window, or its mean."""
    *arguments, divide = window
    result = _window("window_sum", x.shape[2:], dict(zip(_PARAMETERS, arguments, strict=True)))
    total = _reduced(x.wide, result, 0, lax.add)
    if divide == "no":
        return XlaTracedArray(total)
    counts = np.maximum(_counts(result, divide == "padded"), 1)
    return XlaTracedArray(total / counts.astype(total.dtype))


RECORDS = {
    **{f"conv{rank}d": convolution for rank in (1, 2, 3)},
    **{f"turned_conv{rank}d": turned_convolution for rank in (1, 2, 3)},
    **{f"fused_conv{rank}d": fused_convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": transposed_convolution for rank in (1, 2)},
    "max_pool": max_pool,
    "window_sum": window_sum,
}
