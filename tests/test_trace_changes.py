"""Changes in the middle of a trace or a profile: rows, experts, a lost device."""

import os
import subprocess
import sys
from itertools import pairwise

import numpy as np
import pytest
import test_experts
import traces

import rlx

ROWS, WIDTH = 64, 32
X = np.random.default_rng(0).normal(size=(ROWS, WIDTH)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(WIDTH, WIDTH)).astype(np.float32)


def product():
    g = rlx.Graph("product")
    g.set_outputs([g.exp(g.input("x", (ROWS, WIDTH)) @ g.param("w", (WIDTH, WIDTH)))])
    return g


def figures(rows):
    """Bytes and flops of the product on so many rows."""
    return 4 * (2 * rows * WIDTH + WIDTH * WIDTH), 2 * rows * WIDTH * WIDTH


def test_fewer_rows_are_fewer_bytes_and_flops(target_device, tmp_path):
    extents = [None, (8, ROWS), (24, ROWS), (8, ROWS), None]
    with rlx.compile(product(), target_device, {"w": W}, rlx.CompileOptions(fuse=False)) as cg:
        whole = cg.run({"x": X})[0]
        with cg.trace(tmp_path / "trace.json"):
            for extent in extents:
                cg.set_active_extent(extent)
                count = extent[0] if extent else ROWS
                np.testing.assert_allclose(cg.run({"x": X})[0][:count], whole[:count], 1e-5)
        cg.set_active_extent((24, ROWS))
        profile = cg.profile(runs=2)
        plain = cg.run_slots
        cg.set_active_extent(None)
        assert cg.run_slots == plain
    kernels = traces.spans(traces.read(tmp_path / "trace.json"), "kernel")
    results = [kernel["args"] for kernel in kernels if kernel["name"].startswith("matmul")]
    counts = [extent[0] if extent else ROWS for extent in extents]
    assert [(args["bytes"], args["flops"]) for args in results] == [figures(n) for n in counts]
    row = next(row for row in profile.rows if row.name == "matmul")
    assert (row.nbytes, row.flops) == figures(24)
    exp = next(row for row in profile.rows if row.name == "exp")
    assert exp.nbytes == 2 * 24 * WIDTH * 4


def test_placing_experts_goes_on_recording(target_device, tmp_path):
    rng, g = np.random.default_rng(0), test_experts.model()
    params = {n: rng.normal(size=g.named(n).shape).astype("f4") for n in g.param_names}
    options = rlx.CompileOptions(profile=True)
    with rlx.compile(g, target_device, params, options) as cg:
        inputs = {"x": test_experts.X}
        want = cg.run(inputs)
        with cg.trace(tmp_path / "trace.json"):
            cg.run(inputs)
            cg.set_moe_resident_experts(test_experts.MASK)
            cg.run(inputs)
            cg.set_moe_resident_experts(None)
            got = cg.run(inputs)
        assert cg.profile().runs == 1
        cg.set_moe_resident_experts(test_experts.MASK)
        cg.run(inputs)
        assert cg.profile().runs == 2
        assert cg.take_moe_residency_stats().runs == 1
    for a, b in zip(got, want, strict=True):
        np.testing.assert_array_equal(a, b)
    document = traces.read(tmp_path / "trace.json")
    runs, kernels = traces.spans(document, "call", "run"), traces.spans(document, "kernel")
    assert len(runs) == 3
    for run in runs:
        assert any(traces.within(kernel, run) for kernel in kernels)
    parts = traces.spans(document, "host part")
    assert bool(parts) is (target_device == "webgpu")
    assert all(traces.within(part, runs[1]) for part in parts)
    states = traces.counters(document)
    assert bool(states) is (target_device == "webgpu")
    for earlier, later in pairwise(states):
        assert all(earlier[name] <= later[name] for name in earlier)


LOST = """
import sys
import numpy as np, rlx
sys.path.insert(0, sys.argv[3])
from test_trace_changes import X, W, product
cg = rlx.compile(product(), "webgpu", {"w": W}, rlx.CompileOptions(profile=sys.argv[2] == "profile"))
want = cg.run({"x": X})[0]
try:
    with cg.trace(sys.argv[1]):
        cg.run({"x": X})
        cg.commit_no_wait({"x": X})
        cg._state.executable._gpu.device.destroy()
        try:
            cg.run({"x": X})
        except rlx.DeviceLostError:
            print("lost")
        if sys.argv[2] != "outside":
            cg.recover()
            np.testing.assert_array_equal(cg.run({"x": X})[0], want)
except rlx.DeviceLostError:
    print("still lost")
    cg.recover()
assert type(cg._state.executable).__name__ == "WebGpuExecutable" or sys.argv[2] == "profile"
np.testing.assert_array_equal(cg.run({"x": X})[0], want)
if sys.argv[2] == "profile":
    assert cg.profile().runs == 2, cg.profile().runs
cg.close()
print("recovered")
"""


@pytest.mark.webgpu
@pytest.mark.parametrize("hot", ["1", "0"])
@pytest.mark.parametrize("how", ["inside", "outside", "profile"])
def test_a_device_lost_inside_a_trace(webgpu, hot, how, tmp_path):
    path = tmp_path / "trace.json"
    environment = {**os.environ, "RLX_WEBGPU_HOT": hot}
    command = [sys.executable, "-c", LOST, str(path), how, os.path.dirname(__file__)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    said = ["lost", "still lost", "recovered"] if how == "outside" else ["lost", "recovered"]
    assert done.stdout.splitlines() == said, done.stderr
    document = traces.read(path)
    runs = traces.spans(document, "call", "run")
    assert len(runs) == (2 if how == "outside" else 3)
    kernels = traces.spans(document, "kernel")
    assert any(traces.within(kernel, runs[0]) for kernel in kernels)
    if how != "outside":
        assert any(traces.within(kernel, runs[-1]) for kernel in kernels)
