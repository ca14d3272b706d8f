"""Records of runs for traces and profiles: spans on the host, kernels on the device, counters."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from time import perf_counter_ns
from typing import Any

from rlx.cost.op_classes import FREE
from rlx.dataclasses import dataclass
from rlx.ir.graph import Node
from rlx.ir.plan import ARENA, HOST, STATE, KernelCall
from rlx.ir.rewrite import is_beginning, subgraphs
from rlx.ir.shape import UPDATE, estimated
from rlx.ir.spans import CALL, KERNEL, Span
from rlx.passes.dynamic_batch import DynamicRows, scaled

# Control flow: calls that only decide which call is next.
_CONTROL = frozenset({"jump", "jump_unless", "next_trip"})


@dataclass(frozen=True, eq=False)
class RecordedKernel:
    """One kernel call of a loaded graph, which a run may make more than once.

    Attributes:
        label: Op and kernel.
        op: The op's name; several, joined by "+", for a part that the host computes.
        node: The node that it belongs to.
        inputs: Types read, such as "f32[2, 3]".
        outputs: Types written.
        nbytes: Bytes of the tensors that it reads and writes, each once.
        flops: Floating-point operations. Where a node takes several kernels they are shared out
            evenly, and ``nbytes`` holds what lies between the kernels too.
    """

    label: str
    op: str
    node: Node
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    nbytes: int
    flops: float

    def args(self) -> dict[str, Any]:
        """The same as JSON takes it."""
        return {
            "node": self.node.where(),
            "inputs": list(self.inputs),
            "outputs": list(self.outputs),
            "bytes": self.nbytes,
            "flops": self.flops,
        }


def kernels_of(
    calls: Iterable[KernelCall], extent: DynamicRows | None = None
) -> dict[int, RecordedKernel]:
    """The kernels behind calls, by the ``id`` of each call.

    Args:
        calls: The calls of a schedule; a call repeated by a loop may occur many times.
        extent: The rows that they compute; None for all rows.

    Sizes that are known only when the graph runs count as the assumptions under way say.
    """
    different = list({id(call): call for call in calls}.values())
    shared = Counter(id(call.node) for call in different if call.kernel not in _CONTROL)
    return {id(call): _kernel(call, shared[id(call.node)], extent) for call in different}


def _kernel(call: KernelCall, shared: int, extent: DynamicRows | None) -> RecordedKernel:
    """Describes a kernel call; its node has this many calls."""
    node, op, nbytes, flops = call.node, call.node.op, 0, 0.0
    reads = [value for value in call.inputs if value is not None]
    stored = {value.id: value for value in (*reads, *call.outputs)}.values()
    # Only calls with a unit compute fewer rows; see ``KernelCall.unit``.
    cut = extent if extent is not None and call.unit and node in extent.rows else None
    if call.kernel == HOST:
        nodes: list[Node] = [node for node in call.params["graph"].nodes if node.op not in FREE]
        op, nbytes = "+".join(node.op for node in nodes), sum(value.type.nbytes for value in stored)
        flops = float(sum(node.opdef.flops(node) for node in nodes))
    elif call.kernel not in _CONTROL:
        if shared == 1:
            # Tables and scratch memory of the kernel are not counted.
            sizes = {item: item.type.nbytes for item in node.inputs}
            sizes[node] = sum(type.nbytes for type in node.types)
            if node.op == UPDATE and call.outputs[0].kind == STATE:  # it writes the new rows alone
                sizes = dict.fromkeys((node.inputs[1], node), node.inputs[1].type.nbytes)
            rows = cut.rows if cut is not None else ()
            nbytes = sum(scaled(n, cut) if key in rows else n for key, n in sizes.items())
        else:
            fixed = sum(item.type.nbytes for item in stored if item.kind not in (*ARENA, STATE))
            if any(item.kind == STATE for item in stored):
                fixed += sum(item.type.nbytes for item in node.inputs if _is_in_state(item))
            nbytes = fixed + scaled(sum(v.type.nbytes for v in stored if v.kind in ARENA), cut)
        if not subgraphs(node):  # else its work is done by nodes that have calls of their own
            flops = float(estimated(node.opdef.flops(node))) / shared
            flops *= cut.actual / cut.upper if cut is not None else 1.0
    types = [tuple(str(value.type) for value in some) for some in (reads, call.outputs)]
    label = f"{op}/{call.kernel}"
    return RecordedKernel(label, op, node, types[0], types[1], estimated(nbytes), flops)


def _is_in_state(node: Node) -> bool:
    """Returns whether a node is a part of an updated state, which is read where it is."""
    while node.opdef.view or is_beginning(node):
        if not node.inputs:
            return False
        node = node.inputs[0]
    return node.op == UPDATE


@dataclass(frozen=True)
class Count:
    """The state of counters at one moment.

    Attributes:
        name: The name of the counter.
        at: The moment, on the clock of ``time.perf_counter_ns``.
        values: The counters.
    """

    name: str
    at: int
    values: Mapping[str, int]


class Recorder:
    """Keeps everything that happens.

    Attributes:
        spans: The spans of time, in the order in which they ended.
        counts: Counters from time to time.
        notes: Remarks for readers of the spans.
        runs: Runs so far.
    """

    def __init__(self) -> None:
        self.spans: list[Span] = []
        self.counts: list[Count] = []
        self.notes: dict[str, str] = {}
        self.runs = 0
        self._moved: dict[str, int] = {}
        self._base: dict[str, int] = {}

    @contextmanager
    def span(self, name: str, kind: str = CALL, **args: Any) -> Iterator[None]:
        """Times the code inside the ``with``, also when that raises.

        Args:
            name: Its name.
            kind: See ``Span``.
            **args: More about it.
        """
        start = perf_counter_ns()
        try:
            yield
        finally:
            self.add(name, kind, start, perf_counter_ns(), **args)

    def add(self, name: str, kind: str, start: int, end: int, **args: Any) -> None:
        """A span whose times are known, on the clock of ``time.perf_counter_ns``."""
        self.spans.append(Span(name, start, end, kind, args))

    def kernel(
        self, kernel: RecordedKernel, start: int, end: int, kind: str = KERNEL, **args: Any
    ) -> None:
        """One kernel that ran.

        Args:
            kernel: The kernel.
            start: Its start, by ``time.perf_counter_ns``.
            end: Its end.
            kind: KERNEL, or PART for a part of a GPU's graph that the host computes.
            **args: More about this time.
        """
        self.add(kernel.label, kind, start, end, **_measured(kernel, end - start, args))

    def begin_counting(self, moved: Mapping[str, int]) -> None:
        """Continues counting the bytes of an executable that has moved some before.

        Args:
            moved: The bytes that it has moved so far.
        """
        self._base = {name: n - self._moved.get(name, 0) for name, n in moved.items()}
        self.count_moved(moved)

    def count_moved(self, moved: Mapping[str, int]) -> None:
        """Counts the bytes that the executable has moved since ``begin_counting``."""
        self._moved = {name: n - self._base.get(name, 0) for name, n in moved.items()}
        self.count("bytes moved", self._moved)

    def count(self, name: str, values: Mapping[str, int]) -> None:
        """The state of counters now."""
        self.counts.append(Count(name, perf_counter_ns(), values))


def _measured(kernel: RecordedKernel, ns: int, args: Mapping[str, Any]) -> dict[str, Any]:
    speeds = {"GB/s": kernel.nbytes / ns, "GFLOP/s": kernel.flops / ns} if ns > 0 else {}
    return {**kernel.args(), **args, **speeds}
