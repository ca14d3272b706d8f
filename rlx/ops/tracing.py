"""Graphs as functions of another array library: traced arrays in place of NumPy's, and the walk over nodes."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from types import ModuleType
from typing import Any, Generic, Self, TypeVar

import numpy as np

from rlx.errors import CompileError
from rlx.ir.dtype import DType, store
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import TensorType
from rlx.ir.rewrite import subgraphs
from rlx.ops.array_namespace import ReboundReferences
from rlx.ops.declare import bind_reference, call_with, evaluate
from rlx.ops.interpret import results_of

# Results of nodes whose operands are known stay NumPy's up to this many elements.
STATIC_SIZE = 1 << 16


class TracedArray:
    """An array of another library in place of a NumPy array, while a reference is traced.

    A plug-in's class adds the properties ``wide`` and ``dtype``, the method ``lifted``, and what its library has other names
    for: ``reshape``, ``transpose``, ``astype``, sums.

    Args:
        raw: The array.

    Attributes:
        raw: The array.

    Example:
        >>> import numpy as np
        >>> class Traced(TracedArray):
        ...     wide = property(lambda self: self.raw)
        ...     lifted = staticmethod(lambda value: getattr(value, "raw", value))
        >>> (2.0 - Traced(np.ones(2))).raw.tolist()
        [1.0, 1.0]
    """

    __slots__ = ("raw",)
    # NumPy leaves operators between its arrays and this to this.
    __array_ufunc__ = None
    # A class with ``__eq__`` has no ``__hash__`` of its own.
    __hash__ = object.__hash__

    def __init__(self, raw: Any) -> None:
        self.raw = raw

    @property
    def wide(self) -> Any:
        """The array in the dtype that numbers are computed in."""
        raise NotImplementedError

    @property
    def dtype(self) -> np.dtype[Any]:
        """The dtype that references see."""
        raise NotImplementedError

    @staticmethod
    def lifted(value: Any) -> Any:
        """A value of a reference as the library takes it."""
        raise NotImplementedError

    @staticmethod
    def capped(array: Any) -> Any:
        """A result in the dtype that numbers are computed in, where the library widens it."""
        return array

    def reshape(self, *shape: Any) -> Self:
        """The elements in another shape."""
        raise NotImplementedError

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the axes."""
        return tuple(self.raw.shape)

    @property
    def ndim(self) -> int:
        """Number of axes."""
        return int(self.raw.ndim)

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    def ravel(self) -> Self:
        """All elements in one axis."""
        return self.reshape(self.size)

    def copy(self) -> Self:
        """Another value, which may be changed: libraries like these never change an array."""
        return type(self)(self.raw)

    def __len__(self) -> int:
        return self.shape[0]

    def __iter__(self) -> Iterator[Self]:
        return (self[i] for i in range(len(self)))

    def __getitem__(self, index: Any) -> Self:
        return type(self)(self.raw[self.lifted(index)])

    def __bool__(self) -> bool:
        raise TypeError("the value of a traced array is not known")

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise TypeError("NumPy was asked to compute with a traced array")


def _of_two(function: Callable[[Any, Any], Any], turned: bool) -> Callable[[TracedArray, Any], Any]:
    def apply(self: TracedArray, other: Any) -> Any:
        first, two = self.wide, self.lifted(other)
        return type(self)(self.capped(function(two, first) if turned else function(first, two)))

    return apply


def _as_given(function: Callable[..., Any]) -> Callable[..., Any]:
    """A method whose result has the dtype that the library gives it."""
    return lambda self, *others: type(self)(function(self.wide, *map(self.lifted, others)))


for _name in "add sub mul truediv floordiv mod pow lshift rshift and_ or_ xor".split():
    _two = getattr(operator, _name)
    setattr(TracedArray, f"__{_name.rstrip('_')}__", _of_two(_two, False))
    setattr(TracedArray, f"__r{_name.rstrip('_')}__", _of_two(_two, True))
for _name in ("lt", "le", "gt", "ge", "eq", "ne", "neg", "invert", "abs"):
    setattr(TracedArray, f"__{_name}__", _as_given(getattr(operator, _name)))


def is_traced(value: Any) -> bool:
    """Returns whether a value, or an item of a list, is traced."""
    if isinstance(value, (tuple, list)):
        return any(is_traced(item) for item in value)
    return isinstance(value, TracedArray)


def listed(arguments: tuple[Any, ...]) -> Sequence[Any]:
    """Sizes or axes, which NumPy's methods take one by one or as one tuple."""
    first = arguments[0] if len(arguments) == 1 else arguments
    return tuple(first) if isinstance(first, (tuple, list)) else (first,)


class ArrayNamespace:
    """A module of NumPy whose functions also take traced arrays. It replaces ``np`` in copies of references.

    Args:
        of_library: Makes the function for traced arguments, by the name of NumPy's below ``np``.
        static: The module of NumPy, whose functions take all other arguments.
        path: Its name below ``np``, with a dot behind it.

    Example:
        >>> import numpy as np
        >>> ArrayNamespace(lambda name: lambda x: f"{name} of a traced array").fft.rfft(TracedArray(np.ones(2)))
        'fft.rfft of a traced array'
    """

    def __init__(
        self, of_library: Callable[[str], Callable[..., Any]], static: Any = np, path: str = ""
    ) -> None:
        self._of_library, self._static, self._path = of_library, static, path

    def __getattr__(self, name: str) -> Any:
        static, path = getattr(self._static, name), self._path + name
        if isinstance(static, ModuleType):
            value: Any = ArrayNamespace(self._of_library, static, path + ".")
        elif isinstance(static, type) or not callable(static):
            value = static
        else:
            value = _by_arguments(static, self._of_library(path))
        setattr(self, name, value)  # found without this function from now on
        return value


def _by_arguments(static: Callable[..., Any], traced: Callable[..., Any]) -> Callable[..., Any]:
    """A function that calls the second one where an argument is traced, and the first one elsewhere."""

    def ask(*args: Any, **kwargs: Any) -> Any:
        known = not is_traced(args) and not is_traced(tuple(kwargs.values()))
        return (static if known else traced)(*args, **kwargs)

    if isinstance(static, np.ufunc):  # whose methods are for static values alone
        vars(ask).update(outer=static.outer, reduce=static.reduce)
    return ask


T = TypeVar("T", bound=TracedArray)


class Tracer(Generic[T]):
    """Walks over a graph and computes each node by its reference, with another array library.

    Values that are known stay arrays of NumPy, so that what a reference decides by them it can decide.

    Args:
        rebound: The references, bound to the library.
        traced: The types that stand for its arrays.
        package: Whose authors are told of a result that can't be.
    """

    def __init__(self, rebound: ReboundReferences, traced: type[T], package: str) -> None:
        self._rebound, self._traced, self._package = rebound, traced, package

    def as_stored(self, array: np.ndarray[Any, Any], dtype: DType) -> Any:
        """An array in the storage of rlx as the library's array."""
        raise NotImplementedError

    def cast(self, raw: Any, dtype: DType) -> Any:
        """A result of the library in the dtype that holds values of a dtype of rlx."""
        raise NotImplementedError

    def around(self, node: Node) -> AbstractContextManager[Any]:
        """Returns the context in which a node is computed."""
        return nullcontext()

    def outputs_of(
        self, graph: Graph, leaves: Mapping[str, Any], large: Mapping[int, Any] | None = None
    ) -> list[Any]:
        """Computes the outputs of a graph.

        Args:
            graph: The graph.
            leaves: Value of every input and param by name, as arrays of the library.
            large: By node id, values of constants that the caller has on the device already.

        Returns:
            Arrays of the library.
        """

        def compute(node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
            if large and node.id in large:
                return (large[node.id],)
            return self.results_of(node, operands)

        values = results_of(graph.nodes, lambda node: leaves[node.name], compute)
        return [self._array(values[node.id][0], node.dtype) for node in graph.outputs]

    def results_of(self, node: Node, operands: Sequence[Any]) -> tuple[Any, ...]:
        """The results of a node: NumPy arrays where all its operands are, else arrays of the library."""
        known = all(isinstance(operand, np.ndarray) for operand in operands)
        few = sum(type.size for type in node.types) <= STATIC_SIZE
        if known and few and not subgraphs(node):
            return evaluate(node, operands)
        with self.around(node):
            args = [
                self._traced(self._array(operand, source.dtype))
                for operand, source in zip(operands, node.inputs, strict=True)
            ]
            bound = bind_reference(node.opdef, node.attrs, args)
            result = call_with(self._rebound.reference(node.op), node.opdef.signature, bound)
            results = result if isinstance(result, tuple) else (result,)
            return tuple(
                self._result(result, type, node)
                for result, type in zip(results, node.types, strict=True)
            )

    def _array(self, value: Any, dtype: DType) -> Any:
        return self.as_stored(value, dtype) if isinstance(value, np.ndarray) else value

    def _result(self, result: Any, type: TensorType, node: Node) -> Any:
        """A result in the dtype and shape that the node has."""
        if not isinstance(result, TracedArray):
            result = np.asarray(result)
        if result.shape != type.shape:
            raise CompileError(
                f"the traced shape of {node.op} differs from the inferred shape",
                where=node.where(),
                got=result.shape,
                expected=type.shape,
                hint=f"report it to the authors of {self._package}",
            )
        if isinstance(result, TracedArray):
            return self.cast(result.raw, type.dtype)
        return store(result, type.dtype)
