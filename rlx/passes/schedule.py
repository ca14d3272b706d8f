"""Graph -> Schedule: every node lowered by its record into kernel calls on values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any

import numpy as np

from rlx.abi import calls
from rlx.errors import UnsupportedOpError
from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.kernel_sets import HOST_KERNELS, KERNEL_SETS
from rlx.ir.notes import Note
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import HOST, OFFSETS, STATE, KernelCall, Schedule, Value
from rlx.ir.rewrite import is_beginning, subgraphs, users
from rlx.ir.shape import UPDATE, Shape, estimated, same_size
from rlx.ir.spans import checkpoint
from rlx.ir.variants import Choices
from rlx.ops.movement.strided import emit_strided_copy
from rlx.passes.legalize import blocked
from rlx.resource_limits import charge

_NONE_KNOWN = Choices()
# Calls among which another one may join the last that reads the same.
_NEAR = 16


class Scheduler:
    """Lowers a graph for one backend. It is the emitter handed to the records' lowering rules.

    Args:
        graph: A verified graph.
        kernel_set: Which kernels of a record are used.
        limits: The device's limits, for rules that choose between kernels.
        specialise: The function that made the graph ready for the backend, and that makes subgraphs ready.
        choices: The measured variants of kernels, which go before their rules.
        host: Nodes of the graph that run on the host besides those without a kernel, by id, and why.
        in_place: Whether inputs are updated in place. The last outputs of the graph are their values then
            (``rlx.ir.states.with_states``).
    """

    def __init__(
        self,
        graph: Graph,
        kernel_set: str,
        limits: Mapping[str, int],
        specialise: Callable[[Graph], tuple[Graph, list[Note]]],
        choices: Choices = _NONE_KNOWN,
        host: Mapping[int, str] = MappingProxyType({}),
        in_place: bool = False,
    ) -> None:
        self.limits, self.choices = limits, choices
        self._kernels = KERNEL_SETS[kernel_set]
        self._schedule = Schedule()
        self._specialise = specialise
        # The graph that is being walked: the outer one, or a subgraph inside it.
        self._graph: Graph
        self._node: Node
        self._values: dict[int, tuple[Value, ...]]
        self._host: dict[int, str]
        self._users: dict[int, list[Node]]
        self._tables: dict[tuple[str, bytes], Value] = {}
        self._whole = graph
        self._states = _states(graph) if in_place else {}
        self._enter(graph)
        self._host |= host

    def run(self) -> Schedule:
        """The schedule of the whole graph. Outputs behind those of its builder are states, which stay where they are."""
        self._walk()
        outputs, states = self._graph.outputs, self._states.values()
        for last in states:
            assert self._values[last.id][0].kind == STATE, last.where()
        for node in outputs[: len(outputs) - len(states)]:
            self._output(node)
        return self._schedule

    def _walk(self) -> None:
        pending: dict[int, Node] = {}
        for node in self._graph.nodes:
            checkpoint()
            on_host = node.id in self._host
            reads_host = any(operand.id in pending for operand in node.inputs)
            if on_host or (reads_host and node.opdef.view):
                pending[node.id] = node
                continue
            # A node that does not need the host's results is lowered first, so that the schedule is cut less often.
            if reads_host:
                self._run_on_host(pending)
            self._lower(node)
        self._run_on_host(pending)

    # --- the Emitter protocol ----------------------------------------------------------------------

    def operand(self, index: int) -> Value:
        """The value of the node's operand."""
        return self._values[self._node.inputs[index].id][0]

    def result(self) -> Value:
        """The value the node's result goes to; the first of several."""
        return self._values[self._node.id][0]

    def results(self) -> tuple[Value, ...]:
        """The values of all of the node's results."""
        return self._values[self._node.id]

    def temp(self, type: TensorType) -> Value:
        """Memory that lives between the calls of this node."""
        return self._new(type, "temp", f"scratch of {self._node.name}")

    def table(self, array: Array) -> Value:
        """A constant of the kernel; equal ones are stored once."""
        key = (array.dtype.str, array.tobytes())
        if key not in self._tables:
            type = TensorType(array.shape, DType.parse(array.dtype))
            self._tables[key] = self._new(type, "constant", f"table of {self._node.op}", array)
        return self._tables[key]

    def elementwise(
        self,
        program: Sequence[Any],
        inputs: Sequence[Value],
        output: Value,
        shapes: Sequence[Shape] | None = None,
        unit: int = 1,
    ) -> None:
        """One pass over memory; it may write over an operand that it reads at the same places."""
        if same_size(output.type.size, 0):
            return
        params: dict[str, Any] = {"program": tuple(program), "shape": output.type.shape}
        if shapes is not None:
            params["shapes"] = tuple(shapes)
            self._call("elementwise", inputs, [output], params, 0, (), unit)
            return
        shapes = [operand.shape for operand in self._node.inputs]
        # In-place needs an operand of the result's shape and element size: each element is read before it is written.
        in_place = tuple(
            i
            for i, value in enumerate(inputs)
            if estimated(shapes[i]) == estimated(self._node.shape)
            and shapes[i] == self._node.shape
            and value.type.dtype.itemsize == output.type.dtype.itemsize
        )
        params |= {"shapes": tuple(shapes), "shape": self._node.shape}
        self._call("elementwise", inputs, [output], params, 0, in_place)

    def write_into_result(self, index: int, offset: Any) -> bool:
        """See ``Emitter``."""
        made = node = self._node.inputs[index]
        target, value = self._values[self._node.id][0], self._values[node.id][0]
        outputs = {item.id for item in self._graph.outputs}
        if target.kind != STATE:
            return False
        while len(self._users[node.id]) == 1 and node.id not in outputs and node.op == "reshape":
            node = node.inputs[0]
        if len(self._users[node.id]) != 1 or node.id in outputs:
            return False
        for at in reversed(range(len(self._schedule.calls))):
            call = self._schedule.calls[at]
            touched = target in (*call.inputs, *call.outputs)
            if value in call.outputs and OFFSETS in call.params and not touched:
                # A view of a part has the memory of the whole value, which the call would write.
                if value.type.size != made.type.size:
                    return False
                place, offsets = call.outputs.index(value), list(call.params[OFFSETS])
                written, offsets[place] = list(call.outputs), offset
                written[place] = target
                params = {**call.params, OFFSETS: tuple(offsets)}
                self._schedule.calls[at] = replace(call, outputs=tuple(written), params=params)
                return True
            if value in call.outputs or touched:
                break
        return False

    def joins(
        self, kernel: str, x: Value, more: Value, params: Mapping[str, tuple[Any, ...]]
    ) -> bool:
        """See ``Emitter``."""
        written, room = self._schedule.calls, len(calls.kernel(kernel).writes)
        for at in reversed(range(max(0, len(written) - _NEAR), len(written))):
            call = written[at]
            if call.kernel == kernel and call.inputs[0] is x and len(call.outputs) < room:
                # A call of a subgraph is not always made.
                if self._values.get(call.node.id, ())[:1] != call.outputs[:1]:
                    return False
                added = {name: (*call.params[name], *items) for name, items in params.items()}
                inputs, outputs = (*call.inputs, more), (*call.outputs, self.result())
                params = {**call.params, **added}
                written[at] = replace(call, inputs=inputs, outputs=outputs, params=params)
                return True
            if "target" in call.params or x in call.outputs:
                break
        return False

    def write_rows_into_result(self, index: int, apart: Any, begin: Any) -> bool:
        """See ``Emitter``."""
        node, written = self._node.inputs[index], self._schedule.calls
        x = self._values[node.id][0]
        makers = [at for at, call in enumerate(written) if x in call.outputs]
        is_output = any(item is node for item in self._graph.outputs)
        if len(makers) != 1 or len(self._users[node.id]) != 1 or is_output:
            return False
        call = written[makers[0]]
        # A residual is read as the results are written.
        if call.node is not node or "apart" not in call.params or call.inputs[3] is not None:
            return False
        outputs, params = (self.result(), *call.outputs[1:]), {"apart": apart, "begin": begin}
        written[makers[0]] = replace(call, outputs=outputs, params={**call.params, **params})
        return True

    def inline(self, graph: Graph, operands: Sequence[Value]) -> list[Value]:
        """The calls of a subgraph, specialised like the graph around it."""
        outer = self._graph, self._node, self._values, self._host, self._users
        subgraph, _ = self._specialise(graph)
        self._enter(subgraph)
        for name, value in zip(subgraph.input_names, operands, strict=True):
            self._values[subgraph.named(name).id] = (value,)
        self._walk()
        results = [self._values[node.id][0] for node in subgraph.outputs]
        self._graph, self._node, self._values, self._host, self._users = outer
        return results

    def choose(self, condition: Value, then: Callable[[], None], other: Callable[[], None]) -> None:
        """Writes a jump over the calls that are not chosen."""
        written = self._schedule.calls
        skip = self._jump("jump_unless", [condition], [])
        then()
        leave = self._jump("jump", [], [])
        skip["target"] = len(written)
        other()
        leave["target"] = len(written)

    def repeat(
        self,
        trips: int | None,
        body: Callable[[], None],
        condition: Callable[[], Value] | None = None,
    ) -> None:
        """A loop of jumps where there are any; else the same calls as often as there are trips."""
        written = self._schedule.calls
        if not self._kernels.jumps:
            assert trips is not None
            assert condition is None
            first = len(written)
            body()
            again = len(written) - first
            charge("a loop written out for the GPU", nodes=again * (trips - 1))
            written.extend(written[first:] * (trips - 1))
            return
        exits = []
        counter = self.temp(TensorType((1,), DType.I64))
        if trips is not None:
            zero = self.table(np.zeros(1, np.int64))
            emit_strided_copy(self, zero, counter, DType.I64, (1,), (1,), (1,))
        start = len(written)
        if trips is not None:
            exits.append(self._jump("next_trip", [], [counter], trips=trips))
        if condition is not None:
            exits.append(self._jump("jump_unless", [condition()], []))
        body()
        self._jump("jump", [], [])["target"] = start
        for jump in exits:
            jump["target"] = len(written)
        self._schedule.loops.append((start, len(written) - 1))

    def call(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        params: Mapping[str, Any],
        work: int = 0,
        unit: int = 1,
        in_place: tuple[int, ...] = (),
        wgsl: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """One kernel call, with the scratch memory of its C signature where it has one."""
        if self._kernels.signatures:
            outputs = [*outputs, *self._scratch(kernel, inputs, params)]
        else:
            params = {**params, **wgsl}
        self._call(kernel, inputs, outputs, params, work, in_place, unit)

    def _scratch(
        self, kernel: str, inputs: Sequence[Value | None], params: Mapping[str, Any]
    ) -> list[Value]:
        first = next((value.type.dtype for value in inputs if value is not None), None)
        try:
            signature = calls.kernel(kernel)
            if first is None or not signature.scratch:
                return []
            result = calls.scratch(signature, params, calls.Given(str(first), first.itemsize))
        except calls.SignatureError as error:
            raise calls.SignatureError(str(error), where=self._node.where()) from None
        return [self.temp(TensorType((n,), DType.parse(dtype))) for dtype, n in result]

    # -----------------------------------------------------------------------------------------------

    def _jump(
        self, kernel: str, inputs: Sequence[Value], outputs: Sequence[Value], **params: int
    ) -> dict[str, Any]:
        """A jump whose target is filled in when it is known: the parameters that hold it."""
        stored = {"target": 0, **params}
        self._schedule.calls.append(
            KernelCall(kernel, tuple(inputs), tuple(outputs), stored, 0, self._node)
        )
        return stored

    def _enter(self, graph: Graph) -> None:
        self._graph = graph
        self._node = graph.nodes[0]
        self._values = {}
        self._host = {} if self._kernels.on_host else host_nodes(graph, self._kernels.name)
        self._users = users(graph)

    def _call(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        params: Mapping[str, Any],
        work: int,
        in_place: tuple[int, ...],
        unit: int = 1,
    ) -> None:
        charge("the schedule", nodes=1)
        results = tuple(inputs), tuple(outputs)
        self._schedule.calls.append(
            KernelCall(kernel, *results, dict(params), work, self._node, in_place, unit)
        )

    def _new(self, type: TensorType, kind: str, name: str, array: Array | None = None) -> Value:
        value = Value(len(self._schedule.values), type, kind, name, array)
        self._schedule.values.append(value)
        return value

    def _lower(self, node: Node) -> None:
        self._node = node
        if node.id in self._values:
            return  # an input of a subgraph, bound to an operand
        if node.op == "param" and self._only_on_host(node):
            return
        if node.op in ("input", "param", "constant"):
            kind = STATE if node.id in self._states and self._graph is self._whole else node.op
            value = self._new(node.type, kind, node.name, node.attrs.get("value"))
            if node.op == "input":
                self._schedule.inputs.append(value)
            elif node.op == "param":
                self._schedule.params[node.name] = value
            self._values[node.id] = (value,)
        elif node.op == PART:
            self._values[node.id] = (self._values[node.inputs[0].id][node.attrs["index"]],)
        elif node.opdef.view or (is_beginning(node) and not self._host and self._by_kernels(node)):
            self._values[node.id] = self._values[node.inputs[0].id]
        else:
            self._values[node.id] = self._results_of(node)
            kernels = node.opdef.kernels(self._kernels.name)
            assert kernels is not None, "check_supported was not asked first"
            # A user's function or a subgraph may refuse, also where no result has elements.
            if any(type.size for type in node.types) or node.op == "custom" or subgraphs(node):
                kernels.lower(node, self)

    def _results_of(self, node: Node) -> tuple[Value, ...]:
        """Memory for the results of a node. An update of a state writes into the state."""
        inside = self._graph is not self._whole
        if node.op == UPDATE and self.operand(0).kind == STATE and not inside:
            return self._values[node.inputs[0].id]
        return tuple(self._new(t, "temp", node.name) for t in node.types)

    def _by_kernels(self, node: Node) -> bool:
        return all(
            reader.op != "custom"
            and not subgraphs(reader)
            and (not reader.opdef.view or self._by_kernels(reader))
            for reader in self._users[node.id]
        )

    def _only_on_host(self, node: Node) -> bool:
        """Returns whether only host parts read a param; they hold their own copy."""
        readers = self._users[node.id]
        return bool(readers) and all(reader.id in self._host for reader in readers)

    def _run_on_host(self, pending: dict[int, Node]) -> None:
        """Nodes without a kernel, side by side, become one call on the host."""
        if not pending:
            return
        run = list(pending.values())
        outputs = {node.id for node in self._graph.outputs}
        escaping = [
            node
            for node in run
            if len(node.types) == 1
            and (node.id in outputs or any(user.id not in pending for user in self._users[node.id]))
        ]
        graph, reads = extract(f"host part at {run[0].name}", run, escaping, "v{}")
        for node in escaping:
            self._values[node.id] = (self._new(node.type, "temp", node.name),)
        reasons = dict.fromkeys(
            f"{node.op}: {self._host[node.id]}" for node in run if node.id in self._host
        )
        self._node = run[0]
        read, made = ([self._values[n.id][0] for n in item] for item in (reads, escaping))
        self._call(HOST, read, made, {"graph": graph, "reasons": tuple(reasons)}, 0, ())
        pending.clear()

    def _output(self, node: Node) -> None:
        (value,) = self._values[node.id]
        if value.kind not in ("temp", "output"):
            # A leaf that is an output is copied: its own memory belongs to the caller.
            copied = self._new(node.type, "output", f"copy of {node.name}")
            self._node = node
            emit_strided_copy(self, value, copied, node.dtype, (node.type.size,), (1,), (1,))
            self._values[node.id] = (copied,)
            value = copied
        value.kind = "output"
        self._schedule.outputs.append(value)
        self._schedule.output_types.append(node.type)


def _states(graph: Graph) -> dict[int, Node]:
    """The last update of each state of a graph, by the id of the input."""
    if not graph.uses(UPDATE):
        return {}
    from rlx.ir.states import states_of

    return {state.input.id: state.last for state in states_of(graph)}


def host_nodes(graph: Graph, kernel_set: str) -> dict[int, str]:
    """Nodes without a kernel on a device, by id, and why."""
    result = ((node.id, blocked(node, kernel_set)) for node in graph.nodes)
    return {i: reason for i, reason in result if reason is not None}


def check_supported(graph: Graph, kernel_set: str, device: str, allow_host: bool) -> None:
    """Refuses a graph with nodes that neither the device nor, where it may help, the host can run.

    Raises:
        UnsupportedOpError: Names every such op once, with its reason and count.
    """
    results: dict[str, list[Node]] = {}
    for key, reason in host_nodes(graph, kernel_set).items():
        node = graph.nodes[key]
        on_host = KERNEL_SETS[kernel_set].on_host
        if on_host or not allow_host or blocked(node, HOST_KERNELS):
            results.setdefault(f"{node.op}: {reason}", []).append(node)
    if results:
        lines = [
            f"{reason} ({len(nodes)}x, first {nodes[0].where()})"
            for reason, nodes in results.items()
        ]
        raise UnsupportedOpError(
            f"{device} has no kernel for {sum(map(len, results.values()))} nodes "
            f"of graph {graph.name!r}",
            got="; ".join(lines),
            hint="cast to f32 or i32, allow host fallbacks, or compile for another device; "
            "`rlx ops` lists what runs where",
        )


def extract(
    name: str, run: Sequence[Node], escaping: Sequence[Node], inputs: str, params: bool = True
) -> tuple[Graph, list[Node]]:
    """Nodes as a graph of their own, with constants, and the nodes that it reads as inputs.

    Args:
        name: The name of the graph.
        run: The nodes, in order.
        escaping: Those whose values are its outputs.
        inputs: The names of its inputs, with a place for the id of the node that each is.
        params: Whether params are its own; otherwise they are inputs, too.
    """
    graph = Graph(name)
    copies: dict[int, Node] = {}
    reads: list[Node] = []
    for node in run:
        for operand in node.inputs:
            if operand.id in copies:
                continue
            if operand.op == "constant":
                copies[operand.id] = graph.constant(operand.attrs["value"], operand.dtype)
            elif operand.op == "param" and params:
                copies[operand.id] = graph.param(operand.name, operand.shape, operand.dtype)
            else:
                called = inputs.format(operand.id)
                copies[operand.id] = graph.input(called, operand.shape, operand.dtype)
                reads.append(operand)
            copies[operand.id].source = operand.source
        operands = [copies[o.id] for o in node.inputs]
        copies[node.id] = graph.add_node(node.opdef, operands, node.attrs, node.name, node.source)
    graph.set_outputs([copies[node.id] for node in escaping])
    return graph, reads
