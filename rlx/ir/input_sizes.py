"""The values of a graph's dims, read from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from rlx.errors import GraphError, InputError
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import TensorType
from rlx.ir.shape import HOST_CONTROL, READ_SIZE, is_sized
from rlx.sizes import Dim, Ratio, SizeExpr, value_of
from rlx.sizes.polynomial import Unknown


class InputSizes:
    """Finds the values of dims for the arrays of a run.

    Args:
        graph: A graph with dims.

    Attributes:
        names: The dims that inputs show.
        declared: The types of the inputs, with dims.

    Raises:
        GraphError: No input shows the value of a dim.
    """

    def __init__(self, graph: Graph) -> None:
        made = made_dims(graph)
        self._dims = {name: dim for name, dim in graph.dims.items() if name not in made}
        self.names: frozenset[str] = frozenset(self._dims)
        self._names = graph.input_names
        self.declared: list[TensorType] = [graph.named(name).type for name in self._names]
        self._declared = [(type, is_sized(type)) for type in self.declared]
        sources = shown_by(self.declared)
        self._sources = {name: sources.get(name, []) for name in self._dims}
        for name in self._dims:
            if name not in sources:
                raise GraphError(
                    f"graph {graph.name!r}: no input shows the size of dim {name!r}",
                    expected=f"an input with an axis of {name}, or of a multiple of it",
                )

    def values(
        self, shapes: Mapping[int, Sequence[int]], known: Mapping[str, int] | None = None
    ) -> dict[str, int]:
        """Returns the values of the dims that the shapes of some inputs show.

        Args:
            shapes: Shapes of inputs, by position.
            known: Values of dims that these inputs need not show.

        Raises:
            InputError: A shape does not fit, or two show other values of one dim.
        """
        # Most inputs of some graphs are states, whose shapes are fixed.
        types = self._declared
        shapes = {i: s for i, s in shapes.items() if types[i][1] or s != types[i][0].shape}
        for index, shape in shapes.items():
            if len(shape) != len(self.declared[index].shape):
                raise self._unfit(index, shape, {})
        result = dict(known or {})
        shown: dict[str, int] = {}
        for name, sources in self._sources.items():
            for index, axis, factor, more in sources:
                if index in shapes:
                    result[name] = self._value(name, index, shapes[index], axis, factor, more)
                    shown[name] = index
                    break
        for index, shape in shapes.items():
            if not self._fits(index, shape, result):
                raise self._unfit(index, shape, {n: result[n] for n in shown if shown[n] != index})
        return result

    def check(self, values: Mapping[str, int]) -> dict[str, int]:
        """Returns values of all dims that a caller gives by name.

        Raises:
            InputError: One is missing, unknown, or a value that its dim does not take.
        """
        if values.keys() != self._dims.keys():
            raise InputError(
                "the sizes of a graph",
                got=", ".join(map(str, values)) or "none",
                expected=", ".join(self._dims),
            )
        for name, value in values.items():
            if type(value) is not int or not self._dims[name].takes(value):
                raise InputError(
                    f"dim {name!r}", got=repr(value), expected=self._dims[name].expected
                )
        return dict(values)

    def types(self, values: Mapping[str, int]) -> list[TensorType]:
        """Returns the types of all inputs for values of the dims."""
        return [
            TensorType(tuple(value_of(size, values) for size in type.shape), type.dtype)
            if sized
            else type
            for type, sized in self._declared
        ]

    def _value(
        self, name: str, index: int, shape: Sequence[int], axis: int, factor: int, more: int
    ) -> int:
        """The value of a dim that an axis shows."""
        dim = self._dims[name]
        value, rest = divmod((shape[axis] - more) * dim.multiple_of, factor)
        if rest or not dim.takes(value):
            raise InputError(
                f"input {self._names[index]!r} has a size that its dim does not take",
                got=f"{shape[axis]} in axis {axis} of {tuple(shape)}",
                expected=f"{self.declared[index].shape[axis]} where {dim.expected}",
            )
        return value

    def _fits(self, index: int, shape: Sequence[int], values: Mapping[str, int]) -> bool:
        """Returns whether a shape has the sizes that values of dims say; unknown ones fit."""
        return all(
            size == wanted
            if not isinstance(wanted, SizeExpr)
            else not wanted.names() <= values.keys() or size == wanted.value(values)
            for size, wanted in zip(shape, self.declared[index].shape, strict=True)
        )

    def _unfit(self, index: int, shape: Sequence[int], known: Mapping[str, int]) -> InputError:
        listed: Sequence[Any] = self.declared[index].shape
        sizes = [size for size in listed if isinstance(size, SizeExpr)]
        own = {name for size in sizes for name in size.names()}
        said = ", ".join(f"{name} = {value}" for name, value in known.items() if name in own)
        wanted = str(self.declared[index].shape)
        return InputError(
            f"input {self._names[index]!r} has the wrong shape",
            got=str(tuple(shape)),
            expected=f"{wanted} where other inputs say {said}" if said else wanted,
        )


def computes_sizes(graph: Graph) -> bool:
    """Returns whether a graph computes sizes: it is compiled in segments."""
    return any(node.op == READ_SIZE or node.op in HOST_CONTROL for node in graph.nodes)


def made_dims(graph: Graph) -> dict[str, Node]:
    """The dims that a graph computes, by name, each with the node that makes it."""
    known: set[str] = set()
    results: dict[str, Node] = {}
    for node in graph.nodes:
        if node.op == READ_SIZE or node.op in HOST_CONTROL:
            sizes = [node.attrs["size"]] if node.op == READ_SIZE else _sizes_of(node)
            names = {name for size in sizes for name in size.names()}
            results.update(dict.fromkeys(names - known, node))
            known |= names
        elif node.op == "input":
            known.update(name for size in _sizes_of(node) for name in size.names())
    return results


def _sizes_of(node: Node) -> list[SizeExpr]:
    """The sizes of a node's results that are not numbers."""
    sizes: list[Any] = [size for type in node.types for size in type.shape]
    return [size for size in sizes if isinstance(size, SizeExpr)]


def names_of(node: Node) -> frozenset[str]:
    """The names of the dims that a node needs to be known."""
    if node.op in HOST_CONTROL:  # those of its results are known behind it
        return frozenset(_names(node.attrs["shown"]))
    shapes = [type.shape for type in node.types]
    return frozenset(_names((*shapes, *(node.given or node.attrs).values(), *node.attrs.values())))


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, SizeExpr):
        yield from value.names()
    elif isinstance(value, Ratio):
        yield from _names((value.above, value.below))
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _names(item)
    elif isinstance(value, Graph):
        yield from value.dims


def show_sizes(graph: Graph, dims: Mapping[str, Dim]) -> list[Dim]:
    """Adds an input of shape (size, 0) for each dim that a graph needs, and neither makes nor is shown; returns those dims.

    Args:
        graph: The graph.
        dims: Dims by name.
    """
    names = frozenset[str]().union(*map(names_of, graph.nodes))
    shown = shown_by([graph.named(name).type for name in graph.input_names])
    added = [dims[name] for name in sorted(names - shown.keys() - made_dims(graph).keys())]
    for dim in added:
        graph.input(f"size:{dim.name}", (dim, 0), "u8")
    return added


def shown_by(types: Sequence[TensorType]) -> dict[str, list[tuple[int, int, int, int]]]:
    """By dim, the axes of inputs that give its value, the simplest first: input, axis, factor and what is added."""
    results: dict[str, list[tuple[int, int, int, int]]] = {}
    for index, type in enumerate(types):
        for axis, size in enumerate(type.shape):
            source = _linear(size)
            if source is not None:
                results.setdefault(source[0], []).append((index, axis, *source[1:]))
    for sources in results.values():
        sources.sort(key=lambda source: (source[3] != 0, source[2]))
    return results


def _linear(size: int) -> tuple[str, int, int] | None:
    """The dim of a size that is a multiple of one dim plus a number: its name, and both numbers."""
    if not isinstance(size, SizeExpr):
        return None
    (monomial, factor), *rest = size.terms
    if len(monomial) != 1 or not isinstance(monomial[0], Unknown) or factor < 1:
        return None
    if rest and (len(rest) > 1 or rest[0][0]):
        return None
    return monomial[0].name, factor, rest[0][1] if rest else 0
