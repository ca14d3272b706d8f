"""Lets a function over nodes take NumPy arrays: compiled once per shape and settings, then run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx._ext.locks import ReentrancyCheckedLock
from rlx.errors import DTypeError, InputError, UnsupportedOpError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.locks import Lock
from rlx.lru import Lru

if TYPE_CHECKING:
    from rlx.runtime.compiled import CompiledGraph

_COMPLEX = (
    "transform the real and the imaginary parts of a signal one by one; a spectrum is taken in block "
    "layout, real parts, then imaginary parts"
)
CAPACITY = 64  # compiled graphs kept; the one unused for longest goes first


class _Entry(NamedTuple):
    """A compiled graph, whether it has several results, and whose turn it is."""

    runs: CompiledGraph
    several: bool
    turns: ReentrancyCheckedLock


class _Padding(NamedTuple):
    """The bucket that a call runs in, and what its shapes ask of it (``rlx.serving.bucket_padding``)."""

    bucket: Any
    fit: Any

    def run(self, runs: CompiledGraph, arrays: Mapping[str, Array]) -> list[Array]:
        """The results, cut to their sizes."""
        result = runs.run_slots(*self.bucket.given(self.fit, arrays).values())
        from rlx.serving.bucket_padding import valid

        output = valid(self.fit, result)
        return [
            item.copy() if item is view else item for item, view in zip(output, result, strict=True)
        ]


# A graph that is forgotten is dropped, not closed: another thread may be about to run it.
_cache: Lru[Any, _Entry] = Lru(CAPACITY)
# By function and settings, the lengths that it was called with.
_families: Lru[Any, Any] = Lru(CAPACITY)
_guard = Lock()
_wide: dict[str, bool] = {}  # by the device's name


def compiled(graph: Graph, device: Any) -> CompiledGraph:
    """Compiles a graph for a device. The compiler is imported by the first call."""
    from rlx.runtime.session import compile

    return compile(graph, device)


def computes_f64(device: Any) -> bool:
    """Returns whether a device computes in double precision itself. The answer is cached for each device."""
    name = str(device)
    if name not in _wide:
        graph = Graph("f64")
        x = graph.input("x", (1,), DType.F64)
        graph.set_outputs([x + x])
        try:
            _wide[name] = not compiled(graph, device).host_fallbacks
        except UnsupportedOpError:
            _wide[name] = False
    return _wide[name]


def on_arrays(function: Callable[..., Any]) -> Callable[..., Any]:
    """Lets ``function`` take arrays in the place of nodes, and then return arrays.

    The parameters annotated ``Node`` or ``Node | None`` are the ones that may be either. Given
    arrays, the function is compiled for the keyword ``device`` ("cpu" by default); the compiled
    graph is kept for the next call with the same shapes, dtypes and settings.
    """
    signature, called = inspect.signature(function), function.__name__.lstrip("_")
    operands = tuple(
        p.name for p in signature.parameters.values() if p.annotation in ("Node", "Node | None")
    )

    @functools.wraps(function)
    def wrapper(*args: Any, device: Any = None, **kwargs: Any) -> Any:
        bound = signature.bind(*args, **kwargs)
        bound.apply_defaults()
        settings = bound.arguments
        arguments = [name for name in operands if settings[name] is not None]
        if any(isinstance(settings[name], Node) for name in arguments):
            if device is not None:
                raise InputError(
                    f"[{called}] device with nodes",
                    got=device,
                    hint="the device is chosen where the graph is compiled",
                )
            _as_nodes(called, settings, arguments)
            return _in_f32(function, bound, arguments)
        arrays = [_array(settings[name], called) for name in arguments]
        # A state follows the signal, which is the first.
        arrays = [array.astype(arrays[0].dtype, copy=False) for array in arrays]
        on = "cpu" if device is None else device
        family = (
            function.__module__ + "." + function.__qualname__,
            str(on),
            tuple((name, a.ndim, a.dtype.str) for name, a in zip(arguments, arrays, strict=True)),
            tuple((k, _frozen(v)) for k, v in settings.items() if k not in arguments),
        )

        def build(shapes: tuple[Shape, ...]) -> tuple[Graph, bool]:
            graph = Graph(called)
            for name, array, shape in zip(arguments, arrays, shapes, strict=True):
                settings[name] = graph.input(name, shape, array.dtype)
            result = function(*bound.args, **bound.kwargs)
            graph.set_outputs(result)
            return graph, isinstance(result, tuple)

        entry, padding = _entry(family, tuple(a.shape for a in arrays), on, build)

        def run() -> list[Array]:
            if padding is None:
                return [view.copy() for view in entry.runs.run_slots(*arrays)]
            return padding.run(entry.runs, dict(zip(arguments, arrays, strict=True)))

        results = entry.turns.call(run)
        return tuple(results) if entry.several else results[0]

    # The attributes for help() and inspection.
    keyword = inspect.Parameter("device", inspect.Parameter.KEYWORD_ONLY, default=None)
    wrapper.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), keyword]
    )
    return wrapper


def complex_numbers(block: Array, axis: int = -1) -> Array:
    """Complex numbers from an array that is in block layout along an axis."""
    real, imaginary = np.split(block, 2, axis)
    return np.asarray(real + 1j * imaginary)


def of_one_dtype(where: str, x: Any, y: Any) -> tuple[Any, Any]:
    """Two arrays in the wider of their dtypes; nodes as they are."""
    if isinstance(x, Node) or isinstance(y, Node):
        return x, y
    first, second = _array(x, where), _array(y, where)
    wider = np.promote_types(first.dtype, second.dtype)
    return first.astype(wider, copy=False), second.astype(wider, copy=False)


def on_device(device: Any) -> dict[str, Any]:
    """The keyword that hands a device on to a function made by ``on_arrays``, where one was given."""
    return {} if device is None else {"device": device}


def _as_nodes(called: str, settings: dict[str, Any], args: Sequence[str]) -> None:
    """Arrays that stand beside nodes become constants of their graph."""
    like = next(settings[name] for name in args if isinstance(settings[name], Node))
    for name in args:
        if not isinstance(settings[name], Node):
            array = real_numbers(settings[name], called).astype(like.dtype.numpy)
            settings[name] = like.graph.constant(array)


def _in_f32(
    function: Callable[..., Any], bound: inspect.BoundArguments, args: Sequence[str]
) -> Any:
    """The function on nodes; the half types are computed in f32, and only the results rounded."""
    half = next(
        (
            bound.arguments[name].dtype
            for name in args
            if isinstance(bound.arguments[name], Node)
            and bound.arguments[name].dtype in (DType.F16, DType.BF16)
        ),
        None,
    )
    if half is None:
        return function(*bound.args, **bound.kwargs)
    for name in args:
        node = bound.arguments[name]
        if isinstance(node, Node):
            bound.arguments[name] = node.graph.cast(node, DType.F32)
    result = function(*bound.args, **bound.kwargs)
    several = result if isinstance(result, tuple) else (result,)
    stored = tuple(
        node.graph.cast(node, half) if node.dtype is DType.F32 else node for node in several
    )
    return stored if isinstance(result, tuple) else stored[0]


def _entry(
    family: Any,
    shapes: tuple[Shape, ...],
    device: Any,
    build: Callable[[tuple[Shape, ...]], tuple[Graph, bool]],
) -> tuple[_Entry, _Padding | None]:
    """Returns the executable of a call, compiled if it is missing, and the padding of its arrays.

    ``family`` is the function and all that it is called with, but for sizes. ``build`` makes the graph for shapes, and
    says whether it has several results.
    """
    with _guard:
        result = _cache.get((family, shapes))
        if result is not None:
            return result, None
        lengths = _families.get(family)
        if lengths is None:
            from rlx.serving.length_buckets import Lengths

            lengths = Lengths()
            _families.put(family, lengths)
        several: list[bool] = []

        def graph_of(some: tuple[Shape, ...]) -> Graph:
            graph, many = build(some)
            several.append(many)
            return graph

        place = lengths.place(shapes, graph_of)
        key: Any = (family, shapes)
        padding = None
        if place is not None:
            last, bucket, fit = place
            key, padding = (family, "bucket", last), _Padding(bucket, fit)
        result = _cache.get(key)
        if result is None:
            # A bucket that was made for an earlier call does not say how many results there are.
            if padding is None or not several:
                graph = graph_of(shapes)
            if padding is not None:
                graph = padding.bucket.graph
            result = _Entry(
                compiled(graph, device), several[-1], ReentrancyCheckedLock("this function")
            )
            _cache.put(key, result)
        return result, padding


def real_numbers(value: Any, where: str) -> Array:
    """The value as an array of real numbers, in its own dtype.

    Raises:
        DTypeError: It is something else: complex numbers, text, None.
        InputError: It is a list whose rows differ in length.
    """
    try:
        array = np.asarray(value)
    except ValueError as error:
        raise InputError(
            f"[{where}] no array", got=str(error), expected="rows of one length"
        ) from None
    if array.dtype.kind not in "fiub" or array.dtype.itemsize > 8:
        raise DTypeError(
            f"[{where}] not real numbers",
            got=array.dtype,
            expected="an array of floats or integers",
            hint=_COMPLEX if array.dtype.kind == "c" else "",
        )
    return array


def _array(value: Any, where: str) -> Array:
    """The value as a float array: floats as they are, integers in float32 unless it would round them."""
    array = real_numbers(value, where)
    dtype = array.dtype if array.dtype in (np.float32, np.float64) else np.dtype(np.float32)
    if array.dtype.kind in "iu" and array.size and max(-int(array.min()), int(array.max())) > 2**24:
        dtype = np.dtype(np.float64)
    return np.ascontiguousarray(array, dtype).reshape(array.shape)


def _frozen(value: Any) -> Any:
    """A key that is equal for equal settings only; 1, 1.0 and True are three settings."""
    if isinstance(value, np.ndarray):
        return value.shape, value.dtype.str, value.tobytes()
    if isinstance(value, (list, tuple)):
        return tuple(_frozen(item) for item in value)
    return type(value), value
