"""Operations written by hand for MLX: their references do not trace, or are slow."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from rlx.ops.attention.attention import _kind
from rlx.ops.windows.geometry import Window
from rlx.plugin import OPS
from rlx_mlx.references import REBOUND
from rlx_mlx.space import product, raw
from rlx_mlx.trace import outputs_of
from rlx_mlx.values import NARROW, MlxTracedArray, lifted


def erf(x: Any) -> MlxTracedArray:
    """The error function, which NumPy lacks."""
    return MlxTracedArray(mx.erf(lifted(x)))


def sigmoid(x: Any) -> MlxTracedArray:
    """1 / (1 + exp(-x))."""
    return MlxTracedArray(mx.sigmoid(lifted(x)))


# Terms of the continued fraction of erfc: from 1 on they give f32's last bit but one.
_TERMS = 24


def gelu(x: Any) -> MlxTracedArray:
    """x/2 erfc(-x / sqrt 2): 1 + erf would lose the digits of large negative numbers in f32."""
    wide = lifted(x)
    z = wide * -math.sqrt(0.5)
    far = mx.maximum(z, 1.0)
    rest = far
    for term in range(_TERMS, 0, -1):
        rest = far + (0.5 * term) / rest
    tail = mx.exp(-far * far) / (math.sqrt(math.pi) * rest)
    # Infinity times 0, the tail of minus infinity, is 0 as well.
    tail = mx.where(mx.isinf(z), 0.0, tail)
    retained = mx.where(mx.isneginf(wide), 0.0, wide)
    return MlxTracedArray(0.5 * retained * mx.where(z > 1.0, tail, 1.0 - mx.erf(z)))


def gelu_approx(x: Any) -> MlxTracedArray:
    """X times a sigmoid, which is (1 + tanh) / 2 without its cancellation."""
    wide = lifted(x)
    return MlxTracedArray(wide * mx.sigmoid(math.sqrt(8.0 / math.pi) * (wide + 0.044715 * wide**3)))


def narrow(x: Any, axis: int, start: int, length: int) -> MlxTracedArray:
    """A part of an axis."""
    index: list[Any] = [slice(None)] * x.ndim
    index[axis] = slice(start, start + length)
    return MlxTracedArray(raw(x)[tuple(index)])


def pad_constant(x: Any, value: Any, pads: Any) -> MlxTracedArray:
    """A value around an operand; a negative pad cuts off."""
    array = raw(x)
    cut = tuple(
        slice(max(0, -b), n - max(0, -a)) for n, (b, a) in zip(array.shape, pads, strict=True)
    )
    widths = [(max(0, b), max(0, a)) for b, a in pads]
    fill = raw(value).astype(array.dtype)
    return MlxTracedArray(mx.pad(array[cut], widths, constant_values=mx.reshape(fill, [])))


def framed(x: Any, length: int, hop: int) -> MlxTracedArray:
    """The frames of the last axis."""
    count = (x.shape[-1] - length) // hop + 1
    position = np.arange(count)[:, None] * hop + np.arange(length)
    return MlxTracedArray(mx.take(raw(x), mx.array(position), -1))


def convolution(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> MlxTracedArray:
    """``conv1d``, ``conv2d`` and ``conv3d``. MLX has the channels last."""
    window = Window.of(x.shape[2:], w.shape[2:], stride, dilation, padding, where="conv")
    array, weight = raw(x), raw(w)
    if array.dtype != weight.dtype or not mx.metal.is_available():
        array, weight = lifted(x), lifted(w)
    last = (0, *range(2, array.ndim), 1)
    y = mx.conv_general(
        mx.transpose(array, last),
        mx.transpose(weight, last),
        list(window.stride),
        (
            [before for before, _ in window.pads],
            [
                reach - n - before
                for (before, _), reach, n in zip(
                    window.pads, window.reach, window.dims, strict=True
                )
            ],
        ),
        list(window.dilation),
        groups=groups,
    )
    result = MlxTracedArray(mx.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1))))
    return result if bias is None else result + bias.reshape(-1, *(1,) * (y.ndim - 2))


def windows(x: Any, window: Window, fill: float) -> MlxTracedArray:
    """Every window of an operand, as a view of the padded one."""
    axes = range(len(window.dims))
    cut = [slice(None)] * 2 + [slice(0, window.reach[a] - window.pads[a][0]) for a in axes]
    after = [max(window.reach[a] - window.dims[a] - window.pads[a][0], 0) for a in axes]
    pads = [(0, 0), (0, 0), *((window.pads[a][0], after[a]) for a in axes)]
    array = mx.contiguous(mx.pad(x.wide[tuple(cut)], pads, constant_values=fill))
    steps = [math.prod(array.shape[index + 1 :]) for index in range(array.ndim)]
    shape = [*array.shape[:2], *window.out, *window.kernel]
    strides = [*steps[:2], *(steps[2 + a] * window.stride[a] for a in axes)]
    return MlxTracedArray(
        mx.as_strided(array, shape, [*strides, *(steps[2 + a] * window.dilation[a] for a in axes)])
    )


def transposed_convolution(
    x: Any,
    w: Any,
    bias: Any = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
) -> MlxTracedArray:
    """A convolution of the operand with zeros between its entries, the kernel turned around."""
    taps = [(k - 1) * d for k, d in zip(w.shape[2:], dilation, strict=True)]
    array, weight = lifted(x), lifted(w)
    rest = weight.shape[2:]
    weight = mx.reshape(weight, [groups, w.shape[0] // groups, *weight.shape[1:]])
    weight = mx.reshape(
        mx.swapaxes(weight, 1, 2), [w.shape[1] * groups, w.shape[0] // groups, *rest]
    )
    last = (0, *range(2, array.ndim), 1)
    before = [t - b for t, (b, _) in zip(taps, padding, strict=True)]
    after = [t - a + more for t, (_, a), more in zip(taps, padding, output_padding, strict=True)]
    # A negative pad cuts off what there is no need to compute.
    cut = [(max(0, -b), max(0, -a)) for b, a in zip(before, after, strict=True)]
    y = mx.conv_general(
        mx.transpose(array, last),
        mx.transpose(weight, last),
        1,
        ([max(0, item) for item in before], [max(0, item) for item in after]),
        list(dilation),
        list(stride),
        groups=groups,
        flip=True,
    )
    shown = [slice(b, n - a) for (b, a), n in zip(cut, y.shape[1:-1], strict=True)]
    y = y[(slice(None), *shown, slice(None))]
    result = MlxTracedArray(mx.transpose(y, (0, y.ndim - 1, *range(1, y.ndim - 1))))
    return result if bias is None else result + bias.reshape(-1, *(1,) * (y.ndim - 2))


def _running(function: Any) -> Any:
    def run(x: Any, axis: int, exclusive: bool = False, reverse: bool = False) -> MlxTracedArray:
        return MlxTracedArray(function(x.wide, axis, reverse=reverse, inclusive=not exclusive))

    return run


def if_(cond: Any, then_graph: Any, else_graph: Any, *xs: Any) -> Any:
    """Both branches are computed, and one is selected: a branch of MLX would wait for the condition."""
    taken = raw(cond)
    sides = [
        outputs_of(graph, dict(zip(graph.input_names, map(raw, xs), strict=True)))
        for graph in (then_graph, else_graph)
    ]
    return tuple(
        MlxTracedArray(mx.where(taken, first, other)) for first, other in zip(*sides, strict=True)
    )


def attention(  # noqa: PLR0913 - the reference's own parameters
    q: Any,
    k: Any,
    v: Any,
    mask: Any = None,
    kind: str = "none",
    num_heads: int | None = None,
    head_dim: int | None = None,
    scale: float | None = None,
    softcap: float | None = None,
    num_kv_heads: int | None = None,
    layout: str = "bhsd",
) -> Any:
    """softmax(q k' scale) v, by MLX's own kernel where there is no cap."""
    assert num_heads is not None, "inference states it"
    assert num_kv_heads is not None, "inference states it"
    assert scale is not None, "inference states it"
    name, window = _kind(kind)
    arguments = [raw(item) for item in (q, k, v)]
    plain = (
        len({item.dtype for item in arguments}) == 1
        and arguments[0].shape[-1] == arguments[2].shape[-1]
    )
    if (
        softcap
        or not plain
        or name in ("custom", "bias")
        or not all(item.size for item in arguments)
    ):
        reference = REBOUND.function(OPS["attention"].reference)
        return reference(
            q, k, v, mask, kind, num_heads, head_dim, scale, softcap, num_kv_heads, layout
        )
    if arguments[0].dtype in NARROW and not mx.metal.is_available():
        arguments = [item.astype(mx.float32) for item in arguments]
    heads = (num_heads, num_kv_heads, num_kv_heads)
    q4, k4, v4 = (_heads_first(x, h, layout) for x, h in zip(arguments, heads, strict=True))
    sq, sk = q4.shape[2], k4.shape[2]
    position, key = np.arange(sq)[:, None] + (sk - sq), np.arange(sk)[None, :]
    seen = key <= position if name in ("causal", "sliding") else None
    if seen is not None and name == "sliding":
        seen = seen & (key >= position - window)
    y = mx.fast.scaled_dot_product_attention(
        q4, k4, v4, scale=scale, mask=None if seen is None else mx.array(seen)
    )
    if seen is not None and not seen.any(1).all():  # a query that sees nothing gives zeros
        y = mx.where(mx.array(seen.any(1))[None, None, :, None], y, mx.zeros_like(y))
    if q.ndim == 3:
        return MlxTracedArray(mx.reshape(mx.transpose(y, (0, 2, 1, 3)), [q.shape[0], sq, -1]))
    return MlxTracedArray(y if layout == "bhsd" else mx.transpose(y, (0, 2, 1, 3)))


def _heads_first(x: Any, heads: int, layout: str) -> Any:
    if x.ndim == 3:
        return mx.transpose(
            mx.reshape(x, [x.shape[0], x.shape[1], heads, x.shape[2] // heads]), (0, 2, 1, 3)
        )
    return x if layout == "bhsd" else mx.transpose(x, (0, 2, 1, 3))


def grouped_matmul(x: Any, w: Any, idx: Any) -> MlxTracedArray:
    """Each row times the weights of its expert."""
    position = raw(idx).astype(mx.int32)
    position = mx.where(position < 0, position + w.shape[0], position)
    rows = mx.expand_dims(lifted(x), 1)
    return MlxTracedArray(mx.squeeze(mx.gather_mm(rows, lifted(w), rhs_indices=position), 1))


def half_matmul(x: Any, w: Any, bias: Any = (), act: str = "none", transposed: bool = False) -> Any:
    """A product with weights of f16, which are exact in f32."""
    y = product(x, w.T if transposed else w)
    y = y + bias[0] if len(bias) else y
    return y if act == "none" else REBOUND.reference(act)(y)


INSTEAD: dict[str, Callable[..., Any]] = {
    "rlx.ops.elementwise.table.erf": erf,
    "rlx.ops.elementwise.table._sigmoid": sigmoid,
    "rlx.ops.spectra.frames.framed": framed,
    "rlx.ops.windows.geometry.windows": windows,
}
RECORDS: dict[str, Callable[..., Any]] = {
    **{f"conv{rank}d": convolution for rank in (1, 2, 3)},
    **{f"conv_transpose{rank}d": transposed_convolution for rank in (1, 2)},
    "attention": attention,
    "cumprod": _running(mx.cumprod),
    "cumsum": _running(mx.cumsum),
    "if_": if_,
    "gelu": gelu,
    "gelu_approx": gelu_approx,
    "grouped_matmul": grouped_matmul,
    "half_matmul": half_matmul,
    "narrow": narrow,
    "pad_constant": pad_constant,
}


def replace_references() -> None:
    """Puts these functions in the place of references."""
    REBOUND.replace(INSTEAD, RECORDS)
