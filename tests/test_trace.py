"""Traces on every device: the file, its spans and counters, and that nothing else changes."""

import os
import time
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import traces

import rlx
from rlx.backends.webgpu import adapters, device, timestamps

X = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)


@pytest.fixture(
    params=[
        "reference",
        "cpu",
        pytest.param("webgpu", marks=pytest.mark.webgpu),
        pytest.param("webgpu through wgpu-py", marks=pytest.mark.webgpu),
    ]
)
def place(request, monkeypatch):
    """Each device, and the GPU both ways."""
    if not request.param.startswith("webgpu"):
        return request.param
    monkeypatch.setenv("RLX_WEBGPU_HOT", str(int(request.param == "webgpu")))
    return request.getfixturevalue("webgpu")


def layer():
    g = rlx.Graph("layer")
    x = g.input("x", (4, 16))
    hidden = g.gelu(x @ g.param("w", (16, 16)) + 1.0)
    g.set_outputs([g.softmax(hidden), g.sum(hidden, axes=1), g.rfft(x)])
    return g


def hosted():
    """f64 is computed on the host, in the middle of the graph."""
    g = rlx.Graph("hosted")
    x = g.input("x", (4, 16))
    wide = g.exp(g.cast(g.tanh(x @ g.param("w", (16, 16))), "f64"))
    g.set_outputs([g.cast(wide, "f32") + x, x * 2.0])
    return g


def looped(trips):
    body = rlx.Graph("body")
    state = body.input("state", (4,)) * 0.5 + body.input("row", (4,))
    body.set_outputs([state, state])
    g = rlx.Graph("looped")
    g.set_outputs(g.scan(body, 1, g.input("start", (4,)), g.input("rows", (trips, 4))))
    return g


def compiled(graph, place, **options):
    params = {"w": W} if "w" in graph.param_names else {}
    return rlx.compile(graph, place, params, rlx.CompileOptions(**options))


def kernels_per_run(cg, place):
    if place == "webgpu":
        return sum(len(batch) for batch in cg._state.executable._batches.current)
    return len(cg._state.lowered.schedule.calls) if place == "cpu" else 0


def every_way(cg):
    """One call of every way of running; the outputs, and how many runs it took."""
    results = [cg.run({"x": X}), [view.copy() for view in cg.run_slots(2 * X)]]
    results += cg.run_pipelined([{"x": X + index} for index in range(3)])
    results.append(cg.run_read_outputs({"x": X}, [1]))
    for step in (3, 4):
        cg.commit_no_wait({"x": step * X})
    cg.sync_pending()
    results.append([cg.read_output_row(0, 1)])
    return results, 8


WAYS = ("run", "run_pipelined", "run_read_outputs", "commit_no_wait", "sync_pending")


@pytest.mark.parametrize("graph", [layer, hosted])
def test_every_way_of_running(graph, place, tmp_path):
    with compiled(graph(), place) as cg:
        before, _ = every_way(cg)
        plain, path = cg.run_slots, tmp_path / "trace.json"
        with cg.trace(path):
            assert cg.run_slots is not plain
            result, runs = every_way(cg)
        assert cg.run_slots is plain
        if place.startswith("webgpu"):
            steps = cg._state.executable._batches.host_steps
            assert all(step.recorder is None for step in steps)
        after, _ = every_way(cg)
        expected = kernels_per_run(cg, place)
    for first, second, third in zip(before, result, after, strict=True):
        for a, b, c in zip(first, second, third, strict=True):
            np.testing.assert_array_equal(a, b)
            np.testing.assert_array_equal(a, c)
    document = traces.read(path)
    calls = [span["name"] for span in traces.spans(document, "call")]
    assert set(WAYS) | {"read_output_row"} <= set(calls)
    assert (calls.count("run"), calls.count("commit_no_wait")) == (2, 2)
    kernels = traces.spans(document, "kernel")
    assert len(kernels) == expected * runs
    if place == "webgpu":
        assert {"upload", "encode", "submit", "wait", "read-back"} <= set(calls)
        assert "GPU clock" in document["otherData"]
    parts = traces.spans(document, "host part")
    assert len(parts) == (runs if (graph, place) == (hosted, "webgpu") else 0)
    for part in parts:
        assert part["name"] == "cast+exp+cast/host"
        assert part["args"]["reasons"]


def test_kernels_lie_in_their_run_and_say_what_they_did(place, tmp_path):
    with compiled(layer(), place) as cg:
        with cg.trace(tmp_path / "trace.json"):
            for _ in range(5):
                cg.run_slots(X)
        per_run = kernels_per_run(cg, place)
    document = traces.read(tmp_path / "trace.json")
    runs, kernels = traces.spans(document, "call", "run"), traces.spans(document, "kernel")
    assert len(runs) == 5
    if place == "reference":
        assert kernels == []
        return
    for index, run in enumerate(runs):
        for kernel in kernels[index * per_run : (index + 1) * per_run]:
            assert traces.within(kernel, run), (kernel, run)
    for kernel in kernels:
        args = kernel["args"]
        assert args["bytes"] > 0
        assert args["flops"] >= 0
        assert args["outputs"]
        assert "test_trace.py:" in args["node"]
        if kernel["dur"]:
            ns = 1e3 * kernel["dur"]
            assert args["GB/s"] == pytest.approx(args["bytes"] / ns, rel=1e-3)
            assert args["GFLOP/s"] == pytest.approx(args["flops"] / ns, rel=1e-3)
        if place == "webgpu":
            assert len(args["grid"]) == 3
            assert min(args["grid"]) > 0
            assert args["device_ns"] >= 0
    product = next(kernel for kernel in kernels if "matmul" in kernel["name"])
    assert {"f32[4, 16]", "f32[16, 16]"} <= set(product["args"]["inputs"])
    assert product["args"]["flops"] >= 2 * 4 * 16 * 16


def test_phases_of_the_compile(place, tmp_path):
    with compiled(hosted(), place) as cg, cg.clone() as clone:
        time.sleep(0.05)
        for item, name in ((cg, "first.json"), (clone, "second.json")):
            with item.trace(tmp_path / name):
                item.run({"x": X})
    for name in ("first.json", "second.json"):
        document = traces.read(tmp_path / name)
        phases = traces.spans(document, "phase")
        expected = ["verify", "passes", "pass dce", "pass fold", "pass cse", "load"]
        if place != "reference":
            expected += ["pass legalize", "pass fuse", "schedule", "memory plan", "allocate"]
        if place == "webgpu":
            expected += ["device", "render", "pipelines", "host part"]
        assert set(expected) <= {phase["name"] for phase in phases}
        (passes,) = traces.spans(document, "phase", "passes")
        assert sum(traces.within(p, passes) for p in phases if p["name"] == "pass dce") == 3
        # They stand right before the runs, wherever the program has been in between.
        run = traces.spans(document, "call", "run")[0]
        end = max(p["ts"] + p["dur"] for p in phases)
        assert run["ts"] - 40_000 < end <= run["ts"]
        assert min(p["ts"] for p in phases) == 0


@pytest.mark.webgpu
@pytest.mark.parametrize("way", ["1", "0"])
def test_bytes_moved(webgpu, way, monkeypatch, tmp_path):
    monkeypatch.setenv("RLX_WEBGPU_HOT", way)
    g = rlx.Graph("counter")
    state, x = g.input("state", (4, 16)), g.input("x", (4, 16))
    g.set_outputs([state + x, g.cast(g.exp(g.cast(x, "f64")), "f32")])
    with rlx.compile(g, webgpu) as cg:
        cg.run({"state": X, "x": X})
        before = cg._state.executable.moved()
        with cg.trace(tmp_path / "trace.json"):
            cg.run({"state": X, "x": X})
            cg.run_pipelined([{"state": X, "x": X}] * 3)
            cg.bind_gpu_handle("state", X)
            cg.set_gpu_handle_feed("state", 0)
            cg.run_slots(X)
            cg.run_slots(X)
            np.testing.assert_array_equal(cg.read_gpu_handle("state"), X + X + X)
        after = cg._state.executable.moved()
    document = traces.read(tmp_path / "trace.json")
    states = traces.counters(document)
    assert set(states[0].values()) == {0}
    moved = {name: getattr(after, name) - getattr(before, name) for name in after._fields}
    assert states[-1] == moved
    assert min(moved.values()) > 0
    for earlier, later in pairwise(states):
        assert all(earlier[name] <= later[name] for name in moved)
    for span, name, arg in (
        ("upload", "uploaded", "bytes"),
        ("read-back", "read_back", "bytes"),
        ("encode", "copied", "copied_bytes"),
    ):
        result = sum(s["args"][arg] for s in traces.spans(document, "call", span))
        assert result == moved[name], span


@pytest.mark.webgpu
def test_more_kernels_than_a_query_set_holds(webgpu, monkeypatch, tmp_path):
    trips = 23
    monkeypatch.setattr(timestamps, "MAX_QUERIES", 8)
    monkeypatch.setattr(timestamps, "_MAX_OPEN", 2)
    pending, sent = [], timestamps.Timestamps.sent

    def counted(self, index):
        before = len(self._open)
        sent(self, index)
        pending.append((before, len(self._open)))

    monkeypatch.setattr(timestamps.Timestamps, "sent", counted)
    start, rows = np.ones(4, np.float32), np.ones((trips, 4), np.float32)
    with rlx.compile(looped(trips), webgpu) as cg:
        plain = cg.run({"start": start, "rows": rows})
        with cg.trace(tmp_path / "trace.json"):
            for _ in range(5):
                cg.commit_no_wait({"start": start, "rows": rows})
            cg.sync_pending()
            result = cg.run({"start": start, "rows": rows})
        per_run = kernels_per_run(cg, "webgpu")
    assert per_run > trips
    # A run fills several sets, and those of the run before have been fetched when the next begins.
    assert pending == [(0, -(-per_run // 4))] * 6
    for a, b in zip(plain, result, strict=True):
        np.testing.assert_array_equal(a, b)
    kernels = traces.spans(traces.read(tmp_path / "trace.json"), "kernel")
    assert len(kernels) == 6 * per_run
    names = [kernel["name"] for kernel in kernels]
    assert names == 6 * names[:per_run]
    assert sum(kernel["args"]["device_ns"] for kernel in kernels) > 0


def test_trips_of_a_loop_on_the_cpu(tmp_path):
    body = rlx.Graph("double")
    body.set_outputs([body.input("x", ()) * 2.0])
    test = rlx.Graph("small")
    test.set_outputs([test.input("x", ()) < 100.0])
    g = rlx.Graph("doubling")
    g.set_outputs([g.while_(test, body, g.input("x", ()))])
    with rlx.compile(g, "cpu") as cg, cg.trace(tmp_path / "trace.json"):
        assert cg.run({"x": np.float32(1)})[0] == 128
        assert cg.run({"x": np.float32(50)})[0] == 100
    names = [s["name"] for s in traces.spans(traces.read(tmp_path / "trace.json"), "kernel")]
    # Each trip doubles, then jumps back; each has a test before it, and one more ends the loop.
    assert names.count("while_/jump") == 7 + 1
    assert names.count("while_/jump_unless") == 8 + 2
    assert names.count("region/elementwise") == 7 + 1 + 8 + 2


@pytest.mark.webgpu
def test_a_gpu_without_timestamps(webgpu, monkeypatch, tmp_path):
    monkeypatch.setattr(adapters, "FEATURES", ("shader-f16",))
    monkeypatch.setattr(device, "_devices", {})
    with compiled(hosted(), webgpu) as cg:
        assert not cg.capabilities.device_timestamps
        with cg.trace(tmp_path / "trace.json"):
            result = cg.run({"x": X})
            cg.run_pipelined([{"x": X}] * 3)
        np.testing.assert_array_equal(result[1], 2 * X)
        with pytest.raises(rlx.CompileError, match="can't time kernels"):
            cg.profile()
    with pytest.raises(rlx.CompileError, match="can't time kernels"):
        compiled(layer(), webgpu, profile=True)
    document = traces.read(tmp_path / "trace.json")
    assert "no timestamp-query" in document["otherData"]["GPU clock"]
    kernels = traces.spans(document, "kernel")
    # The host's part cuts a run in two.
    assert [kernel["name"] for kernel in kernels] == ["submission"] * 8
    assert all(kernel["args"]["dispatches"] > 0 for kernel in kernels)


# --- what goes wrong -------------------------------------------------------------------------------------


def interrupted(cg, error):
    cg.run_slots(X)
    cg.commit_no_wait({"x": X})  # still in flight
    raise error


@pytest.mark.parametrize("error", [KeyboardInterrupt, ZeroDivisionError])
def test_what_was_recorded_is_written_when_the_block_raises(place, error, tmp_path):
    path = tmp_path / "trace.json"
    with compiled(layer(), place) as cg:
        plain, expected = cg.run_slots, cg.run({"x": X})
        with pytest.raises(error), cg.trace(path):
            interrupted(cg, error)
        assert cg.run_slots is plain
        for a, b in zip(expected, cg.run({"x": X}), strict=True):
            np.testing.assert_array_equal(a, b)
        per_run = kernels_per_run(cg, place)
    document = traces.read(path)
    assert len(traces.spans(document, "call", "run")) == 1
    assert len(traces.spans(document, "kernel")) == 2 * per_run


def test_a_run_that_fails(tmp_path):
    g = rlx.Graph()
    x, position = g.input("x", (4,)), g.input("at", (2,), "i32")
    g.set_outputs([g.gather(g.exp(x), position)])
    with rlx.compile(g, "cpu") as cg:
        with cg.trace(tmp_path / "trace.json"):
            with pytest.raises(rlx.InputError, match="out of range"):
                cg.run({"x": np.zeros(4, np.float32), "at": np.int32([0, 9])})
            with pytest.raises(rlx.InputError, match="takes every input"):
                cg.run_slots(np.zeros(4, np.float32))
            cg.run({"x": np.zeros(4, np.float32), "at": np.int32([0, 3])})
    document = traces.read(tmp_path / "trace.json")
    assert len(traces.spans(document, "call", "run")) == 3
    names = [kernel["name"].split("/")[0] for kernel in traces.spans(document, "kernel")]
    assert names == ["exp", "gather"] * 2


def test_a_trace_in_a_trace(place, tmp_path):
    with compiled(layer(), place) as cg:
        with cg.trace(tmp_path / "outer.json"):
            with pytest.raises(rlx.InputError, match="traced already"):
                with cg.trace(tmp_path / "inner.json"):
                    pytest.fail("it was entered")
            if place != "reference":
                with pytest.raises(rlx.InputError, match="traced already"):
                    cg.profile()
            cg.run({"x": X})
        with cg.trace(tmp_path / "next.json"):
            cg.run({"x": X})
    assert not (tmp_path / "inner.json").exists()
    for name in ("outer.json", "next.json"):
        assert len(traces.spans(traces.read(tmp_path / name), "call", "run")) == 1


def test_a_path_that_can_not_be_written(place, tmp_path):
    with compiled(layer(), place) as cg:
        for path in (tmp_path, tmp_path / "none" / "trace.json"):
            with pytest.raises(rlx.InputError, match="can't be written there"):
                with cg.trace(path):
                    pytest.fail("it was entered")
        cg.run({"x": X})


def test_the_path_is_that_of_the_start(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with compiled(layer(), "cpu") as cg, cg.trace("trace.json"):
        (tmp_path / "other").mkdir()
        os.chdir("other")
    assert traces.read(Path(tmp_path) / "trace.json")


def test_params_clones_and_the_end_inside_a_trace(place, tmp_path):
    cg = rlx.compile(layer(), place)
    with cg.trace(tmp_path / "trace.json"):
        with pytest.raises(rlx.InputError, match="never set"):
            cg.run({"x": X})
        cg.set_param("w", W)
        cg.run({"x": X})
        with cg.clone() as clone:
            clone.run({"x": X})  # is not traced
        cg.close()
    with pytest.raises(rlx.InputError, match="is closed"):
        cg.run({"x": X})
    with pytest.raises(rlx.InputError, match="is closed"):
        with cg.trace(tmp_path / "late.json"):
            pytest.fail("it was entered")
    document = traces.read(tmp_path / "trace.json")
    assert len(traces.spans(document, "call", "run")) == 1
    assert len(traces.spans(document, "call", "set_param")) == 1


def test_the_null_device_shows_the_compile(tmp_path):
    cg = rlx.compile(layer(), "null", {"w": W})
    with pytest.raises(rlx.DeviceUnavailableError, match="runs nothing"):
        with cg.trace(tmp_path / "trace.json"):
            cg.run({"x": X})
    document = traces.read(tmp_path / "trace.json")
    assert traces.spans(document, "phase", "schedule")
