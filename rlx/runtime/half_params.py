"""Weights that matrix units multiply as halves: numbers that a half can't hold are refused, not made infinite."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np

from rlx.errors import InputError
from rlx.ir.dtype import DType, widen
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array

# Operations whose second operand is a weight that matrix units multiply by.
_PRODUCTS = frozenset({"matmul", "conv1d", "conv2d", "conv3d"})
# The operations that may lie between a weight and its product, apart from views.
_BETWEEN = frozenset({"transpose", "cast"})
_WIDE = frozenset({DType.F32, DType.BF16})
# The bits of infinity in f32; those of bf16 are the upper half.
_INFINITY = 0x7F800000
_LARGEST = float(np.finfo(np.float16).max)


def check_halves(graph: Graph, values: Mapping[str, Array]) -> None:
    """Refuses weights that are multiplied as halves and hold numbers that a half can't hold.

    Args:
        graph: The graph as it was built.
        values: New values of its params, in their storage.

    Raises:
        InputError: A finite number is larger than 65,504.
    """
    for name in sorted(set(rounded_params(graph)) & values.keys()):
        check_half(values[name], graph.named(name).dtype, f"param {name!r}")


def rounded_params(graph: Graph) -> Iterator[str]:
    """Yields the names of params of f32 or bf16 that products multiply."""
    for node in graph.nodes:
        if node.op in _PRODUCTS:
            weight: Node = node.inputs[1]
            while weight.inputs and (weight.opdef.view or weight.op in _BETWEEN):
                weight = weight.inputs[0]
            if weight.op == "param" and weight.dtype in _WIDE:
                yield weight.name


def check_half(value: Array, dtype: DType, where: str) -> None:
    """Refuses one weight; see ``check_halves``.

    Args:
        value: The weight in its storage.
        dtype: Its dtype.
        where: Its name in messages.
    """
    # The bits of IEEE numbers of one sign are ordered by size; infinity comes after the finite ones.
    bits = np.dtype(f"u{value.itemsize}")
    infinity = int(_INFINITY >> (32 - 8 * value.itemsize))
    size = value.view(bits) & bits.type(np.iinfo(bits).max >> 1)
    maximum = np.max(size, where=size < infinity, initial=0)
    largest = float(widen(np.asarray(maximum, bits).view(value.dtype), dtype))
    if largest > _LARGEST:
        raise InputError(
            f"{where} holds a number that f16 can't hold, and is multiplied in f16",
            got=f"{largest:g}",
            expected=f"at most {_LARGEST:g}",
            hint="compile with precision='f32', or scale the weight",
        )
