"""Compares a model's graphs for several shapes: can the largest do the work of the others, and with which masks?"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import PART, Array
from rlx.passes.masking import contraction_rules as contraction_rules
from rlx.passes.masking import movement_rules as movement_rules
from rlx.passes.masking.dim_sizes import Axes, Factor, UnmaskableError
from rlx.passes.masking.rules import At, MaskStep, fixed_step, step_of


@dataclass(frozen=True)
class Study:
    """The masks with which the padded graph gives the results of the last graph.

    Attributes:
        graph: The padded graph.
        steps: The step for each of its nodes.
        lengths: Sizes in the padded graph and in one more, by which a length is known; and its place in ``values``.
        values: The lengths of the last graph, i32.
        outputs: The axes of each output.
    """

    graph: Graph
    steps: tuple[MaskStep, ...]
    lengths: dict[tuple[int, ...], int]
    values: Array
    outputs: tuple[Axes, ...]

    def axes(self, node: int) -> Axes:
        """The axes of the first result of a node."""
        return self.steps[node].results[0]

    def signature(self) -> Any:
        """Returns the key of a study. Studies of a padded graph with equal keys share one masked graph."""
        return tuple((_stripped(step.results), *step[1:]) for step in self.steps), tuple(
            self.lengths
        )


def study(graphs: Sequence[Graph]) -> Study:
    """Studies graphs of one model.

    They are the padded graph; one of the smallest shapes that it is for; and the one whose results it is to give.

    Raises:
        UnmaskableError: Padding would change results, or the graphs differ in more than sizes.
    """
    first = graphs[0]
    if len({len(graph.nodes) for graph in graphs}) > 1:
        raise UnmaskableError("the model has different nodes for different shapes")
    steps: list[MaskStep] = []
    # Nodes of which no result has padding.
    fixed: list[bool] = []
    for nodes in zip(*[graph.nodes for graph in graphs], strict=True):
        node = nodes[0]
        if not all([_alike(item, node) for item in nodes[1:]]):
            raise UnmaskableError(f"{node.where()} is a different node for different shapes")
        try:
            step = None
            if all([fixed[operand.id] for operand in node.inputs]):
                step = fixed_step(nodes)
            fixed.append(step is not None)
            if step is None:
                operands = [steps[operand.id].results[0] for operand in node.inputs]
                if node.op == PART:
                    operands = [steps[node.inputs[0].id].results[node.attrs["index"]]]
                step = step_of(At(nodes, operands))
        except UnmaskableError as error:
            raise UnmaskableError(f"{node.where()} {error}") from None
        steps.append(step)
    args = [[output.id for output in graph.outputs] for graph in graphs]
    if any(item != args[0] for item in args[1:]):
        raise UnmaskableError("the model has different outputs for different shapes")
    lengths: dict[tuple[int, ...], int] = {}
    values: list[int] = []
    for step, same in zip(steps, fixed, strict=True):
        for factor in () if same else _factors(step):
            _learn(factor, lengths, values)
    outputs = tuple(steps[node.id].results[0] for node in first.outputs)
    return Study(first, tuple(steps), lengths, np.array(values, np.int32), outputs)


def _alike(first: Node, other: Node) -> bool:
    """Returns whether two nodes have the same place in their graphs."""
    if first.opdef is not other.opdef or len(first.inputs) != len(other.inputs):
        return False
    for a, b in zip(first.inputs, other.inputs, strict=True):
        if a.id != b.id:
            return False
    if not first.inputs and first.op in ("input", "param") and first.name != other.name:
        return False
    if first.types == other.types:
        return True
    return [type.dtype for type in first.types] == [type.dtype for type in other.types]


def _factors(step: MaskStep) -> list[Factor]:
    return [factor for axes in step.results for axis in axes for factor in axis if factor.varies]


def _learn(factor: Factor, lengths: dict[tuple[int, ...], int], values: list[int]) -> None:
    """Gives a length a place: those of equal size in the first graphs are one, if the last graph agrees."""
    if any(size > factor.sizes[0] for size in factor.sizes):
        raise UnmaskableError("a length is greater than that of the padded graph")
    key = factor.sizes[:-1]
    index = lengths.setdefault(key, len(values))
    if index == len(values):
        values.append(factor.sizes[-1])
    elif values[index] != factor.sizes[-1]:
        raise UnmaskableError("two lengths are equal for some shapes and differ for others")


def _stripped(results: Sequence[Axes]) -> Any:
    """Returns the axes without the facts that only the last graph gives."""
    return tuple(
        tuple(tuple((factor.sizes[:-1], factor.varies) for factor in axis) for axis in axes)
        for axes in results
    )
