"""Lets a function over nodes take NumPy arrays: compiled once per shape and settings, then run."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from rlx._ext.locks import ReentrancyCheckedLock
from rlx.errors import MALFORMED, DTypeError, InputError, RlxError, UnsupportedOpError
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.locks import Lock
from rlx.lru import Lru
from rlx.sizes import Assumptions, Dim, Guard

if TYPE_CHECKING:
    from rlx.runtime.compiled import CompiledGraph

_COMPLEX = (
    "transform the real and the imaginary parts of a signal one by one; a spectrum is taken in block "
    "layout, real parts, then imaginary parts"
)
CAPACITY = 64  # compiled graphs kept; the one unused for longest goes first


class _Entry(NamedTuple):
    """A compiled graph, whether it has several results, whose turn it is, and the assumptions about its sizes."""

    runs: CompiledGraph
    several: bool
    turns: ReentrancyCheckedLock
    guards: tuple[Guard, ...]

    def takes(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether it runs for values of its dims."""
        return all(guard.holds(sizes) for guard in self.guards)


class _Family:
    """The operands of one function's calls that share ranks, types and settings.

    Attributes:
        first: The shapes of the first call.
        varying: The axes whose sizes have differed, as pairs of an operand and an axis.
        fixed: Whether the function takes known sizes alone.
    """

    def __init__(self, first: tuple[Shape, ...]) -> None:
        self.first, self.fixed = first, False
        self.varying: set[tuple[int, int]] = set()

    def dims(self, shapes: tuple[Shape, ...]) -> tuple[tuple[Any, ...], dict[str, int]]:
        """Returns the shapes of a call with dims for axes whose sizes have differed, and the values of these dims.

        Axes of one size have one dim.
        """
        pairs = zip(shapes, self.first, strict=True)
        self.varying |= {
            (i, axis)
            for i, (now, first) in enumerate(pairs)
            for axis in range(len(now))
            if now[axis] != first[axis]
        }
        sizes = sorted({shapes[i][axis] for i, axis in self.varying})
        dims = {size: Dim(f"n{i}") for i, size in enumerate(sizes)}
        sized = tuple(
            tuple(dims[n] if (i, axis) in self.varying else n for axis, n in enumerate(shape))
            for i, shape in enumerate(shapes)
        )
        return sized, {dim.name: size for size, dim in dims.items()}


# A graph that is forgotten is dropped, not closed: another thread may be about to run it.
_cache: Lru[Any, _Entry] = Lru(CAPACITY)
# By function and settings, the sizes that it was called with.
_families: Lru[Any, _Family] = Lru(CAPACITY)
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

        def build(shapes: tuple[Shape, ...], sizes: Mapping[str, int]) -> tuple[Graph, bool]:
            graph = Graph(called)
            if sizes:
                graph.assumptions = Assumptions(sizes)
            for name, array, shape in zip(arguments, arrays, shapes, strict=True):
                settings[name] = graph.input(name, shape, array.dtype)
            with graph.deciding():
                result = function(*bound.args, **bound.kwargs)
            graph.set_outputs(result)
            return graph, isinstance(result, tuple)

        entry = _entry(family, tuple(a.shape for a in arrays), on, build)
        results = entry.turns.call(lambda: [v.copy() for v in entry.runs.run_slots(*arrays)])
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
    build: Callable[[tuple[Shape, ...], Mapping[str, int]], tuple[Graph, bool]],
) -> _Entry:
    """Returns the executable of a call, compiled if it is missing.

    ``family`` is the function and all that it is called with, but for sizes. The first sizes are compiled as they are. Axes
    whose sizes differ later become dims. ``build`` makes the graph for shapes and values of dims, and says whether it has
    several results.
    """
    with _guard:
        known = _families.get(family)
        if known is None:
            known = _Family(shapes)
            _families.put(family, known)
        sized, sizes = known.dims(shapes)
        if not sizes or known.fixed:
            return _cached((family, shapes), device, lambda: build(shapes, {}))
        key = family, tuple(tuple(map(str, shape)) for shape in sized)
        entry = _cache.get(key)
        if entry is None or not entry.takes(sizes):
            try:
                entry = _cached(key, device, lambda: build(sized, sizes), again=True)
            except (RlxError, *MALFORMED):
                # The function needs sizes as numbers, or for these alone it may be right.
                entry = _cached((family, shapes), device, lambda: build(shapes, {}))
                known.fixed = True
        return entry


def _cached(
    key: Any, device: Any, build: Callable[[], tuple[Graph, bool]], again: bool = False
) -> _Entry:
    """Returns the entry of a key, compiled if it is missing, or ``again``."""
    entry = None if again else _cache.get(key)
    if entry is None:
        graph, several = build()
        guards = () if graph.assumptions is None else tuple(graph.assumptions.guards)
        turns = ReentrancyCheckedLock("this function")
        entry = _Entry(compiled(graph, device), several, turns, guards)
        _cache.put(key, entry)
    return entry


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
