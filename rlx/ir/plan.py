"""The plan of a graph for one device: values, calls in order, and the place of each value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType

# The kernel name of a call that runs a graph of its own on the host: nodes without a device kernel.
HOST = "host"

# Where a value's bytes are: the arena holds inputs, outputs and temporaries; params and constants
# have memory of their own, which clones share. A state is an input that runs update in place. It has memory of its own,
# which the programs of one graph share.
ARENA = ("input", "temp", "output")
STATE = "state"
# The parameter of kernels that can write their results from some element of a value on.
OFFSETS = "offsets"


@dataclass(eq=False)
class Value:
    """A piece of memory that calls read and write.

    Attributes:
        id: Position in ``Schedule.values``.
        type: Shape and dtype.
        kind: input, state, temp, output, param or constant.
        name: Name of the input or param, else where it comes from.
        array: The bytes of a constant.
    """

    id: int
    type: TensorType
    kind: str
    name: str
    array: Array | None = None

    def __str__(self) -> str:
        return f"v{self.id}"


@dataclass(frozen=True, eq=False)
class KernelCall:
    """One kernel call.

    Attributes:
        kernel: Kernel name, "elementwise" for a program of elementwise steps, or ``HOST``.
        inputs: Values read; None for an absent one.
        outputs: Values written.
        params: The parameters of the kernel, in the order of its C struct.
        work: Workgroups on WebGPU.
        node: The node it belongs to.
        in_place: Positions of inputs whose memory outputs may take over, each of another one.
        unit: Workgroups that make the same rows of the result, when the first workgroups make the first
            rows; 0 when they do not.
    """

    kernel: str
    inputs: tuple[Value | None, ...]
    outputs: tuple[Value, ...]
    params: Mapping[str, Any]
    work: int
    node: Node
    in_place: tuple[int, ...] = ()
    unit: int = 1


@dataclass
class Schedule:
    """Calls in order, and the values they work on.

    Attributes:
        values: Every value.
        calls: The calls.
        inputs: The graph's inputs in declaration order.
        outputs: The graph's outputs in order; one value may stand twice.
        output_types: Shape and dtype of each output (a view may differ from its value's).
        params: Param values by name.
        loops: First and last call of every loop, the inner ones first: what is read in one is read in
            its every trip.
        sizes: Values of dims that it was lowered for first; None without dims.
    """

    values: list[Value] = field(default_factory=list)
    calls: list[KernelCall] = field(default_factory=list)
    inputs: list[Value] = field(default_factory=list)
    outputs: list[Value] = field(default_factory=list)
    output_types: list[TensorType] = field(default_factory=list)
    params: dict[str, Value] = field(default_factory=dict)
    loops: list[tuple[int, int]] = field(default_factory=list)
    sizes: Mapping[str, int] | None = None

    def host_fallbacks(self) -> tuple[str, ...]:
        """Each op that runs on the host, with its reason, once."""
        listed = [call.params["reasons"] for call in self.calls if call.kernel == HOST]
        return tuple(dict.fromkeys(str(reason) for reasons in listed for reason in reasons))

    def __str__(self) -> str:
        lines = [f"schedule: {len(self.calls)} calls"]
        for i, call in enumerate(self.calls):
            reads = ", ".join("-" if v is None else str(v) for v in call.inputs)
            writes = ", ".join(map(str, call.outputs))
            if call.kernel == HOST:
                shown = "; ".join(call.params["reasons"])
            else:
                texts = {k: str(v).replace(" ", "") for k, v in call.params.items()}
                shown = " ".join(f"{k}={text[:60]}" for k, text in texts.items())
            lines.append(
                f"  {i:3} {writes} = {call.kernel}({reads}) {shown}  # {call.node.where()}"
            )
        return "\n".join(lines)


@dataclass(frozen=True)
class Slot:
    """The place of a value in the arena: byte offset and size."""

    offset: int
    nbytes: int


@dataclass(frozen=True)
class MemoryPlan:
    """The arena's layout: inputs first, outputs next, temporaries after them.

    Attributes:
        slots: Slot of each arena value, by value id.
        nbytes: Size of the arena.
        inputs_end: End of the inputs, which start at 0.
        outputs_end: End of the outputs, which start at ``inputs_end``.
        live_peak: Largest sum of the slots alive at one call: what no plan can go below.
        reused: Values that took over an operand's memory.
        temps: Offset of each piece of memory that temporaries share: what a planner has to find, and all
            that a file needs to hold of it.
    """

    slots: Mapping[int, Slot]
    nbytes: int
    inputs_end: int
    outputs_end: int
    live_peak: int
    reused: Sequence[tuple[int, int]]
    temps: Sequence[int] = ()

    def __str__(self) -> str:
        lines = [
            f"memory: arena {self.nbytes} B, largest live set {self.live_peak} B, "
            f"inputs {self.inputs_end} B, outputs {self.outputs_end - self.inputs_end} B, "
            f"{len(self.reused)} values in place of an operand"
        ]
        lines += [f"  v{id}: {s.offset} + {s.nbytes}" for id, s in sorted(self.slots.items())]
        return "\n".join(lines)


@dataclass(frozen=True)
class Preparation:
    """Nodes to compute when one of some params is set; without params, when the graph is loaded.

    Attributes:
        graph: Params in, prepared params out. Its inputs are named as the params are.
        names: The prepared params, in the order of its outputs.
    """

    graph: Graph
    names: tuple[str, ...]
