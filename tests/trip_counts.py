"""Large problems for every WGSL kernel that loops, and the table of their trips.

usage: python tests/trip_counts.py docs/explanation/trip_counts.md

Graphs hold shapes, not memory, so that kernels are lowered here for tensors as large as a buffer may be.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np

import rlx
from rlx.backends.webgpu.adapters import DEFAULT_LIMITS
from rlx.backends.webgpu.codegen import lower
from rlx.backends.webgpu.dispatch import Dispatch
from rlx.backends.webgpu.loop_bounds import Trips, trips_of
from rlx.ir.graph import PART
from rlx.ir.plan import HOST
from rlx.ir.variants import Choices
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler

# Elements of f32 in the 2 GiB that the largest binding has.
ALL = 1 << 29


class TripProblem(NamedTuple):
    """A graph of one operation.

    Attributes:
        name: What it is called.
        build: Adds it to a graph.
        variant: ``RLX_VARIANT`` for it.
        host: The kernels whose loops would be too long, so that the operation runs on the host.
    """

    name: str
    build: Callable[[rlx.Graph], object]
    variant: tuple[str, str] | None = None
    host: frozenset[str] = frozenset()


def f(g: rlx.Graph, *shape: int, dtype: str = "f32") -> rlx.Node:
    """Another input of a graph."""
    return g.input(f"x{len(g.input_names)}", shape, dtype)


def _integers(g: rlx.Graph, m: int, k: int, n: int) -> object:
    return g.add_node("matmul_integer", [f(g, m, k, dtype="u8"), f(g, k, n, dtype="i8")])


def _attention(g: rlx.Graph, queries: int, keys: int, d: int, dv: int, **attrs: object) -> object:
    return g.attention(f(g, 1, 1, queries, d), f(g, 1, 1, keys, d), f(g, 1, 1, keys, dv), **attrs)


def _lstm(g: rlx.Graph, steps: int, hidden: int) -> object:
    return g.lstm(f(g, steps, 1, 8), f(g, 1, 4 * hidden, 8), f(g, 1, 4 * hidden, hidden))[0]


def _scan(g: rlx.Graph, length: int, states: int) -> object:
    line, narrow = (1, length, 8), (1, length, states)
    return g.selective_scan(
        f(g, *line), f(g, *line), f(g, 8, states), f(g, *narrow), f(g, *narrow), f(g, 8)
    )


def _experts(g: rlx.Graph, rows: int, k: int, n: int) -> object:
    return g.grouped_matmul(f(g, rows, k), f(g, 8, k, n), f(g, rows, dtype="i32"))


def _blocks(g: rlx.Graph, m: int, k: int, n: int) -> object:
    return g.dequant_matmul(f(g, m, k), f(g, n, k // 32 * 18, dtype="u8"), "Q4_0")


def _row(g: rlx.Graph, k: int, *rows: int) -> object:
    """A norm of one row, and products by weights."""
    weights = [f(g, n, k // 32 * 34, dtype="u8") for n in rows]
    attrs = {
        "schemes": ("Q8_0",) * len(rows), "act": "none", "eps": 1e-5, "present": ("norm",), "style": "", "head": 2,
    }  # fmt: skip
    result = g.add_node("packed_products", [f(g, 1, k), f(g, k), *weights], attrs)
    return [g.add_node(PART, [result], {"index": i}) for i in range(len(rows))]


def _frames(g: rlx.Graph, samples: int, length: int, k: int) -> object:
    attrs = {"hop": 128, "centred": True, "k": k, "pairs": True}
    return g.add_node("frame_peaks", [f(g, 1, samples), f(g, length), f(g, length // 2 + 1)], attrs)


def _trees(g: rlx.Graph, trees: int, depth: int) -> object:
    """The first tree has as many levels as splits, the others are leaves."""
    pairs = np.arange(2 * depth)
    split = (pairs % 2 == 1) & (pairs < 2 * depth - 1)
    features = np.concatenate([np.full(trees, -1), np.where(split, 0, -1)])
    features[0] = 0
    leaf = features < 0
    children = np.where(leaf, np.cumsum(leaf) - 1, trees + 2 * (np.cumsum(~leaf) - 1))
    leaves = int(leaf.sum())
    return g.add_node("tree_scores", [f(g, 1, 8)], {
        "features": features.astype("i4"), "splits": np.zeros(features.size),
        "questions": np.zeros(features.size, "u1"), "children": children.astype("i4"),
        "roots": np.arange(trees, dtype="i4"), "starts": np.arange(leaves + 1, dtype="i4"),
        "targets": np.zeros(leaves, "i4"), "weights": np.ones(leaves), "count": 1, "join": "sum",
    })  # fmt: skip


def _boxes(g: rlx.Graph, count: int, most: int) -> object:
    """The boxes that are kept of ``count``, at most so many."""
    numbers = [g.input(f"number{i}", (), dtype) for i, dtype in enumerate(("i64", "f32", "f32"))]
    attrs = {"most": most, "center_point_box": False}
    return g.add_node("kept_boxes", [f(g, 1, count, 4), f(g, 1, 1, count), *numbers], attrs)


def _on_host(*kernels: str) -> frozenset[str]:
    return frozenset(kernels)


PROBLEMS = (
    TripProblem("sum", lambda g: g.sum(f(g, ALL))),
    TripProblem("sum of an odd number", lambda g: g.sum(f(g, ALL - 1))),
    TripProblem("sum of i64", lambda g: g.sum(f(g, ALL // 2, dtype="i64"))),
    TripProblem("sum over the first axis", lambda g: g.sum(f(g, ALL // 3, 3), (0,))),
    TripProblem("sums of some rows", lambda g: g.sum(f(g, 120, ALL // 120), (1,))),
    TripProblem("sum, plain", lambda g: g.sum(f(g, 1 << 22)), ("reduce", "plain")),
    TripProblem("argmax", lambda g: g.argmax(f(g, ALL), 0)),
    TripProblem("argmax over the first axis", lambda g: g.argmax(f(g, ALL // 4, 4), 0)),
    TripProblem("argmax, one share", lambda g: g.argmax(f(g, 1 << 18), 0)),
    TripProblem("cumsum", lambda g: g.cumsum(f(g, ALL), 0)),
    TripProblem("cumsum of i64", lambda g: g.cumsum(f(g, ALL // 2, dtype="i64"), 0)),
    TripProblem("cumsum over the first axis", lambda g: g.cumsum(f(g, ALL // 7, 7), 0)),
    TripProblem("cumsum, plain", lambda g: g.cumsum(f(g, 1 << 22), 0), ("cumulate", "plain")),
    TripProblem("softmax", lambda g: g.softmax(f(g, ALL))),
    TripProblem("softmax of a row", lambda g: g.softmax(f(g, 1 << 24))),
    TripProblem("softmax of an odd row", lambda g: g.softmax(f(g, (1 << 24) - 1))),
    TripProblem("softmax over the first axis", lambda g: g.softmax(f(g, ALL // 4, 4), 0)),
    TripProblem("softmax of columns", lambda g: g.softmax(f(g, 1 << 20, 4), 0)),
    TripProblem("layer_norm", lambda g: g.layer_norm(f(g, 1, 1 << 27))),
    TripProblem("layer_norm of an odd row", lambda g: g.layer_norm(f(g, 1, (1 << 25) - 1))),
    TripProblem("layer_norm, plain", lambda g: g.layer_norm(f(g, 1, 1 << 22)), ("rows", "plain")),
    TripProblem("layer_norm of too long a row", lambda g: g.layer_norm(f(g, 1, ALL - 1)), None, _on_host("norm_rows")),
    TripProblem("matmul of a row and a column", lambda g: f(g, 1, ALL) @ f(g, ALL, 1)),
    TripProblem("matmul of 16 rows", lambda g: f(g, 16, ALL // 16) @ f(g, ALL // 16, 16)),
    TripProblem("matmul of 64 rows", lambda g: f(g, 64, ALL // 64) @ f(g, ALL // 64, 64)),
    TripProblem("matmul", lambda g: f(g, 4096, 1 << 17) @ f(g, 1 << 17, 4096)),
    TripProblem("matmul, plain", lambda g: f(g, 4096, 1 << 15) @ f(g, 1 << 15, 4096), ("matmul", "plain")),
    TripProblem("product of bytes", lambda g: _integers(g, 64, 1 << 20, 64)),
    TripProblem("product of bytes, few rows", lambda g: _integers(g, 4, 1 << 20, 64)),
    TripProblem("product of bytes, odd", lambda g: _integers(g, 33, 60001, 33)),
    TripProblem("product of bytes, odd and long", lambda g: _integers(g, 33, 100001, 33), None, _on_host("matmul_integer")),
    TripProblem("product of blocks", lambda g: _blocks(g, 64, 1 << 20, 512)),
    TripProblem("product of blocks, few rows", lambda g: _blocks(g, 1, 1 << 22, 512)),
    TripProblem("products of a long row", lambda g: _row(g, 1 << 21, 3, 2)),
    TripProblem("products of a row", lambda g: _row(g, 1 << 12, 1 << 14, 1 << 10, 1 << 10)),
    TripProblem("product by experts", lambda g: _experts(g, 1 << 20, 64, 64)),
    TripProblem("product by experts, few rows", lambda g: _experts(g, 4, 1 << 16, 64)),
    TripProblem("product by experts, plain", lambda g: _experts(g, 64, 60000, 64), ("grouped_matmul", "plain")),
    TripProblem("convolution", lambda g: g.conv2d(f(g, 1, 1 << 16, 14, 14), f(g, 64, 1 << 16, 3, 3))),
    TripProblem("convolution by a long filter", lambda g: g.conv1d(f(g, 1, 1, 1 << 20), f(g, 8, 1, 200_000))),
    TripProblem("convolution, plain", lambda g: g.conv2d(f(g, 1, 4096, 14, 14), f(g, 64, 4096, 7, 7)), ("conv", "plain")),
    TripProblem("depthwise convolution", lambda g: g.conv2d(f(g, 1, 8, 512, 512), f(g, 8, 1, 5, 5), groups=8)),
    TripProblem("depthwise convolution in space", lambda g: g.conv3d(f(g, 1, 2, 512, 9, 9), f(g, 2, 1, 512, 3, 3), groups=2)),
    TripProblem("depthwise convolution by many taps", lambda g: g.conv2d(f(g, 1, 2, 512, 512), f(g, 2, 1, 128, 128), groups=2)),
    TripProblem("transposed convolution", lambda g: g.conv_transpose1d(f(g, 1, 100_000, 16), f(g, 100_000, 4, 16))),
    TripProblem("attention", lambda g: _attention(g, 4096, 1 << 17, 128, 128)),
    TripProblem("attention, tiles", lambda g: _attention(g, 32, 1 << 17, 64, 256)),
    TripProblem("attention in a window", lambda g: _attention(g, 1 << 20, 1 << 20, 128, 128, kind="sliding:4096")),
    TripProblem("attention of one query", lambda g: _attention(g, 1, 1 << 22, 128, 128)),
    TripProblem("attention of one query to few keys", lambda g: _attention(g, 1, 512, 128, 128)),
    TripProblem("attention of one query, odd", lambda g: _attention(g, 1, 1 << 17, 127, 127)),
    TripProblem("attention of one query, plain", lambda g: _attention(g, 1, 10_000, 117, 117)),
    TripProblem("attention of many keys", lambda g: _attention(g, 4096, 1 << 21, 128, 128)),
    TripProblem("attention of wide values", lambda g: _attention(g, 64, 1 << 12, 1500, 1500), None, _on_host("attention")),
    TripProblem("lstm", lambda g: _lstm(g, 100_000, 64)),
    TripProblem("lstm of many units", lambda g: _lstm(g, 10, 2048)),
    TripProblem("lstm of too many units", lambda g: _lstm(g, 10, 8192), None, _on_host("recurrence")),
    TripProblem("selective_scan", lambda g: _scan(g, 1 << 20, 16)),
    TripProblem("selective_scan of many states", lambda g: _scan(g, 1 << 16, 256)),
    TripProblem("many trees", lambda g: _trees(g, 1 << 20, 1)),
    TripProblem("trees of many levels", lambda g: _trees(g, 2, 40_000)),
    TripProblem("trees of too many levels", lambda g: _trees(g, 2, 100_000), None, _on_host("tree_leaves")),
    TripProblem("sort", lambda g: g.sort(f(g, 1 << 26))),
    TripProblem("sort of i64", lambda g: g.sort(f(g, 1 << 25, dtype="i64"))),
    TripProblem("sort of short rows", lambda g: g.sort(f(g, 1 << 18, 1000))),
    TripProblem("topk", lambda g: g.topk(f(g, ALL // 2), 64)[0]),
    TripProblem("rows in blocks", lambda g: g.add_node("quantize_q8_0", [f(g, 512, 8, 128)])),
    TripProblem("a token", lambda g: g.add_node("draw_token", [f(g, 1, 64), f(g, 1, 64, dtype="i32"), f(g, 8, dtype="i32"), f(g, 70)], {"all": False})),
    TripProblem("topk of short rows", lambda g: g.topk(f(g, 1 << 18, 200), 5)[0]),
    TripProblem("scatter", lambda g: g.scatter_elements(f(g, 1 << 20), f(g, 1 << 20, dtype="i32"), f(g, 1 << 20), 0)),
    TripProblem("pool", lambda g: g.max_pool(f(g, 1, 2, 4096, 4096), (2048, 2048))),
    TripProblem("pool in space", lambda g: g.max_pool(f(g, 1, 2, 64, 64, 64), (3, 3, 3))),
    TripProblem("pool of a large window", lambda g: g.max_pool(f(g, 1, 1, 8192, 8192), (8192, 8192)), None, _on_host("pool")),
    TripProblem("resize", lambda g: g.resize(f(g, 1, 1, 1 << 16, 64), (1, 1, 1, 64), "linear", antialias=True)),
    TripProblem("boxes", lambda g: _boxes(g, 8400, 300)),
    TripProblem("boxes of which very many are kept", lambda g: _boxes(g, 8400, 8400)),
    TripProblem("find_peaks", lambda g: g.find_peaks(f(g, 1 << 20), distance=100, prominence=1, width=3)[0]),
    TripProblem("find_peaks of a long row", lambda g: g.find_peaks(f(g, 1 << 23), distance=3, prominence=1)[0]),
    TripProblem("find_peaks of too long a row", lambda g: g.find_peaks(f(g, 1 << 25), prominence=1)[0], None, _on_host("find_peaks_pack")),
    TripProblem("sosfilt", lambda g: g.sosfilt(f(g, 1 << 26), [[1.0, 0, 0, 1.0, -0.5, 0]])),
    TripProblem("welch_peaks", lambda g: g.welch_peaks(f(g, 8, 1 << 16), 1024, 8)),
    TripProblem("welch_peaks of all bins", lambda g: g.welch_peaks(f(g, 64, 1 << 12), 100, 8)),
    TripProblem("welch_peaks of few bins", lambda g: g.welch_peaks(f(g, 1 << 12, 1 << 10), 100, 1 << 10)),
    TripProblem("welch_peaks of too many bins", lambda g: g.welch_peaks(f(g, 4, 1 << 19), 1 << 17, 2), None, _on_host("welch_rank")),
    TripProblem("Welch's peaks of frames", lambda g: _frames(g, 1 << 19, 2048, 64)),
    TripProblem("log_mel", lambda g: g.log_mel(f(g, 100, 1 << 17), f(g, 128, (1 << 15) + 1))),
    TripProblem("log_mel_backward", lambda g: g.log_mel_backward(f(g, 100, 1 << 15), f(g, 128, (1 << 13) + 1), f(g, 100, 128))),
    TripProblem("random_normal", lambda g: g.random_normal((ALL,), seed=1)),
)  # fmt: skip


@functools.cache
def dispatches(problem: TripProblem) -> tuple[Dispatch, ...]:
    """The dispatches of a problem, kernels that would be too long among them."""

    def specialise(graph: rlx.Graph) -> tuple[rlx.Graph, list[str]]:
        return run_pipeline(graph, lambda option: option != "fold", "webgpu")

    graph = rlx.Graph(problem.name)
    graph.set_outputs(problem.build(graph))
    fused, _ = specialise(graph)
    forced = Choices((problem.variant,) if problem.variant else ())
    schedule = Scheduler(fused, "webgpu", DEFAULT_LIMITS, specialise, forced).run()
    plan = plan_memory(schedule)
    # The device's kernels compute each problem, if their records have them.
    assert all(call.kernel != HOST for call in schedule.calls), problem.name
    calls = (call for call in schedule.calls if call.kernel != "elementwise")
    per_dimension = DEFAULT_LIMITS["max-compute-workgroups-per-dimension"]
    results = (lower(call, per_dimension, plan) for call in calls)
    return tuple(item for item in results if item is not None)


def worst() -> dict[str, tuple[str, Trips]]:
    """For each kernel the problem in which it makes most trips and still runs on the device."""
    results: dict[str, tuple[str, Trips]] = {}
    for problem in (problem for problem in PROBLEMS if not problem.host):
        for dispatch in dispatches(problem):
            trips = trips_of(dispatch.source)
            known = results.get(dispatch.call.kernel)
            if known is None or trips.total > known[1].total:
                results[dispatch.call.kernel] = problem.name, trips
    return results


def table() -> str:
    """The Markdown of all kernels that loop."""
    lines = [
        "| kernel | trips | in | loops: what each declares, and what that is |",
        "|---|---|---|---|",
    ]
    for kernel, (problem, trips) in sorted(worst().items()):
        if trips.loops:
            shown = dict.fromkeys(
                f"`{loop.declared}`{' in all' if loop.whole else ''} = {loop.trips:,}"
                for loop in trips.loops
            )
            loops = ", ".join(shown)
            lines.append(f"| `{kernel}` | {trips.total:,} | {problem} | {loops} |")
    return "\n".join(lines) + "\n"


BEGIN, END = "<!-- trips: made by tests/trip_counts.py -->\n", "<!-- end of trips -->\n"


def renewed(text: str) -> str:
    """A page with the table of now."""
    head, _, rest = text.partition(BEGIN)
    return head + BEGIN + "\n" + table() + "\n" + END + rest.partition(END)[2]


if __name__ == "__main__":
    page = Path(sys.argv[1])
    page.write_text(renewed(page.read_text(encoding="utf-8")), encoding="utf-8")
