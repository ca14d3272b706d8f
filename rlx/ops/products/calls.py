"""Writes the calls of the WGSL product kernels: the kernel, its grid, and the addition of split-K partitions."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rlx.ir.dtype import DType
from rlx.ir.fragments import FragmentVariant, fragment_params, halves
from rlx.ir.opdef import Emitter, TensorType
from rlx.ir.variants import Variant
from rlx.ops.products.tiles import (
    ENOUGH,
    FEW_ROWS,
    MATMUL,
    MatmulProblem,
    partitions,
    strips,
    tiles,
)
from rlx.sizes import SizeExpr, divides, largest, may_exceed, smallest


def call_product_webgpu(
    emitter: Emitter,
    operands: Sequence[Any],
    results: Sequence[Any],
    params: dict[str, Any],
    parts: Sequence[int] = (),
    gated: bool = False,
) -> None:
    """Writes the calls of the WGSL kernels that fit the product's sizes.

    With ``parts``, the columns of each result, there is a weight for each. With ``gated`` there are two weights (and
    biases) for the one result: act(first) * second.
    """
    parts = tuple(parts) or (params["n"],)
    m, n, batch = params["m"], params["n"], params["batch"]
    params = {"transposed_a": 0, **params, "parts": parts, "gated": int(gated)}
    simple = not params["half"]
    whole = divides(128, m) and divides(128, n) and divides(16, params["k"])
    units = halves(DType.F32 if simple else DType.F16, emitter.limits)
    problem = MatmulProblem(m, parts, params["k"], batch, gated, simple, whole, units)
    if not may_exceed(m, FEW_ROWS) and not params["transposed_b"]:
        few_rows_product("gemv", emitter, operands, results, params, problem)
        return
    variant = MATMUL.choose(problem, emitter)
    kernel = "matmul"
    if isinstance(variant, FragmentVariant):
        kernel = "matmul_fragments"
        params |= {**fragment_params(emitter.limits), "rounded": int(simple), "fragments": 1}
    tiled_product(kernel, variant, emitter, operands, results, params, 2 * ENOUGH, problem)


def few_rows_product(
    kernel: str,
    emitter: Emitter,
    operands: Sequence[Any],
    results: Sequence[Any],
    params: dict[str, Any],
    problem: MatmulProblem | None = None,
) -> None:
    """Writes the calls of a kernel like gemv.wgsl; without a problem it makes one product."""
    if problem is None:
        params, problem = _single(params)
    cut = strips(problem)
    across = sum(math.ceil(n / cut.columns) for n in problem.parts)
    work = problem.batch * across
    params |= cut._asdict()
    write_product(kernel, Split(cut.splits), work, across, emitter, operands, results, params)


def _single(params: Mapping[str, Any]) -> tuple[dict[str, Any], MatmulProblem]:
    """The parameters and the problem of one product without biases."""
    whole = {"transposed_a": 0, **params, "parts": (params["n"],), "gated": 0}
    return whole, MatmulProblem(params["m"], whole["parts"], params["k"], params["batch"])


def tiled_product(
    kernel: str,
    variant: Variant,
    emitter: Emitter,
    operands: Sequence[Any],
    results: Sequence[Any],
    params: dict[str, Any],
    limit: int,
    problem: MatmulProblem | None = None,
) -> None:
    """Writes the calls of a kernel in the tiles of a variant; without a problem it makes one product without biases.

    Sums are split up to ``limit`` workgroups.
    """
    if problem is None:
        params, problem = _single(params)
    splits, length = partitions(problem, variant, limit)
    across = sum(math.ceil(n / variant.params["bn"]) for n in problem.parts)
    params |= {**variant.params, "splits": splits, "partition_k": length}
    most = None
    if isinstance(splits, SizeExpr) and not isinstance(problem.k, SizeExpr):
        # Many rows are cut into few partitions: together these have no more tiles than the limit says.
        most = limit * variant.params["bm"] * variant.params["bn"]
    work = tiles(problem, variant)
    write_product(kernel, Split(splits, most), work, across, emitter, operands, results, params)


class Split(NamedTuple):
    """The partitions that the sums of a product are split into.

    Attributes:
        splits: How many.
        most: The most elements that all their results have together, where that is known.
    """

    splits: int
    most: int | None = None


def write_product(
    kernel: str,
    split: Split,
    work: int,
    across: int,
    emitter: Emitter,
    operands: Sequence[Any],
    results: Sequence[Any],
    params: dict[str, Any],
) -> None:
    """Writes the call of a kernel and, where the sums are split, of the kernel that adds the partitions.

    A partition has ``work`` workgroups, of which ``across`` make the same rows. The biases are the last operands.
    """
    splits, most = split
    if not may_exceed(splits, 1):
        # Numbered row by row through all results, so that the first workgroups make the first rows of each.
        emitter.call(kernel, operands, results, params, work, across)
        return
    biased, n = params["has_bias"], params["n"]
    elements = params["batch"] * params["m"] * n
    count = splits * elements
    if most is not None:
        count = smallest(count, largest(most, elements))
    partial = emitter.temp(TensorType((count,), DType.F32))
    read = operands[: len(operands) - biased]
    emitter.call(kernel, read, [partial], {**params, "has_bias": 0}, work * splits, 0)
    params["elements"] = elements
    groups = math.ceil(elements / (256 * (4 if divides(4, n) else 1)))
    emitter.call("split_sum", [partial, *operands[len(read) :]], results, params, groups, 0)
