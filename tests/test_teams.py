"""Calls that a team of threads makes phase by phase: the same bits as on one thread, and nobody waits for a thread."""

import time
from functools import partial

import numpy as np
import pytest
from samples import looped
from side_by_side import side_by_side

import rlx
from rlx._ext import cpu
from rlx.abi import windows
from rlx.abi.recurrent import CELLS
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import linker, split
from rlx.ops.windows import winograd

GATES = {"lstm": 4, "gru": 3, "rnn": 1}


@pytest.fixture
def teams(monkeypatch):
    """Kernels that teams make; all that can be made so are."""
    results = []

    def spy(call, count):
        result = split.split_of(call, count)
        if result is not None and result.tasks:
            results.append(call.kernel)
        return result

    monkeypatch.setattr(split, "_WORTH", 1e-9)
    monkeypatch.setattr(split, "usable_cores", lambda: 16)
    monkeypatch.setattr(linker, "split_of", spy)
    return results


def recurrence(op, hidden, batch, steps, dtype="f32", fixed=True, **attrs):
    """A graph of one, and its inputs."""
    rng = np.random.default_rng(hidden + batch + steps)
    kind = {"f32": np.float32, "f64": np.float64}[dtype]
    both = 2 if attrs.get("direction") == "bidirectional" else 1
    g = rlx.Graph()
    rows = both, GATES[op] * hidden
    shapes = {"x": (steps, batch, 9), "w": (*rows, 9), "r": (*rows, hidden)}
    values = {name: (rng.normal(size=shape) * 0.2).astype(kind) for name, shape in shapes.items()}
    nodes = [
        g.constant(values.pop(name)) if fixed and name != "x" else g.input(name, shape, dtype)
        for name, shape in shapes.items()
    ]
    if attrs.pop("lengths", False):
        attrs["seq_lens"] = g.constant(rng.integers(0, steps + 1, batch).astype(np.int32))
    g.set_outputs(list(getattr(g, op)(*nodes, **attrs)))
    return g, values


def rounded(cell, hidden, batch, steps):
    """A graph of one with weights in 8 bits, and its inputs."""
    rng = np.random.default_rng(hidden + batch)
    g, gates = rlx.Graph(), CELLS[cell]
    x = (rng.normal(size=(steps, batch, 2 * gates * hidden)) * 0.2).astype("f4")
    r = g.constant(rng.integers(-128, 128, (2, gates * hidden, hidden), "i1"))
    scales = g.constant((rng.random((2, gates * hidden)) / 128 / hidden**0.5).astype("f4"))
    attrs = {"cell": cell, "reverse": (0, 1), "clip": 0.0, "input_forget": False, "present": ()}
    node = g.add_node("rounded_recurrence", [g.input("x", x.shape), r, scales], attrs)
    g.set_outputs([g.add_node("part", [node], {"index": i}) for i in range(len(node.types))])
    return g, {"x": x}


def compiled(g, count):
    return rlx.compile(g, "cpu", options=CompileOptions(threads=count))


CASES = [
    ("lstm", 320, 1, 5, "f32", True, {}),
    ("lstm", 261, 3, 4, "f32", True, {"direction": "bidirectional", "lengths": True}),
    ("lstm", 256, 2, 3, "f64", False, {"direction": "reverse"}),
    ("gru", 384, 1, 4, "f32", True, {"lengths": True}),
    ("gru", 323, 2, 3, "f32", False, {"direction": "bidirectional", "linear_before_reset": True}),
    ("gru", 256, 1, 3, "f64", True, {"linear_before_reset": True}),
    ("rnn", 513, 2, 4, "f32", True, {"direction": "bidirectional"}),
    ("rnn", 512, 1, 1, "f32", False, {}),
]


@looped("count", [2, 3, 7])
@looped("case", CASES)
def test_recurrences_have_the_bits_of_one_thread(case, count, teams):
    *arguments, attrs = case
    g, feeds = recurrence(*arguments, **attrs)
    with (
        compiled(g, 1) as alone,
        compiled(g, count) as together,
        rlx.compile(g, "reference") as exact,
    ):
        expected = [np.array(item) for item in alone.run(feeds)]
        # The first states, then the gates and the states of each step; gru has two phases more.
        op, _, _, steps = arguments[:4]
        passes = 2 if attrs.get("direction") == "bidirectional" else 1
        phases = passes * (1 + steps * (4 if op == "gru" else 2))
        # On a busy machine threads are left out for a while, and the caller is alone.
        result, until = 0, time.monotonic() + 60
        while result < 3:
            before = cpu.pool_counts()["phases"]
            for got, item in zip(together.run(feeds), expected, strict=True):
                np.testing.assert_array_equal(got, item)
            result += cpu.pool_counts()["phases"] - before == phases
            assert cpu.pool_counts()["phases"] - before in (0, phases)
            assert time.monotonic() < until, "no team made the call"
        for got, item in zip(expected, exact.run(feeds), strict=True):
            np.testing.assert_allclose(got, item, 1e-4, 1e-5)
    assert "recurrence" in teams


# Channels, outputs, groups, height, width and distance of a convolution in tiles: few tiles of many channels, few channels,
# and some tiles of a dilated filter that stay together.
TILED = [
    (200, 90, 1, 7, 7, 1),
    (20, 17, 1, 26, 30, 1),
    (48, 96, 2, 13, 21, 1),
    (40, 70, 1, 23, 25, 3),
]


@looped("count", [3, 5, 7])
@looped("case", TILED)
def test_convolutions_in_tiles_have_the_bits_of_one_thread(case, count, teams, monkeypatch):
    for name, value in {"_SAVED": 1 << 30, "_CACHED": 0, "_MOST": 1 << 10}.items():  # few blocks
        monkeypatch.setattr(winograd, name, value)
    monkeypatch.setattr(windows, "_TASK_PRODUCTS", 1)
    channels, outputs, groups, high, wide, apart = case
    rng = np.random.default_rng(channels)
    x = rng.normal(size=(1, channels, high, wide)).astype(np.float32)
    x[0, 1, 2, 3] = np.nan
    w, g = rng.normal(size=(outputs, channels // groups, 3, 3)).astype(np.float32), rlx.Graph()
    attrs = {"padding": apart, "dilation": apart, "groups": groups}
    y = g.relu(g.conv2d(g.input("x", x.shape), g.constant(w), **attrs))
    g.set_outputs([y + g.input("more", y.shape)])
    feeds = {"x": x, "more": rng.normal(size=y.shape).astype(np.float32)}
    with compiled(g, 1) as alone, compiled(g, count) as together:
        assert "winograd_last" in alone.as_text("schedule")
        (expected,) = alone.run(feeds)
        result, until = 0, time.monotonic() + 60
        while result < 3:
            before = cpu.pool_counts()["phases"]
            np.testing.assert_array_equal(together.run(feeds)[0], expected)
            result += cpu.pool_counts()["phases"] > before
            assert time.monotonic() < until, "no team made the call"
    assert "winograd_last" in teams


@looped("count", [2, 3, 7])
@looped("cell", CELLS)
def test_rounded_recurrences_have_the_bits_of_one_thread(cell, count, teams):
    g, feeds = rounded(cell, 517, 2, 3)
    with (
        compiled(g, 1) as alone,
        compiled(g, count) as together,
        rlx.compile(g, "reference") as exact,
    ):
        expected = [np.array(item) for item in alone.run(feeds)]
        for _ in range(3):
            for got, item in zip(together.run(feeds), expected, strict=True):
                np.testing.assert_array_equal(got, item)
        for got, item in zip(expected, exact.run(feeds), strict=True):
            np.testing.assert_allclose(got, item, 0, 1e-4)
    assert "recurrence" in teams


def test_many_sequences_are_shared_instead(teams):
    g, feeds = recurrence("lstm", 256, 64, 2)
    with compiled(g, 4) as cg:
        cg.run(feeds)
    assert not teams


def test_teams_of_several_callers(teams):
    g, feeds = recurrence("gru", 256, 1, 6)
    with compiled(g, 1) as alone:
        expected = np.array(alone.run(feeds)[0])
    graphs, right = [compiled(g, count) for count in (2, 3, 16)], []

    def work(cg):
        for _ in range(40):
            right.append(np.array_equal(cg.run_slots(feeds["x"])[0], expected))

    side_by_side(*(partial(work, cg) for cg in graphs))
    assert teams
    assert right == [True] * 120
