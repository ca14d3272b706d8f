"""One ONNX node as its operator's function sees it: operands, attributes and where nodes go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError
from rlx.importers.onnx import narrow
from rlx.importers.onnx.data_sizes import as_size, numbers_of
from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.schema import Attribute, GraphDef, NodeDef, TensorProto
from rlx.importers.onnx.scope import ImportProblem, Scope
from rlx.importers.onnx.tensors import to_array
from rlx.importers.onnx.values import (
    Array,
    Coded,
    GraphSite,
    Held,
    NeedsValueError,
    Nothing,
    OnnxValue,
    RefusedError,
    SequenceItems,
    inputs_of,
)
from rlx.ir.dtype import DType, widen
from rlx.ir.graph import Graph, Node
from rlx.ir.rewrite import reached
from rlx.ir.shape import Shape
from rlx.ir.shape import as_size as size_of
from rlx.ops.declare import evaluate
from rlx.ops.fold_cost import effort
from rlx.ops.interpret import results_of
from rlx.resource_limits import charge
from rlx.sizes import SizeExpr
from rlx.sizes.ratio import unknown

# Values computed at load for a shape or an index are small; more elements than this are an attack.
MAX_KNOWN = 1 << 24


class Walk(Protocol):
    """The walk over a model, as operators see it; see ``rlx.importers.onnx.walk.OnnxLowering``."""

    problems: dict[tuple[str, str], ImportProblem]
    needs: set[str]

    @property
    def folder(self) -> Path | None:
        """The folder of external data."""

    @property
    def position(self) -> int:
        """Number of the node that is being lowered."""

    def weight(self, tensor: TensorProto, name: str) -> OnnxValue:
        """A tensor of the file that may become a param."""

    def body(self, graph: GraphDef, scope: Scope, site: GraphSite) -> list[Held]:
        """The outputs of a graph whose inputs stand in ``scope``."""


@dataclass(eq=False)
class OnnxCall:
    """One ONNX node being lowered.

    Attributes:
        node: The message.
        operands: Its inputs; None for one left out.
        site: Where nodes are added.
        opset: Version of the operator's domain.
        attributes: Its attributes by name, references to a function's resolved.
        lowering: The walk, for operators with subgraphs.
        scope: The names around it, for the same.
    """

    node: NodeDef
    operands: Sequence[Held | None]
    site: GraphSite
    opset: int
    attributes: Mapping[str, Attribute]
    lowering: Walk
    scope: Scope
    _asked: set[str] = field(default_factory=set, init=False)
    _used: set[int] = field(default_factory=set, init=False)

    @property
    def g(self) -> Graph:
        """The graph that nodes are added to."""
        return self.site.graph

    @property
    def results(self) -> int:
        """Number of outputs, trailing ones that nobody named left out."""
        return len(self.node.output)

    def wants(self, index: int) -> bool:
        """Returns whether output ``index`` has a name."""
        return index < len(self.node.output) and bool(self.node.output[index])

    # --- operands ---

    def has(self, index: int) -> bool:
        """Returns whether operand ``index`` is given."""
        return index < len(self.operands) and self.operands[index] is not None

    def held(self, index: int) -> Held:
        """Operand ``index``, be it a tensor, a sequence or an optional.

        Raises:
            ImportModelError: It is left out.
        """
        self._used.add(index)
        result = self.operands[index] if index < len(self.operands) else None
        if result is None:
            raise ImportModelError(f"input {index} is missing")
        return result

    def value(self, index: int) -> OnnxValue:
        """Operand ``index``, a tensor.

        Raises:
            ImportModelError: It is left out, or no tensor.
        """
        result = self.held(index)
        if not isinstance(result, OnnxValue):
            raise ImportModelError(f"input {index} is not a tensor")
        return result

    def coded(self, index: int) -> Coded | None:
        """Operand ``index`` where it is a weight in 4-bit integers that is not decoded yet."""
        result = self.value(index)
        return result if isinstance(result, Coded) and result.node is None else None

    def items(self, index: int) -> SequenceItems:
        """Operand ``index``, a sequence."""
        result = self.held(index)
        if not isinstance(result, SequenceItems):
            raise ImportModelError(f"input {index} is not a sequence")
        return result

    def x(self, index: int = 0) -> Node:
        """Operand ``index`` as a node."""
        return self.site.node(self.value(index))

    def opt(self, index: int) -> Node | None:
        """Operand ``index`` as a node, or None where it is left out."""
        return (
            self.x(index)
            if self.has(index) and not isinstance(self.operands[index], Nothing)
            else None
        )

    def xs(self) -> list[Node]:
        """All operands as nodes."""
        return [self.x(i) for i in range(len(self.operands))]

    def shape(self, index: int = 0) -> Shape:
        """Shape of operand ``index``."""
        return self.value(index).shape

    def rank(self, index: int = 0) -> int:
        """Rank of operand ``index``."""
        return len(self.shape(index))

    def element(self, index: int = 0) -> Element:
        """Element type of operand ``index``."""
        return self.value(index).element

    def dtype(self, index: int = 0) -> DType:
        """The dtype of operand ``index`` in the graph."""
        return self.x(index).dtype

    def widened(self, x: Node) -> Node:
        """A node of 16-bit floats as f32, so that what is computed from it is rounded at the end alone; others as they are."""
        return self.g.cast(x, DType.F32) if x.dtype in (DType.F16, DType.BF16) else x

    def known(self, index: int) -> Array:
        """The elements of operand ``index``, bfloat16 and narrower floats as f32; as objects where some are sizes of dims.

        Raises:
            NeedsValueError: They depend on what graph inputs hold.
            RefusedError: They depend on what a loop around the node computes.
            UnknownSizeError: They are computed from sizes of dims.
        """
        value = self.value(index)
        if value.sizes is not None:
            return value.sizes
        array = value.array if value.array is not None else self._compute(value)
        if value.element.dtype is DType.BF16:
            return widen(array, DType.BF16).astype(np.float32)
        if value.element.name in narrow.FORMATS:
            return narrow.table(value.element.name)[array]
        return array

    def is_known(self, index: int) -> bool:
        """Returns whether ``known`` would return an array at once."""
        return self.value(index).array is not None

    def _compute(self, value: OnnxValue) -> Array:
        node = self.site.node(value)
        names = inputs_of(node)
        if names and not self.site.params:
            raise RefusedError("a shape that depends on values computed within a loop or a branch")
        if names:
            raise NeedsValueError(names)
        value.array = known_node(node)
        return value.array

    def depends(self, index: int) -> bool:
        """Returns whether operand ``index`` depends on what graph inputs hold, or on their sizes."""
        value = self.value(index)
        return value.node is not None and value.array is None and not value.node.fixed

    def numbers(self, index: int) -> list[Any]:
        """The elements of operand ``index``: integers, sizes of dims, or scalars of the graph where inputs decide them.

        Raises:
            RefusedError: A loop around the node decides them, or there are too many.
        """
        if not self.depends(index):
            return list(self.ints(index))
        if not self.site.reads:
            raise RefusedError("a shape that depends on values computed within a loop or a branch")
        return numbers_of(self.site, self.x(index))

    def sizes(self, index: int, most: Any = None) -> tuple[int, ...]:
        """The elements of operand ``index`` as sizes: those that inputs decide are dims.

        Args:
            index: The operand.
            most: The largest value of a dim, a number or a size; None for no bound.
        """
        return tuple(as_size(self.site, number, most) for number in self.numbers(index))

    def ints(self, index: int) -> tuple[int, ...]:
        """The elements of operand ``index`` as Python integers, or sizes of dims."""
        array = self.known(index)
        if self.value(index).sizes is not None:
            return tuple(map(size_of, array.flat))
        if array.size > 4096 or array.dtype.kind not in "iu":
            raise ImportModelError(
                f"input {index} should be a few integers, not {array.size} of {array.dtype}"
            )
        return tuple(int(i) for i in array.ravel())

    def number(self, index: int) -> Any:
        """The one element of operand ``index`` as a Python number."""
        array = self.known(index)
        if array.size != 1:
            raise ImportModelError(
                f"input {index} should be one number, not of shape {array.shape}"
            )
        item = array.ravel()[0]
        return item.item() if isinstance(item, np.generic) else item

    @staticmethod
    def need(good: bool, otherwise: str) -> None:
        """Refuses a node that makes no sense.

        Args:
            good: The condition that has to hold.
            otherwise: The fault if it does not hold.

        Raises:
            ImportModelError: The condition does not hold.
        """
        if not good:
            raise ImportModelError(otherwise)

    # --- what was not looked at ---

    def ignore(self, *names: str, inputs: Sequence[int] = ()) -> None:
        """Says that attributes, and operands by their places, change nothing here."""
        self._asked.update(names)
        self._used.update(inputs)

    def check_unread(self, results: Sequence[object]) -> None:
        """Refuses attributes and operands that the operator's function did not read, and outputs that it did not give.

        Raises:
            RefusedError: An attribute, an operand or an output that the node has is not supported.
        """
        for name in self.attributes:
            if name not in self._asked:
                raise RefusedError(f"attribute {name!r} is not supported")
        for i, operand in enumerate(self.operands):
            if operand is not None and i not in self._used:
                raise RefusedError(f"input {i} is not supported")
        for i in range(self.results):
            if self.wants(i) and (i >= len(results) or results[i] is None):
                raise RefusedError(f"output {i} is not supported")

    # --- attributes ---

    def integer(self, name: str, default: int | None = None) -> Any:
        """An integer attribute."""
        return self._plain(name, "i", default)

    def real(self, name: str, default: float | None = None) -> Any:
        """A float attribute."""
        return self._plain(name, "f", default)

    def text(self, name: str, default: str | None = None) -> Any:
        """A text attribute."""
        result = self._plain(name, "s", None)
        return default if result is None else bytes(result.view).decode(errors="replace")

    def int_list(self, name: str, default: Sequence[int] | None = None) -> Any:
        """An attribute of integers."""
        return self._numbers(name, "ints", int, default)

    def float_list(self, name: str, default: Sequence[float] | None = None) -> Any:
        """An attribute of floats."""
        return self._numbers(name, "floats", float, default)

    def text_list(self, name: str, default: Sequence[str] | None = None) -> Any:
        """An attribute of texts."""
        self._asked.add(name)
        if name not in self.attributes:
            return default
        return [bytes(s.view).decode(errors="replace") for s in self.attributes[name].strings]

    def tensor(self, name: str) -> OnnxValue | None:
        """A tensor attribute."""
        result = self._plain(name, "t", None)
        if result is None:
            return None
        array, element = to_array(result, self.lowering.folder)
        return OnnxValue(element, array)

    def subgraph(self, name: str) -> GraphDef:
        """A graph attribute.

        Raises:
            ImportModelError: There is none.
        """
        result = self._plain(name, "g", None)
        if not isinstance(result, GraphDef):
            raise ImportModelError(f"attribute {name!r} is missing")
        return result

    def _numbers(self, name: str, field: str, kind: type, default: Any) -> Any:
        result = self._plain(name, field, None)
        if result is None:
            # An empty list leaves no field behind.
            return () if name in self.attributes else default
        return tuple(map(kind, result))

    def _plain(self, name: str, field: str, default: Any) -> Any:
        self._asked.add(name)
        attribute = self.attributes.get(name)
        if attribute is None:
            return default
        result = getattr(attribute, field)
        if result is None and field in ("i", "f", "s", "t", "g"):
            # proto3 writes no zeros; the attribute's own type says that this is one.
            zero = {("i", 2): 0, ("f", 1): 0.0}.get((field, attribute.type))
            if zero is None:
                if field == "s" and attribute.type == 3:
                    return None
                raise ImportModelError(f"attribute {name!r} has the wrong type")
            return zero
        return result


def known_node(node: Node) -> Array:
    """The value of a node that depends on constants and params alone, by the references.

    Raises:
        RefusedError: It is too large to be computed at load.
        UnknownSizeError: It is computed from sizes of dims.
    """
    order = [item for _, item in sorted(reached([node]).items())]
    sizes = [dim for item in order for type in item.types for dim in type.shape]
    sizes += [item.attrs["size"] for item in order if item.op == "size"]
    for size in sizes:
        if isinstance(size, SizeExpr):
            raise unknown(size, "a value that is computed from it")
    total = sum(map(effort, order))
    if total > MAX_KNOWN:
        raise RefusedError(f"a shape that depends on {total:.0f} elements of weights")
    charge("computing a shape", elements=total)
    values = results_of(order, lambda leaf: leaf.graph.param_values[leaf.name], evaluate)
    return values[node.id][0]
