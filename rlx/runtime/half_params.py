"""Weights that matrix units multiply as halves: numbers that a half can't hold are refused, not made infinite."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from rlx.compiler.target import Target
from rlx.errors import InputError, describe
from rlx.ir.dtype import DType, widen
from rlx.ir.graph import Graph, Node
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.opdef import Array

# Operations whose second operand is a weight that matrix units multiply by.
_PRODUCTS = frozenset({"matmul", "conv1d", "conv2d", "conv3d"})
# What may stand between a weight and its product, apart from views.
_BETWEEN = frozenset({"transpose", "cast"})
_WIDE = frozenset({DType.F32, DType.BF16})
# The bits of infinity in f32; those of bf16 are the upper half.
_INFINITY = 0x7F800000
_LARGEST = float(np.finfo(np.float16).max)


def rounded_params(graph: Graph, target: Target) -> frozenset[str]:
    """Names of the params of f32 or bf16 that are multiplied as halves on a device.

    Args:
        graph: The graph as it was built.
        target: What it is compiled for.
    """
    if not target.kernel_set or not KERNEL_SETS[target.kernel_set].on_units:
        return frozenset()
    return frozenset(_found(graph))


def _found(graph: Graph) -> Iterator[str]:
    for node in graph.nodes:
        if node.op in _PRODUCTS:
            weight: Node = node.inputs[1]
            while weight.inputs and (weight.opdef.view or weight.op in _BETWEEN):
                weight = weight.inputs[0]
            if weight.op == "param" and weight.dtype in _WIDE:
                yield weight.name


def check_half(value: Array, dtype: DType, where: str) -> None:
    """Refuses a weight with numbers that a half can't hold.

    Args:
        value: The weight in its storage.
        dtype: What it holds.
        where: What messages call it.

    Raises:
        InputError: A finite number of it is larger than 65,504.
    """
    # Of numbers of one sign the bits of an IEEE number are in the order of its size; infinity comes after the finite ones.
    bits = np.dtype(f"u{value.itemsize}")
    infinity = int(_INFINITY >> (32 - 8 * value.itemsize))
    size = value.view(bits) & bits.type(np.iinfo(bits).max >> 1)
    most = np.max(size, where=size < infinity, initial=0)
    largest = float(widen(np.asarray(most, bits).view(value.dtype), dtype))
    if largest > _LARGEST:
        raise InputError(
            describe(
                f"{where} holds a number that f16 can't hold, and is multiplied in f16",
                got=f"{largest:g}",
                expected=f"at most {_LARGEST:g}",
                hint="compile with precision='f32', or scale the weight",
            )
        )
