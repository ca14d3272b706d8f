"""Python's operators and indexing on nodes: ``a + b``, ``x[..., 1:]``."""

from __future__ import annotations

import operator
from types import EllipsisType
from typing import TYPE_CHECKING, Any, Self, SupportsIndex

from rlx.errors import GraphError, ShapeError, describe
from rlx.ir.opdef import Numbers
from rlx.ir.shape import Shape

Index = SupportsIndex | slice | EllipsisType | None


class Operators:
    """The base of nodes. Each operator calls the builder method of that name of the node's graph.

    Comparisons build nodes, too: whether two variables hold the same node is ``a is b``.
    """

    __slots__ = ()

    # NumPy arrays and scalars leave operators with a node to the node: ``array * node`` is a node.
    __array_ufunc__ = None

    # Nodes are keys of dicts and members of sets by identity.
    if TYPE_CHECKING:

        def __hash__(self) -> int: ...
    else:
        __hash__ = object.__hash__

    graph: Any

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        raise NotImplementedError

    def where(self) -> str:
        """How messages name the node."""
        raise NotImplementedError

    def _apply(self, op: str, *operands: Any) -> Self:
        node: Self = getattr(self.graph, op)(*operands)
        return node

    def __add__(self, other: Self | Numbers) -> Self:
        return self._apply("add", self, other)

    def __radd__(self, other: Self | Numbers) -> Self:
        return self._apply("add", other, self)

    def __sub__(self, other: Self | Numbers) -> Self:
        return self._apply("sub", self, other)

    def __rsub__(self, other: Self | Numbers) -> Self:
        return self._apply("sub", other, self)

    def __mul__(self, other: Self | Numbers) -> Self:
        return self._apply("mul", self, other)

    def __rmul__(self, other: Self | Numbers) -> Self:
        return self._apply("mul", other, self)

    def __truediv__(self, other: Self | Numbers) -> Self:
        return self._apply("div", self, other)

    def __rtruediv__(self, other: Self | Numbers) -> Self:
        return self._apply("div", other, self)

    def __pow__(self, other: Self | Numbers) -> Self:
        return self._apply("pow", self, other)

    def __rpow__(self, other: Self | Numbers) -> Self:
        return self._apply("pow", other, self)

    def __matmul__(self, other: Self | Numbers) -> Self:
        return self._apply("matmul", self, other)

    def __rmatmul__(self, other: Self | Numbers) -> Self:
        return self._apply("matmul", other, self)

    def __neg__(self) -> Self:
        return self._apply("neg", self)

    def __eq__(self, other: Any) -> Self:  # type: ignore[override]
        return self._apply("eq", self, other)

    def __ne__(self, other: Any) -> Self:  # type: ignore[override]
        return self._apply("ne", self, other)

    def __lt__(self, other: Self | Numbers) -> Self:
        return self._apply("lt", self, other)

    def __le__(self, other: Self | Numbers) -> Self:
        return self._apply("le", self, other)

    def __gt__(self, other: Self | Numbers) -> Self:
        return self._apply("gt", self, other)

    def __ge__(self, other: Self | Numbers) -> Self:
        return self._apply("ge", self, other)

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Self:
        """Basic indexing: integers, slices with any step, ``...`` and None."""
        starts, stops, steps, shape = [], [], [], []
        dims = iter(self.shape)
        for item in self._whole_key(key):
            if item is None:
                shape.append(1)
                continue
            dim = next(dims)
            if isinstance(item, slice):
                start, stop, step = item.indices(dim)
                shape.append(len(range(start, stop, step)))
            else:
                start = self._index(item, dim)
                stop, step = start + 1, 1
            starts.append(start)
            # A negative step that runs past the front has no non-negative stop to name.
            stops.append(stop if stop >= 0 else -dim - 1)
            steps.append(step)
        cut = self
        if any(r != (0, d, 1) for r, d in zip(zip(starts, stops, steps), self.shape)):
            axes = tuple(range(len(self.shape)))
            cut = self._apply("slice", self, starts, stops, axes, steps)
        return cut if cut.shape == tuple(shape) else self._apply("reshape", cut, tuple(shape))

    def _whole_key(self, key: Any) -> list[Any]:
        """The key with a slice for every axis that it does not name."""
        keys = list(key) if isinstance(key, tuple) else [key]
        taken = sum(item is not None and item is not Ellipsis for item in keys)
        if keys.count(Ellipsis) > 1 or taken > len(self.shape):
            raise ShapeError(describe("too many indices", where=self.where(), got=repr(key)))
        if Ellipsis not in keys:
            keys.append(Ellipsis)
        at = keys.index(Ellipsis)
        keys[at : at + 1] = [slice(None)] * (len(self.shape) - taken)
        return keys

    def _index(self, item: Any, dim: int) -> int:
        try:
            index = operator.index(item)
        except TypeError:
            raise GraphError(
                describe(
                    "not an index",
                    where=self.where(),
                    got=repr(item),
                    expected="integers, slices, ... or None",
                    hint="use g.gather for an array of indices",
                )
            ) from None
        if not -dim <= index < dim:
            raise ShapeError(
                describe(
                    "index out of range", where=self.where(), got=index, expected=f"size {dim}"
                )
            )
        return index % dim
