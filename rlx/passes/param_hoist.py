"""Hoisting: nodes of params alone are computed when the params are set, not in every run.

So is, when the graph is loaded, what depends on constants alone and was too large to be folded.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.notes import Note
from rlx.ir.opdef import TensorType
from rlx.ir.plan import Preparation
from rlx.ir.rewrite import Rewriter, reached, users
from rlx.ops.fold_cost import effort
from rlx.ops.placeholders import LEAVES
from rlx.passes.simplify import FOLD_LIMIT_BYTES
from rlx.resource_limits import charge

# Prefix of the names of prepared params. No param of a user can have it.
PREPARED = "prepared:"
# Most work that is done with constants alone when a graph is loaded, in elements: some seconds.
_MAX_CONSTANT = 2.0**34
# The largest result of that work, in bytes. It may be larger if it is at most this many times its largest constant.
_MAX_CONSTANT_BYTES, _GROWS = 1 << 29, 4


@dataclass(frozen=True)
class Hoisted:
    """A graph in two parts.

    Attributes:
        graph: The graph of every run. Its params are some of the original ones, and prepared ones.
        preparations: The graphs that compute those; no two read the same param.
    """

    graph: Graph
    preparations: tuple[Preparation, ...] = ()


def hoist(graph: Graph, notes: list[Note]) -> Hoisted:
    """Separates the nodes of params alone from the nodes of inputs.

    Views stay with their readers: they cost nothing. An output that depends on params alone is computed with the others.

    Args:
        graph: The graph; it is not changed.
        notes: Gets a line for every prepared param.
    """
    run, frontier = _parted(graph, notes)
    results = tuple(
        Preparation(_preparing(graph, nodes), tuple(f"{PREPARED}{node.id}" for node in nodes))
        for nodes in _together(frontier)
    )
    return Hoisted(run, results)


def run_part(graph: Graph) -> Graph:
    """Returns the part of a graph that every run computes: ``hoist(graph, []).graph``."""
    return _parted(graph, [])[0]


def _parted(graph: Graph, notes: list[Note]) -> tuple[Graph, list[Node]]:
    """Splits a graph into the part that every run computes, and the nodes that are its prepared params."""
    fixed = _fixed(graph)
    readers = users(graph)
    outputs = {node.id for node in graph.outputs}
    frontier = [
        node
        for node in graph.nodes
        if node.id in fixed
        and node.op not in LEAVES
        and (node.id in outputs or any(reader.id not in fixed for reader in readers[node.id]))
    ]
    # A view of a param costs nothing, so it is not worth preparing.
    frontier = [node for node in frontier if not _only_views(node)]
    if not frontier:
        return graph, []
    rewriter = Rewriter(graph)
    by_id = {node.id: f"{PREPARED}{node.id}" for node in frontier}
    needed = reached(graph.outputs, lambda node: () if node.id in by_id else node.inputs)
    for node in graph.nodes:
        if node.id in by_id:
            new = rewriter.new.param(by_id[node.id], node.shape, node.dtype)
            new.source = node.source
            rewriter.replace(node, new)
            why = "is constant, computed once"
            if any(item.op == "param" for item in reached([node]).values()):
                why = "depends on params alone, computed when they are set"
            notes.append(Note.of("hoist", node, f" {why}"))
        elif node.id in needed or node.op == "input":
            rewriter.keep(node)
    return rewriter.finish(), frontier


def _fixed(graph: Graph) -> set[int]:
    """Nodes that depend on params alone, or on constants alone where those are not folded for their size."""
    fixed: set[int] = set()
    # Bytes of the largest constant that they depend on.
    constant: dict[int, int] = {}
    left = _MAX_CONSTANT
    for node in graph.nodes:
        if node.op == "param":
            fixed.add(node.id)
        elif node.op == "constant":
            constant[node.id] = node.type.nbytes
        elif node.inputs and all(o.id in fixed or o.id in constant for o in node.inputs):
            if len(node.types) > 1 or node.op == PART or node.op == "custom" or node.is_sized:
                continue  # several results are no param, and a custom op may be watched by its owner
            work = effort(node)
            if work == math.inf:
                continue  # nobody can tell whether such a loop ends
            if any(o.id not in constant for o in node.inputs):
                fixed.add(node.id)
                continue
            # A few numbers in a file must not become gigabytes, or hours, before anything runs.
            left -= work
            below = max(constant[o.id] for o in node.inputs)
            if left < 0 or node.type.nbytes > max(_MAX_CONSTANT_BYTES, _GROWS * below):
                continue
            constant[node.id] = below
            if node.type.nbytes > FOLD_LIMIT_BYTES or any(o.id in fixed for o in node.inputs):
                fixed.add(node.id)
    return fixed


def _only_views(node: Node) -> bool:
    while node.opdef.view and node.inputs:
        node = node.inputs[0]
    return node.op in LEAVES


def _together(frontier: list[Node]) -> list[list[Node]]:
    """Nodes that share a param, directly or by others, stand in one list."""
    # The list that a param belongs to; lists that turn out to share one are joined.
    group_of: dict[int, list[Node]] = {}
    params_of: dict[int, set[int]] = {}
    groups: dict[int, list[Node]] = {}
    for node in frontier:
        below = reached([node])
        charge("preparing params", elements=len(below))
        params = {key for key, value in below.items() if value.op == "param"}
        joined = [node]
        for param in list(params):
            group = group_of.get(param)
            if group is not None and id(group) in groups:
                del groups[id(group)]
                params |= params_of.pop(id(group))
                joined = group + joined
        groups[id(joined)], params_of[id(joined)] = joined, params
        group_of.update(dict.fromkeys(params, joined))
    return [sorted(nodes, key=lambda node: node.id) for nodes in groups.values()]


def _preparing(graph: Graph, frontier: list[Node]) -> Graph:
    """Returns the graph that is computed when params are set."""
    new = Graph(f"{graph.name}, when params are set")
    copies: dict[int, Node] = {}
    for i, node in sorted(reached(frontier).items()):
        if node.op == "param":
            copies[i] = new.stand_in("input", node.name, node)
        else:
            copies[i] = new.copy_node(node, tuple([copies[o.id] for o in node.inputs]))
    new.set_outputs([copies[node.id] for node in frontier])
    return new


def check_fit(graph: Graph, lowered: Graph, preparations: Sequence[Preparation]) -> None:
    """Checks that the graph of every run and its preparations, which may come out of a file, fit the whole graph.

    Raises:
        InputError: Inputs, params or outputs differ.
    """
    params = {name: graph.named(name).type for name in graph.param_names}
    left = {name: lowered.named(name).type for name in lowered.param_names}
    results: dict[str, TensorType] = {}
    read: set[str] = set()
    for preparation in preparations:
        inputs = {
            name: preparation.graph.named(name).type for name in preparation.graph.input_names
        }
        outputs = dict(
            zip(preparation.names, (node.type for node in preparation.graph.outputs), strict=True)
        )
        fits = not preparation.graph.param_names and len(outputs) == len(preparation.names)
        # The groups read different params and make different results.
        if not fits or inputs.keys() & read or outputs.keys() & results.keys():
            raise InputError("a plan's preparations do not fit", got=preparation.names)
        if not inputs.items() <= params.items():
            raise InputError("a plan prepares from params that its graph lacks", got=sorted(inputs))
        read |= inputs.keys()
        results |= outputs
    own = left.keys() - results.keys()
    # Params that nothing needs are left out only if something is prepared.
    missing = params.keys() - own - read if not preparations else ()
    if results.keys() & params.keys() or not (results | params).items() >= left.items() or missing:
        raise InputError("the params of a plan differ from its graph's", got=sorted(left))
    if not results.items() <= left.items():
        raise InputError("a plan prepares values that it does not read", got=sorted(results))
    check_same(graph, lowered)


def check_same(left: Graph, other: Graph) -> None:
    """Checks that two graphs have inputs of the same names and types, and outputs of the same types.

    Raises:
        InputError: They have not.
    """
    first, second = (
        [[(name, graph.named(name).type) for name in graph.input_names],
         [node.type for node in graph.outputs]]
        for graph in (left, other)
    )  # fmt: skip
    if first != second:
        raise InputError(
            "the inputs or outputs of a plan's graph differ", got=other.name, expected=left.name
        )
