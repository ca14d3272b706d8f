"""Finds the values that stay on a GPU between the segments of a graph, without a way over the host."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from rlx.compiler.segments import Segment
from rlx.ir.graph import Graph, Node
from rlx.ir.shape import estimated
from rlx.sizes import Assumptions, deciding

# Smaller values, in bytes, go over the host in no more time than they would take on the device.
_SMALL = 1 << 16


class DeviceValues(NamedTuple):
    """The ids of nodes whose values go from segment to segment on the device.

    Attributes:
        taken: Those that segments of the device take there, and those that these are the beginning of.
        brought: Those that the host needs.
    """

    taken: frozenset[int]
    brought: frozenset[int]


NO_VALUES = DeviceValues(frozenset(), frozenset())


def device_values(graph: Graph, segments: Sequence[Segment]) -> DeviceValues:
    """Returns the values that stay on the device, for the segments of a graph.

    Args:
        graph: The graph.
        segments: Its segments. Those that are not ahead run on a device with ``Capabilities.gpu_buffers``.
    """
    assert graph.assumptions is not None
    own = [each for each in segments if each.graph is not None and not each.ahead]
    sources = beginnings(segments)
    written = {i for each in own for i in each.writes}
    read = {i for each in own for i in each.reads if isinstance(i, int)}
    with deciding(Assumptions(graph.assumptions.hints)):
        large = {i for i in read if _nbytes(graph.nodes[i]) >= _SMALL}
    taken = frozenset(i for i in large if source_of(i, sources) in written)
    host = {node.id for node in graph.outputs} | (read - taken)
    for each in segments:
        host.update(size.node for size in each.sizes)
        host.update(i for control in each.controls for i in control.operands)
        if each.ahead:
            host.update(i for i in each.reads if isinstance(i, int))
    return DeviceValues(_with_sources(taken, sources), _with_sources(host, sources))


def beginnings(segments: Iterable[Segment]) -> dict[int, int]:
    """Returns the ids of the nodes that are the beginning of a value, with the id of that one."""
    return {prefix.node: prefix.source for each in segments for prefix in each.prefixes}


def _nbytes(node: Node) -> float:
    return math.prod((float(estimated(size)) for size in node.shape), start=node.dtype.itemsize)


def source_of(node: int, sources: Mapping[int, int]) -> int:
    """Returns the value that a node is the beginning of; the node where it is none."""
    while node in sources:
        node = sources[node]
    return node


def _with_sources(nodes: Iterable[int], sources: Mapping[int, int]) -> frozenset[int]:
    """Nodes, and what they are the beginning of."""
    result, pending = set[int](), list(nodes)
    while pending:
        node = pending.pop()
        if node not in result:
            result.add(node)
            pending += [sources[node]] if node in sources else []
    return frozenset(result)
