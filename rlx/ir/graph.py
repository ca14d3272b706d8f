"""Graph and Node: a list of typed operations in topological order, and how one is added.

The methods named after operations are attached by ``rlx.ops`` from the op records.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import GraphError, ShapeError, UnknownNameError, caller, did_you_mean, printable
from rlx.ir.attributes import frozen
from rlx.ir.dims import Dims
from rlx.ir.dtype import DType, DTypeLike, store
from rlx.ir.extended import name_of, plain
from rlx.ir.methods import Methods, absent
from rlx.ir.opdef import (
    BUILDER_KINDS,
    REGISTRY,
    Array,
    HasArray,
    Numbers,
    OpDef,
    TensorType,
    lookup,
)
from rlx.ir.opdef import PART as PART
from rlx.ir.operands import held_as
from rlx.ir.operators import Operators
from rlx.ir.printer import print_graph
from rlx.ir.serialize import from_json, joined, node_of, parted, to_json
from rlx.ir.shape import HOST_CONTROL, Shape, as_shape, check_size, is_sized
from rlx.ir.spans import checkpoint
from rlx.ir.verify import verify
from rlx.sizes import Size, SizeExpr

if TYPE_CHECKING:
    # The methods that rlx.ops makes of the op records. `script/stubs` writes them down for type checkers and editors.
    from rlx.ir.builders import Builders
else:
    Builders = object

# Leaves that have the same value at every run.
_FIXED = ("param", "constant")


class Node(Operators):
    """One operation of a graph and its result.

    Attributes:
        id: Position in ``graph.nodes``.
        name: Unique for inputs and params; a label elsewhere.
        op: Name of the operation.
        attrs: Attributes, normalised (axes count from the front).
        inputs: The operand nodes.
        shape: Shape of the result.
        dtype: Element type of the result.
        graph: The graph that owns it.
        types: Shape and dtype of every result; ops with one result have one.
        fixed: Whether it depends on params and constants alone, and on no dim.
        given: Attributes as they were given, in a graph with dims: other sizes may have another normal form.
        source: ``file:line`` of the user's code that made it.
    """

    __slots__ = ("attrs", "fixed", "given", "graph", "id", "inputs", "name", "opdef", "source", "types")  # fmt: skip

    attrs: dict[str, Any]
    fixed: bool
    given: Mapping[str, Any] | None
    graph: Graph
    id: int
    inputs: tuple[Node, ...]
    name: str
    opdef: OpDef
    source: str
    types: tuple[TensorType, ...]

    def __init__(
        self,
        graph: Graph,
        opdef: OpDef,
        inputs: tuple[Node, ...],
        attrs: dict[str, Any],
        types: tuple[TensorType, ...],
        name: str,
        source: str,
    ) -> None:
        self.graph = graph
        self.id = len(graph.nodes)
        self.opdef = opdef
        self.inputs = inputs
        self.attrs = attrs
        self.types = types
        self.name = name
        self.source = source
        self.given = None
        fixed = all([item.fixed for item in inputs]) if inputs else opdef.name in _FIXED
        if fixed and (graph.assumptions is not None or "size" in attrs):
            fixed = not is_sized((types, attrs.get("size")))
        self.fixed = fixed and opdef.name not in HOST_CONTROL

    @property
    def op(self) -> str:
        """Name of the operation."""
        return self.opdef.name

    @property
    def type(self) -> TensorType:
        """Shape and dtype of the result, the first of several."""
        return self.types[0]

    @property
    def shape(self) -> Shape:
        """Shape of the result."""
        return self.type.shape

    @property
    def dtype(self) -> DType:
        """Element type of the result."""
        return self.type.dtype

    def __reduce__(self) -> tuple[Any, ...]:
        """A node pickles with its graph."""
        return node_of, (self.graph, self.id)

    def __repr__(self) -> str:
        return f"<Node %{self.id} {self.op} {self.type}>"

    def __bool__(self) -> bool:
        raise GraphError(
            "a node has no truth value: it is computed only when the graph runs",
            where=self.where(),
            hint="use g.where(condition, a, b)",
        )

    def __iter__(self) -> Any:
        raise GraphError("a node is not iterable", where=self.where(), hint="slice it")

    @property
    def label(self) -> str:
        """Its number, op and name."""
        return f"%{self.id} {self.op} {self.name!r}"

    def where(self) -> str:
        """Returns the node's name for messages: its label, and the line of code that made it."""
        return f"{self.label} <- {printable(self.source)}" if self.source else self.label


# An operand of builders: a node, or numbers, which become a constant.
Operand = Node | Numbers


class Graph(Dims, Builders, metaclass=Methods):
    """A computation under construction: nodes in topological order, and which are the outputs.

    A graph is not consumed by compiling and can be compiled many times.

    Args:
        name: A label for messages and traces.

    Example:
        >>> import rlx
        >>> g = rlx.Graph("mlp")
        >>> x = g.input("x", (2, 4))
        >>> w = g.param("w", (4, 3))
        >>> g.set_outputs([g.gelu(x @ w)])
        >>> g.outputs[0].shape
        (2, 3)
    """

    name: str
    nodes: list[Node]
    outputs: tuple[Node, ...]
    param_values: dict[str, Array]
    # The content hash of a graph that was verified and will not change; "" for others.
    verified_hash: str = ""

    def __init__(self, name: str = "graph") -> None:
        self.name = _text(name, "a graph")
        self.nodes = []
        self.outputs = ()
        self.param_values = {}
        self._named: dict[str, Node] = {}

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> Any:
            # Builders are methods once their operation is imported, which may be now.
            if not name.startswith("_") and hasattr(type(self), name):
                return getattr(self, name)
            raise AttributeError(absent(type(self), name), name=name, obj=self)

    def input(self, name: str, shape: Size | Iterable[Size], dtype: DTypeLike = "f32") -> Node:
        """Declares a value that every run is given.

        Args:
            name: Unique among inputs and params.
            shape: Its shape. A ``rlx.Dim``, or arithmetic of dims, stands for a size that each run may give anew.
            dtype: Its element type.

        Returns:
            The node.

        Raises:
            ShapeError: ``shape`` is not a tuple of whole numbers >= 0, or has a dim that was declared otherwise before.
            DTypeError: There is no such dtype.
            GraphError: The name is taken or empty.
        """
        return self._leaf("input", name, shape, dtype)

    def param(
        self,
        name: str,
        shape: int | Iterable[int],
        dtype: DTypeLike = "f32",
        value: HasArray | None = None,
    ) -> Node:
        """Declares a weight: set once with ``set_param``, read by every run.

        Args:
            name: Unique among inputs and params.
            shape: Its static shape.
            dtype: Its element type.
            value: Optional value, kept in ``param_values`` and used by every compile.

        Returns:
            The node.

        Raises:
            ShapeError: ``shape`` is not a shape, or not the one of ``value``.
            DTypeError: There is no such dtype.
            GraphError: The name is taken or empty.
        """
        node = self._leaf("param", name, shape, dtype)
        if value is not None:
            array = np.asarray(value)
            if array.shape != node.shape:
                raise ShapeError(
                    f"value of param {name!r} has the wrong shape",
                    got=array.shape,
                    expected=node.shape,
                )
            self.param_values[name] = array
        return node

    def constant(self, value: Any, dtype: DTypeLike | None = None) -> Node:
        """A value fixed in the graph.

        Args:
            value: An array, or a Python number (float -> f32, int -> i32 or, where that
                is too short, i64, bool -> bool).
            dtype: Converts to this type.

        Returns:
            The node.

        Raises:
            DTypeError: The array's dtype has no counterpart.
        """
        if dtype is None and not hasattr(value, "dtype"):
            result = np.asarray(value)
            narrow = {np.dtype(np.float64): DType.F32}
            if result.dtype == np.int64 and np.all(result == result.astype(np.int32)):
                narrow[result.dtype] = DType.I32
            dtype = narrow.get(result.dtype, result.dtype)
        if dtype is None and name_of(value.dtype) not in ("", "bfloat16"):
            value = plain(np.asarray(value))
        dtype = DType.parse(value.dtype if dtype is None else dtype)
        array = store(np.array(value, order="C"), dtype)
        array.setflags(write=False)
        return self.add_node("constant", (), {"value": array, "dtype": dtype})

    def set_outputs(self, nodes: Sequence[Node] | Node) -> None:
        """Declares the results of a run, in order. A node may be listed twice.

        Raises:
            GraphError: The list is empty or holds something that is not a node of this graph.
        """
        listed = (nodes,) if isinstance(nodes, Node) else tuple(nodes)
        if not listed:
            raise GraphError(f"graph {self.name!r} would have no outputs", hint="give at least one")
        for node in listed:
            self._own(node, "set_outputs")
        self.outputs = listed

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the inputs in declaration order: the order of ``run_slots``."""
        return self._names("input")

    @property
    def param_names(self) -> tuple[str, ...]:
        """Names of the params in declaration order."""
        return self._names("param")

    def _names(self, op: str) -> tuple[str, ...]:
        return tuple([name for name, node in self._named.items() if node.op == op])

    def has(self, name: str) -> bool:
        """Returns whether an input or a param has that name."""
        return name in self._named

    def named(self, name: str) -> Node:
        """The input or param of that name.

        Raises:
            UnknownNameError: There is none.
        """
        try:
            return self._named[name]
        except KeyError:
            raise UnknownNameError(
                f"graph {self.name!r} has no input or param named {name!r}",
                hint=did_you_mean(name, self._named),
            ) from None

    def binary(self, kind: str, a: Any, b: Any) -> Node:
        """The two-operand elementwise op called ``kind``: ``g.binary("add", a, b)``."""
        return self._of_kind("binary", kind)(a, b)

    def activation(self, kind: str, x: Any) -> Node:
        """The one-operand elementwise op called ``kind``: ``g.activation("gelu", x)``."""
        return self._of_kind("activation", kind)(x)

    def compare(self, kind: str, a: Any, b: Any) -> Node:
        """The comparison called ``kind``, of dtype bool: ``g.compare("lt", a, b)``."""
        return self._of_kind("compare", kind)(a, b)

    def reduce(self, kind: str, x: Any, axes: Any = None, keepdims: bool = False) -> Node:
        """The reduction called ``kind`` over ``axes``: ``g.reduce("mean", x, [0, 2])``."""
        return self._of_kind("reduce", kind)(x, axes, keepdims)

    def _of_kind(self, what: str, kind: str) -> Callable[..., Node]:
        belongs = BUILDER_KINDS[what]
        if not (isinstance(kind, str) and kind in REGISTRY and belongs(REGISTRY[kind])):
            # Listing the operations imports all of them.
            names = [name for name, op in REGISTRY.items() if belongs(op)]
            if kind not in names:
                raise UnknownNameError(
                    f"[{what}] no such kind: {kind!r}", hint=did_you_mean(kind, names)
                )
        method: Callable[..., Node] = getattr(self, kind)
        return method

    def add_node(
        self,
        op: str | OpDef,
        inputs: Sequence[Node],
        attrs: Mapping[str, Any] | None = None,
        name: str = "",
        source: str | None = None,
    ) -> Node:
        """Appends a node: what every builder method ends in.

        Args:
            op: Name or record of the operation.
            inputs: Operand nodes of this graph.
            attrs: Attributes; the record's inference checks and normalises them.
            name: A label; inputs and params need a unique one.
            source: ``file:line`` of the code that made it; None for the line that calls rlx now.

        Returns:
            The node, with shape and dtype inferred.

        Raises:
            GraphError: Wrong operands, shapes, dtypes or attributes; see its subclasses.
        """
        checkpoint()  # whatever takes long makes nodes
        opdef = lookup(op) if isinstance(op, str) else op
        for node in inputs:
            self._own(node, opdef.name)
        normal = {key: frozen(value) for key, value in (attrs or {}).items()}
        given = None if self.assumptions is None else dict(normal)
        with self.inferring():
            inferred = opdef.infer(opdef.operand_types(inputs), normal)
            types = inferred if isinstance(inferred, tuple) else (inferred,)
            for item in types:
                check_size(item.shape, where=opdef.name)
        if source is None:
            source = caller()
        node = Node(self, opdef, tuple(inputs), normal, types, _text(name, opdef.name), source)
        node.name = name or f"{opdef.name}_{node.id}"
        if given is not None and any(given.get(key) is not item for key, item in normal.items()):
            node.given = given
        return self._append(node)

    def copy_node(self, node: Node, inputs: tuple[Node, ...]) -> Node:
        """Appends a copy of another graph's node; it is inferred again only where operands have other types.

        Args:
            node: The node.
            inputs: The operands of the copy, of this graph.

        Raises:
            GraphError: The operands do not fit.
        """
        if node.op in ("input", "param"):
            return self.stand_in(node.op, node.name, node)
        for old, new in zip(node.inputs, inputs, strict=True):
            if new.graph is not self or new.types != old.types:
                return self.add_node(node.opdef, inputs, node.attrs, node.name, node.source)
        checkpoint()
        copied = Node(self, node.opdef, inputs, node.attrs, node.types, node.name, node.source)
        return self._append(copied)

    def stand_in(self, op: str, name: str, node: Node) -> Node:
        """Appends an input or a param that has the shape and dtype of another graph's node."""
        return self._declared(op, name, node.type, node.source)

    def as_node(self, value: Any, like: DType | None, *, where: str) -> Node:
        """An operand as a node: numbers and arrays become constants of dtype ``like``.

        Raises:
            DTypeError: The value can't be held by ``like`` without loss of kind.
            GraphError: The node belongs to another graph.
        """
        if isinstance(value, Node):
            self._own(value, where)
            return value
        if isinstance(value, SizeExpr):
            size = self.add_node("size", (), {"size": value})
            return size if like is None else getattr(self, "cast")(size, like)  # noqa: B009
        if like is None:
            return self.constant(value)
        return self.constant(held_as(value, like, where), like)

    def verify(self) -> None:
        """Checks every invariant of the graph.

        Raises:
            VerifyError: One does not hold; the message shows the neighbouring nodes.
        """
        verify(self)

    def to_json(self) -> str:
        """The whole graph as text: an exact round trip, constants and attached params included."""
        return to_json(self)

    @staticmethod
    def from_json(text: str) -> Graph:
        """Reads the text written by ``to_json``.

        Raises:
            GraphError: The text is not such a graph.
        """
        return from_json(Graph, text)

    def __reduce__(self) -> tuple[Any, ...]:
        """Graphs pickle by content, with the values that are attached to params."""
        return joined, (Graph, *parted(self))

    def __str__(self) -> str:
        return print_graph(self)

    def __repr__(self) -> str:
        return f"<Graph {self.name!r}: {len(self.nodes)} nodes, {len(self.outputs)} outputs>"

    def _own(self, node: Any, where: str) -> None:
        if not isinstance(node, Node):
            raise GraphError(f"[{where}] not a node", got=f"{node!r:.60}")
        if node.graph is not self:
            raise GraphError(
                f"[{where}] node belongs to another graph",
                where=node.where(),
                got=f"graph {node.graph.name!r}",
                expected=f"graph {self.name!r}",
            )

    def _leaf(self, op: str, name: str, shape: Any, dtype: DTypeLike) -> Node:
        if not isinstance(name, str) or not name:
            raise GraphError(f"[{op}] the name is missing", got=repr(name))
        listed = self._sizes(shape, op, name)
        with self.inferring():
            type = TensorType(as_shape(listed, where=f"{op} {name!r}"), DType.parse(dtype))
        check_size(type.shape, where=op)
        return self._declared(op, name, type, caller())

    def _declared(self, op: str, name: str, type: TensorType, source: str) -> Node:
        checkpoint()
        self._meet(type.shape, f"{op} {name!r}")
        attrs = {"shape": type.shape, "dtype": type.dtype}
        node = Node(self, lookup(op), (), attrs, (type,), name, source)
        first = self._named.setdefault(node.name, node)
        if first is not node:
            raise GraphError(
                f"[{node.op}] the name {node.name!r} is taken",
                where=first.where(),
                hint="inputs and params share one set of names",
            )
        return self._append(node)


def _text(name: Any, of: str) -> str:
    if not isinstance(name, str):
        raise GraphError(f"[{of}] a name must be text", got=repr(name))
    return name
