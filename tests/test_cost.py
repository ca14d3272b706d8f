"""The cost model: defaults as known answers, interpolation between what was measured, estimates part by part."""

import math
from itertools import islice

import numpy as np
import pytest
from calibrations import GFLOPS, figures, line
from dispatches import planned_as
from hypothesis import given
from hypothesis import strategies as st
from samples import looped

import rlx
from rlx.compiler.device_choice import choose
from rlx.cost import CalibratedModel, CpuCostModel, Curve, Lowering, WebGpuCostModel
from rlx.cost.dependency_chain import SERIAL, serial_steps
from rlx.cost.estimate import FREE, graph_cost, node_costs
from rlx.cost.op_classes import CONTROL, KINDS, ROWED, kind_of, more_rows, product_size, work_of
from rlx.device.names import info_of
from rlx.ir.graph import PART
from rlx.ir.opdef import REGISTRY
from rlx.ops.conformance_cases import cases
from rlx.ops.placeholders import LEAVES

CPU, GPU = CpuCostModel(), WebGpuCostModel("webgpu")


def graph(build, *shapes, dtype="f32"):
    g = rlx.Graph()
    g.set_outputs([build(g, *(g.input(f"x{index}", s, dtype) for index, s in enumerate(shapes)))])
    return g


def only(g, model=CPU, **lowering):
    (cost,) = node_costs(g, model, Lowering(**lowering))
    return cost


# --- curves ----------------------------------------------------------------------------------------

AMOUNTS = st.floats(1, 1e9)
POINTS = st.lists(st.tuples(AMOUNTS, AMOUNTS), min_size=1, max_size=8, unique_by=lambda p: p[0])


@given(POINTS, AMOUNTS, AMOUNTS)
def test_a_curve_never_falls(points, a, b):
    curve = Curve.through(points)
    low, high = sorted((a, b))
    assert 0 < curve.ns(low) <= curve.ns(high) * (1 + 1e-9)


@given(POINTS)
def test_a_curve_is_exact_where_it_was_measured(points):
    rising = sorted(zip(sorted(w for w, _ in points), sorted(ns for _, ns in points)))
    curve = Curve.through(rising)
    for work, ns in rising:
        assert curve.ns(work) == pytest.approx(ns)
        assert curve.per_ns(work) == pytest.approx(work / ns)


@given(POINTS)
def test_noise_is_shared_by_the_points_that_are_out_of_order(points):
    curve = Curve.through(points)
    before = math.fsum(math.log(ns) for _, ns in points)
    after = math.fsum(math.log(ns) for _, ns in curve.points)
    assert after == pytest.approx(before, abs=1e-6)


def test_outside_of_its_points_a_curve_keeps_its_speed():
    curve = Curve(((10.0, 5.0), (1000.0, 50.0)))
    assert curve.ns(1) == pytest.approx(0.5)
    assert curve.ns(100) == pytest.approx(math.sqrt(5 * 50))
    assert curve.ns(10_000) == pytest.approx(500)
    assert curve.ns(0) == 0
    assert curve.largest == 1000


@looped(
    "points",
    [
        (),
        ((1, 1), (1, 2)),
        ((1, 2), (2, 1)),
        ((0, 1),),
        ((1, 0),),
        ((1, math.nan),),
        ((math.inf, 1),),
    ],
)
def test_points_that_make_no_curve(points):
    with pytest.raises(ValueError, match=r"points above zero|rises"):
        Curve(points)


# --- defaults --------------------------------------------------------------------------------------


def test_a_software_adapter_is_slower_than_the_cpu_until_measured():
    software = WebGpuCostModel("webgpu", software=True)
    for n in (1, 64, 4096):
        g = graph(lambda g, x, y: x @ y, (n, n), (n, n))
        assert rlx.estimate_graph_cost(g, software) > rlx.estimate_graph_cost(g, CPU)


def test_a_product_is_bound_by_arithmetic_or_by_memory():
    n = 512
    large = only(graph(lambda g, x, y: x @ y, (n, n), (n, n)))
    assert large.flops == 2 * n**3
    assert large.nbytes == 3 * n * n * 4
    assert large.ns == pytest.approx(2 * n**3 / 200 + 300)
    assert large.bound == "compute"
    thin = only(graph(lambda g, x, y: x @ y, (1, n), (n, n)))
    assert thin.ns == pytest.approx((n + n * n + n) * 4 / 30 + 300)
    assert thin.bound == "memory"
    assert only(graph(lambda g, x, y: x @ y, (2, 2), (2, 2))).bound == "dispatch"


def test_flops_of_what_is_like_a_product():
    b, s, h, d = 1, 64, 2, 32
    shape = (b, s, h * d)
    for kind, part in (("none", 1.0), ("causal", 0.5)):
        cost = only(
            graph(
                lambda g, q, k, v, kind=kind: g.attention(
                    q, k, v, kind=kind, num_heads=h, head_dim=d
                ),
                *[shape] * 3,
            )
        )
        assert cost.flops == pytest.approx(part * 4 * b * h * s * s * d, rel=0.03)
    conv = only(graph(lambda g, x, w: g.conv2d(x, w), (1, 3, 10, 10), (8, 3, 3, 3)))
    assert conv.flops == 2 * (8 * 8 * 8) * (3 * 3 * 3)
    n = 256
    fft = only(graph(lambda g, x: g.fft(x), (4, 2 * n)))
    assert fft.flops == pytest.approx(4 * 5 * n * math.log2(n))


def test_leaves_and_views_cost_nothing():
    g = rlx.Graph()
    g.set_outputs([g.reshape(g.input("x", (4, 4)), (16,)), g.param("w", (2,)), g.constant(1.0)])
    assert node_costs(g, CPU) == []
    assert graph_cost(g, CPU).ns == CPU.roundtrip_overhead_ns()


def test_a_run_is_the_sum_of_its_parts():
    g = graph(lambda g, x: g.exp(x), (1000, 1000))
    cost = graph_cost(g, GPU)
    nbytes = 4_000_000
    assert cost.roundtrip_ns == 80_000
    assert cost.upload_ns == pytest.approx(nbytes / 12)
    assert cost.readback_ns == pytest.approx(nbytes / 12)
    assert cost.nodes[0].ns == pytest.approx(2 * nbytes / 120 + 5_000)
    assert rlx.estimate_graph_cost(g, GPU) == pytest.approx(cost.ns)
    assert cost.ns == pytest.approx(80_000 + 2 * nbytes / 12 + 2 * nbytes / 120 + 5_000)
    on_cpu = graph_cost(g, CPU)
    assert (on_cpu.upload_ns, on_cpu.readback_ns) == (0, 0)
    # An output that stands twice is read back once.
    g.set_outputs([*g.outputs, *g.outputs])
    assert graph_cost(g, GPU).readback_ns == cost.readback_ns


def test_a_small_product_belongs_to_the_cpu():
    g = graph(lambda g, x, y: x @ y, (4, 4), (4, 4))
    assert rlx.pick_best_device(g, [GPU, CPU]) == "cpu"
    large = graph(lambda g, x, y: x @ y, (2048, 2048), (2048, 2048))
    assert rlx.pick_best_device(large, [GPU, CPU]) == "webgpu"
    assert str(choose(g).device) == "cpu"


class MinimalCostModel:
    """A model of someone's own: the protocol and nothing more."""

    device, unified_memory = "mine", True

    def __init__(self, gflops=100.0):
        self.sgemm_gflops = lambda m, k, n: gflops
        self.dispatch_overhead_ns = lambda: 10.0
        self.roundtrip_overhead_ns = lambda: 100.0
        self.memory_bw = self.host_readback_bw = self.host_upload_bw = lambda: 50.0
        self.num_threads = lambda: 2


def test_models_of_others():
    g = graph(lambda g, x, y: x @ y, (64, 64), (64, 64))
    assert rlx.estimate_graph_cost(g, MinimalCostModel()) == pytest.approx(110 + 2 * 64**3 / 100)
    assert rlx.pick_best_device(g, [CPU, MinimalCostModel()]) == "mine"
    assert rlx.pick_best_device(g, []) == "cpu"

    endless = MinimalCostModel()
    endless.roundtrip_overhead_ns = lambda: math.inf
    assert rlx.pick_best_device(g, [endless]) == "cpu"


# --- measured --------------------------------------------------------------------------------------


def calibrated(**changes):
    return CalibratedModel("cpu", figures(**changes))


@pytest.mark.parametrize("n", [64, 256, 1024])
def test_products_are_exact_where_they_were_measured(n):
    assert calibrated().sgemm_gflops(n, n, n) == pytest.approx(GFLOPS[n])


@given(st.integers(1, 4096), st.integers(1, 4096))
def test_a_larger_square_product_never_takes_less(a, b):
    model = calibrated()
    low, high = sorted((a, b))
    assert model.product_ns("f32", 1, low, low, low) <= model.product_ns("f32", 1, high, high, high)


def test_the_smallest_size_counts():
    model = calibrated()
    # A row alone and eight columns were measured, at these speeds.
    assert model.sgemm_gflops(1, 1024, 1024) == pytest.approx(5)
    assert model.sgemm_gflops(512, 512, 8) == pytest.approx(8)
    speeds = [model.sgemm_gflops(m, 512, 512) for m in (1, 4, 16, 64, 256, 512)]
    assert speeds == sorted(speeds)
    speeds = [model.sgemm_gflops(512, 512, n) for n in (1, 4, 8, 16, 64, 512)]
    assert speeds == sorted(speeds)
    # Columns that are not there are computed all the same.
    first, eight = (model.product_ns("f32", 1, 512, 512, n) for n in (1, 8))
    assert first == eight


def test_a_batch_is_computed_one_by_one_on_the_cpu_and_at_once_on_a_gpu():
    cpu, gpu = calibrated(), calibrated(unified_memory=False)
    single = cpu.product_ns("f32", 1, 64, 64, 64)
    assert cpu.product_ns("f32", 64, 64, 64, 64) == pytest.approx(64 * single)
    assert gpu.product_ns("f32", 64, 64, 64, 64) == pytest.approx(2 * 64**4 / GFLOPS[256])


def test_wide_elements_take_twice_the_time_unless_measured():
    model = calibrated()
    f32 = model.product_ns("f32", 1, 2048, 2048, 2048)
    assert model.product_ns("f64", 1, 2048, 2048, 2048) == pytest.approx(2 * f32)
    both = figures().matmul_ns_by_flops | {"f64": line(30.0, 1e3, 1e9)}
    model = calibrated(matmul_ns_by_flops=both)
    assert model.product_ns("f64", 1, 64, 64, 64) == pytest.approx(2 * 64**3 / 30)


def test_a_kind_that_was_not_measured_takes_the_speed_of_another():
    model = calibrated()
    assert model.kernel_ns("arithmetic", 1e6) == pytest.approx(1e6 / 15)
    assert model.kernel_ns("function", 1e6) == pytest.approx(0.3e6 / 15)
    assert model.kernel_ns("reduce", 1e6) == pytest.approx(8e6 / 4)
    assert model.kernel_ns("gather", 1e6) == pytest.approx(1.5e6 / 20)  # of copies
    assert model.kernel_ns("convolution", 2.0 * 64**3) == pytest.approx(2 * 64**3 / 40)
    for kind in KINDS:
        bare = calibrated(kernel_ns_by_work={}, row_ns_by_kind={})
        assert 0 < bare.kernel_ns(kind, 1e6) < 1e9


def test_short_rows_cost_more_and_long_ones_less():
    model = calibrated()
    elements = 1 << 16
    usual, short, longer = (
        only(graph(lambda g, x: g.softmax(x), (elements // n, n)), model) for n in (256, 16, 4096)
    )
    assert short.ns - usual.ns == pytest.approx(30 * (elements / 16 - elements / 256))
    assert longer.ns < usual.ns
    assert longer.ns > 0.2 * usual.ns


def test_memory_binds_what_computes_little():
    model = calibrated(copy_ns_by_bytes=line(0.1, 1e3, 1e9))
    cost = only(graph(lambda g, x: g.neg(x), (1000, 1000)), model)
    assert cost.bound == "memory"
    assert cost.ns == pytest.approx(8e6 / 0.1 + 20)


def test_a_lookup_reads_the_rows_it_picks():
    table = graph(lambda g, x: g.gather(x, g.constant(np.int32([1, 2]))), (100_000, 64))
    assert only(table).nbytes == 2 * 2 * 64 * 4 + 2 * 4
    assert only(graph(lambda g, x: g.narrow(x, 0, 0, 10), (100_000, 64))).nbytes == 2 * 10 * 64 * 4


# --- the graph as it runs --------------------------------------------------------------------------


def test_every_op_has_a_kind():
    known = set(KINDS)
    for name, record in REGISTRY.items():
        if record.expand or record.view or name in FREE or name in CONTROL or record.elementwise:
            continue
        assert any(name in kind.ops for kind in KINDS.values()) or name == "region", name
    listed = [op for kind in KINDS.values() for op in kind.ops]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(REGISTRY)
    assert all(kind.stand_in in known | {""} for kind in KINDS.values())
    assert known >= ROWED


@looped("op", [n for n, r in REGISTRY.items() if r.samples], ids=str)
def test_any_node_can_be_estimated(op):
    models = [
        CPU,
        GPU,
        MinimalCostModel(),
        calibrated(),
        calibrated(kernel_ns_by_work={}, row_ns_by_kind={}),
    ]
    # Many differ in nothing but dtypes.
    for case in islice(cases(only=op), 0, None, 4):
        result = planned_as(case.graph())
        for model in models:
            cost = graph_cost(result, model)
            assert math.isfinite(cost.ns)
            assert all(n.ns > 0 for n in cost.nodes if n.node.op not in CONTROL)
            assert all(node.bound in ("compute", "memory", "dispatch") for node in cost.nodes)


def shared_node(*shapes, **attrs):
    """A node of products of one input, alone in its graph."""
    g = rlx.Graph()
    inputs = [g.input(f"x{index}", shape) for index, shape in enumerate(shapes)]
    return g.add_node("shared_products", inputs, attrs)


@pytest.mark.parametrize("model", [CPU, GPU, calibrated()], ids=["cpu", "gpu", "calibrated"])
def test_joined_products_cost_no_more_than_apart(model):
    apart = graph(lambda g, x, w: x @ w, (512, 256), (256, 3 * 256))
    (product,) = [cost for cost in graph_cost(apart, model).nodes if cost.node.op == "matmul"]
    g = rlx.Graph()
    x, *weights = (g.input(f"x{index}", (n, 256)) for index, n in enumerate((512, 256, 256, 256)))
    shared = g.add_node("shared_products", [x, *weights], {"act": "none", "present": ()})
    g.set_outputs([g.add_node(PART, [shared], {"index": 0})])
    (joined,) = graph_cost(g, model).nodes
    assert joined.flops == product.flops
    assert joined.ns == pytest.approx(product.ns)


def test_kinds_of_nodes():
    def of(build, *shapes):
        (node,) = [node for node in graph(build, *shapes).nodes if node.op not in FREE]
        return node

    assert kind_of(of(lambda g, x: g.exp(x), (4,))) == "function"
    assert kind_of(of(lambda g, x, y: x + y, (4,), (4,))) == "arithmetic"
    assert product_size(of(lambda g, x, w: x @ w, (3, 5, 7), (7, 9))) == (1, 15, 7, 9)
    assert product_size(of(lambda g, x, w: x @ w, (3, 5, 7), (3, 7, 9))) == (3, 5, 7, 9)
    assert product_size(of(lambda g, x, w: x @ w, (7,), (7, 9))) == (1, 1, 7, 9)
    assert product_size(of(lambda g, x, w: x @ w, (5, 7), (7,))) == (1, 5, 7, 1)
    gated = of(
        lambda g, *o: g.add_node("gated_product", o, {"act": "silu"}), (2, 3, 7), (7, 9), (7, 9)
    )
    assert product_size(gated) == (1, 6, 7, 18)
    attrs = {"act": "none", "present": ("bias",)}
    assert product_size(shared_node((3, 7), (9,), (7, 5), (7, 4), **attrs)) == (1, 3, 7, 9)
    assert kind_of(gated) == "product"
    assert more_rows(of(lambda g, x: g.softmax(x), (512, 16))) == 512 - 32
    assert more_rows(of(lambda g, x: g.sum(x, -1), (512, 16))) == 512 - 32
    pieces = of(lambda g, x, y: g.concat([x, y], 1), (512, 16), (512, 16))
    assert more_rows(pieces) == 1024 - 64


def webgpu_model():
    """The figures of the adapter here, which is a real GPU or one in software."""
    return WebGpuCostModel("webgpu", software=info_of(rlx.Device("webgpu")).software)


@pytest.mark.parametrize("place", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_the_estimate_is_that_of_the_fused_graph(place, request):
    if place == "webgpu":
        request.getfixturevalue("webgpu")
    g = graph(lambda g, x, w: g.relu((x @ w) * 2.0 + 1.0), (64, 64), (64, 64))
    with rlx.compile(g, place) as cg:
        costs = cg.cost()
        calls = len(cg._state.lowered.schedule.calls)
        model = CPU if place == "cpu" else webgpu_model()
    assert len(costs) == calls < 4
    result = choose(g)
    device = rlx.Device(place)
    nodes = result.costs[device].nodes
    assert [(c.node.op, c.ns) for c in nodes] == [(c.node.op, c.ns) for c in costs]
    parts = result.costs[device]
    assert result.estimates[device] == pytest.approx(
        model.roundtrip_overhead_ns()
        + parts.upload_ns
        + parts.readback_ns
        + sum(c.ns for c in nodes)
    )


def test_several_kernels_are_several_dispatches():
    g = graph(lambda g, x: g.softmax(x), (4, 4))
    node = g.outputs[0]
    first, three = only(g), only(g, dispatches={node.id: 3})
    assert three.ns - first.ns == pytest.approx(600)


@pytest.mark.webgpu
def test_parts_on_the_host_are_counted(webgpu):
    def build(g, x):
        return g.exp(g.cast(g.exp(g.cast(g.exp(x), "f64")), "f32"))

    result = choose(graph(build, (1000,)))
    cost = result.costs[rlx.Device("webgpu")]
    hosted = [node for node in cost.nodes if node.bound == "host"]
    assert "region" in {node.node.op for node in hosted} or len(hosted) >= 2
    with rlx.compile(graph(build, (1000,)), webgpu) as cg:
        assert cg.host_fallbacks
        assert [c.bound for c in cg.cost()] == [c.bound for c in cost.nodes]
    model = webgpu_model()
    # One stop: a round trip, and 4 kB down and up again.
    assert cost.host_ns == pytest.approx(
        model.roundtrip_overhead_ns()
        + 4000 / model.host_upload_bw()
        + 4000 / model.host_readback_bw()
    )


def test_a_loop_costs_its_trips():
    body = rlx.Graph("body")
    state = body.input("state", (64, 64)) @ body.input("row", (64, 64))
    body.set_outputs([state])

    def trips(n):
        g = rlx.Graph()
        g.set_outputs([g.scan(body, 1, g.input("start", (64, 64)), g.input("rows", (n, 64, 64)))])
        return graph_cost(g, CPU)

    once, often = trips(1), trips(10)
    assert sum(n.ns for n in often.nodes) == pytest.approx(10 * sum(n.ns for n in once.nodes))


def test_work_of_a_region_is_that_of_its_steps():
    g = graph(lambda g, x: g.exp(x * 2.0) + 1.0, (100,))
    with rlx.compile(g, "cpu") as cg:
        (node,) = [n for n in cg._state.lowered.graph.nodes if n.op == "region"]
    assert work_of(node) == {"arithmetic": 200.0, "function": 800.0}


def test_a_profile_has_the_estimate_beside_the_time():
    g = graph(lambda g, x, w: g.softmax(x @ w), (64, 64), (64, 64))
    with rlx.compile(g, "cpu") as cg:
        profile = cg.profile(runs=3)
        expected = {cost.node.op: cost.ns for cost in cg.cost()}
    for row in profile.rows:
        assert row.estimate_us == pytest.approx(expected[row.name] / 1e3)
    assert "estimate us" in str(profile)
    assert '"estimate_us"' in profile.to_json()


# --- what waits ------------------------------------------------------------------------------------------


def test_every_node_has_finite_steps():
    seen = set()
    for case in cases():
        for node in planned_as(case.graph()).nodes:
            if node.op not in LEAVES:
                steps = serial_steps(node)
                seen |= set(steps)
                assert all(0 <= count < math.inf for count in steps.values()), node
    assert seen == set(SERIAL)


def test_little_work_takes_as_long_as_its_steps():
    waits = calibrated(serial_ns_by_kind={"product": 50.0, "recurrence": 2.0})
    none = calibrated(serial_ns_by_kind={})
    assert waits.product_ns("f32", 1, 8, 4096, 8) == pytest.approx(4096 * 50.0)
    assert none.product_ns("f32", 1, 8, 4096, 8) < 4096 * 50.0
    # Much work takes its own time.
    large = (1, 4096, 64, 4096)
    assert waits.product_ns("f32", *large) == none.product_ns("f32", *large)
    assert waits.kernel_ns("recurrence", 10.0, 0.0, 1e6) == pytest.approx(2e6)
    assert waits.kernel_ns("softmax", 10.0, 0.0, 1e6) == none.kernel_ns("softmax", 10.0)


def test_steps_of_known_shapes():
    g = rlx.Graph()
    x = g.input("x", (16, 4, 8))
    y, *_ = g.lstm(x, g.param("w", (1, 80, 8)), g.param("r", (1, 80, 20)))
    q = g.input("q", (1, 5, 24))
    g.set_outputs([y, g.attention(q, q, q, num_heads=3), g.sort(g.input("s", (3, 1024)))])
    results = {}
    for node in g.nodes:
        if node.op not in LEAVES:
            results |= serial_steps(node)
    assert results["recurrence"] == 16 * (20 + 32)
    assert results["attention"] == 5 * (8 + 8)
    assert results["sort"] == 55
