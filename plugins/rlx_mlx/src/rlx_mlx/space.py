"""The functions of MLX that replace NumPy's for traced arguments."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import mlx.core as mx
import numpy as np

from rlx.plugin import UnsupportedOpError
from rlx_mlx.sums import reduced, total
from rlx_mlx.values import MlxTracedArray, array_of, lifted, named


def of_mlx(path: str) -> Callable[..., Any]:
    """Returns the function that replaces one of NumPy for traced arguments."""
    return BY_HAND.get(path) or _of_mlx(path)


def _of_mlx(path: str) -> Callable[..., Any]:
    """MLX's function of a name, for traced arguments."""
    name = _NAMES.get(path, path)

    def apply(*args: Any, **kwargs: Any) -> Any:
        kwargs.pop("dtype", None)  # sums of a dtype that they have already
        function: Any = mx
        for part in name.split("."):
            function = getattr(function, part, None)
        if function is None:
            raise UnsupportedOpError(
                f"this release of MLX has no function {name}",
                hint="compile for another device, such as cpu",
            )
        return traced(
            function(*_arrays(args), **{key: lifted(value) for key, value in kwargs.items()})
        )

    return apply


def _arrays(args: tuple[Any, ...]) -> list[Any]:
    return [lifted(item) for item in args]


def traced(result: Any) -> Any:
    """Results of MLX as traced values."""
    if isinstance(result, (tuple, list)):
        return type(result)(traced(item) for item in result)
    return MlxTracedArray(result) if isinstance(result, mx.array) else result


def raw(value: Any) -> Any:
    """A value as an array of MLX, of 16 bits where it has no more."""
    if isinstance(value, MlxTracedArray):
        return value.raw
    return array_of(np.asarray(value)) if not isinstance(value, mx.array) else value


def _asarray(value: Any, dtype: Any = None, **_: Any) -> MlxTracedArray:
    if isinstance(value, (list, tuple)):
        value = MlxTracedArray(mx.stack([raw(item) for item in value]))
    result = MlxTracedArray(value.raw)  # of its own: it may be changed in place
    return result if dtype is None else result.astype(dtype)


def _moved(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function that only moves elements, which may stay in 16 bits."""

    def apply(x: Any, *args: Any, **kwargs: Any) -> Any:
        first = [raw(item) for item in x] if isinstance(x, (list, tuple)) else raw(x)
        return traced(function(first, *args, **kwargs))

    return apply


def _extreme(join: Any, both: Any) -> Callable[..., Any]:
    """``np.max`` and its like, which may have a least value and no elements."""

    def apply(
        x: Any, axis: Any = None, keepdims: bool = False, initial: Any = None, **_: Any
    ) -> MlxTracedArray:
        array = lifted(x)
        if initial is not None and not array.size:
            return MlxTracedArray(
                mx.full(reduced(array.shape, axis, keepdims), initial, array.dtype)
            )
        result = join(array, axis, keepdims=keepdims)
        return MlxTracedArray(result if initial is None else both(result, initial))

    return apply


def _split(x: Any, places: Any, axis: int = 0) -> list[Any]:
    cuts = places if isinstance(places, int) else [int(place) for place in places]
    return [MlxTracedArray(part) for part in mx.split(raw(x), cuts, axis)]


def _flip(x: Any, axis: Any = None) -> MlxTracedArray:
    array = raw(x)
    axes = range(array.ndim) if axis is None else [axis] if isinstance(axis, int) else axis
    index: list[Any] = [slice(None)] * array.ndim
    for position in axes:
        index[position] = slice(None, None, -1)
    return MlxTracedArray(array[tuple(index)])


def _take(x: Any, indices: Any, axis: int | None = None) -> MlxTracedArray:
    """Indices count from the end where they are negative; those outside give the nearest end."""
    array = raw(x)
    size = array.size if axis is None else array.shape[axis]
    if isinstance(indices, range):
        indices = np.arange(indices.start, indices.stop, indices.step)
    position = (
        indices.wide
        if isinstance(indices, MlxTracedArray)
        else mx.array(np.asarray(indices, np.int64))
    )
    position = position.astype(mx.int64)
    position = mx.clip(mx.where(position < 0, position + size, position), 0, max(size - 1, 0))
    return MlxTracedArray(mx.take(array, position, axis))


def _pad(x: Any, pads: Any, mode: str = "constant", constant_values: Any = 0) -> MlxTracedArray:
    """Padding of all modes, by a table of places for those that repeat."""
    array = raw(x)
    if mode == "constant":
        return MlxTracedArray(
            mx.pad(array, [tuple(pair) for pair in pads], constant_values=lifted(constant_values))
        )
    for axis, pair in enumerate(pads):
        if any(pair):
            kind: Any = mode
            position = np.pad(np.arange(array.shape[axis]), pair, kind)
            array = mx.take(array, mx.array(position), axis)
    return MlxTracedArray(array)


def _sum(x: Any, axis: Any = None, keepdims: bool = False, **_: Any) -> MlxTracedArray:
    array = lifted(x)
    result = total(array, axis, keepdims)
    return MlxTracedArray(result if array.dtype == mx.bool_ else result.astype(array.dtype))


def _mean(x: Any, axis: Any = None, keepdims: bool = False) -> MlxTracedArray:
    array = lifted(x)
    result = total(array, axis, keepdims)
    return MlxTracedArray(result * (result.size / array.size) if array.size else result)


def _where(condition: Any, first: Any, other: Any) -> MlxTracedArray:
    return MlxTracedArray(mx.where(lifted(condition), lifted(first), lifted(other)))


def _full(shape: Any, value: Any, dtype: Any = None) -> MlxTracedArray:
    result = lifted(value)
    return MlxTracedArray(
        mx.full(list(shape), result, result.dtype if dtype is None else named(np.dtype(dtype)))
    )


def _stable(x: Any, axis: int = -1, kind: Any = None) -> MlxTracedArray:
    """Positions in order, ties to the lower one."""
    return MlxTracedArray(stable_order(mx.moveaxis(lifted(x), axis, -1), math.inf))


def stable_order(x: Any, nan: float) -> Any:
    """Positions along the last axis in rising order, NaN where ``nan`` stands, ties to the lower one."""
    if x.dtype == mx.float32:
        x = mx.where(mx.isnan(x), nan, x)
    return mx.argsort(x, axis=-1)


def _unpackbits(x: MlxTracedArray, axis: int, bitorder: str) -> MlxTracedArray:
    """The bits of bytes along the last axis, the lowest first."""
    assert (axis % x.ndim, bitorder) == (x.ndim - 1, "little"), "references ask for nothing else"
    places = mx.array(np.arange(8, dtype=np.uint8))
    bits = mx.bitwise_and(mx.right_shift(mx.expand_dims(x.raw, -1), places), mx.array(1, mx.uint8))
    return MlxTracedArray(mx.reshape(bits, [*x.shape[:-1], 8 * x.shape[-1]]))


_NAMES = {
    "absolute": "abs", "rint": "round", "float_power": "power", "concatenate": "concatenate", "invert": "bitwise_invert",
    "true_divide": "divide",
}  # fmt: skip
# Functions of NumPy that have another name or meaning in MLX.
BY_HAND: dict[str, Callable[..., Any]] = {
    "array": _asarray,
    "asarray": _asarray,
    "ascontiguousarray": _asarray,
    "copy": _asarray,
    "concatenate": _moved(mx.concatenate),
    "stack": _moved(mx.stack),
    "hstack": _moved(lambda xs: mx.concatenate(xs, 1 if xs[0].ndim > 1 else 0)),
    "transpose": lambda x, perm=None: x.transpose(perm),
    "swapaxes": _moved(mx.swapaxes),
    "moveaxis": _moved(mx.moveaxis),
    "broadcast_to": _moved(mx.broadcast_to),
    "expand_dims": _moved(lambda x, axis: mx.expand_dims(x, axis)),
    "squeeze": _moved(lambda x, axis=None: mx.squeeze(x, axis)),
    "tile": _moved(lambda x, repeats: mx.tile(x, repeats)),
    "repeat": _moved(mx.repeat),
    "triu": _moved(lambda x, k=0: mx.where(_corner(x, k, True), x, mx.zeros_like(x))),
    "tril": _moved(lambda x, k=0: mx.where(_corner(x, k, False), x, mx.zeros_like(x))),
    "take_along_axis": lambda x, index, axis: MlxTracedArray(
        mx.take_along_axis(raw(x), lifted(index), axis)
    ),
    "split": _split,
    "flip": _flip,
    "take": _take,
    "unpackbits": _unpackbits,
    "pad": _pad,
    "where": _where,
    "full": _full,
    "mean": _mean,
    "sum": _sum,
    "max": _extreme(mx.max, mx.maximum),
    "min": _extreme(mx.min, mx.minimum),
    "exp2": lambda x: MlxTracedArray(mx.exp(lifted(x) * math.log(2.0))),
    "fmod": lambda x, y: _fmod(lifted(x), lifted(y)),
    "isneginf": lambda x: MlxTracedArray(mx.isneginf(lifted(x))),
    "zeros_like": lambda x: MlxTracedArray(mx.zeros_like(lifted(x))),
    "ones_like": lambda x: MlxTracedArray(mx.ones_like(lifted(x))),
    "matmul": lambda a, b: product(a, b),
    "einsum": lambda equation, *xs: MlxTracedArray(mx.einsum(equation, *map(lifted, xs))),
    "argsort": _stable,
    "shape": lambda x: x.shape,
    "ndim": lambda x: x.ndim,
    "size": lambda x: x.size,
}


def _corner(x: Any, k: int, upper: bool) -> Any:
    rows, columns = x.shape[-2:]
    retained = np.arange(columns)[None, :] - np.arange(rows)[:, None]
    return mx.array(retained >= k if upper else retained <= k)


def _fmod(x: Any, y: Any) -> MlxTracedArray:
    """The remainder with the sign of the dividend."""
    rest = mx.remainder(mx.abs(x), mx.abs(y))
    return MlxTracedArray(mx.where(x < 0, -rest, rest))


def product(a: Any, b: Any) -> MlxTracedArray:
    """``np.matmul``: operands of 16 bits as they are, where both have no more."""
    first, two = raw(a), raw(b)
    if first.dtype != two.dtype or not mx.metal.is_available():
        first, two = lifted(a), lifted(b)
    return MlxTracedArray(mx.matmul(first, two))


def _turned(b: Any, a: Any) -> MlxTracedArray:
    return product(a, b)


setattr(MlxTracedArray, "__matmul__", product)  # noqa: B010 - products stand on values
setattr(MlxTracedArray, "__rmatmul__", _turned)  # noqa: B010
