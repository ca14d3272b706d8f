"""Tilings of Fourier transforms on a GPU: radices, transforms per workgroup, and which kernels a length takes."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.opdef import Array
from rlx.ir.variants import DEFAULTS, Family, Variant

# Most complex points that a thread keeps in registers, and so the largest radix. Lengths up to `SHORT` use half as many
# where they can: one more pass costs less than low occupancy. docs/explanation/kernels.md has the figures.
POINTS, SHORT = 16, 1024
# Points of a workgroup that makes several short transforms. Small workgroups wait less at barriers.
GATHERED = 512
# Neighbouring columns of a workgroup. With fewer, loads would use only part of each cache line.
COLUMNS = 16
RADICES = (2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)


@dataclass(frozen=True)
class Tile:
    """A workgroup's transforms.

    A pass of radix r at current length ``length`` and stride ``s`` reads ``x[b + i * n / r]`` for i < r and
    b < n / r, takes a DFT over i, multiplies entry j by ``exp(-2 pi i (b // s) j / length)`` and writes
    ``y[b % s + s * (r * (b // s) + j)]``; the first reads from global memory and the last writes to it.

    Attributes:
        n: Length of a transform.
        radices: One per pass.
        threads: Threads of one transform.
        count: Transforms.
        split: Whether real and imaginary parts go through workgroup memory one after the other.
        row: Numbers (pairs where not split) of workgroup memory of one transform.
        skews: Per exchange, how much every ``banks`` numbers are moved, so that banks don't collide.
    """

    n: int
    radices: tuple[int, ...]
    threads: int
    count: int
    split: bool
    row: int
    skews: tuple[int, ...]

    @property
    def banks(self) -> int:
        """Numbers that workgroup memory serves at once."""
        return 32 if self.split else 16

    @property
    def storage(self) -> int:
        """Bytes of workgroup memory."""
        return self.count * self.row * (4 if self.split else 8)

    def params(self) -> dict[str, object]:
        """Returns the template variables of the kernel."""
        return {
            **vars(self),
            "split": int(self.split),
            "banks": self.banks,
            "offsets": offsets(self.n, self.radices),
        }


def offsets(n: int, radices: Sequence[int]) -> tuple[int, ...]:
    """Returns the offsets of each pass's twiddle factors: entry ``offset + (j - 1) * length / r + p``, j >= 1."""
    result, count, length = [], 0, n
    for radix in radices:
        result.append(count)
        length //= radix
        count += (radix - 1) * length
    return tuple(result)


def twiddles(n: int, radices: Sequence[int]) -> Array:
    """The twiddle factors of all passes but the last, real and imaginary parts in pairs; f32."""
    parts, length = [np.ones(1, np.complex128)], n
    for radix in radices[:-1]:
        p = np.arange(length // radix)
        parts += [np.exp(-2j * np.pi * ((p * j) % length) / length) for j in range(1, radix)]
        length //= radix
    # The first is never read; it keeps the table of a single pass from being empty.
    return pairs(np.concatenate([*parts[1:], parts[0]]))


def pairs(z: Array) -> Array:
    """Complex numbers as f32 pairs of real and imaginary part."""
    return np.ascontiguousarray(np.stack([z.real, z.imag], -1).reshape(-1), np.float32)


@lru_cache(maxsize=1024)
def radices_of(n: int) -> tuple[int, ...] | None:
    """The fewest passes for length n, of radices as equal as can be, large ones first; None without any."""
    if n == 1:
        return (1,)
    result = (_split(n, POINTS // 2) if n <= SHORT else None) or _split(n, POINTS)
    return None if result is None else tuple(sorted(result, reverse=True))


@lru_cache(maxsize=4096)
def _split(n: int, limit: int) -> tuple[int, ...] | None:
    if n == 1:
        return ()
    best: tuple[int, ...] | None = None
    for radix in sorted((r for r in RADICES if r <= limit and n % r == 0), reverse=True):
        rest = _split(n // radix, radix)
        if rest is None:
            continue
        results = (radix, *rest)
        if best is None or (len(results), max(results)) < (len(best), max(best)):
            best = results
    return best


def tile(n: int, rows: int, limits: Mapping[str, int], columns: bool = False) -> Tile | None:
    """The workgroup for transforms of length n; None where one does not fit.

    Args:
        n: Their length.
        rows: Transforms in all.
        limits: The device's limits.
        columns: Whether neighbouring transforms are neighbours in memory.
    """
    have = {**DEFAULTS, **limits}
    memory = have["max-compute-workgroup-storage-size"]
    limit = have["max-compute-invocations-per-workgroup"]
    radices = radices_of(n)
    if radices is None:
        return None
    threads = n // _points(n, radices)
    if threads > limit:
        return None
    wanted = COLUMNS if columns else max(1, GATHERED // n)
    # With larger workgroups a multiprocessor holds fewer of them, and has less to switch to while one waits.
    largest = max(1, min(limit, 256) // threads)
    if not columns and wanted < 4:
        # The count that leaves the fewest idle lanes in the last warp.
        wanted = min(range(wanted, largest + 1), key=lambda c: (-c * threads % 32) / c, default=1)
    wanted = min(rows, wanted, largest)
    counts = [max(1, wanted >> half) for half in range(wanted.bit_length())]
    # Bank conflicts cost more than fewer transforms per workgroup.
    for skewed, tried in ((True, counts[:3]), (False, counts)):
        for count in tried:
            for split in (False, True):
                result = _tile(n, radices, threads, count, split, skewed, columns)
                if result.storage <= memory:
                    return result
    return None


def smooth_length(least: int, limit: int, limits: Mapping[str, int]) -> int:
    """The shortest transform of at least so many points that one workgroup makes; ``limit`` where there is none.

    Of factors 2, 3 and 5, and of no more passes than ``limit`` takes, a power of two.
    """
    passes = len(radices_of(limit) or ())
    for n in range(least, limit):
        rest = n
        for prime in (2, 3, 5):
            while rest % prime == 0:
                rest //= prime
        radices = radices_of(n) if rest == 1 else None
        if radices and len(radices) <= passes and tile(n, 1, limits):
            return n
    return limit


def _points(n: int, radices: Sequence[int]) -> int:
    """Complex points of a thread: the fewest that do not idle in any pass, or those of the largest radix."""
    top = max(radices)
    return next(
        (e for e in range(top, POINTS + 1) if all(e % r == 0 for r in radices) and n % e == 0), top
    )


def _tile(
    n: int,
    radices: tuple[int, ...],
    threads: int,
    count: int,
    split: bool,
    skewed: bool,
    columns: bool,
) -> Tile:
    banks, stride, skews = 32 if split else 16, 1, []
    for radix in radices[:-1]:
        # Neighbouring threads write runs of `stride` that lie `stride * radix` apart.
        clash = skewed and stride < banks and radix % 2 == 0
        skews.append(min(stride, max(1, banks // radix)) if clash else 0)
        stride *= radix
    row = n + max([0, *skews]) * ((n - 1) // banks)
    if skewed and count > 1:
        near = max(1, banks // count) if columns else threads
        row += (near - row) % banks if near < banks else 0
    return Tile(n, radices, threads, count, split, row, tuple(skews))


class FftProblem(NamedTuple):
    """Transforms of one length.

    Attributes:
        rows: Transforms.
        n: Their length.
        limits: The device's limits.
    """

    rows: int
    n: int
    limits: Mapping[str, int]


def halves(problem: FftProblem) -> tuple[Tile, Tile] | None:
    """Both steps of a transform of N1 * N2 points, the lengths as near as can be; None where there are none."""
    n, rows, limits = problem.n, problem.rows, problem.limits
    for first in range(math.isqrt(n), POINTS, -1):
        if n % first:
            continue
        left = tile(n // first, rows * first, limits, columns=True)
        other = tile(first, rows * (n // first), limits, columns=True)
        if left and other and len(left.radices) > 1:
            return left, other
    return None


def _takes(variant: Variant, problem: FftProblem) -> bool:
    if variant.name == "rows":
        return tile(problem.n, problem.rows, problem.limits) is not None
    return variant.name == "passes" or halves(problem) is not None


# rows: whole transforms in the registers of a workgroup. columns: two kernels, with one trip to memory between them.
# passes: one kernel, and one trip to memory, per pass.
FFT = Family(
    "fft", (Variant("rows", 1, 0), Variant("columns", 1, 0), Variant("passes", 1, 0)), takes=_takes
)
