"""Graph -> Schedule: every node lowered by its record into kernel calls on values."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.errors import UnsupportedOpError, describe
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array, Param, TensorType, lookup
from rlx.ir.plan import Call, Schedule, Value

# Says why a node can't run on a backend, or None when it can.
Blocker = Callable[[Node], str | None]


class Scheduler:
    """Lowers a graph for one backend. It is the emitter handed to the records' lowering rules.

    Args:
        graph: A verified graph.
        backend: "cpu" or "webgpu": which kernels of a record are used.
        limits: The device's limits, for rules that choose between kernels.
    """

    def __init__(self, graph: Graph, backend: str, limits: Mapping[str, int]) -> None:
        self.limits = limits
        self._graph = graph
        self._backend = backend
        self._schedule = Schedule()
        self._values: dict[int, tuple[Value, ...]] = {}
        self._tables: dict[tuple[str, bytes], Value] = {}
        self._node: Node = graph.nodes[0]

    def run(self) -> Schedule:
        """The schedule of the whole graph."""
        for node in self._graph.nodes:
            self._node = node
            self._lower(node)
        for node in self._graph.outputs:
            self._output(node)
        return self._schedule

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
            from rlx.ir.dtype import DType

            type = TensorType(array.shape, DType.parse(array.dtype))
            self._tables[key] = self._new(type, "constant", f"table of {self._node.op}", array)
        return self._tables[key]

    def elementwise(self, program: Sequence[Any], inputs: Sequence[Value], output: Value) -> None:
        """One pass over memory; it may write over an operand that it reads at the same places."""
        if output.type.size == 0:
            return
        shapes = [operand.shape for operand in self._node.inputs]
        # Only an operand of the result's own shape and element size is walked in step with it.
        in_place = tuple(
            at
            for at, value in enumerate(inputs)
            if shapes[at] == self._node.shape
            and value.type.dtype.itemsize == output.type.dtype.itemsize
        )
        self._call(
            "elementwise",
            inputs,
            [output],
            {"program": tuple(program), "shapes": tuple(shapes), "shape": self._node.shape},
            0,
            in_place,
        )

    def call(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        params: Mapping[str, Param],
        work: int = 0,
    ) -> None:
        """One kernel call."""
        self._call(kernel, inputs, outputs, params, work, ())

    # -----------------------------------------------------------------------------------------------

    def _call(
        self,
        kernel: str,
        inputs: Sequence[Value | None],
        outputs: Sequence[Value],
        params: Mapping[str, Any],
        work: int,
        in_place: tuple[int, ...],
    ) -> None:
        self._schedule.calls.append(
            Call(kernel, tuple(inputs), tuple(outputs), dict(params), work, self._node, in_place)
        )

    def _new(self, type: TensorType, kind: str, name: str, array: Array | None = None) -> Value:
        value = Value(len(self._schedule.values), type, kind, name, array)
        self._schedule.values.append(value)
        return value

    def _lower(self, node: Node) -> None:
        if node.op in ("input", "param", "constant"):
            value = self._new(node.type, node.op, node.name, node.attrs.get("value"))
            if node.op == "input":
                self._schedule.inputs.append(value)
            elif node.op == "param":
                self._schedule.params[node.name] = value
            self._values[node.id] = (value,)
        elif node.op == PART:
            self._values[node.id] = (self._values[node.inputs[0].id][node.attrs["index"]],)
        elif node.opdef.view:
            self._values[node.id] = self._values[node.inputs[0].id]
        else:
            self._values[node.id] = tuple(self._new(t, "temp", node.name) for t in node.types)
            kernels = node.opdef.kernels(self._backend)
            assert kernels is not None, "blockers() was not asked first"
            kernels.lower(node, self)

    def _output(self, node: Node) -> None:
        (value,) = self._values[node.id]
        if value.kind in ("input", "param", "constant"):
            # A leaf that is an output is copied: its own memory belongs to the caller.
            copied = self._new(node.type, "output", f"copy of {node.name}")
            self._node = node
            program = (("copy", (0,), node.dtype, None),)
            self._call(
                "elementwise",
                [value],
                [copied],
                {"program": program, "shapes": (node.shape,), "shape": node.shape},
                0,
                (),
            ) if node.type.size else None
            self._values[node.id] = (copied,)
            value = copied
        value.kind = "output"
        self._schedule.outputs.append(value)
        self._schedule.output_types.append(node.type)


def blockers(graph: Graph, backend: str, blocker: Blocker) -> None:
    """Refuses a graph with nodes the backend has no kernel for.

    Raises:
        UnsupportedOpError: Names every such op once, with its reason and count.
    """
    found: dict[str, list[Node]] = {}
    for node in graph.nodes:
        reason = blocker(node)
        if reason is not None:
            found.setdefault(f"{node.op}: {reason}", []).append(node)
    if found:
        lines = [
            f"{reason} ({len(nodes)}x, first {nodes[0].where()})" for reason, nodes in found.items()
        ]
        raise UnsupportedOpError(
            describe(
                f"{backend} has no kernel for {sum(map(len, found.values()))} nodes "
                f"of graph {graph.name!r}",
                got="; ".join(lines),
                hint="cast to f32 or i32, or compile for another device; `rlx ops` lists what runs where",
            )
        )


def kernel_blocker(backend: str) -> Blocker:
    """What the records say: a node is blocked by a missing kernel or a dtype it does not take."""

    def blocker(node: Node) -> str | None:
        opdef = node.opdef
        if backend == "webgpu":
            if node.op in ("input", "param", "constant") or opdef.view or node.op == "cast":
                taken = lookup("cast").webgpu_dtypes
                return None if node.dtype in taken else f"{node.dtype} is not held on webgpu yet"
        if opdef.view:
            return None
        if opdef.kernels(backend) is None:
            return opdef.host_reason or "no kernel"
        dtype = node.inputs[0].dtype
        if backend == "webgpu" and dtype not in opdef.webgpu_dtypes:
            return f"no kernel for {dtype}"
        return None

    return blocker
