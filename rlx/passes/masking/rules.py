"""For each operation, whether padding along an axis reaches results that are no padding, and the mask that keeps it away.

A rule sees one node in several graphs of a model, made for different shapes. The first graph is the padded one. Of each
operand it knows which elements are padding; they may hold anything. It gives the same for the results, and the
operands that have to be masked. It must hold that the valid part of every result is the result of the other graphs.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType
from rlx.passes.masking.dim_sizes import (
    Axes,
    Axis,
    UnmaskableError,
    result_sizes,
    sizes_of,
    varies,
    whole,
)


class Mask(NamedTuple):
    """A mask of an operand.

    Attributes:
        operand: Its position.
        axis: The axis along which padding is replaced.
        fill: Its replacement: "zero", "one", "low" or "high" (the least and the greatest value of the dtype), or
            the position of the operand that holds the value.
    """

    operand: int
    axis: int
    fill: str | int = "zero"


class MaskStep(NamedTuple):
    """The treatment of a node in the masked graph.

    Attributes:
        results: The axes of each result.
        masks: The masks before it.
        special: The rule that replaces a copy (``mask_rewrite.py``); "" for a copy.
        axis: The axis that this is about.
        clean: Axes of the first result along which padding is 0.
    """

    results: tuple[Axes, ...]
    masks: tuple[Mask, ...] = ()
    special: str = ""
    clean: frozenset[int] = frozenset()
    axis: int = 0


class At:
    """A node in each of the graphs, and the axes of its operands."""

    def __init__(self, nodes: Sequence[Node], operands: Sequence[Axes]) -> None:
        self.nodes, self.operands = nodes, operands
        self.node = nodes[0]
        self.count = len(nodes)

    @property
    def padded(self) -> bool:
        """True if an operand has padding."""
        return any(varies(axis) for axes in self.operands for axis in axes)

    def attr(self, name: str) -> Any:
        """An attribute that all graphs share.

        Raises:
            UnmaskableError: They do not.
        """
        if any(not same(node.attrs[name], self.node.attrs[name]) for node in self.nodes[1:]):
            raise UnmaskableError(f"has a different {name} for different shapes")
        return self.node.attrs[name]

    def same_but(self, *names: str) -> None:
        """Checks that all graphs share all attributes but these."""
        for name in self.node.attrs:
            if name not in names:
                self.attr(name)

    def sizes(self, result: int = 0) -> list[tuple[int, ...]]:
        """Per axis of a result, its size in each graph."""
        return result_sizes(self.nodes, result)

    def fixed(self, operand: int, axes: Sequence[int] | None = None) -> None:
        """Checks that an operand has no padding, along these axes or at all."""
        if operand < len(self.operands):
            result = self.operands[operand]
            for axis in range(len(result)) if axes is None else axes:
                if varies(result[axis]):
                    raise UnmaskableError(
                        f"mixes the elements along axis {axis} of operand {operand}"
                    )

    def countable(self) -> None:
        """Checks that the node's dtype holds numbers of elements."""
        if self.node.dtype.itemsize < 4:
            raise UnmaskableError(
                f"divides by a length in {self.node.dtype}, which may not hold it"
            )

    def masks(
        self, operand: int, axes: Sequence[int], fill: str | int = "zero"
    ) -> tuple[Mask, ...]:
        """Masks of an operand, of those of the axes that are padded."""
        return tuple(Mask(operand, a, fill) for a in axes if varies(self.operands[operand][a]))


# Why axes that stand for different lengths, or for the same ones in another order, can't be joined.
ORDERS = "joins operands whose elements stand in different orders"

Rule = Callable[[At], MaskStep]
RULES: dict[str, Rule] = {}


def rule(*names: str) -> Callable[[Rule], Rule]:
    """Registers the rule of operations."""

    def register(result: Rule) -> Rule:
        for name in names:
            RULES[name] = result
        return result

    return register


def same(a: Any, b: Any) -> bool:
    """Returns whether attributes are equal; arrays by their contents, subgraphs by their text."""
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        if (a.shape, a.dtype, a.strides) == (b.shape, b.dtype, b.strides) and _place(a) == _place(
            b
        ):
            return True
        return a.shape == b.shape and a.dtype == b.dtype and _same_bits(a, b)
    if isinstance(a, Graph) and isinstance(b, Graph):
        return a is b or a.to_json() == b.to_json()
    if isinstance(a, Mapping) and isinstance(b, Mapping):
        return a.keys() == b.keys() and all(same(a[name], b[name]) for name in a)
    return bool(a == b)


def _same_bits(a: Array, b: Array) -> bool:
    """Returns whether arrays of one shape and dtype hold the same bytes, NaN too; contiguous ones aren't copied."""
    word = np.uint64 if a.nbytes % 8 == 0 else np.uint8
    flat = [np.ascontiguousarray(item).reshape(-1).view(np.uint8).view(word) for item in (a, b)]
    return bool((flat[0] == flat[1]).all())


def _place(array: Array) -> Any:
    return array.__array_interface__["data"]


def fixed_step(nodes: Sequence[Node]) -> MaskStep | None:
    """The step of nodes that are the same in all graphs, whose operands have no padding; None if they are not."""
    first = nodes[0]
    for node in nodes[1:]:
        if node.types != first.types:
            return None
        for name, value in node.attrs.items():
            other = first.attrs[name]
            if value is not other and not same(value, other):
                return None
    if first.op == "param" and not same_values(nodes):
        raise UnmaskableError("has different values for different shapes")
    return _fixed(first.types, len(nodes))


@functools.lru_cache(maxsize=4096)
def _fixed(types: tuple[TensorType, ...], count: int) -> MaskStep:
    return MaskStep(tuple(tuple(whole((size,) * count) for size in type.shape) for type in types))


def same_values(nodes: Sequence[Node]) -> bool:
    """Returns whether a param has the same value in all graphs."""
    values = [node.graph.param_values.get(node.name) for node in nodes]
    return all(value is values[0] or same(value, values[0]) for value in values)


def step_of(position: At) -> MaskStep:
    """Returns the treatment of a node.

    Raises:
        UnmaskableError: Padding would reach what is no padding.
    """
    name = "elementwise" if position.node.opdef.elementwise else position.node.op
    output = RULES.get(name)
    if output is None:
        if position.padded:
            raise UnmaskableError("has no rule for padding")
        position.same_but()
        return MaskStep(
            tuple(tuple(map(whole, position.sizes(r))) for r in range(len(position.node.types)))
        )
    step = output(position)
    for result, axes in enumerate(step.results):
        if [sizes_of(axis, position.count) for axis in axes] != position.sizes(result):
            raise UnmaskableError("has result sizes that do not follow from its operands")
    return step


def one(axes: Sequence[Axis], masks: Sequence[Mask] = (), special: str = "") -> MaskStep:
    """A step of one result."""
    return MaskStep((tuple(axes),), tuple(masks), special)


def aligned(operands: Sequence[Axes], rank: int) -> list[Axis]:
    """Axes of operands that are broadcast against each other, their last ones aligned.

    Raises:
        UnmaskableError: Elements that meet are valid in different orders.
    """
    results = []
    for back in range(rank, 0, -1):
        args = {axes[-back] for axes in operands if len(axes) >= back and axes[-back]}
        if len(args) > 1:
            raise UnmaskableError(ORDERS)
        results.append(args.pop() if args else ())
    return results


def one_factor(axis: Axis) -> None:
    """Checks that the valid part of an axis comes first.

    Raises:
        UnmaskableError: Several lengths stand in it.
    """
    if len(axis) > 1 and varies(axis):
        raise UnmaskableError("slices merged axes")


def places(node: Node) -> dict[str, int]:
    """By name, the positions of operands that a node may have and has."""
    names = [name for name in node.opdef.optional if name in node.attrs["present"]]
    first = len(node.inputs) - len(names)
    return {name: first + i for i, name in enumerate(names)}
