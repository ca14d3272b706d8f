"""Lengths along axes: the sizes that the same axis has in several graphs of one model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from rlx.ir.graph import Node
from rlx.ir.opdef import Array

# The input of a masked graph that holds the lengths, i32.
LENGTHS = "rlx.lengths"


class UnmaskableError(Exception):
    """Padding would change the results. The text says which node sees it."""


class Factor(NamedTuple):
    """A part of an axis.

    An axis of ``batch * length`` has two factors. Elements of a factor that are valid come first.

    Attributes:
        sizes: Its size in each of the graphs; the first is the padded one.
    """

    sizes: tuple[int, ...]

    @property
    def varies(self) -> bool:
        """True if the graphs differ in it: a part of it is padding then."""
        return len(set(self.sizes)) > 1


# Factors of an axis, the outermost first, in normal form (``normal``). Of an axis of size 1 there are none.
Axis = tuple[Factor, ...]
Axes = tuple[Axis, ...]


def normal(factors: Iterable[Factor]) -> Axis:
    """Factors with as few of them as possible.

    A fixed factor joins the one before it: the first ``n * 4`` elements of ``m * 4`` are what rows of 4 leave of ``m``
    when ``n`` of them are valid.
    """
    results: list[Factor] = []
    for factor in factors:
        if all(size == 1 for size in factor.sizes):
            continue
        if results and not factor.varies:
            results[-1] = Factor(_times(results[-1].sizes, factor.sizes))
        else:
            results.append(factor)
    return tuple(results)


def whole(sizes: Sequence[int]) -> Axis:
    """An axis that is one factor."""
    return normal([Factor(tuple(sizes))])


def varies(axis: Axis) -> bool:
    """Returns whether a part of an axis is padding."""
    return any(factor.varies for factor in axis)


def sizes_of(axis: Axis, count: int) -> tuple[int, ...]:
    """The size of an axis in each of ``count`` graphs."""
    return tuple(math.prod(factor.sizes[i] for factor in axis) for i in range(count))


def result_sizes(nodes: Sequence[Node], result: int = 0) -> list[tuple[int, ...]]:
    """Per axis of a result, its size in each graph.

    Raises:
        UnmaskableError: The graphs differ in the rank.
    """
    shapes = [node.types[result].shape for node in nodes]
    if len({len(shape) for shape in shapes}) > 1:
        raise UnmaskableError("has a different number of dimensions for different shapes")
    return list(zip(*shapes, strict=True))


def regrouped(axes: Axes, targets: Sequence[Sequence[int]]) -> Axes:
    """The axes of a reshape; ``targets`` are, per axis of the result, its size in each graph.

    Raises:
        UnmaskableError: Elements would move to where the padded graph has others.
    """
    # Factors that are left, the next one last.
    left = list(normal(factor for axis in axes for factor in axis))[::-1]
    return tuple(_take_factors(left, tuple(target)) for target in targets)


def _take_factors(left: list[Factor], target: tuple[int, ...]) -> Axis:
    """Takes factors for an axis of these sizes."""
    results: list[Factor] = []
    missing = target
    while any(size != 1 for size in missing):
        if not left:
            raise UnmaskableError("splits a length differently for different shapes")
        factor = left.pop()
        rest = _divided(missing, factor.sizes)
        if rest is None:
            inner = _divided(factor.sizes, missing)
            if inner is None or Factor(inner).varies:
                raise UnmaskableError("merges a length with other axes, or splits it")
            left.append(Factor(inner))
            factor, rest = Factor(missing), (1,) * len(missing)
        results.append(factor)
        missing = rest
    return normal(results)


def _times(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...]:
    return tuple(first * other for first, other in zip(a, b, strict=True))


def _divided(a: Sequence[int], b: Sequence[int]) -> tuple[int, ...] | None:
    """The quotients, where there are any without a rest."""
    if any(other == 0 or first % other for first, other in zip(a, b, strict=True)):
        return None
    return tuple(first // other for first, other in zip(a, b, strict=True))


def cut(array: Array, axes: Axes, shape: Sequence[int]) -> Array:
    """The valid part of a padded result.

    Args:
        array: The result of the padded graph.
        axes: Its axes.
        shape: The shape of what is valid.
    """
    if not any(varies(axis) for axis in axes):
        return array
    if all(len(axis) <= 1 for axis in axes):
        return array[tuple(slice(size) for size in shape)]
    factors = [factor for axis in axes for factor in axis]
    apart = array.reshape([factor.sizes[0] for factor in factors])
    return apart[tuple(slice(factor.sizes[-1]) for factor in factors)].reshape(shape)
