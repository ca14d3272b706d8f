"""Running sums on a GPU, in three steps: totals of blocks, running sums of the totals, running sums in each block."""

from __future__ import annotations

import math
from typing import Any

from rlx.ir.dtype import DType
from rlx.ir.opdef import Emitter, TensorType
from rlx.ir.variants import Family, Variant
from rlx.ops.rows.reduce_rows import Reduction, emit_partitions
from rlx.sizes import largest, may_exceed, preferring, smallest

# Elements that a workgroup reads along a row at a time; minimum elements of a row for a workgroup of 256 threads.
_BLOCK, _LEAST = 1024, 512
# The longest line that one workgroup walks.
_LONGEST = 1 << 22
# Lanes that fill a large GPU when each walks down a column; the shortest part of a column worth a lane.
_WALKERS, _WALK = 32768, 32


def _blocks(problem: Reduction) -> tuple[int, int]:
    """Into how many blocks a line is cut, and how long each is in reads."""
    outer, n, inner, _ = problem
    if inner == 1:
        return math.ceil(problem.reads(n) / _BLOCK), _BLOCK
    columns = outer * problem.reads(inner)
    with preferring():
        count = min(math.ceil(_WALKERS / columns), n // _WALK)
        if count < 2:
            return 1, n
    # Other sizes than those that this was preferred for may have one partition.
    partition = math.ceil(n / (8 * largest(1, count))) * 8
    return smallest(math.ceil(n / partition), largest(1, count)), partition


def _takes(variant: Variant, problem: Reduction) -> bool:
    if variant.name == "plain":
        return problem.n <= _LONGEST
    with preferring():
        return problem.inner > 1 or problem.n >= _LEAST


CUMULATE = Family(
    "cumulate", (Variant("blocks", 256, 4096), Variant("plain", 256, 1024)), takes=_takes
)


def emit_cumulate(
    emitter: Emitter,
    source: Any,
    result: Any,
    problem: Reduction,
    flags: dict[str, int],
    dtype: DType,
) -> None:
    """The WebGPU kernels of running sums over the middle axis of (outer, n, inner)."""
    outer, inner = problem.outer, problem.inner
    if CUMULATE.choose(problem, emitter).name == "plain":
        params = {**problem._asdict(), **flags}
        emitter.call("cumulate", [source], [result], params, outer * inner)
        return
    splits, partition = _blocks(problem)
    inputs = [source]
    if may_exceed(splits, 1):
        totals, before = (emitter.temp(TensorType((outer, splits, inner), dtype)) for _ in "12")
        kind = "prod" if flags["product"] else "sum"
        emit_partitions(emitter, kind, source, totals, problem, (splits, partition))
        blocks = Reduction(outer, splits, inner, problem.single)
        emit_cumulate(emitter, totals, before, blocks, {**flags, "exclusive": 1}, dtype)
        inputs.append(before)
    params = {**problem._asdict(), **flags, "splits": splits, "partition": partition}
    if inner == 1:
        emitter.call("cumulate_rows", inputs, [result], params, outer * splits, unit=splits)
        return
    columns = outer * problem.reads(inner)
    groups = math.ceil(columns / 64) * splits
    emitter.call("cumulate_columns", inputs, [result], params, groups, unit=splits)
