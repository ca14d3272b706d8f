"""The verifier: the rules of legal graphs.

- every operand stands before its user and belongs to the same graph, and ids are positions;
- every node's op is registered, and inferring it again gives the recorded shape and dtype;
- a node with several results is the operand of ``part`` only;
- names of inputs and params are unique, and there is at least one output, all of this graph.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextvars import ContextVar

from rlx.errors import GraphError, VerifyError, describe
from rlx.ir.opdef import PART, REGISTRY
from rlx.ir.printer import print_around
from rlx.ir.view import GraphView, NodeView
from rlx.resource_limits import during

# Subgraphs that are checked already, while a graph is: one that stands in many branches is checked once.
_CHECKED: ContextVar[set[GraphView] | None] = ContextVar("checked", default=None)


def verify(graph: GraphView, after: str | None = None) -> None:
    """Checks a graph, and those inside it.

    Args:
        graph: The graph.
        after: The pass that made it, named in the message.

    Raises:
        VerifyError: An invariant does not hold.
    """
    checked = _CHECKED.get()
    if checked is not None:
        if graph not in checked:
            _verify(graph, after)
            checked.add(graph)
        return
    with during(_CHECKED, set()):
        _verify(graph, after)


def _verify(graph: GraphView, after: str | None) -> None:
    origin = f" after pass {after!r}" if after else ""
    for i, node in enumerate(graph.nodes):
        for problem in _problems(graph, i, node):
            raise VerifyError(
                describe(
                    f"graph {graph.name!r} is not legal{origin}: {problem}", where=node.where()
                )
                + "\n"
                + print_around(graph, i)
            )
    names = Counter(node.name for node in graph.nodes if node.op in ("input", "param"))
    for name, count in names.items():
        if count > 1:
            raise VerifyError(f"graph {graph.name!r}{origin}: the name {name!r} is used twice")
    if not graph.outputs:
        what = "has no nodes" if not graph.nodes else "has no outputs"
        raise VerifyError(f"graph {graph.name!r}{origin} {what}", hint="call g.set_outputs([...])")
    for node in graph.outputs:
        if node.graph is not graph or graph.nodes[node.id] is not node:
            raise VerifyError(f"graph {graph.name!r}{origin}: output {node!r} is not in it")
        if len(node.types) > 1:
            raise VerifyError(f"graph {graph.name!r}{origin}: output {node!r} is several values")


def _problems(graph: GraphView, index: int, node: NodeView) -> Iterator[str]:
    if node.id != index or node.graph is not graph:
        yield f"node at position {index} says it is %{node.id} of graph {node.graph.name!r}"
    if REGISTRY.get(node.op) is not node.opdef:
        yield f"op {node.op!r} is not the registered one"
    for operand in node.inputs:
        if operand.graph is not graph:
            yield f"operand %{operand.id} belongs to graph {operand.graph.name!r}"
        elif operand.id >= index or graph.nodes[operand.id] is not operand:
            yield f"operand %{operand.id} does not stand before its user"
        elif len(operand.types) > 1 and node.op != PART:
            yield f"operand %{operand.id} is several values, of which {PART!r} takes one"
    try:
        with graph.inferring():
            inferred = node.opdef.infer(node.opdef.operand_types(node.inputs), dict(node.attrs))
    except GraphError as error:
        yield f"inference fails: {error}"
        return
    types = inferred if isinstance(inferred, tuple) else (inferred,)
    with graph.inferring():
        differs = types != node.types
    if differs:
        yield f"recorded {node.types}, inference says {types}"
