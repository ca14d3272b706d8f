"""Fragments: the small matrices that the matrix units of a GPU multiply, as adapters list them.

A subgroup, the threads that a GPU runs in step, holds a fragment in its registers together and multiplies two of them in one
instruction. Adapters list the sizes and types that they have; kernels are rendered for one of these.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from typing import NamedTuple

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType
from rlx.ir.variants import Limits, Variant

# The feature that lets a kernel ask for the size of its subgroups.
SIZED = "subgroup-size-control"
# A key of the limits: 1 where the compile asks for ``precision="f16"``, so that products of f32 may be rounded.
ROUNDS = "rounds-to-f16"
# The same for ``precision="int8"``: what products with block-quantised weights read may be rounded.
INT8 = "rounds-to-int8"
# The same for ``precision="bf16"``: what products of many rows read may be rounded.
BF16 = "rounds-to-bf16"
# The fragment types of kernels by the dtype of the operands, with the type of their sums.
_SUMS = {"f16": "f32", "i8": "i32", "u8": "u32"}
_FIELDS = ("fm", "fn", "fk", "lanes", "sized")


class Fragment(NamedTuple):
    """A multiplication that an adapter has: [m, k] @ [k, n].

    Attributes:
        operand: WGSL's name of the operands' type: f16, i8 or u8, f32.
        result: The type of the sums.
        m: Rows of the left operand.
        n: Columns of the right one.
        k: Length of the sums.
        least: Threads of a subgroup that does it, at least.
        most: The same, at most.
    """

    operand: str
    result: str
    m: int
    n: int
    k: int
    least: int
    most: int


def fragment_limits(results: Iterable[Fragment], features: Iterable[str]) -> dict[str, int]:
    """Turns an adapter's fragments into limits for the choice of kernels: the largest multiplication of each type.

    A fragment whose subgroup size is neither fixed nor can be requested is left out: its kernel could not count the
    subgroups of a workgroup.
    """
    sized = int(SIZED in features)
    limits: dict[str, int] = {}
    for operand, result in _SUMS.items():
        usable = [
            item
            for item in results
            if (item.operand, item.result) == (operand, result)
            and (sized or item.least == item.most)
        ]
        if usable:
            best = max(usable, key=lambda item: (item.m * item.n * item.k, item.most))
            values = (best.m, best.n, best.k, best.most, sized)
            limits |= {
                _key(operand, name): value for name, value in zip(_FIELDS, values, strict=True)
            }
    return limits


def fragment_params(limits: Limits, operand: str = "f16") -> dict[str, int]:
    """Returns template variables for the fragments of a type; none if the adapter has none."""
    results = {name: limits.get(_key(operand, name)) for name in _FIELDS}
    return {name: value for name, value in results.items() if value is not None}


def halves(dtype: DType, limits: Limits) -> bool:
    """Returns whether matrix units can multiply the operands: halves, or operands that may be rounded to halves."""
    return dtype is DType.F16 or (dtype is DType.F32 and limits.get(ROUNDS, 0) == 1)


def _key(operand: str, name: str) -> str:
    return f"fragment-{operand}-{name}"


@dataclass(frozen=True)
class FragmentVariant(Variant):
    """A tile of a workgroup that is made of fragments.

    Its threads and its memory depend on the adapter's fragments.

    Attributes:
        params: Rows and columns of the tile, ``bm`` and ``bn``; length of a step along k, ``bk``; rows and columns that
            each subgroup makes, ``wm`` and ``wn``.
        operand: The type of its operands.
        nbytes: Bytes of one of them.
        sides: Right operands that it multiplies by at the same time.
        together: Pieces of 16 bytes of the right operand that a thread brings at once.
    """

    params: Mapping[str, int] = field(default_factory=dict)
    operand: str = "f16"
    nbytes: int = 2
    sides: int = 1
    together: int = 1

    def fits(self, limits: Limits) -> bool:
        """Returns whether a device has fragments for the tile, and room for a workgroup of it."""
        have = fragment_params(limits, self.operand)
        if not have:
            return False
        bm, bn, bk, wm, wn = (self.params[name] for name in ("bm", "bn", "bk", "wm", "wn"))
        subgroups = tile_subgroups(self.params)
        threads = subgroups * have["lanes"]
        whole = not (wm % have["fm"] or wn % have["fn"] or bk % have["fk"])
        # Every thread brings as many pieces of 16 bytes as all others.
        left, right = bm * bk * self.nbytes // 16, bn * bk * self.nbytes // 16
        shared = not (left % threads or right % (threads * self.together))
        # The tiles, whichever way they lie in memory; then sums of one row of fragments, with those that corrections take.
        gap = 16 // self.nbytes
        tiles = [max(bk * (width + gap), width * (bk + gap)) for width in (bm, bn)]
        sums = have["fm"] * (self.sides * wn if self.nbytes > 1 else 2 * wn + have["fn"])
        storage = max(self.nbytes * (tiles[0] + self.sides * tiles[1]), 4 * subgroups * sums)
        return whole and shared and Variant(self.name, threads, storage).fits(limits)


def tile_subgroups(tile: Mapping[str, int]) -> int:
    """Subgroups of a workgroup that makes a tile."""
    return (tile["bm"] // tile["wm"]) * (tile["bn"] // tile["wn"])
