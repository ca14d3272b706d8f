"""Python's operators and indexing on nodes: ``a + b``, ``x[..., 1:]``, ``x[rows]``."""

from __future__ import annotations

from collections.abc import Sequence
from types import EllipsisType
from typing import TYPE_CHECKING, Any, NoReturn, Self, SupportsIndex, TypeAlias

from rlx.errors import NodeValueError
from rlx.ir.dtype import DType
from rlx.ir.indexing import pick, pick_true, read_key, read_mask
from rlx.ir.methods import hint_of
from rlx.ir.opdef import HasArray, Numbers
from rlx.ir.shape import Shape, is_sized

# An item in the brackets of an index.
Index: TypeAlias = (
    "SupportsIndex | slice | EllipsisType | Operators | HasArray | Sequence[int] | None"
)


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

    attrs: dict[str, Any]
    graph: Any
    types: tuple[Any, ...]

    @property
    def is_sized(self) -> bool:
        """True if its result depends on a size that is known only when the graph runs."""
        return is_sized(self.types) or is_sized(self.attrs.get("size"))

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        raise NotImplementedError

    @property
    def dtype(self) -> DType:
        """Element type of the result."""
        raise NotImplementedError

    def where(self) -> str:
        """Returns the node's name for messages."""
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

    def __mod__(self, other: Self | Numbers) -> Self:
        return self._apply("mod", self, other)

    def __rmod__(self, other: Self | Numbers) -> Self:
        return self._apply("mod", other, self)

    def __floordiv__(self, other: Self | Numbers) -> Self:
        return self._floored(self, other)

    def __rfloordiv__(self, other: Self | Numbers) -> Self:
        return self._floored(other, self)

    def _floored(self, a: Any, b: Any) -> Self:
        """Rounds towards minus infinity, like NumPy. Division of integers alone goes towards zero."""
        if self.dtype.is_float:
            return self._apply("floor", self._apply("div", a, b))
        return self._apply("div", self._apply("sub", a, self._apply("mod", a, b)), b)

    def __and__(self, other: Self | Numbers) -> Self:
        return self._bits("and", self, other)

    def __rand__(self, other: Self | Numbers) -> Self:
        return self._bits("and", other, self)

    def __or__(self, other: Self | Numbers) -> Self:
        return self._bits("or", self, other)

    def __ror__(self, other: Self | Numbers) -> Self:
        return self._bits("or", other, self)

    def __xor__(self, other: Self | Numbers) -> Self:
        return self._bits("xor", self, other)

    def __rxor__(self, other: Self | Numbers) -> Self:
        return self._bits("xor", other, self)

    def __invert__(self) -> Self:
        return self._apply("logical_not", self) if self._truths() else self ^ -1

    def __abs__(self) -> Self:
        return self._apply("abs", self)

    def _truths(self) -> bool:
        return self.dtype is DType.BOOL

    def _bits(self, kind: str, *operands: Any) -> Self:
        """Applies a logical operation to truth values and a bitwise one to integers, like NumPy."""
        return self._apply(f"{'logical' if self._truths() else 'bit'}_{kind}", *operands)

    def __getitem__(self, key: Index | tuple[Index, ...]) -> Self:
        """NumPy's indexing: integers, slices with any step, ``...``, None, and one array or node of integers or of truth values.

        The number of entries that a mask picks is known when the graph runs: that axis of the result is a dim.

        Raises:
            GraphError: There are several arrays.
            ShapeError: An index is out of range, or there are too many.
        """
        with self.graph.deciding():
            return self._cut(key)

    def _cut(self, key: Any) -> Self:
        masked = read_mask(self, key)
        if masked is not None:
            rest = self._cut(masked.rest)
            picked: Self = pick_true(rest, masked.mask, masked.axis)
            return picked
        result = read_key(self, key)
        cut = self
        parts = {axis: part for axis, part in enumerate(result.parts) if part is not None}
        if parts:
            starts, stops, steps = (list(column) for column in zip(*parts.values(), strict=True))
            cut = self._apply("slice", self, starts, stops, tuple(parts), steps)
        if result.axes != tuple(range(len(cut.shape))):
            shape = tuple(1 if axis is None else cut.shape[axis] for axis in result.axes)
            cut = self._apply("reshape", cut, shape)
        return cut if result.many is None else pick(cut, *result.many)

    # --- what nodes are not ---

    def __len__(self) -> int:
        self._no("len(node)", "node.shape[0] is the length of its first axis")

    def __float__(self) -> float:
        self._no("float(node)", "run the graph, and take the number from its output")

    def __int__(self) -> int:
        self._no("int(node)", "run the graph, or add g.cast(node, 'i32')")

    def _no(self, what: str, hint: str) -> NoReturn:
        text = f"{what}: a node has no value before its graph runs"
        raise NodeValueError(text, where=self.where(), hint=hint)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            text = f"a Node has no {name!r}"
            if not name.startswith("_"):
                text = f"{text}; {hint_of(type(self.graph), name, 'node')}"
            raise AttributeError(text, name=name, obj=self)
