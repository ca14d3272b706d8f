"""Profiles: figures worked out by hand, sums, the running totals, JSON and the table."""

import json

import numpy as np
import pytest

import rlx
from rlx.backends.recorder import kernels_of
from rlx.runtime.profile import Totals

N = 64
A = np.random.default_rng(0).normal(size=(N, N)).astype(np.float32)
PRODUCT = ("matmul", 1, 3 * N * N * 4, 2 * N**3)


@pytest.fixture(
    params=[
        "cpu",
        pytest.param("webgpu", marks=pytest.mark.webgpu),
        pytest.param("webgpu through wgpu-py", marks=pytest.mark.webgpu),
    ]
)
def place(request, monkeypatch):
    """The devices that take the time of kernels, and the GPU both ways."""
    if request.param == "cpu":
        return "cpu"
    monkeypatch.setenv("RLX_WEBGPU_HOT", str(int(request.param == "webgpu")))
    return request.getfixturevalue("webgpu")


def product_and_sum():
    g = rlx.Graph("product and sum")
    a, b = g.input("a", (N, N)), g.input("b", (N, N))
    g.set_outputs([a @ b, a + b])
    return g


def check_sums(profile):
    for rows in (profile.rows, profile.nodes):
        assert sum(row.share for row in rows) == pytest.approx(1)
        assert sum(row.us for row in rows) == pytest.approx(profile.us)
        assert [row.us for row in rows] == sorted((row.us for row in rows), reverse=True)
        for row in rows:
            assert row.us > 0
            assert row.gb_per_s == pytest.approx(row.nbytes / (1e3 * row.us))
            assert row.gflop_per_s == pytest.approx(row.flops / (1e3 * row.us))


def test_figures_worked_out_by_hand(place):
    with rlx.compile(product_and_sum(), place, options=rlx.CompileOptions(fuse=False)) as cg:
        plain = cg.run_slots
        profile = cg.profile({"a": A, "b": A}, runs=7)
        assert cg.run_slots is plain
        np.testing.assert_array_equal(cg.run_slots()[1], 0)  # the views stay as they are
    assert profile.runs == 7
    rows = {row.name: row for row in profile.rows}
    for name, calls, nbytes, flops in (PRODUCT, ("add", 1, 3 * N * N * 4, N * N)):
        row = rows.pop(name)
        assert (row.calls, row.nbytes, row.flops) == (calls, nbytes, flops)
        assert row.bandwidth_share == pytest.approx(row.gb_per_s / profile.peak_gb_per_s)
        assert row.compute_share == pytest.approx(row.gflop_per_s / profile.peak_gflop_per_s)
    assert not rows
    assert len(profile.nodes) == 2
    assert all("test_profile.py:" in node.name for node in profile.nodes)
    check_sums(profile)


def test_the_peaks_are_those_of_the_cost_model(place):
    with rlx.compile(product_and_sum(), place) as cg:
        profile = cg.profile(runs=1)
    model = rlx.cost.CpuCostModel()
    if place == "webgpu":
        software = cg._state.target.info.software
        model = rlx.cost.WebGpuCostModel(cg.device, software=software)
    assert profile.peak_gb_per_s == model.memory_bw()
    assert profile.peak_gflop_per_s == model.sgemm_gflops(N, N, N)
    assert "cost model" in profile.peaks


def test_one_op_in_several_nodes_and_several_kernels(place, monkeypatch):
    monkeypatch.setenv("RLX_VARIANT", "fft=passes")
    g = rlx.Graph()
    x = g.input("x", (3, N))
    g.set_outputs([g.softmax(g.softmax(x)), g.rfft(x)])
    with rlx.compile(g, place) as cg:
        profile = cg.profile({"x": A[:3]})
        assert profile.runs == 20
        softmax = next(row for row in profile.rows if row.name == "softmax")
        rfft = next(row for row in profile.rows if row.name == "rfft")
        node = next(node for node in cg._state.lowered.graph.nodes if node.op == "rfft")
        kernels = sum(call.node.op == "rfft" for call in cg._state.lowered.schedule.calls)
    assert softmax.calls == 2
    assert softmax.nbytes == 2 * 2 * 3 * N * 4
    assert sum("softmax" in node.name for node in profile.nodes) == 2
    assert rfft.calls == kernels
    assert kernels == 1 if place == "cpu" else kernels > 2
    assert rfft.flops == pytest.approx(node.opdef.flops(node))
    check_sums(profile)


def test_a_loop_counts_its_trips(place):
    trips, body = 5, rlx.Graph("body")
    state = body.input("state", (N, N)) @ body.input("row", (N, N))
    body.set_outputs([state])
    g = rlx.Graph()
    g.set_outputs([g.scan(body, 1, g.input("start", (N, N)), g.input("rows", (trips, N, N)))])
    rows = np.stack([np.eye(N, dtype=np.float32)] * trips)
    with rlx.compile(g, place) as cg:
        profile = cg.profile({"start": A, "rows": rows}, runs=3)
    row = next(row for row in profile.rows if row.name == "matmul")
    assert row.calls == trips
    assert row.flops == trips * PRODUCT[3]
    assert sum(row.flops for row in profile.rows) == trips * PRODUCT[3]
    check_sums(profile)


def test_a_time_is_the_median_times_the_calls_of_a_run():
    with rlx.compile(product_and_sum(), "cpu") as cg:
        kernels = list(kernels_of(cg._state.lowered.schedule.calls).values())
    totals = Totals()
    for ns in (100, 300, 200_000, 100, 300, 300):
        totals.kernel(kernels[0], 1000, 1000 + ns)
    totals.kernel(kernels[1], 0, 5, device_ns=1800)  # the device's own time goes before
    totals.runs = 2
    profile = totals.profile("cpu", rlx.cost.CpuCostModel())
    by_calls = {row.calls: row for row in profile.rows}
    assert by_calls[3].us == pytest.approx(3 * 0.3)
    assert by_calls[0.5].us == pytest.approx(0.5 * 1.8)
    assert profile.us == pytest.approx(1.8)


@pytest.mark.webgpu
def test_a_part_on_the_host_is_a_row_without_peaks(webgpu):
    g = rlx.Graph()
    x = g.input("x", (4, 16))
    g.set_outputs([g.cast(g.exp(g.cast(x * 2.0, "f64")), "f32")])
    with rlx.compile(g, webgpu) as cg:
        profile = cg.profile()
    row = next(row for row in profile.rows if row.name == "cast+exp+cast on the host")
    assert row.nbytes == 2 * 4 * 16 * 4
    assert row.bandwidth_share is None
    assert row.compute_share is None
    check_sums(profile)


def test_totals_of_every_run(place, tmp_path):
    options = rlx.CompileOptions(profile=True)
    with rlx.compile(product_and_sum(), place, options=options) as cg:
        for _ in range(3):
            cg.run({"a": A, "b": A})
        cg.run_pipelined([{"a": A, "b": A}] * 2)
        assert cg.profile().runs == 5
        with cg.trace(tmp_path / "trace.json"):
            cg.run_slots()  # in the trace instead
        np.testing.assert_array_equal(cg.run_slots(A, A)[1], A + A)
        assert cg.profile().runs == 6
        assert cg.profile({"a": A, "b": A}, runs=2).runs == 2
        profile = cg.profile()
        assert profile.runs == 6
        row = next(row for row in profile.rows if row.name == "matmul")
        assert (row.calls, *map(round, (row.nbytes, row.flops))) == PRODUCT[1:]
        check_sums(profile)
        with cg.clone() as clone:
            clone.run({"a": A, "b": A})
            assert clone.profile().runs == 1


def test_without_a_run_yet_the_totals_make_some(place):
    options = rlx.CompileOptions(profile=True)
    with rlx.compile(product_and_sum(), place, options=options) as cg:
        assert cg.profile(runs=4).runs == 4


def test_json_and_table(place):
    with rlx.compile(product_and_sum(), place) as cg:
        profile = cg.profile({"a": A, "b": A}, runs=2)
    result = json.loads(profile.to_json())
    assert result["device"] == place
    assert [row["name"] for row in result["rows"]] == [row.name for row in profile.rows]
    assert result["nodes"][0]["us"] == profile.nodes[0].us
    text = str(profile)
    for word in ("matmul", "GFLOP/s", "of peak", "2 runs", "cost model"):
        assert word in text
    assert f"{PRODUCT[2]:,}" in text


def test_what_is_refused():
    with rlx.compile(product_and_sum(), "cpu") as cg:
        with pytest.raises(rlx.InputError, match="1 or more"):
            cg.profile(runs=0)
        with pytest.raises(rlx.UnknownNameError, match="no input named"):
            cg.profile({"c": A})
    with pytest.raises(rlx.InputError, match="is closed"):
        cg.profile()
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) + g.param("w", (2,))])
    with pytest.raises(rlx.InputError, match="never set"):
        rlx.compile(g, "cpu").profile()
    for device in ("reference", "null"):
        with pytest.raises(rlx.CompileError, match="can't time kernels"):
            rlx.compile(g, device, {"w": np.ones(2)}).profile()
        with pytest.raises(rlx.CompileError, match="can't time kernels"):
            rlx.compile(g, device, options=rlx.CompileOptions(profile=True))


def test_capabilities_say_who_takes_times(webgpu):
    for device, expected in (("reference", False), ("null", False), ("cpu", True)):
        cg = rlx.compile(product_and_sum(), device)
        assert cg.capabilities.device_timestamps is expected
    cg = rlx.compile(product_and_sum(), webgpu)
    result = "timestamp-query" in cg._state.target.info.features
    assert cg.capabilities.device_timestamps is result


def test_no_share_of_a_peak_is_above_all_of_it():
    from dataclasses import replace

    g = rlx.Graph()
    g.set_outputs([g.exp(g.input("x", (64,)))])
    with rlx.compile(g, "cpu") as cg:
        result = cg.profile({"x": np.ones(64, np.float32)}, 2)
    fast = [replace(row, bandwidth_share=1.709, compute_share=0.5) for row in result.rows]
    text = replace(result, rows=tuple(fast)).table()
    assert "170.9" not in text
    assert "above" in text
    assert "data that stays in caches" in text


def test_no_transfer_is_as_fast_as_the_bound_of_the_clock():
    from rlx.cli.devices import _speed

    assert _speed(12.34) == "12.3 GB/s"
    assert _speed(1000.0) == _speed(999.9999) == "faster than can be told"


def test_a_graph_with_dims_is_profiled_at_the_sizes_of_its_runs(target_device):
    g = rlx.Graph()
    g.set_outputs([g.softmax(g.input("x", (rlx.Dim("n"), 4)), -1)])
    with rlx.compile(g, target_device) as cg:
        for rows in (3, 7, 3):
            profile = cg.profile({"x": np.ones((rows, 4), np.float32)}, runs=2)
            assert profile.rows[0].nbytes == 2 * rows * 4 * 4
