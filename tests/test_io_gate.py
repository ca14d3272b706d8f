"""The I/O profile and the fusion gate: known answers, and the arithmetic against its definition."""

import math

import numpy as np
import pytest
from calibrations import figures
from hypothesis import given
from hypothesis import strategies as st
from samples import looped

import rlx
from rlx import FusionBenefit, GraphIoOptions, GraphIoProfile, IoFusionGate
from rlx.cost import CalibratedModel, RooflineModel, WebGpuCostModel

GATES = {"metal": IoFusionGate.metal(), "webgpu": IoFusionGate.webgpu(), "cpu": IoFusionGate.cpu()}


def spectrum():
    g = rlx.Graph()
    return g, g.input("spec", (4, 512))


def test_known_answer_of_two_profiles():
    before, after = GraphIoProfile(2, 1, 8192, 16384), GraphIoProfile(1, 1, 512, 16384)
    assert rlx.fusion_benefit(before, after) == FusionBenefit(1, 0, 7680, 0)


def test_known_answer_of_the_gates():
    dense = GraphIoProfile(3, 0, 33554432, 184549376)
    fused = GraphIoProfile(4, 1, 1048576, 219152384)
    assert GATES["metal"].should_fuse(dense, fused)
    assert not GATES["webgpu"].should_fuse(dense, fused)
    benefit = rlx.fusion_benefit(dense, fused)
    assert benefit == FusionBenefit(-1, -1, 32505856, -34603008)
    # On shared memory a byte read back weighs 1 ns.
    metal = -500 - 5_000 - 34603008 / 200 + 32505856 - 2e6
    assert GATES["metal"].score_ns(benefit) == pytest.approx(metal, rel=1e-12)
    webgpu = -3_000 - 30_000 - 34603008 / 100 + 32505856 / 40 - 25e6
    assert GATES["webgpu"].score_ns(benefit) == pytest.approx(webgpu, rel=1e-12)


def test_known_answer_of_concat_and_fft():
    g = rlx.Graph()
    x = g.input("x", (8, 512))
    g.set_outputs([g.fft(g.concat([x, x - x], axis=1))])
    profile = rlx.profile_graph_io(g)
    assert profile.kernel_launches == 3
    assert profile.host_output_bytes == 8 * 512 * 2 * 4
    # sub reads x twice, concat reads x and the difference, fft reads and writes the block.
    single = 8 * 512 * 4
    assert profile.device_traffic_bytes == 3 * single + 4 * single + 4 * single
    assert profile.sync_points == 0
    assert rlx.profile_graph_io(g, GraphIoOptions(fft_host_sync=True)).sync_points == 1


def test_known_answer_of_welch_peaks():
    g, spec = spectrum()
    g.set_outputs([g.welch_peaks(spec, 16, 2)])
    profile = rlx.profile_graph_io(g)
    assert profile.host_output_bytes == 2 * 16 * 2 * 4
    assert profile.device_traffic_bytes == 4 * 512 * 4 + 2 * 16 * 2 * 4
    assert profile.device_traffic_bytes > profile.host_output_bytes
    assert (profile.kernel_launches, profile.sync_points) == (1, 1)


@pytest.mark.parametrize("transform", ["fft", "rfft"])
def test_every_fourier_transform_waits_when_told_so(transform):
    g, x = spectrum()
    g.set_outputs([getattr(g, transform)(x)])
    assert rlx.profile_graph_io(g).sync_points == 0
    assert rlx.profile_graph_io(g, GraphIoOptions(fft_host_sync=True)).sync_points == 1


def test_leaves_and_reorderings_count_nothing_also_as_outputs():
    g = rlx.Graph()
    x, w, c = g.input("x", (4, 6)), g.param("w", (2, 3)), g.constant(np.ones(5, np.float32))
    moved = [g.reshape(x, (6, 4)), g.transpose(x), g.narrow(x, 1, 0, 2), g.unsqueeze(w, 0)]
    g.set_outputs([x, w, c, *moved])
    assert rlx.profile_graph_io(g) == GraphIoProfile(0, 0, 0, 0)


def test_an_output_counts_once_and_by_its_dtype():
    g = rlx.Graph()
    x = g.input("x", (4, 6), "f16")
    y = g.relu(x)
    g.set_outputs([y, y, g.cast(x, "f64")])
    profile = rlx.profile_graph_io(g)
    assert profile == GraphIoProfile(2, 0, 24 * 2 + 24 * 8, 24 * 4 + 24 * 10)
    assert profile.host_readback_bytes(unified_memory=True) == 240
    assert profile.host_readback_bytes(unified_memory=False) == 240 + 336 // 4


def test_an_op_with_several_results_is_one_launch():
    g = rlx.Graph()
    x = g.input("x", (2, 8))
    g.set_outputs(list(g.topk(x, 3)))
    results = 2 * 3 * 4 + 2 * 3 * 4
    assert rlx.profile_graph_io(g) == GraphIoProfile(1, 0, results, 2 * 8 * 4 + results)


def test_chosen_outputs():
    g = rlx.Graph()
    x = g.input("x", (4,))
    g.set_outputs([g.relu(x), g.concat([x, x], axis=0), x])
    whole = rlx.profile_graph_io(g)
    assert whole.host_output_bytes == 16 + 32
    expected = {(): 0, (0,): 16, (1,): 32, (2,): 0, (1, 1, 0): 48}
    for indices, nbytes in expected.items():
        chosen = rlx.profile_graph_io_outputs(g, indices)
        assert chosen.host_output_bytes == nbytes
        assert chosen.device_traffic_bytes == whole.device_traffic_bytes
        assert chosen.kernel_launches == whole.kernel_launches


@looped("index", [3, -1, 1.0, "0", True, None])
def test_an_index_of_no_output_is_refused(index):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,))] * 3)
    with pytest.raises(rlx.InputError, match="no such output"):
        rlx.profile_graph_io_outputs(g, [index])


def test_what_is_no_graph_is_refused():
    with pytest.raises(rlx.GraphError, match="not a graph"):
        rlx.profile_graph_io("graph")


def test_kinds_that_wait_for_the_host():
    every = {"log_mel", "log_mel_backward", "custom", "welch_peaks"}
    assert rlx.host_sync_op_kinds() == every
    assert rlx.host_sync_op_kinds(None) == every
    assert rlx.host_sync_op_kinds("cpu") == set()
    # WGSL has the spectra; a custom op may have none.
    assert rlx.host_sync_op_kinds("webgpu") == {"custom"}
    with pytest.raises(rlx.DeviceParseError):
        rlx.host_sync_op_kinds("gpuu")


def test_a_device_with_the_kernel_does_not_wait():
    g, spec = spectrum()
    x = g.input("x", (5,))
    rlx.register_custom_op("gate_host_only", shape=lambda x: x, numpy=lambda x: x)
    g.set_outputs(
        [
            g.welch_peaks(spec, 4, 1),
            g.custom("axpy", [x, x], {"alpha": 1.0}),
            g.custom("gate_host_only", [x]),
        ]
    )
    syncs = {
        kernels: rlx.profile_graph_io(g, GraphIoOptions(kernel_set=kernels)).sync_points
        for kernels in (None, "cpu", "webgpu", "")
    }
    assert syncs == {None: 3, "cpu": 0, "webgpu": 1, "": 0}


COUNTS = st.integers(0, 2**40)
PROFILES = st.builds(GraphIoProfile, COUNTS, COUNTS, COUNTS, COUNTS)
FIGURES = st.floats(0, 1e9)


@given(PROFILES, PROFILES, FIGURES, FIGURES, FIGURES, FIGURES, st.booleans(), FIGURES, FIGURES)
def test_the_gate_is_its_definition(before, after, dispatch, trip, bw, rb, unified, penalty, least):  # noqa: PLR0913 - one for each figure that is drawn
    benefit = rlx.fusion_benefit(before, after)
    launches = before.kernel_launches - after.kernel_launches
    syncs = before.sync_points - after.sync_points
    traffic = before.device_traffic_bytes - after.device_traffic_bytes
    readback = before.host_output_bytes - after.host_output_bytes
    expected = launches * dispatch + syncs * trip + traffic / max(bw, 1)
    expected += readback / max(0 if unified else rb, 1)
    assert benefit.score_ns(dispatch, trip, bw, rb, unified) == expected
    assert benefit.should_fuse(dispatch, trip, bw, rb, unified, least) == (expected >= least)
    gate = IoFusionGate(dispatch, trip, bw, rb, unified, penalty, least)
    gated = expected - max(0, -syncs) * penalty
    assert gate.score_ns(benefit) == gated
    assert gate.should_fuse(before, after) == (gated >= least)


def test_the_score_that_equals_the_least_gain_fuses():
    before, after = GraphIoProfile(2, 0, 0, 0), GraphIoProfile(1, 0, 0, 0)
    gate = IoFusionGate(1000.0, 0.0, 1.0, 1.0, True, 0.0, 1000.0)
    assert gate.should_fuse(before, after)
    assert not gate.should_fuse(after, before)


def test_the_least_gain_can_refuse_and_take_everything():
    before, after = GraphIoProfile(2, 0, 0, 0), GraphIoProfile(1, 9, 1 << 40, 0)
    figures = (1000.0, 1e9, 1.0, 1.0, True, 1e9)
    assert not IoFusionGate(*figures, math.inf).should_fuse(after, before)
    assert IoFusionGate(*figures, -math.inf).should_fuse(before, after)


@looped("field", ["dispatch_ns", "roundtrip_ns", "memory_bw", "min_gain_ns"])
@looped("value", [math.nan, "5", None, True, 10**400])
def test_a_gate_of_no_numbers_is_refused(field, value):
    figures = dict.fromkeys(IoFusionGate.__dataclass_fields__, 1.0)
    with pytest.raises(rlx.InputError, match=field):
        IoFusionGate(**{**figures, "unified_memory": True, field: value})
    with pytest.raises(rlx.InputError, match="memory_bw"):
        IoFusionGate(**{**figures, "unified_memory": True, "memory_bw": -1.0})


@looped(
    ("device", "unified", "kind"),
    [
        ("cpu", True, "cpu"),
        ("webgpu:1", False, "webgpu"),
        ("vulkan", True, "metal"),
        ("metal", True, "metal"),
        ("cuda", False, "webgpu"),
    ],
)
def test_a_gate_from_a_cost_model(device, unified, kind):
    model = RooflineModel(rlx.Device.parse(device), 1.0, 11.0, 22.0, 33.0, 44.0, 55.0, unified)
    gate, expected = IoFusionGate.from_cost_model(model), GATES[kind]
    assert (gate.dispatch_ns, gate.roundtrip_ns) == (11.0, 22.0)
    assert (gate.memory_bw, gate.host_readback_bw, gate.unified_memory) == (33.0, 55.0, unified)
    assert gate.host_thunk_penalty_ns == expected.host_thunk_penalty_ns
    assert gate.min_gain_ns == expected.min_gain_ns
    assert IoFusionGate.defaults_for(model.device, unified) == expected


def test_a_software_adapter_counts_as_webgpu():
    gate = IoFusionGate.from_cost_model(WebGpuCostModel("webgpu", software=True))
    assert gate.host_thunk_penalty_ns == 25e6


def test_a_calibrated_device_states_its_own_penalty():
    model = CalibratedModel("webgpu", figures(host_thunk_ns=123_456.0, unified_memory=False))
    gate = IoFusionGate.from_cost_model(model)
    assert gate.host_thunk_penalty_ns == 123_456.0
    assert (gate.dispatch_ns, gate.roundtrip_ns) == (20.0, 200.0)
    assert gate.min_gain_ns == IoFusionGate.webgpu().min_gain_ns
