"""Loops of WGSL kernels end before lavapipe ends them: each declares its trips, and large problems keep to the limit."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import numpy as np
import pytest
import trip_counts
from dispatches import OF_ONE_PLAN, native, render_with, thinned
from samples import by_family, each, looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import elementwise_wgsl, loop_bounds
from rlx.backends.webgpu.wgsl import render, shader_files, shader_paths, shader_text
from rlx.compiler.loading import programmed
from rlx.compiler.lowering import derive, lower
from rlx.compiler.plan_codec import pack, sources_of, unpack
from rlx.compiler.target import Target
from rlx.passes.fuse import REGION_STEPS

LOOP = re.compile(r"^\s*(?:\{%.*?%\}\s*)*(?:for|while|loop)\b")
DECLARED = re.compile(r"// trips: \S")


# --- what is declared ------------------------------------------------------------------------------------


@looped("name", shader_files())
def test_every_loop_of_every_file_declares_its_trips(name):
    for line in shader_text(name).splitlines():
        assert bool(LOOP.match(line)) == bool(DECLARED.search(line)), line


def test_every_region_keeps_to_the_limit():
    """The loops are in library functions, which a program calls at most once in each step of each vector."""
    text = "\n".join(
        render(name, {}) for name in ("lib/math", "lib/halves", "lib/point", "lib/wide")
    )
    worst = max(loop_bounds.trips_of(text).functions.values())
    assert worst >= 65
    vectors = max(count for (steps, _), count in zip(elementwise_wgsl._AHEAD, (4, 2), strict=True))
    assert REGION_STEPS * vectors * worst < loop_bounds.TOO_MANY


@pytest.mark.parametrize("problem", trip_counts.PROBLEMS, ids=lambda item: item.name)
def test_large_problems_keep_to_the_limit_or_run_on_the_host(problem):
    results = trip_counts.dispatches(problem)
    assert {item.call.kernel for item in results if item.excess} == problem.host
    for item in results:
        total = loop_bounds.trips_of(item.source).total
        assert item.excess == (total if total >= loop_bounds.TOO_MANY else 0)


def test_every_kernel_that_loops_has_a_large_problem():
    seen = {
        dispatch.call.kernel for p in trip_counts.PROBLEMS for dispatch in trip_counts.dispatches(p)
    }
    loops = {name for name in shader_paths() if "// trips:" in shader_text(f"{name}.wgsl")}
    # Those for matrix units are bounded by tests/test_fragments.py.
    units = {name for name in loops if name.endswith("_fragments")}
    assert not loops - seen - units
    assert len(loops - units) > 50


def test_the_page_lists_the_trips_of_now():
    page = Path(__file__).parent.parent / "docs/explanation/trip_counts.md"
    text = page.read_text(encoding="utf-8")
    assert text == trip_counts.renewed(text), f"run: python tests/trip_counts.py {page}"


@looped(
    ("text", "total"),
    [
        ("fn main() { }", 0),
        ("fn main() { for (;;) { } // trips: 10\n}", 11),
        ("const N: u32 = 10u;\nfn main() { for (;;) { // trips: N / 4\n for (;;) { x(); } // trips: 2\n } }", 13),
        ("fn main() { for (;;) { // trips: 3\n while (a) { } // trips: 5 in all\n } }", 12),
        ("fn f() -> u32 { loop { } // trips: bits(8)\n }\nfn main() { f(); for (;;) { f(); } // trips: 2\n }", 18),
        ("fn main() { for (;;) { x(); } // trips: max(min(7, 2), 1) * (3 + 1) - 2\n }", 7),
        ("fn main() { for (;;) { a(); } // trips: 2\n for (;;) { a(); } // trips: 3\n }", 7),
    ],
)  # fmt: skip
def test_trips_are_added_up(text, total):
    assert loop_bounds.trips_of(text).total == total


def test_a_loop_in_a_function_counts_at_every_call():
    helper = "fn f() { for (;;) { } // trips: 100\n}\n"
    for calls, long in ((600, False), (700, True)):
        text = f"{helper}fn main() {{ {'f(); ' * calls}}}"
        assert loop_bounds.trips_of(text).total == calls * 101
        assert loop_bounds.excess(text) == (calls * 101 if long else 0)


@looped(
    "text",
    [
        "fn main() { for (;;) { } }",
        "fn main() { loop { // trips: unknown\n } }",
        "fn main() { for (;;) { for (;;) { } } // trips: 3\n }",
        "fn main() { } // trips: 3",
        "fn main() { for (;;) { } // trips: 3 % 2\n }",
        "fn main() { for (;;) { } // trips: import os\n }",
    ],
)
def test_what_is_not_declared_is_refused(text):
    with pytest.raises(rlx.CompileError):
        loop_bounds.trips_of(text)


# --- what is declared holds ------------------------------------------------------------------------------


def stopped(text: str, constants) -> str:
    """A kernel whose loops end after as many trips as they declare."""
    values = {**loop_bounds._constants(text), **constants}
    lines = []
    for index, line in enumerate(text.splitlines()):
        match = loop_bounds._DECLARED.search(line)
        if match is not None and match[2] is None:
            largest = max(0, loop_bounds.evaluate(match[1], values))
            body = line.index("{", closing(line))
            stop = f" trip{index} += 1u; if (trip{index} > {largest}u) {{ break; }} "
            start = len(line) - len(line.lstrip())
            line = f"{line[:start]}var trip{index} = 0u; {line[start : body + 1]}{stop}{line[body + 1 :]}"
        lines.append(line)
    return "\n".join(lines) + "\n"


def closing(line: str) -> int:
    """Returns the position where the condition of a loop ends; 0 when it has none."""
    depth = 0
    for index, sign in enumerate(line):
        depth += {"(": 1, ")": -1}.get(sign, 0)
        if sign == ")" and depth == 0:
            return index
    return 0


@pytest.mark.webgpu
@pytest.mark.by_program
@pytest.mark.timeout(1800)  # a family with all samples of --all
@pytest.mark.parametrize(
    "group", by_family(thinned([case for case in OF_ONE_PLAN if native(case)]))
)
def test_no_loop_makes_more_trips_than_it_declares(group, webgpu, monkeypatch):
    """With loops that stop there, every kernel gives what it gives."""

    def stopping(name, context):
        ints = {
            key.upper(): value
            for key, value in context.items()
            if isinstance(value, int) and not isinstance(value, bool)
        }
        return stopped(render(name, context), ints)

    render_with(monkeypatch, stopping)

    def check(case):
        graph, operands = case.graph(), case.operands()
        with rlx.Session(webgpu, options=CompileOptions(fold=False)).compile(graph) as compiled:
            error, allowed = case.error(graph, compiled.run_slots(*operands), operands)
        assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(group, check)


@pytest.mark.webgpu
def test_the_check_of_declarations_sees_a_fault(webgpu, monkeypatch):
    def wrong(name, context):
        return stopped(
            render(name, context).replace("// trips: N /", "// trips: N / 2 /"), {"N": context["n"]}
        )

    render_with(monkeypatch, wrong)
    g = rlx.Graph()
    g.set_outputs([g.argmax(g.input("x", (2, 700)), 1)])
    x = np.arange(1400, dtype=np.float32).reshape(2, 700)
    with rlx.compile(g, webgpu) as compiled:
        assert compiled.run({"x": x})[0].tolist() != [699, 699]


# --- what is too long runs on the host ---------------------------------------------------------------------


@pytest.fixture
def few_trips(monkeypatch):
    monkeypatch.setattr(loop_bounds, "TOO_MANY", 40)


def long_row():
    g = rlx.Graph("long")
    x = g.input("x", (3, 200))
    y = g.cumsum(x * 2.0, 1)
    g.set_outputs([g.sort(y + 1.0), y])
    return g


REASON = "ordered: its loops are longer than a GPU may run"


@pytest.mark.webgpu
def test_too_long_loops_run_on_the_host(webgpu, few_trips):
    x = np.random.default_rng(0).standard_normal((3, 200)).astype(np.float32)
    with rlx.compile(long_row(), webgpu) as compiled:
        assert compiled.host_fallbacks == (REASON,)
        assert REASON in compiled.as_text("schedule")
        # The estimate knows it: these nodes take the host's time, not the GPU's.
        assert [item.bound for item in compiled.cost() if item.node.op == "ordered"] == ["host"]
        for _ in range(2):
            got, sums = compiled.run({"x": x})
            np.testing.assert_allclose(sums, np.cumsum(x * 2, 1), rtol=1e-5, atol=1e-4)
            np.testing.assert_array_equal(got, np.sort(sums + 1, 1))
    # Found again in the cache, it is on the host again.
    with rlx.compile(long_row(), webgpu) as compiled:
        assert compiled.host_fallbacks == (REASON,)


@pytest.mark.webgpu
def test_what_runs_on_the_host_is_part_of_a_plan(webgpu, few_trips):
    """A plan that is read says which nodes are too large: no kernel is made for them to find out."""
    target = Target.of(rlx.Device.parse(webgpu), CompileOptions())
    graph = long_row()
    sources = sources_of(graph)
    first = lower(graph, target)
    assert not first.hosted
    moved = programmed(first, target)
    assert list(moved.hosted.values()) == ["its loops are longer than a GPU may run"]
    assert not first.hosted, "what was lowered is never changed"
    result = derive(graph, target, unpack(*pack(moved, sources), sources))
    assert result.hosted == moved.hosted
    assert str(result.schedule) == str(moved.schedule)
    assert programmed(result, target).schedule is result.schedule
    strict = Target.of(rlx.Device.parse(webgpu), CompileOptions(allow_host_fallback=False))
    with pytest.raises(rlx.InputError, match="which can't run it"):
        derive(graph, strict, unpack(*pack(moved, sources), sources))


@pytest.mark.webgpu
def test_too_long_loops_are_refused_without_the_host(webgpu, few_trips):
    with pytest.raises(rlx.UnsupportedOpError, match="longer than a GPU may run") as caught:
        rlx.compile(long_row(), webgpu, options=CompileOptions(allow_host_fallback=False))
    assert "test_trip_counts.py:" in str(caught.value)


@pytest.mark.webgpu
def test_a_scan_with_too_long_loops_runs_on_the_host(webgpu, few_trips):
    body = rlx.Graph("body")
    total, row = body.input("total", (200,)), body.input("row", (200,))
    body.set_outputs([total + row, body.sort(row)])
    g = rlx.Graph()
    start, rows = g.input("start", (200,)), g.input("rows", (4, 200))
    g.set_outputs(g.scan(body, 1, start, rows))
    a = np.random.default_rng(0).standard_normal((4, 200)).astype(np.float32)
    with rlx.compile(g, webgpu) as compiled:
        assert compiled.host_fallbacks == (
            "scan: in its subgraph: its loops are longer than a GPU may run",
        )
        total, stacked = compiled.run({"start": a[0], "rows": a})
    np.testing.assert_allclose(total, a[0] + a.sum(0), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(stacked, np.sort(a, 1))


# --- long axes on the device ---------------------------------------------------------------------------------

LONG = (1 << 24) + 1


def whole(shape, seed=0):
    """Small whole numbers, whose sums are exact in f32 as long as they are small."""
    return np.random.default_rng(seed).integers(-1, 2, shape).astype(np.float32)


def spiked(sign):
    x = np.zeros(LONG, np.float32)
    x[LONG - 3] = sign
    return x


def balanced(n):
    """Sums of its beginnings stay between -1 and 1."""
    return np.where(np.arange(n) % 2, -1, 1).astype(np.float32)


LARGE = {
    "argmax": (lambda g, x: g.argmax(x, 0), lambda: (spiked(1),), lambda x: LONG - 3),
    "argmin": (lambda g, x: g.argmin(x, 0), lambda: (spiked(-1),), lambda x: LONG - 3),
    "argmax-columns": (lambda g, x: g.argmax(x, 0), lambda: (whole((300_001, 3)).cumsum(0),), lambda x: x.argmax(0)),
    "argmax-last": (
        lambda g, x: g.argmax(x, 0, select_last=True), lambda: (whole(LONG),),
        lambda x: np.flatnonzero(x == 1)[-1],
    ),
    "sum": (lambda g, x: g.sum(x), lambda: (balanced(LONG),), np.sum),
    "max": (lambda g, x: g.max(x), lambda: (spiked(1),), np.max),
    "cumsum": (lambda g, x: g.cumsum(x, 0), lambda: (balanced(LONG),), np.cumsum),
    "cumsum-columns": (lambda g, x: g.cumsum(x, 0), lambda: (np.repeat(balanced(LONG // 4)[:, None], 3, 1),), lambda x: x.cumsum(0)),
    "softmax": (lambda g, x: g.softmax(x), lambda: (np.zeros((1 << 20) + 3, np.float32),), lambda x: np.full_like(x, 1 / x.size)),
    "softmax-columns": (
        lambda g, x: g.softmax(x, 0), lambda: (np.zeros(((1 << 20) + 1, 2), np.float32),), lambda x: np.full_like(x, 1 / len(x)),
    ),
    "log_softmax-long": (
        lambda g, x: g.log_softmax(x), lambda: (np.zeros(LONG, np.float32),), lambda x: np.full_like(x, -np.log(LONG)),
    ),
    "layer_norm": (lambda g, x: g.layer_norm(x, eps=0.0), lambda: (balanced(1 << 22)[None],), lambda x: x),
    "matmul": (lambda g, a, b: a @ b, lambda: (whole((65, 100_003)), whole((100_003, 67), 1)), np.matmul),
    "matmul-few": (lambda g, a, b: a @ b, lambda: (whole((2, 1 << 21)), whole((1 << 21, 3), 1)), np.matmul),
    "matmul-row": (lambda g, a, b: a @ b, lambda: (balanced(1 << 23)[None], balanced(1 << 23)[:, None]), np.matmul),
    "max_pool": (lambda g, x: g.max_pool(x, (100_000,)), lambda: (whole((1, 1, 200_000)),), None),
    "sosfilt": (
        lambda g, x: g.sosfilt(x, [[1.0, 0, 0, 1.0, -0.5, 0]])[0], lambda: (whole(1 << 21),), None,
    ),
    "attention-odd": (
        lambda g, q, k, v: g.attention(q, k, v),
        lambda: (whole((1, 1, 1, 66)) * 0, whole((1, 1, 30_000, 66)), np.ones((1, 1, 30_000, 66), np.float32)),
        lambda q, k, v: np.ones_like(q),
    ),
    "conv1d": (lambda g, x, w: g.conv1d(x, w), lambda: (whole((1, 1, 71_000)), whole((8, 1, 70_001), 1)), None),
    "find_peaks": (
        lambda g, x: g.find_peaks(x, prominence=1.0)[0], lambda: (whole((1 << 19) + 77).cumsum(),), None,
    ),
    "topk": (lambda g, x: g.topk(x, 3)[1], lambda: (whole(1 << 20).cumsum(),), lambda x: np.argsort(-x, kind="stable")[:3]),
}  # fmt: skip


@pytest.mark.webgpu
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", LARGE)
def test_long_axes(name, webgpu):
    build, make_operands, expected = LARGE[name]
    operands = make_operands()
    g = rlx.Graph(name)
    g.set_outputs(
        [build(g, *(g.input(f"x{index}", operand.shape) for index, operand in enumerate(operands)))]
    )
    with rlx.compile(g, webgpu) as compiled:
        assert not compiled.host_fallbacks
        got = compiled.run_slots(*operands)[0].copy()
    if expected is None:
        with rlx.compile(g, "cpu") as compiled:
            wanted = compiled.run_slots(*operands)[0].copy()
    else:
        wanted = expected(*operands)
    np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)


@pytest.mark.webgpu
@pytest.mark.timeout(600)
@looped(
    ("kind", "variant", "layout", "queries", "d"),
    [
        ("none", "tiles", "bhsd", 70, 24),
        ("causal", "tiles", "bshd", 200, 16),
        ("sliding:50", "tiles", "bhsd", 100, 17),
        ("none", "wide", "bshd", 130, 16),
        ("sliding:50", "deep", "bhsd", 70, 24),
        ("causal", "deep", "bshd", 200, 17),
    ],
)
def test_attention_goes_on_from_call_to_call(kind, variant, layout, queries, d, webgpu):
    """Stretches of 64 keys, of queries that see all of them, some, or none."""
    attention = importlib.import_module("rlx.ops.attention.attention")
    rng = np.random.default_rng(5)
    sizes = ((queries, d), (150, d), (150, 33))
    shapes = [(1, 2, s, e) if layout == "bhsd" else (1, s, 2, e) for s, e in sizes]
    operands = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    g = rlx.Graph()
    nodes = [g.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    g.set_outputs([g.attention(*nodes, kind=kind, layout=layout)])
    with rlx.compile(g, "cpu") as compiled:
        expected = compiled.run_slots(*operands)[0].copy()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(attention, "_MAX_TRIPS", 30)
        patch.setenv("RLX_VARIANT", f"attention={variant}")
        patch.setenv("RLX_CACHE", "off")
        with rlx.compile(g, webgpu) as compiled:
            assert len(compiled._state.executable._work) == 3
            got = compiled.run_slots(*operands)[0]
    np.testing.assert_allclose(got, expected, rtol=1e-5, atol=2e-6)
