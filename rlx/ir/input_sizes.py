"""The values of a graph's dims, read from the shapes of its inputs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rlx.errors import GraphError, InputError
from rlx.ir.graph import Graph
from rlx.ir.opdef import TensorType
from rlx.sizes import SizeExpr, value_of
from rlx.sizes.polynomial import Unknown


class InputSizes:
    """Finds the values of dims for the arrays of a run.

    Args:
        graph: A graph with dims.

    Raises:
        GraphError: No input shows the value of a dim.
    """

    def __init__(self, graph: Graph) -> None:
        self._dims = dict(graph.dims)
        self._names = graph.input_names
        self._types = [graph.named(name).type for name in self._names]
        sources = shown_by(self._types)
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
        for index, shape in shapes.items():
            if len(shape) != len(self._types[index].shape):
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
            for type in self._types
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
                expected=f"{self._types[index].shape[axis]} where {dim.expected}",
            )
        return value

    def _fits(self, index: int, shape: Sequence[int], values: Mapping[str, int]) -> bool:
        """Returns whether a shape has the sizes that values of dims say; unknown ones fit."""
        return all(
            size == wanted
            if not isinstance(wanted, SizeExpr)
            else not wanted.names() <= values.keys() or size == wanted.value(values)
            for size, wanted in zip(shape, self._types[index].shape, strict=True)
        )

    def _unfit(self, index: int, shape: Sequence[int], known: Mapping[str, int]) -> InputError:
        listed: Sequence[Any] = self._types[index].shape
        sizes = [size for size in listed if isinstance(size, SizeExpr)]
        own = {name for size in sizes for name in size.names()}
        said = ", ".join(f"{name} = {value}" for name, value in known.items() if name in own)
        wanted = str(self._types[index].shape)
        return InputError(
            f"input {self._names[index]!r} has the wrong shape",
            got=str(tuple(shape)),
            expected=f"{wanted} where other inputs say {said}" if said else wanted,
        )


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
