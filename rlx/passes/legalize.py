"""Graph -> Graph whose nodes have kernels: narrow types computed in wider ones; what is left, and why.

Storage stays narrow: the casts that are put in join the elementwise regions around them.
"""

from __future__ import annotations

from collections.abc import Iterable

from rlx.errors import UnsupportedOpError
from rlx.ir.dtype import HALVES, WIDER, DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.notes import Note
from rlx.ir.opdef import NO_F64
from rlx.ir.rewrite import Rewriter, subgraphs
from rlx.ops.declare import main_dtype, operand_names
from rlx.ops.elementwise.table import ROUNDED_ONCE
from rlx.ops.placeholders import LEAVES
from rlx.passes.fusion_gate import Specialisation

# Where elements of bool share words, few kernels take them.
_WIDER_IN_WORDS = {**WIDER, DType.BOOL: DType.I32}


def widened(node: Node, kernel_set: str) -> DType | None:
    """The dtype that a node is computed in instead of its own, or None when it need not or can't be."""
    taken, main = node.opdef.native_dtypes(kernel_set, node), main_dtype(node)
    wide = (WIDER if KERNEL_SETS[kernel_set].every_dtype else _WIDER_IN_WORDS).get(main)
    return wide if main not in taken and wide in taken else None


def blocked(node: Node, kernel_set: str) -> str | None:
    """Why a node has no kernel on a device even when it is widened; None when it has one."""
    opdef, kernels = node.opdef, KERNEL_SETS[kernel_set]
    if opdef.view or node.op in LEAVES:
        return None
    if node.op == "cast":
        stored = {node.dtype, node.inputs[0].dtype}
        return NO_F64 if not kernels.every_dtype and DType.F64 in stored else None
    reason = opdef.host_reason(node) if opdef.host_reason and not kernels.on_host else None
    if reason is not None:
        return reason
    if opdef.kernels(kernel_set) is None:
        return "no kernel"
    graphs = dict.fromkeys(subgraphs(node))
    for inside in (inner for graph in graphs for inner in graph.nodes):
        if (reason := blocked(inside, kernel_set)) is not None:
            return f"{inside.op} in its subgraph: {reason}"
    if graphs:
        return None
    main = main_dtype(node)
    if main in opdef.native_dtypes(kernel_set, node) or widened(node, kernel_set) is not None:
        return None
    return NO_F64 if main is DType.F64 else f"no kernel for {main}"


def refuse_unready(graphs: Iterable[Graph], kernel_set: str) -> None:
    """Checks that graphs out of a file need nothing of this pass: a node's kernels take its dtype.

    Raises:
        UnsupportedOpError: A node has no kernel, or would have to be widened.
    """
    for node in (node for graph in graphs for node in graph.nodes):
        # Steps of a region have a loop each, for the types that they have, or are refused by the linker.
        if node.opdef.view or node.op in (*LEAVES, "cast", "region"):
            continue
        reason = blocked(node, kernel_set) if KERNEL_SETS[kernel_set].on_host else None
        if reason is None and widened(node, kernel_set) is not None:
            reason = f"no kernel for {main_dtype(node)}"
        if reason is not None:
            raise UnsupportedOpError(f"[{node.op}] {reason}", where=node.where())


def has_other_dtypes(graph: Graph, kernel_set: str) -> bool:
    """Returns whether ``legalize`` may change nodes: casts, parts, and those whose kernels don't take their dtype."""
    return any(
        node.op in ("cast", PART) or (not node.opdef.view and widened(node, kernel_set) is not None)
        for node in graph.nodes
        if node.op not in LEAVES
    )


def legalize(graph: Graph, notes: list[Note], target: Specialisation) -> Graph:
    """Puts casts around nodes whose kernels don't take their dtype."""
    kernel_set = target.kernel_set
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        wide = None if node.opdef.view or node.op in LEAVES else widened(node, kernel_set)
        if node.op == "cast" and KERNEL_SETS[kernel_set].signatures:
            rewriter.replace(node, _cast_chain(rewriter, node))
        elif node.op == PART:
            rewriter.replace(node, _cast(rewriter.keep(node), node.dtype))
        elif wide is None or blocked(node, kernel_set):
            rewriter.keep(node)
        else:
            _widen(rewriter, node, wide)
            said = f" of {main_dtype(node)} is computed in {wide}"
            notes.append(Note.of("legalize", node, said))
    return rewriter.finish()


def _widen(rewriter: Rewriter, node: Node, wide: DType) -> None:
    """Puts casts around a node that is computed in a wider type."""
    main = main_dtype(node)
    names = operand_names(node)
    inputs = []
    for name, operand in zip(names, node.inputs, strict=True):
        new = rewriter[operand]
        if name not in node.opdef.free and operand.dtype is main:
            new = _cast(new, wide)
        inputs.append(_cast(new, DType.F32) if operand.dtype in HALVES else new)
    result = rewriter.new.add_node(node.opdef, inputs, node.attrs, node.name, node.source)
    several = len(node.types) > 1
    rewriter.replace(node, result if several else _cast(result, node.dtype))


def _cast(node: Node, dtype: DType) -> Node:
    """The node as ``dtype``: itself where it is that already."""
    if node.dtype is dtype:
        return node
    return node.graph.add_node("cast", [node], {"dtype": dtype}, source=node.source)


def _cast_chain(rewriter: Rewriter, node: Node) -> Node:
    """A cast from or to a narrow type goes through the type that computes for it."""
    value = rewriter[node.inputs[0]]
    source, target = value.dtype, node.dtype
    once = (str(source), str(target)) in ROUNDED_ONCE
    for through in () if once else (WIDER.get(source), WIDER.get(target)):
        # The last step of a cast from a narrow type to its own wide one is the cast itself.
        if through is not None and through is not target:
            value = _cast(value, through)
    result = _cast(value, target)
    if result is rewriter[node.inputs[0]]:
        return result
    result.source = node.source
    return result
