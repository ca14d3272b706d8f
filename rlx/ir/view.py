"""Protocols of nodes and graphs for printing, checking and writing.

``graph.py`` offers printing, checking and writing as methods, so it imports them. They therefore know its classes by
these protocols only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol, runtime_checkable

from rlx.ir.opdef import Array, OpDef, TensorType
from rlx.sizes import Assumptions


class NodeView(Protocol):
    """A node, to be read; see ``rlx.ir.graph.Node``."""

    @property
    def id(self) -> int:
        """Position in the graph."""

    @property
    def name(self) -> str:
        """Name or label."""

    @property
    def op(self) -> str:
        """Name of the operation."""

    @property
    def opdef(self) -> OpDef:
        """Record of the operation."""

    @property
    def attrs(self) -> Mapping[str, Any]:
        """Attributes by name."""

    @property
    def inputs(self) -> Sequence[NodeView]:
        """Operands."""

    @property
    def given(self) -> Mapping[str, Any] | None:
        """Attributes as they were given, in a graph with dims."""

    @property
    def types(self) -> tuple[TensorType, ...]:
        """Shape and dtype of every result."""

    @property
    def graph(self) -> GraphView:
        """The graph that owns it."""

    def where(self) -> str:
        """Returns the node's name for messages."""


@runtime_checkable
class GraphView(Protocol):
    """A graph, to be read; see ``rlx.ir.graph.Graph``."""

    @property
    def name(self) -> str:
        """Its label."""

    @property
    def nodes(self) -> Sequence[NodeView]:
        """Its nodes in topological order."""

    @property
    def outputs(self) -> Sequence[NodeView]:
        """The results of a run."""

    @property
    def param_values(self) -> Mapping[str, Array]:
        """Values of params."""

    @property
    def assumptions(self) -> Assumptions | None:
        """The assumptions about its dims; None without dims."""

    def inferring(self) -> AbstractContextManager[None]:
        """Has comparisons of sizes be decided as the graph assumes."""


def graph_param_names(graph: GraphView) -> list[str]:
    """Names of the params of a graph in declaration order.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> _ = g.param("w", (2,))
        >>> rlx.graph_param_names(g)
        ['w']
    """
    return [node.name for node in graph.nodes if node.op == "param"]
