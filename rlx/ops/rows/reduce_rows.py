"""Reductions as kernels see them: outer x n x inner, how WebGPU's lanes share them, and how the CPU cuts long lines."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from rlx.abi.constants import LINE_COLUMNS
from rlx.ir.dtype import DType
from rlx.ir.opdef import Emitter, TensorType
from rlx.ir.shape import Shape, is_sized, same_size, size
from rlx.ir.variants import Family, Variant
from rlx.sizes import ceil_divide, divides, flag, largest, preferring, smallest

# Minimum elements of a result for which all lanes of a workgroup work on it together.
_LONG = 8192
# Most elements of a result, and most trips of a loop, for one workgroup per result.
_LONGEST, _TRIPS = 1 << 22, 1 << 14
# Loads that a lane starts before it uses the first.
_LOADS = 8
# Enough workgroups to keep a large GPU busy. With fewer, long axes are split into partitions.
_BUSY, _ENOUGH = 120, 1056


def as_rows(shape: Shape, axes: tuple[int, ...]) -> tuple[int, int, int] | None:
    """``(outer, n, inner)`` when the axes stand side by side (axes of size 1 aside), else None."""
    live = [axis for axis in range(len(shape)) if not same_size(shape[axis], 1)]
    reduced = [axis for axis in live if axis in axes]
    if not reduced:
        return size(shape), 1, 1
    first, last = reduced[0], reduced[-1]
    if any(first < axis < last and axis not in axes for axis in live):
        return None
    return size(shape[:first]), size(shape[first : last + 1]), size(shape[last + 1 :])


class Reduction(NamedTuple):
    """``outer`` x ``n`` x ``inner`` elements, of which the middle axis goes.

    Attributes:
        single: Elements are read one by one, not in vectors of four: i64, which is two words.
    """

    outer: int
    n: int
    inner: int
    single: bool = False

    def reads(self, count: int) -> int:
        """Reads that make so many neighbours."""
        return count // 4 if not self.single and divides(4, count) else count


def _row_tiles(problem: Reduction) -> tuple[int, int, int]:
    """Returns the tiles along the reduced axis, the results, and the lanes of a result."""
    outer, n, inner, _ = problem
    if inner == 1:
        reads, results = problem.reads(n), outer
        with preferring():
            return reads, results, next((x for x in (8, 32, 128) if reads <= _LOADS * x), 256)
    results = outer * problem.reads(inner)
    with preferring():
        if results < 32:
            return n, results, 256 // power_above(results, 32)
        # Each load covers four cache lines, or one where there are few workgroups.
        lanes = _power_below(n / 4, 8)
        while results * lanes < 256 * _BUSY and lanes < 32 and n >= 2 * _LOADS * lanes:
            lanes *= 2
    return n, results, lanes


def partitions(problem: Reduction) -> tuple[int, int]:
    """Into how many partitions a long axis is split, and how long each is in reads."""
    reads, results, lanes = _row_tiles(problem)
    if reads == 0:
        return 1, 1
    least = lanes * _LOADS
    with preferring():
        if results * lanes >= 256 * _BUSY:
            return 1, reads
        count = min(math.ceil(_ENOUGH * (256 // lanes) / largest(results, 1)), reads // (2 * least))
        if count < 2:
            return 1, reads
    # Other sizes than those that this was preferred for may have one partition.
    length = math.ceil(reads / (largest(1, count) * least)) * least
    return smallest(math.ceil(reads / length), largest(1, count)), length


def _takes(variant: Variant, problem: Reduction) -> bool:
    if variant.name == "plain":
        return problem.n <= _LONGEST
    if variant.name == "split":
        with preferring():
            return partitions(problem)[0] > 1
    reads, _, lanes = _row_tiles(problem)
    # The kernel starts from a first element, which an empty axis does not have.
    return 0 < problem.n and reads <= _LOADS * lanes * _TRIPS


REDUCE = Family(
    "reduce",
    (Variant("split", 256, 4096), Variant("whole", 256, 4096), Variant("plain", 256, 1024)),
    takes=_takes,
)


# Kinds that take something of each element, and the kind that joins partial results of others than themselves.
OF_EACH = {"sum_squares": ("mul", (0, 0)), "sum_abs": ("abs", (0,))}
JOINED = {"sum_squares": "sum", "sum_abs": "sum"}
# Kinds that are made of partial results in the operand's type. A product of f32 may leave its range on the way.
CUT = frozenset({"sum", "mean", "max", "min", *OF_EACH})
# Elements of a piece at least, and pieces of a call at most.
_PIECE, _PIECES = 1 << 15, 64


def _pieces(kind: str, outer: int, n: int, inner: int) -> Any:
    """Pieces of a line at most, by the sizes alone, so that results do not depend on threads."""
    lines = largest(outer, inner // LINE_COLUMNS, 1)
    return largest(1, smallest(n * inner // _PIECE, _PIECES // lines)) if kind in CUT else 1


def emit_pieces(
    emitter: Emitter, kind: str, source: Any, result: Any, rows: tuple[int, int, int], dtype: DType
) -> None:
    """The CPU's kernels over (outer, n, inner): few long lines are reduced by pieces, which are joined in order."""
    outer, n, inner = rows
    pieces = _pieces(kind, outer, n, inner)
    cut = flag(pieces - 1)
    sized = is_sized((cut,))
    params = {"outer": outer, "n": n, "inner": inner, "length": largest(n, 1), "divisor": n}
    # Where the sizes of a run tell, one of both ways has all lines.
    if sized or not cut:
        emitter.call(f"reduce_{kind}", [source], [result], {**params, "outer": outer * (1 - cut)})
    if sized or cut:
        length = largest(16, ceil_divide(ceil_divide(n, pieces), 16) * 16)
        count = ceil_divide(n, length)
        some = emitter.temp(TensorType((outer, smallest(count, pieces), inner), dtype))
        params.update(outer=outer * cut, length=length)
        emitter.call(f"reduce_{'sum' if kind == 'mean' else kind}", [source], [some], params)
        params = {**params, "n": count, "length": largest(count, 1)}
        emitter.call(f"reduce_{JOINED.get(kind, kind)}", [some], [result], params)


def emit_groups(
    emitter: Emitter, kind: str, source: Any, result: Any, type: TensorType, axes: tuple[int, ...]
) -> None:
    """The CPU's kernels over axes that are apart: the last ones that are neighbours first, then the ones before."""
    shape, left, rows = type.shape, set(axes), None
    while rows is None:
        group: list[int] = []
        for axis in reversed(range(len(shape))):
            if axis in left:
                group.append(axis)
            elif group and shape[axis] != 1:
                break
        first, last = group[-1], group[0]
        some = size(shape[:first]), size(shape[first : last + 1]), size(shape[last + 1 :])
        partial = emitter.temp(TensorType((some[0], 1, some[2]), type.dtype))
        # A mean is the mean of the groups' means, so an axis of one element changes no bits in any group.
        emit_pieces(emitter, kind, source, partial, some, type.dtype)
        source, kind, left = partial, JOINED.get(kind, kind), left - set(group)
        shape = tuple(1 if axis in group else n for axis, n in enumerate(shape))
        rows = as_rows(shape, tuple(left))
    emit_pieces(emitter, kind, source, result, rows, type.dtype)


def emit_reduce(
    emitter: Emitter,
    kind: str,
    source: Any,
    result: Any,
    rows: tuple[int, int, int],
    dtype: DType = DType.F32,
) -> None:
    """The WebGPU kernels over (outer, n, inner); ``kind`` is sum, mean, prod, max or min."""
    problem = Reduction(*rows, single=dtype is DType.I64)
    variant = REDUCE.choose(problem, emitter)
    if variant.name == "plain":
        _plain(emitter, kind, source, result, problem)
        return
    if variant.name == "split":
        outer, n, inner, single = problem
        count, _ = partitions(problem)
        some = emitter.temp(TensorType((outer, count, inner), dtype))
        _tiles(emitter, "sum" if kind == "mean" else kind, source, some, problem, n)
        _tiles(emitter, kind, some, result, Reduction(outer, count, inner, single), n, whole=True)
    else:
        _tiles(emitter, kind, source, result, problem, rows[1], whole=True)


def _tiles(
    emitter: Emitter,
    kind: str,
    source: Any,
    result: Any,
    problem: Reduction,
    divisor: int,
    whole: bool = False,
) -> None:
    cut = (1, _row_tiles(problem)[0]) if whole else partitions(problem)
    emit_partitions(emitter, kind, source, result, problem, cut, divisor)


def emit_partitions(
    emitter: Emitter,
    kind: str,
    source: Any,
    result: Any,
    problem: Reduction,
    cut: tuple[int, int],
    divisor: int = 1,
) -> None:
    """The kernel that reduces each partition of the middle axis to one: ``[outer, partitions, inner]``.

    ``cut``: how many partitions, and how long each is in reads.
    """
    _, results, lanes = _row_tiles(problem)
    splits, partition = cut
    params = {
        "kind": kind,
        **problem._asdict(),
        "parts": lanes,
        "splits": splits,
        "partition": partition,
        "loads": _LOADS
        if is_sized(partition)
        else min(_LOADS, max(1, math.ceil(partition / lanes))),
        "divisor": divisor,
    }
    groups = math.ceil(results * lanes / 256) * splits
    emitter.call("reduce_tiles", [source], [result], params, groups, unit=splits)


def _plain(emitter: Emitter, kind: str, source: Any, result: Any, problem: Reduction) -> None:
    outer, n, inner, _ = problem
    # Lanes for each result: a few elements for each lane, and whole lines of memory for each read.
    with preferring():
        parts = power_above(n / 4, 256) if inner == 1 else power_above(n / 8, 32)
        if n > _LONG:
            parts = 256
    results = outer * inner
    params = {"kind": kind, "results": results, "n": n, "inner": inner, "parts": parts}
    emitter.call("reduce", [source], [result], params, math.ceil(results / (256 // parts)))


def power_above(n: float, limit: int) -> int:
    """The least power of two that is not below n, or ``limit``."""
    power = 1
    while power < limit and power < n:
        power *= 2
    return power


def _power_below(n: float, limit: int) -> int:
    """The largest power of two that is not above n and ``limit``; at least 1."""
    power = 1
    while power < limit and 2 * power <= n:
        power *= 2
    return power
