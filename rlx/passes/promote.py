"""Promotion of halves: values of f16 and bf16 between two operations are f32, and are rounded where the graph is left.

A model in f16 is computed as one in f32 then, with casts of its inputs and weights and of its outputs. A square above
65,504 stays finite, and a result does not depend on the operations that share a kernel. Casts of the user round as they
say. With ``precision="f16"`` a value stays narrow where a kernel for halves reads or writes it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from rlx.cost.op_classes import CONTROL
from rlx.ir.dtype import HALVES, DType, widen
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.notes import Note
from rlx.ir.rewrite import Rewriter
from rlx.ir.shape import UPDATE
from rlx.ops.declare import main_dtype
from rlx.ops.placeholders import LEAVES

# Operations whose parts say which types they take, and updates: a state has the type of its input.
_TYPED = CONTROL | {"custom", UPDATE}
# Says whether the kernel of a node of f16 reads and writes halves.
ReadsHalves = Callable[[Node], bool]


def reads_halves(kernel_set: str, precision: str) -> ReadsHalves:
    """Selects the nodes of f16 that a device computes by kernels for halves.

    ``kernel_set`` is "" where the device has other kernels than those of the records.
    """

    def in_set(node: Node) -> bool:
        return DType.F16 in node.opdef.native_dtypes(kernel_set, node)

    def by_record(node: Node) -> bool:
        return node.opdef.webgpu_f16 or node.opdef.units_f16 is not None

    if precision != "f16":
        return lambda node: False
    return in_set if kernel_set else by_record


def promote(graph: Graph, notes: list[Note], halves: ReadsHalves, largest: float) -> Graph:
    """Computes halves in f32 from the operands of the graph to its outputs.

    Operations that move elements move those that they get. Loops, branches and custom operations get the types that
    they ask for. A value of more than ``largest`` bytes stays narrow.
    """
    narrow = _narrow(graph, halves)
    rewriter = _Casts(graph)
    for node in graph.nodes:
        if node.op in LEAVES or node.op == PART or not any(map(_half, node.inputs)):
            rewriter.keep(node)
        elif node.op == "cast":
            rewriter.replace(node, rewriter.cast(node.inputs[0], node.dtype))
        elif node.id in narrow or 4 * node.type.size > largest or not _promotes(node, rewriter):
            rewriter.keep_with(node, [item.dtype for item in node.inputs])
        else:
            rewriter.keep_with(
                node, [DType.F32 if _half(item) else item.dtype for item in node.inputs]
            )
            notes.append(Note.of("promote", node, f" of {main_dtype(node)} is computed in f32"))
    for node in graph.outputs:
        rewriter.replace(node, rewriter.cast(node, node.dtype))
    return rewriter.finish()


class _Casts(Rewriter):
    """A rewriter whose values have other types than before; each value is cast to a type once."""

    def __init__(self, old: Graph) -> None:
        super().__init__(old)
        self._made: dict[tuple[int, DType], Node] = {}

    def keep_with(self, node: Node, dtypes: Sequence[DType]) -> None:
        """Copies a node on operands of these types."""
        pairs = zip(node.inputs, dtypes, strict=True)
        inputs = tuple([self.cast(item, dtype) for item, dtype in pairs])
        self.replace(node, self.new.copy_node(node, inputs))

    def cast(self, old: Node, dtype: DType) -> Node:
        """The new value of an old node as ``dtype``."""
        value = self[old]
        if value.dtype is dtype:
            return value
        key = value.id, dtype
        if key not in self._made:
            if value.op == "constant" and dtype is DType.F32 and len(value.shape) < 2:
                # Patterns look for numbers. A matrix of 16 bits is left to them as it is.
                wide = widen(value.attrs["value"], value.dtype).astype(np.float32)
                self._made[key] = self.new.constant(wide, dtype)
            else:
                attrs = {"dtype": dtype}
                self._made[key] = self.new.add_node("cast", [value], attrs, source=old.source)
        return self._made[key]


def _half(node: Node) -> bool:
    return node.dtype in HALVES


def _moves(node: Node) -> bool:
    """Returns whether an operation only moves halves: its kernels take any type."""
    return main_dtype(node) in node.opdef.dtypes


def _narrow(graph: Graph, halves: ReadsHalves) -> set[int]:
    """The nodes whose results have to be halves: kernels for halves write them, or read them."""
    narrow: set[int] = set()
    for node in reversed(graph.nodes):
        if node.op in LEAVES or node.op == "cast":
            continue
        native = main_dtype(node) is DType.F16 and not _moves(node) and halves(node)
        if native:
            narrow.add(node.id)
        if native or (node.id in narrow and (node.op == PART or _moves(node))):
            narrow.update(item.id for item in node.inputs if _half(item))
    return narrow


def _promotes(node: Node, rewriter: Rewriter) -> bool:
    """Returns whether a node is computed in f32: it can be, and it computes, or it moves an f32 value."""
    if node.op in _TYPED or main_dtype(node) not in HALVES or DType.F32 not in node.opdef.dtypes:
        return False
    return not _moves(node) or any(
        _half(item) and not _half(rewriter[item]) for item in node.inputs
    )
