"""The axis of time: moved to the end, where the kernels want it, and back."""

from __future__ import annotations

import operator
from collections.abc import Callable

from rlx.errors import InputError, ShapeError, describe
from rlx.ir.graph import Node


def position(where: str, rank: int, axis: int) -> int:
    """The number of an axis, from the front; it may count from the end.

    Raises:
        InputError: It is no integer.
        ShapeError: There is no such axis.
    """
    try:
        if isinstance(axis, bool):
            raise TypeError
        result = operator.index(axis)
    except TypeError:
        raise InputError(f"[{where}] axis", got=repr(axis), expected="an integer") from None
    if not -rank <= result < rank:
        raise ShapeError(
            describe(f"[{where}] axis", got=axis, expected=f"-{rank} to {rank - 1}")
            if rank
            else describe(f"[{where}] x has no axis", got=(), expected="[..., n]")
        )
    return result % rank


def moved(where: str, x: Node, axis: int) -> tuple[Node, Callable[[Node], Node]]:
    """The node with one axis moved to the end, and the function that moves the last axis back.

    Raises:
        InputError: The axis is no integer.
        ShapeError: There is no such axis.
    """
    rank = len(x.shape)
    index = position(where, rank, axis)
    if index == rank - 1:
        return x, lambda node: node
    last = [*(i for i in range(rank) if i != index), index]
    back = [last.index(i) for i in range(rank)]

    def restore(node: Node) -> Node:
        return node.graph.transpose(node, back)

    there: Node = x.graph.transpose(x, last)
    return there, restore
