"""The dims of a graph: the sizes that are known only when it runs, and what is assumed of them."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import Any, TypeVar

from rlx.errors import GraphError, ShapeError
from rlx.ir.shape import HOST_CONTROL, READ_SIZE
from rlx.ir.view import NodeView
from rlx.sizes import LARGEST, Assumptions, Dim, SizeExpr, current, deciding, dims_of, inferring

N = TypeVar("N", bound=NodeView)
_NOTHING: AbstractContextManager[None] = nullcontext()
# The hint of a size without a bound that a graph computes: shapes of several such sizes stay small.
_FEW = 8


class Dims:
    """The part of ``Graph`` that knows sizes which are known only when the graph runs.

    Attributes:
        assumptions: The assumptions of its builders about dims; None for a graph without dims.
        size_names: The beginning of the names of dims that it computes: graphs within each other have different ones.
        computed_dims: The names of those.
        may_compute_sizes: Whether it may have such; a subgraph that a backend runs may not.
        first_hints: Hints of dims that come to it later, by name; those of a graph that is read from a file.
    """

    assumptions: Assumptions | None = None
    nodes: list[Any]
    add_node: Callable[..., Any]
    size_names: str = "size"
    computed_dims: frozenset[str] = frozenset()
    may_compute_sizes: bool = True
    first_hints: Mapping[str, int] = MappingProxyType({})
    _dims: Mapping[str, Dim] = MappingProxyType({})

    @property
    def dims(self) -> Mapping[str, Dim]:
        """The dims of its inputs, and those that it reads from values, by name."""
        return self._dims

    def read_size(
        self, x: Any, max: Any = None, *, min: int = 0, multiple_of: int = 1, name: str = ""
    ) -> Dim:
        """A dim whose value the graph computes; shapes and sizes of later nodes may have it.

        Reading it ends a part of the graph: what depends on the dim begins when the number is there. Where an equal value was
        read before, the dim is the same.

        Args:
            x: One number, i32 or i64.
            max: The largest value, a number or a size; None for no bound. A bound saves memory and checks.
            min: The least value.
            multiple_of: A number that divides every value.
            name: Its name in messages; by default one that says the node.

        Raises:
            DTypeError: ``x`` is not of whole numbers.
            ShapeError: It is not one number; the bounds are none; or a dim has that name.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> x, k = g.input("x", (5,)), g.input("k", (), "i64")
            >>> g.set_outputs([g.narrow(x, 0, 0, g.read_size(k, max=5))])
            >>> rlx.compile(g, device="cpu").run({"x": np.arange(5.0, dtype=np.float32), "k": 2})
            [array([0., 1.], dtype=float32)]
        """
        from rlx.ir.same_value import is_same_value

        most = max.bounds()[1] if isinstance(max, SizeExpr) else max
        if most is not None:
            most = most - most % multiple_of if most <= LARGEST else None
        dim = Dim(
            name or f"{self.size_names}_{len(self.nodes)}", most, min=min, multiple_of=multiple_of
        )
        for node in self.nodes if not name else ():
            known = node.attrs.get("size")
            if node.op == READ_SIZE and is_same_value(node.inputs[0], x):
                found = self._dims[next(iter(known.names()))]
                if (found.max, found.min, found.multiple_of) == (most, min, multiple_of):
                    return found
        if not self.may_compute_sizes:
            raise GraphError(f"[{READ_SIZE}] a subgraph computes sizes", got=x)
        if dim.name in self._dims:
            raise ShapeError(f"[{READ_SIZE}] the name {dim.name!r} is taken", got=dim.name)
        self.add_node(READ_SIZE, (x,), {"size": dim})
        assert self.assumptions is not None
        if most is None:
            self.assumptions.hints[dim.name] = builtins.max(
                dim.min, -(-_FEW // multiple_of) * multiple_of
            )
        if isinstance(max, SizeExpr):
            hint = max.value(self.assumptions.hints)
            usual = self.first_hints.get(dim.name, dim.hint)
            self.assumptions.hints[dim.name] = builtins.min(hint - hint % multiple_of, usual)
        return dim

    def _append(self, node: N) -> N:
        """Adds a node, and notes the dims that it makes, if it does."""
        if node.op == READ_SIZE or node.op in HOST_CONTROL:
            before = self._dims.keys()
            read = node.op == READ_SIZE
            sizes = [node.attrs["size"]] if read else [n for t in node.types for n in t.shape]
            self._meet(sizes, node.op)
            self.computed_dims = self.computed_dims | (self._dims.keys() - before)
        self.nodes.append(node)
        return node

    def uses(self, op: str) -> bool:
        """Returns whether one of its nodes is of an op."""
        return any(node.op == op for node in self.nodes)

    def sizes_state(self) -> tuple[Any, ...] | None:
        """Returns the dims, their hints and what was assumed, for pickles; None for a graph without dims."""
        assumptions = self.assumptions
        if assumptions is None:
            return None
        guards = list(assumptions.guards), list(assumptions.inferred)
        return dict(self._dims), dict(assumptions.hints), *guards

    def set_sizes_state(self, state: tuple[Any, ...] | None) -> None:
        """Takes what ``sizes_state`` gave."""
        if state is not None:
            self._dims, hints, guards, inferred = state
            self.assumptions = Assumptions(hints, joins=True)
            self.assumptions.guards.update(dict.fromkeys(guards))
            self.assumptions.inferred.update(dict.fromkeys(inferred))

    def deciding(self) -> AbstractContextManager[None]:
        """Has comparisons of sizes be decided by what this graph assumes, unless other assumptions are under way."""
        return _NOTHING if self.assumptions is None or current() else deciding(self.assumptions)

    def inferring(self) -> AbstractContextManager[None]:
        """``deciding``, for inference: what is decided counts for later sizes only if inference would decide so again."""
        if self.assumptions is None or current() not in (None, self.assumptions):
            return _NOTHING
        return inferring(self.assumptions)

    def _sizes(self, shape: Any, op: str, name: str) -> Any:
        """Returns a shape as it was given, and notes its dims.

        Raises:
            ShapeError: A param has dims, or one was declared with other bounds before.
        """
        listed = (shape,) if isinstance(shape, SizeExpr) else shape
        if isinstance(listed, int) or not isinstance(listed, Iterable):
            return listed
        listed = tuple(listed)
        if op == "param" and any(isinstance(size, SizeExpr) for size in listed):
            raise ShapeError(f"[param {name!r}] a param has a static shape", got=listed)
        self._meet(listed, f"{op} {name!r}")
        return listed

    def _meet(self, shape: Iterable[Any], where: str) -> None:
        """Notes the dims of a shape.

        Raises:
            ShapeError: One was declared with other bounds before.
        """
        dims = [dim for size in shape if isinstance(size, SizeExpr) for dim in dims_of(size)]
        if not dims:
            return
        for dim in dims:
            known = self._dims.get(dim.name, dim)
            if known.terms != dim.terms:
                raise ShapeError(
                    f"[{where}] a dim of this name has other bounds",
                    got=dim.expected,
                    expected=known.expected,
                )
        if self.assumptions is None:
            self.assumptions = Assumptions({}, joins=True)
        self._dims = {**self._dims, **{dim.name: dim for dim in dims}}
        for dim in dims:
            first = self.first_hints.get(dim.name, dim.hint)
            usual = type(first) is int and dim.takes(first)
            self.assumptions.hints.setdefault(dim.name, first if usual else dim.hint)
