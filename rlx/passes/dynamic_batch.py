"""The active extent: the same graph on fewer rows, and which results are made of rows."""

from __future__ import annotations

from collections.abc import Sequence

from rlx.dataclasses import dataclass
from rlx.errors import RlxError, first_line
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import TensorType
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.rewrite import Rewriter

# Ops whose attribute holds the shape of the result.
_SHAPED = ("reshape", "expand")


@dataclass(frozen=True, eq=False)
class DynamicRows:
    """A rule by which later runs compute fewer rows.

    Attributes:
        actual: Rows that are computed.
        upper: Rows that there is room for.
        rows: Nodes of the compiled graph whose results begin with what is computed: their memory up to
            ``actual / upper`` of its size.
        inputs: Positions of the inputs that hold rows.
        outputs: Positions of the outputs that begin with them.
        graph: The compiled graph on ``actual`` rows; None where that can't be: an op allows only
            ``upper`` or mixes the rows, or an output's rows do not stand one after the other. All rows
            are computed then.
        reason: Why there is no such graph.
        lowered: That graph as calls and a memory plan, for backends that run fewer rows as a program of
            their own.
    """

    actual: int
    upper: int
    rows: frozenset[Node]
    inputs: frozenset[int]
    outputs: frozenset[int]
    graph: Graph | None
    reason: str = ""
    lowered: tuple[Schedule, MemoryPlan] | None = None


def dynamic_rows_of(graph: Graph, actual: int, upper: int) -> DynamicRows:
    """Derives the part of a compiled graph that runs if its inputs hold ``actual`` rows instead of ``upper``."""
    # The number of rows plus one is no other dimension's size, and does not broadcast.
    probe = _Shrinker(graph, upper, upper + 1, {})
    probe.run()
    nothing: frozenset[int] = frozenset()
    for index, node in enumerate(graph.outputs):
        if not probe.reason and node.type != probe[node].type and node not in probe.rows:
            probe.reason = f"the rows of output {index} do not stand at its beginning"
    if not probe.reason:
        shrinker = _Shrinker(graph, upper, actual, probe.cut)
        shrinker.run()
        probe.reason = shrinker.reason
    if probe.reason:
        return DynamicRows(actual, upper, frozenset(), nothing, nothing, None, probe.reason)
    inputs = [node for node in graph.nodes if node.op == "input"]
    return DynamicRows(
        actual,
        upper,
        frozenset(probe.rows),
        frozenset(i for i, node in enumerate(inputs) if node in probe.rows),
        frozenset(i for i, node in enumerate(graph.outputs) if node in probe.rows),
        shrinker.finish(),
    )


class _Shrinker(Rewriter):
    """Copies a graph with another number of rows.

    Args:
        old: The graph.
        upper: Its number of rows.
        rows: The new number.
        cut: By node id, operands that do not depend on the inputs but of which only as many rows are
            read (a table of positions); found on the way where it is not known.

    Attributes:
        rows: Nodes of the old graph whose results begin with the rows.
        reason: Set when a node allows no other number of rows.
    """

    def __init__(self, old: Graph, upper: int, count: int, cut: dict[int, tuple[int, ...]]) -> None:
        super().__init__(old)
        self.cut = cut
        self.rows: dict[Node, int] = {}  # leading axis in units of rows
        self.reason = ""
        self._upper, self._count = upper, count

    def run(self) -> None:
        """Copies node by node, up to the first that allows no other number of rows."""
        for node in self.old.nodes:
            if node.op == "input" and node.shape[:1] == (self._upper,):
                shape = (self._count, *node.shape[1:])
                self.replace(node, self.new.input(node.name, shape, node.dtype))
                self.rows[node] = 1
            elif all(self[operand].types == operand.types for operand in node.inputs):
                self.keep(node)
            elif not self._shrink(node):
                return

    def _shrink(self, node: Node) -> bool:
        attrs = dict(node.attrs)
        if node.op in _SHAPED and node.shape and node.shape[0] % self._upper == 0:
            attrs["shape"] = (node.shape[0] // self._upper * self._count, *node.shape[1:])
        tries: Sequence[tuple[int, ...]] = [(), self._fixed(node)]
        if node.id in self.cut:
            tries = [self.cut[node.id]]
        failure: Exception | None = None
        for cut in tries:
            operands = [self[operand] for operand in node.inputs]
            for i in cut:
                operands[i] = self.new.add_node("leading", [operands[i]], {"rows": self._count})
            try:
                new = self.new.add_node(node.opdef, operands, attrs, node.name, node.source)
            except (RlxError, ValueError, IndexError) as error:
                failure = error
                continue
            if new.types == node.types:
                self.reason = f"{node.where()} mixes the rows"
                return False
            self.replace(node, new)
            self.cut[node.id] = cut
            units = self._units(node, new)
            if units:
                self.rows[node] = units
            return True
        first = first_line(failure) if failure else ""
        self.reason = f"{node.where()} has no other number of rows: {first}"
        return False

    def _fixed(self, node: Node) -> tuple[int, ...]:
        """Operands with a row for each of the inputs' that do not depend on them."""
        return tuple(
            i
            for i, operand in enumerate(node.inputs)
            if operand.shape[:1] == (self._upper,) and self[operand].types == operand.types
        )

    def _units(self, node: Node, new: Node) -> int:
        """The leading axis in units of rows, when the results begin with the rows; else 0."""
        units = {self._ratio(old, now) for old, now in zip(node.types, new.types, strict=True)}
        if len(units) != 1 or 0 in units:
            return 0
        (result,) = units
        of_operands = [self.rows.get(operand, 0) for operand in node.inputs]
        changed = [
            units
            for operand, units in zip(node.inputs, of_operands, strict=True)
            if self[operand].types != operand.types
        ]
        if node.op == "reshape":  # row-major order stays, whatever the shape
            return result if changed[0] else 0
        # Joining rows to rows moves the second ones; bringing rows to the front does not.
        return result if result in changed or (result == 1 and not any(changed)) else 0

    def _ratio(self, old: TensorType, new: TensorType) -> int:
        if not old.shape or old.shape[1:] != new.shape[1:]:
            return 0
        units, rest = divmod(old.shape[0], self._upper)
        return units if not rest and new.shape[0] == units * self._count else 0


def scaled(count: int, extent: DynamicRows | None, unit: int = 1) -> int:
    """Returns the part of ``count`` that is left, in proportion to the rows; so many of ``unit`` stay together."""
    if extent is None:
        return count
    whole = count // unit
    return unit * -(-whole * extent.actual // extent.upper)
