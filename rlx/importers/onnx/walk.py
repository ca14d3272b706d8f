"""The walk over an ONNX graph: every value is an array that is known at load, or a node."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import (
    MALFORMED,
    ImportModelError,
    InputError,
    LimitError,
    RlxError,
    UnknownSizeError,
    UnsupportedOpError,
    listed,
    printable,
)
from rlx.importers.onnx import allowed, handlers
from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import Operator
from rlx.importers.onnx.node_order import in_order, live_nodes, subgraphs
from rlx.importers.onnx.opsets import plain, refused, versions
from rlx.importers.onnx.schema import Attribute, Function, GraphDef, ModelDef, NodeDef, TensorProto
from rlx.importers.onnx.scope import ImportProblem, Scope
from rlx.importers.onnx.size_arithmetic import computed
from rlx.importers.onnx.source import Origin
from rlx.importers.onnx.tensors import to_array
from rlx.importers.onnx.values import (
    CARRIERS,
    GraphSite,
    Held,
    MissingError,
    NeedsValueError,
    Nothing,
    OnnxValue,
    RefusedError,
    inputs_of,
)
from rlx.importers.onnx.wrap import carries, wrapped
from rlx.ir.graph import Graph, Node
from rlx.ir.input_sizes import made_dims
from rlx.ir.opdef import Array
from rlx.ir.shape import estimated
from rlx.ir.spans import progress
from rlx.ops.fold_cost import effort
from rlx.ops.interpret import interpret
from rlx.ops.known_sizes import with_known_sizes
from rlx.resource_limits import charge, try_charge
from rlx.sizes import Assumptions, deciding

# Folding is for shapes and small tables; what is larger stays in the graph, where weights are
# params and what depends on them alone is computed once, when they are set.
FOLD_ELEMENTS = 1 << 16
# The most elements that computing one node's results may take.
FOLD_WORK = 1 << 22
# Functions that call functions may multiply: no model comes near this.
MAX_CALLS = 32
# More elements than any memory holds: a damaged file.
MAX_ELEMENTS = 1 << 36
# Bytes of a weight from which on its place in the file is remembered.
_LEAST_ORIGIN = 256


class OnnxLowering:
    """One model being lowered.

    Args:
        model: The file.
        folder: Where external data lies.
        label: How messages name the file.
        view: The bytes of the file.

    Attributes:
        origins: By their identity, the weights that stand in the file as bytes, and where.
    """

    def __init__(self, model: ModelDef, folder: Path | None, label: str, view: memoryview) -> None:
        self._start: int = np.frombuffer(view, np.uint8).ctypes.data
        self._nbytes = len(view)
        self.folder = folder
        self.label = label
        self.problems: dict[tuple[str, str], ImportProblem] = {}
        self.needs: set[str] = set()
        self._functions = {(plain(f.domain), f.name, f.overload): f for f in model.functions}
        self.origins: dict[int, tuple[Array, Origin]] = {}
        self._nodes = 0
        self._calls = 0

    @property
    def position(self) -> int:
        """Number of the node that is being lowered."""
        return self._nodes

    # --- before anything is lowered ---

    def look_over(self, graph: GraphDef, opsets: Mapping[str, int]) -> None:
        """Notes the nodes that outputs depend on and whose operators are not known, in subgraphs and functions too."""
        waiting = [(graph.nodes, [output.name for output in graph.outputs], opsets)]
        seen = set()
        while waiting:
            nodes, wanted, sets = waiting.pop()
            for node in live_nodes(nodes, wanted):
                key = plain(node.domain), node.op, node.overload
                function = self._functions.get(key)
                if function is None:
                    try:
                        _operator(node, key[0], sets)
                    except RefusedError as error:
                        self._note(node, str(error))
                elif key not in seen:
                    seen.add(key)
                    own = versions(function.opsets, self.label) or sets
                    waiting.append((function.nodes, function.outputs, own))
                waiting += [
                    (inner.nodes, [output.name for output in inner.outputs], sets)
                    for inner in subgraphs(node)
                ]

    # --- a graph ---

    def initializers(self, graph: GraphDef, scope: Scope) -> None:
        """The weights of a graph."""
        if graph.sparse:
            raise RefusedError("sparse initializers")
        for tensor in graph.initializers:
            if tensor.name not in scope.values:
                scope.define(tensor.name, self.weight(tensor, tensor.name))

    def weight(self, tensor: TensorProto, name: str) -> OnnxValue:
        """A tensor of the file that may become a param."""
        array, element = to_array(tensor, self.folder)
        if array.nbytes >= _LEAST_ORIGIN:
            place = self._place(tensor, array)
            if place is not None:
                self.origins[id(array)] = array, Origin(*place, element, array.shape)
        return OnnxValue(element, array, name=name)

    def _place(self, tensor: TensorProto, array: Array) -> tuple[int, int] | None:
        """Returns the offset and the number of a tensor's bytes in the file; None if the file lacks them."""
        if tensor.raw is not None:
            return tensor.raw.offset, len(tensor.raw.view)
        # Floats that are listed one by one stand there as bytes, too, and the array is a view of them.
        pos: int = array.ctypes.data - self._start
        inside = 0 <= pos and pos + array.nbytes <= self._nbytes
        return (pos, array.nbytes) if inside and array.flags.c_contiguous else None

    def body(self, graph: GraphDef, scope: Scope, site: GraphSite) -> list[Held]:
        """The outputs of a graph whose inputs stand in ``scope``.

        Raises:
            MissingError: A node was not imported.
        """
        self.initializers(graph, scope)
        names = [output.name for output in graph.outputs]
        self.nodes(graph.nodes, names, scope, site)
        return [scope.find(name) for name in names]

    def nodes(
        self, nodes: Sequence[NodeDef], wanted: Iterable[str], scope: Scope, site: GraphSite
    ) -> None:
        """Lowers the nodes that ``wanted`` depends on, each behind those whose results it reads."""
        charge("reading the nodes of a graph", elements=len(nodes))
        live = in_order(live_nodes(nodes, wanted), scope.values, self.name)
        for i, node in enumerate(live):
            if scope.parent is None and not self._calls:
                progress(i / len(live), node.op)
            self.lower_node(node, scope, site)

    def lower_node(self, node: NodeDef, scope: Scope, site: GraphSite) -> None:
        """Lowers a node. A node that can't be imported is recorded, and its results are missing.

        Raises:
            ImportModelError: The node is malformed.
            UnknownSizeError: It takes no sizes that are known only when the graph runs.
        """
        self._nodes += 1
        results: Sequence[Held | None] = [None] * len(node.output)
        before = len(site.graph.nodes)
        try:
            charge("the model", nodes=1)
            results = self._lower(node, scope, site)
            self._sign(node, site.graph.nodes[before:])
        except LimitError as error:
            if "\n  node: " in str(error):
                raise
            text = f"{error}\n  node: {self.name(node)}\n  file: {self.label}"
            raise LimitError(text) from None
        except RefusedError as error:
            if not self._decided_by_inputs(site):
                self._note(node, str(error))
        except NeedsValueError as error:
            self.needs |= error.names
        except MissingError:
            pass
        except UnknownSizeError:
            raise
        except (RlxError, *MALFORMED) as error:
            if not self._decided_by_inputs(site):
                if isinstance(error, UnsupportedOpError):
                    self._note(node, str(error).replace("\n", ";"))
                else:
                    self._fail(node, error)
        for name, value in zip(node.output, results, strict=False):
            if (
                isinstance(value, OnnxValue)
                and math.prod(map(estimated, value.shape)) > MAX_ELEMENTS
            ):
                self._fail(node, ImportModelError(f"a result of shape {value.shape}"))
            if name:
                scope.define(name, value)

    def _decided_by_inputs(self, site: GraphSite) -> bool:
        """Returns whether a node that failed may be imported for fixed inputs, and asks for these.

        They are inputs of a few whole numbers, of which the graph makes sizes.
        """
        if not site.params:
            return False  # its inputs are values of the graph around it, whose node fails next
        names: set[str] = set()
        for item in made_dims(site.graph).values():
            names |= inputs_of(item)
        ports = [site.graph.named(name) for name in names]
        if not all(len(port.shape) < 2 and port.dtype.is_integer for port in ports):
            return False
        self.needs |= names
        return bool(names)

    def _sign(self, node: NodeDef, results: Sequence[Node]) -> None:
        """Names what an ONNX node became after it, for messages, profiles and traces.

        What the nodes of a body or a function became is named after those.
        """
        called = node.name or next(filter(None, node.output), "")
        for item in results:
            if item.op not in ("input", "param") and not item.source.startswith(f"{self.label}: "):
                item.source = f"{self.label}: {_kind(node.domain, node.op)}"
                item.name = called or item.name

    def _fail(self, node: NodeDef, error: Exception) -> None:
        if isinstance(error, ImportModelError) and "\n  node: " in str(error):
            raise error
        text = str(error) if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
        raise ImportModelError(
            f"{text}\n  node: {self.name(node)}\n  file: {self.label}"
        ) from error

    def name(self, node: NodeDef) -> str:
        """Returns the node's name for messages: its own, else that of its first output."""
        called = node.name or next((f"-> {name}" for name in node.output if name), "")
        return f"{called!r} ({_kind(node.domain, node.op)})"

    def _note(self, node: NodeDef, reason: str) -> None:
        key = (_kind(node.domain, node.op), reason)
        problem = self.problems.setdefault(key, ImportProblem(reason, self.name(node)))
        problem.count += 1

    def check(self) -> None:
        """Raises the collected errors.

        Raises:
            UnsupportedOpError: Every kind of node that can't be imported, with counts.
            InputError: The contents of inputs decide the structure of the graph.
        """
        if self.problems:
            lines = [
                f"{problem.count} x {kind}: {problem.reason}; first {problem.first}"
                for (kind, _), problem in sorted(
                    self.problems.items(), key=lambda item: (-item[1].count, item[0])
                )
            ]
            total = sum(problem.count for problem in self.problems.values())
            raise UnsupportedOpError(
                f"{total} nodes can't be imported:\n    " + "\n    ".join(lines),
                where=self.label,
                hint="docs/guides/onnx.md lists what can",
            )
        if self.needs:
            raise InputError(
                f"the contents of these inputs decide axes or attributes: {listed(sorted(self.needs))}",
                where=self.label,
                hint="pass values={name: array, ...}: they are fixed then, and no inputs of the graph",
            )

    # --- a node ---

    def _lower(self, node: NodeDef, scope: Scope, site: GraphSite) -> Sequence[Held | None]:
        domain = plain(node.domain)
        function = self._functions.get((domain, node.op, node.overload))
        attributes = _attributes(node, scope.attributes)
        if function is not None:
            return self._inline(function, node, attributes, scope, site)
        opset, operator = _operator(node, domain, scope.opsets)
        old = refused(node.op, opset, attributes) if not domain else None
        if old is not None:
            raise RefusedError(old)
        allowed.check(node.op, attributes)
        operands = [scope.find(name) if name else None for name in node.input]
        if not operator.raw:
            operands = [None if isinstance(operand, Nothing) else operand for operand in operands]
        call = OnnxCall(node, operands, site, opset, attributes, self, scope)
        if operator.raw:
            return _results(operator, call)
        _check_carried(node.op, operator, operands)
        if any(isinstance(o, OnnxValue) and o.sizes is not None for o in operands):
            sizes = computed(call, operands)
            if sizes is not None:
                return sizes
        if (
            operator.fold
            and operands
            and all(_foldable(operand) for operand in operands if operand)
        ):
            folded = self._fold(operator, call)
            if folded is not None:
                return folded
        return wrapped(_results(operator, call), operands)

    def _fold(self, operator: Operator, call: OnnxCall) -> list[Held | None] | None:
        """The results as arrays, by the references of rlx's ops; None where they are too large."""
        site = GraphSite(Graph("fold"), params=False)
        inner = replace(call, site=site)
        site.graph.assumptions = Assumptions({})
        with deciding(site.graph.assumptions):
            stored = wrapped(_results(operator, inner), call.operands)
            types = [type for node in site.graph.nodes for type in node.types]
            if sum(estimated(type.size) for type in types) > 4 * FOLD_ELEMENTS:
                return None
            work = estimated(sum(map(effort, site.graph.nodes)))
        if work > FOLD_WORK or not try_charge(work):
            return None
        results = [
            value for value in stored if isinstance(value, OnnxValue) and value.node is not None
        ]
        if results:
            site.graph.set_outputs([value.node for value in results if value.node is not None])
            known = interpret(with_known_sizes(site.graph), {})
            for value, array in zip(results, known, strict=True):
                dtype = value.element.numpy
                carried = value.element.name in CARRIERS
                value.array, value.node = (array.astype(dtype) if carried else array), None
        return stored

    def _inline(
        self,
        function: Function,
        node: NodeDef,
        attributes: Mapping[str, Attribute],
        scope: Scope,
        site: GraphSite,
    ) -> list[Held | None]:
        """A function of the model, written out where it is called."""
        if self._calls >= MAX_CALLS:
            raise ImportModelError("functions call each other without end")
        args = {a.name: a for a in function.defaults} | dict(attributes)
        opsets = versions(function.opsets, self.label) or scope.opsets
        inner = Scope({}, opsets, None, args)
        for i, name in enumerate(function.inputs):
            if i < len(node.input) and node.input[i]:
                inner.define(name, scope.find(node.input[i]))
            else:
                inner.define(name, Nothing())
        self._calls += 1
        try:
            self.nodes(function.nodes, function.outputs, inner, site)
        finally:
            self._calls -= 1
        return [inner.values.get(name) for name in function.outputs]


def _operator(node: NodeDef, domain: str, opsets: Mapping[str, int]) -> tuple[int, Operator]:
    """The version of a node's operator set, and how the operator is lowered.

    Raises:
        RefusedError: There is no such operator here.
    """
    opset = opsets.get(domain)
    if opset is None:
        raise RefusedError(f"the model imports no operator set {domain or 'ai.onnx'!r}")
    operator = handlers.find(domain, node.op, opset)
    if operator is None:
        raise RefusedError(f"no such operator in version {opset} of the set here")
    return opset, operator


def _kind(domain: str, op: str) -> str:
    return printable(f"{domain}.{op}" if plain(domain) else op)


def _attributes(node: NodeDef, called: Mapping[str, Attribute] | None) -> dict[str, Attribute]:
    """The attributes of a node by name; in a function a reference takes the caller's, or is absent."""
    results: dict[str, Attribute] = {}
    for attribute in node.attributes:
        if not attribute.ref:
            results[attribute.name] = attribute
        elif called is not None and attribute.ref in called:
            results[attribute.name] = called[attribute.ref]
    return results


def _foldable(stored: Held) -> bool:
    return (
        isinstance(stored, OnnxValue)
        and stored.array is not None
        and stored.array.size <= FOLD_ELEMENTS
        and stored.array.dtype != object
    )


def _check_carried(op: str, operator: Operator, operands: Sequence[Held | None]) -> None:
    for operand in operands:
        if isinstance(operand, OnnxValue) and operand.element.name in CARRIERS:
            if not carries(op, operator.carried, operand.element):
                raise RefusedError(f"tensors of {operand.element.name}")


def _results(operator: Operator, call: OnnxCall) -> list[Held | None]:
    """The values that an operator's function gives."""
    results = _listed(operator.handler(call))
    if operator.strict:
        call.check_unread(results)
    return results


def _listed(result: Any) -> list[Held | None]:
    """Returns an operator's results as a list of values."""
    many = (
        list(result)
        if isinstance(result, (tuple, list)) and type(result) in (tuple, list)
        else [result]
    )
    return [
        OnnxValue.of(item if isinstance(item, Node) else np.asarray(item))
        if isinstance(item, (Node, np.ndarray, np.generic))
        else item
        for item in many
    ]
