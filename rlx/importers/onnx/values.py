"""The values of ONNX names while a graph is lowered: an array that is known, or a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import RlxError
from rlx.importers.onnx.elements import BY_DTYPE, BY_NUMPY, NARROW, Element
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.input_sizes import made_dims, names_of
from rlx.ir.rewrite import reached
from rlx.ir.shape import Shape
from rlx.sizes import Dim, Ratio, SizeExpr

Array = np.ndarray[Any, Any]


class RefusedError(RlxError):
    """A node that can't be imported; the text says why. All of them are listed in one error."""


class NeedsValueError(RlxError):
    """The structure of a graph depends on what inputs hold: axes, or attributes. Their values have to be known at load.

    Attributes:
        names: The inputs.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.names = frozenset(names)
        super().__init__(f"the graph depends on the values of {', '.join(sorted(self.names))}")


class MissingError(RlxError):
    """A value that a node which could not be imported would have given."""


@dataclass(slots=True, eq=False)
class OnnxValue:
    """A tensor: ``array``, ``sizes`` or ``node`` is there. The elements of a node are kept once they were asked for.

    Attributes:
        element: Its ONNX element type.
        array: Its elements, when they are known at load (bfloat16 as bits).
        node: The node that computes it otherwise.
        name: Its ONNX name, when it is a weight: it becomes a param of that name.
        sizes: Its elements, as objects, when some are sizes that are known only when the graph runs.
    """

    element: Element
    array: Array | None = None
    node: Node | None = None
    name: str = ""
    sizes: Array | None = None

    @property
    def shape(self) -> Shape:
        """Its shape."""
        if self.node is not None:
            return self.node.shape
        array = self.array if self.sizes is None else self.sizes
        assert array is not None
        shape: Shape = array.shape
        return shape

    @staticmethod
    def of_sizes(sizes: Any, element: Element) -> OnnxValue:
        """Numbers of which some may be sizes that are known only when the graph runs."""
        objects = np.asarray(sizes, object)
        if any(isinstance(item, SizeExpr | Ratio) for item in objects.flat):
            return OnnxValue(element, sizes=objects)
        return OnnxValue(element, objects.astype(element.numpy))

    @staticmethod
    def of(result: Node | Array, element: Element | None = None) -> OnnxValue:
        """A result of an operator as a value."""
        if isinstance(result, Node):
            return OnnxValue(element or BY_DTYPE[result.dtype], node=result)
        array = np.asarray(result)
        return OnnxValue(element or BY_NUMPY[array.dtype], array=array)


@dataclass(slots=True, eq=False)
class Coded(OnnxValue):
    """A weight in 4-bit integers that is decoded where it is used, but where a product takes it as it is.

    Attributes:
        codes: The integers.
        scale: Their factor: one, one per entry of ``axis``, or one per block along it.
        zero: The zero point that is subtracted before, of the scale's shape, or None.
        axis: The axis of scales that are more than one.
        block: Entries of a block, or 0.
        decode: Makes the node of the decoded weight.
    """

    codes: Array = field(default_factory=lambda: np.zeros(0, np.int8))
    scale: Array = field(default_factory=lambda: np.zeros(0, np.float32))
    zero: Array | None = None
    axis: int = 0
    block: int = 0
    decode: Callable[[], Node] | None = None

    @property
    def shape(self) -> Shape:
        """The shape of the decoded weight."""
        shape: Shape = self.codes.shape
        return shape


class TypedResult(OnnxValue):
    """A result whose element type is its own, even where that of the operands is in a wider one."""

    __slots__ = ()


class SequenceItems(list[Any]):
    """An ONNX sequence: its values in order. It is gone before the graph runs."""


class Nothing:
    """An ONNX optional that holds nothing."""


@dataclass(frozen=True)
class RefusedResult:
    """A result that can't be made. The node is imported for its other results; a use of this one is refused.

    Attributes:
        reason: Why.
    """

    reason: str


Held = OnnxValue | SequenceItems | Nothing | RefusedResult


@dataclass(slots=True)
class GraphSite:
    """A graph that nodes are added to.

    Attributes:
        graph: The graph.
        params: Whether weights may become params of it; in subgraphs they can't.
        made: Nodes of arrays, by the identity of the value (which is kept alive with it).
        numbers: Scalars of elements that sizes depend on, by the id of the node and the place in it.
        sizes: The dims that were read from scalars, by the id of these.
    """

    graph: Graph
    params: bool = True
    made: dict[int, tuple[OnnxValue, Node]] = field(default_factory=dict)
    numbers: dict[tuple[int, int], Node] = field(default_factory=dict)
    sizes: dict[int, Dim] = field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """True where it may compute sizes."""
        return self.graph.may_compute_sizes

    def node(self, value: OnnxValue) -> Node:
        """A value as a node of this graph.

        Raises:
            RefusedError: Its type is none of rlx, or it belongs to a graph around this one.
        """
        if isinstance(value, Coded) and value.node is None and value.decode is not None:
            value.node = value.decode()
        if value.node is not None and value.node.graph is self.graph:
            return value.node
        # A value of the graph around this one may be used here once its elements are known.
        if value.array is None and value.sizes is None:
            raise RefusedError("a value of the graph around it that was not passed in")
        cached = self.made.get(id(value))
        if cached is None:
            node = self._leaf(value) if value.sizes is None else self._of_sizes(value)
            cached = self.made[id(value)] = (value, node)
        return cached[1]

    def _of_sizes(self, value: OnnxValue) -> Node:
        """Sizes as a value of the graph."""
        assert value.sizes is not None
        g, dtype = self.graph, value.element.dtype or DType.I64
        parts = [_number(g, size, dtype) for size in value.sizes.flat]
        flat = g.concat([g.reshape(part, (1,)) for part in parts], 0)
        return g.reshape(flat, value.sizes.shape)

    def _leaf(self, value: OnnxValue) -> Node:
        array, dtype = value.array, value.element.dtype
        assert array is not None
        if dtype is None:
            carrier = CARRIERS.get(value.element.name)
            if carrier is None:
                raise RefusedError(f"a tensor of {value.element.name}")
            return self.graph.constant(array.astype(carrier.numpy), carrier)
        # Single numbers stay constants: patterns and folding look at their values.
        if value.name and self.params and array.size > 1:
            name, count = value.name, 1
            while self.graph.has(name):
                count += 1
                name = f"{value.name}#{count}"
            return self.graph.param(name, array.shape, dtype, array)
        return self.graph.constant(array, dtype)


def as_dtype(g: Graph, x: Node, dtype: DType) -> Node:
    """A node in a dtype: cast where it has another one."""
    return x if x.dtype is dtype else g.cast(x, dtype)


def _number(g: Graph, size: Any, dtype: DType) -> Node:
    """A size, a quotient of sizes or a number as a scalar."""
    if isinstance(size, Ratio):
        above, below = (_number(g, part, dtype) for part in (size.above, size.below))
        return g.div(above, below)
    if not isinstance(size, SizeExpr):
        return g.constant(np.asarray(size, dtype.numpy), dtype)
    return as_dtype(g, g.as_node(size, DType.I64, where="sizes"), dtype)


# Types that rlx lacks and a wider one computes: results are cut back to their bits.
CARRIERS: dict[str, DType] = {
    "int16": DType.I32,
    "uint16": DType.I32,
    "uint64": DType.I64,
    **{e.name: DType.I8 if e.numpy == np.int8 else DType.U8 for e in NARROW},
}


def inputs_of(node: Node) -> frozenset[str]:
    """Names of the graph inputs that a node depends on, also by way of sizes that are computed."""

    def operands(item: Node) -> Iterable[Node]:
        if not item.graph.computed_dims.isdisjoint(names_of(item)):
            made = made_dims(item.graph)
            return (*item.inputs, *(made[name] for name in names_of(item) if name in made))
        return item.inputs

    return frozenset(item.name for item in reached([node], operands).values() if item.op == "input")
