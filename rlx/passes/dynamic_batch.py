"""The active extent: the same graph on fewer rows, as a dim in place of the leading axis."""

from __future__ import annotations

import copy
from functools import cached_property
from typing import NamedTuple

from rlx.errors import RlxError, first_line
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import TensorType
from rlx.ir.plan import Schedule
from rlx.ir.rewrite import Rewriter
from rlx.ir.shape import UPDATE
from rlx.ir.static_sizes import with_sizes
from rlx.sizes import Assumptions, Dim, SizeExpr

# The name of the dim.
ROWS = "active_rows"
# Schedules for ranges of numbers of rows that are kept.
MAX_SCHEDULES = 32
# Ops whose attribute holds the shape of the result.
_SHAPED = ("reshape", "expand")


class RowsSchedule(NamedTuple):
    """The calls of a graph on fewer rows, for a range of their number or for one.

    Attributes:
        schedule: The calls.
        assumptions: Decides what depends on the number of rows; its guards are those of the range.
    """

    schedule: Schedule
    assumptions: Assumptions

    def serves(self, actual: int) -> bool:
        """Returns whether the calls compute so many rows."""
        return all(guard.holds({ROWS: actual}) for guard in self.assumptions.guards)


class DynamicRows:
    """A rule by which later runs compute fewer rows.

    Args:
        upper: Rows that there is room for.
        sized: The compiled graph with a dim for the rows; None where that can't be: an op allows only ``upper`` or mixes
            the rows, or an output's rows do not stand one after the other. All rows are computed then.
        rows: Nodes of the compiled graph whose results begin with what is computed: their memory up to
            ``actual / upper`` of its size.
        inputs: Positions of the inputs that hold rows.
        outputs: Positions of the outputs that begin with them.
        reason: Why there is no such graph.

    Attributes:
        actual: Rows that are computed.
        ranges: Whether calls may serve ranges of numbers of rows; some need the number.
        schedules: The calls of these ranges, for backends that run fewer rows as other calls.
        schedule: Those of ``actual``.
    """

    def __init__(
        self,
        upper: int,
        sized: Graph | None,
        rows: frozenset[Node] = frozenset(),
        inputs: frozenset[int] = frozenset(),
        outputs: frozenset[int] = frozenset(),
        reason: str = "",
    ) -> None:
        self.upper: int = upper
        self.actual: int = upper
        self.sized: Graph | None = sized
        self.rows: frozenset[Node] = rows
        self.inputs: frozenset[int] = inputs
        self.outputs: frozenset[int] = outputs
        self.reason: str = reason
        self.ranges: bool = True
        self.schedules: list[RowsSchedule] = []
        self.schedule: RowsSchedule | None = None

    def of(self, actual: int) -> DynamicRows:
        """Returns the rule for another number of rows."""
        result = copy.copy(self)
        result.__dict__.pop("graph", None)
        result.actual, result.schedule = actual, None
        return result

    @cached_property
    def graph(self) -> Graph | None:
        """The compiled graph on ``actual`` rows; None where all are computed."""
        try:
            return self.sized and with_sizes(self.sized, {ROWS: self.actual})
        except RlxError as error:
            self.reason = f"an operation has no {self.actual} rows: {first_line(error)}"
            return None


def dynamic_rows_of(graph: Graph, actual: int, upper: int) -> DynamicRows:
    """Derives the part of a compiled graph that runs if its inputs hold ``actual`` rows instead of ``upper``."""
    if graph.uses(UPDATE):
        return DynamicRows(upper, None, reason="an update of a state computes all rows").of(actual)
    shrinker = _Shrinker(graph, upper)
    with shrinker.new.deciding():
        shrinker.run()
        for index, node in enumerate(() if shrinker.reason else graph.outputs):
            if node.type != shrinker[node].type and node not in shrinker.rows:
                shrinker.reason = f"the rows of output {index} do not stand at its beginning"
    if shrinker.reason:
        return DynamicRows(upper, None, reason=shrinker.reason).of(actual)
    # Its guards say that no other size is a number of rows; inference decides anew for each.
    shrinker.new.assumptions = Assumptions({ROWS: upper}, ones=True)
    inputs = [node for node in graph.nodes if node.op == "input"]
    return DynamicRows(
        upper,
        shrinker.finish(),
        frozenset(shrinker.rows),
        frozenset(i for i, node in enumerate(inputs) if node in shrinker.rows),
        frozenset(i for i, node in enumerate(graph.outputs) if node in shrinker.rows),
    ).of(actual)


class _Shrinker(Rewriter):
    """Copies a graph with a dim for its number of rows.

    Args:
        old: The graph.
        upper: Its number of rows.

    Attributes:
        rows: Nodes of the old graph whose results begin with the rows, with their leading axis in units of rows.
        reason: Set when a node allows no other number of rows.
    """

    def __init__(self, old: Graph, upper: int) -> None:
        super().__init__(old)
        self.rows: dict[Node, int] = {}
        self.reason = ""
        self._upper, self._count = upper, Dim(ROWS, max=upper)
        # The number of rows plus one is no other dimension's size, and does not broadcast.
        self.new.assumptions = Assumptions({ROWS: upper + 1})

    def run(self) -> None:
        """Copies node by node, up to the first that allows no other number of rows."""
        for node in self.old.nodes:
            if node.op == "input" and node.shape[:1] == (self._upper,):
                shape: tuple[int | SizeExpr, ...] = (self._count, *node.shape[1:])
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
        failure: Exception | None = None
        # Operands that do not depend on the inputs may have to be cut: a table of positions.
        for cut in ((), self._fixed(node)):
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
