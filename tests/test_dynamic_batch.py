"""The active extent: every op on fewer rows than it was compiled for, and what that saves."""

import re

import numpy as np
import pytest
from dispatches import OF_ONE_PLAN, elements, thinned, usual
from samples import by_family, each

import rlx
from rlx.ir.dtype import DType
from rlx.passes.dynamic_batch import MAX_SCHEDULES, dynamic_rows_of

LEFT_OUT = (DType.F64, DType.F16, DType.BF16)
CASES = [
    case
    for case in OF_ONE_PLAN
    if case.sample.shapes
    and case.sample.shapes[0][:1] > (1,)
    and not set(case.dtypes) & set(LEFT_OUT)
    and case.sample.values is None
]


def first_rows(array, actual, upper):
    return array[: array.shape[0] // upper * actual]


def check_case(case, device):
    """Returns whether the op takes its rows one by one, so that there was something to compare."""
    graph = case.graph()
    upper = case.sample.shapes[0][0]
    actual = (upper + 1) // 2
    a, b = case.operands(0), case.operands(1)
    mixed = [x.copy() for x in a]
    for x, other in zip(mixed, b, strict=True):
        if x.shape[:1] == (upper,):
            x[actual:] = other[actual:]
    stored = dynamic_rows_of(graph, actual, upper).outputs
    with rlx.compile(graph, device) as compiled:
        whole = [view.copy() for view in compiled.run_slots(*a)]
        other = [view.copy() for view in compiled.run_slots(*mixed)]

        def compare(got):
            for index in stored:
                want = first_rows(whole[index], actual, upper).astype(np.float64)
                result = first_rows(got[index], actual, upper).astype(np.float64)
                np.testing.assert_allclose(
                    result, want, 1e-4, 1e-5, err_msg=f"{case} {actual}/{upper}"
                )

        try:
            compare(other)
        except AssertionError:
            return False  # the rows depend on each other, which the caller promises they don't
        compiled.run_slots(*b)  # so that no right answer is left over
        compiled.set_active_extent((actual, upper))
        compare(compiled.run_slots(*mixed))
        compare(compiled.run_pipelined([dict(zip(graph.input_names, mixed, strict=True))])[0])
        compiled.set_active_extent(None)
        np.testing.assert_array_equal(compiled.run_slots(*a)[0], whole[0])
    return bool(stored)


@pytest.mark.parametrize("group", by_family(CASES))
def test_cpu(group):
    """Every case of f32, and one of each other dtype: rows are told apart by shapes alone."""
    few = {id(case) for case in thinned(group)}
    each(usual(group, few, others=False), lambda case: check_case(case, "cpu"))


@pytest.mark.webgpu
@pytest.mark.parametrize("group", by_family(thinned(CASES)))
def test_webgpu(group, webgpu):
    each(group, lambda case: check_case(case, webgpu))


def test_most_ops_take_rows_one_by_one():
    by_rows = set()
    for case in sorted(CASES, key=elements):
        if case.opdef.name not in by_rows and check_case(case, "reference"):
            by_rows.add(case.opdef.name)
    assert len(by_rows) > 0.7 * len({case.opdef.name for case in CASES})


def encoder(rows, width=32):
    """A position table, a product, a norm, heads, attention within a row, and a residual."""
    g = rlx.Graph("encoder")
    x = g.input("x", (rows, 6, width))
    scale = g.input("scale", (width,))
    h = x * scale + g.param("positions", (rows, 6, width))
    qkv = h @ g.param("w", (width, 3 * width))
    q, k, v = (
        g.transpose(g.reshape(part, (rows, 6, 4, width // 4)), (0, 2, 1, 3))
        for part in g.split(qkv, (width,) * 3, axis=-1)
    )
    y = g.attention(q, k, v)
    y = g.reshape(g.transpose(y, (0, 2, 1, 3)), (rows * 6, width))
    y = g.layer_norm(y, g.param("g", (width,)), g.param("b", (width,)))
    g.set_outputs([g.reshape(y, (rows, 6, width)) + x, g.mean(y, [1])])
    return g


def data(graph, seed=0):
    rng = np.random.default_rng(seed)
    nodes = [n for n in graph.nodes if n.op in ("input", "param")]
    return {n.name: rng.normal(size=n.shape).astype(np.float32) for n in nodes}


def test_a_whole_graph(device):
    graph = encoder(16)
    values = data(graph)
    params = {name: values.pop(name) for name in graph.param_names}
    with rlx.compile(graph, device, params) as compiled:
        whole = compiled.run(values)
        compiled.run(data(graph, 1) and {n: 0 * v for n, v in values.items()})
        for actual in (5, 16, 1, 0, 5):
            compiled.set_active_extent((actual, 16))
            first, second = compiled.run(values)
            np.testing.assert_allclose(first[:actual], whole[0][:actual], 1e-5, 1e-5)
            np.testing.assert_allclose(second[: 6 * actual], whole[1][: 6 * actual], 1e-5, 1e-5)
        compiled.set_active_extent((5, 16))
        assert "5 of 16 rows" in compiled.as_text("schedule")
        assert "all are computed" not in compiled.as_text("schedule")
        assert compiled.clone().run(values)[0][-1].tolist() == whole[0][-1].tolist()


@pytest.mark.webgpu
def test_dispatches_and_traffic_shrink(webgpu):
    graph = encoder(64)
    values = data(graph)
    params = {name: values.pop(name) for name in graph.param_names}
    with rlx.compile(graph, webgpu, params) as compiled:
        single = compiled._state.executable
        pipelines = len(single._gpu._pipelines)

        def count():
            before = single.moved()
            compiled.run(values)
            after = single.moved()
            moved = after.uploaded - before.uploaded, after.read_back - before.read_back
            return single.workgroups, *moved

        full = count()
        compiled.set_active_extent((16, 64))
        quarter = count()
        assert full[0] == sum(d.work for d in single._work)
        assert quarter[0] <= 0.3 * full[0]
        assert 4 * (quarter[1] - 128) == full[1] - 128  # the vector without rows goes whole
        assert 4 * quarter[2] == full[2]
        assert len(single._gpu._pipelines) == pipelines
        compiled.set_active_extent(None)
        assert count() == full


def test_calls_of_one_program_serve_many_numbers_of_rows_on_the_cpu():
    graph = encoder(64)
    with rlx.compile(graph, "cpu") as compiled:
        names = [call.kernel for call in compiled._state.lowered.schedule.calls]
        for actual in (*range(2, 64), 0):
            compiled.set_active_extent((actual, 64))
            extent = compiled._state.binding.extent
            assert not actual or [call.kernel for call in extent.schedule.schedule.calls] == names
            assert not actual or extent.graph.outputs[0].shape == (actual, 6, 32)
        assert [extent.schedules[0].serves(n) for n in (2, 63)] == [True, True]
        assert len(extent.schedules) <= 3


def test_programs_for_single_numbers_of_rows_are_few():
    g, x = rlx.Graph(), np.random.default_rng(0).standard_normal((48, 3))
    g.set_outputs([g.softmax(g.input("x", (48, 3)))])
    with rlx.compile(g, "cpu") as compiled:
        (whole,) = compiled.run(x)
        compiled.set_active_extent((40, 48))
        every = compiled._state.extents[48]
        every.ranges = False  # as where a call can't be linked for many
        every.schedules.clear()
        for actual in (*range(48), 3, 40):
            compiled.set_active_extent((actual, 48))
            np.testing.assert_allclose(compiled.run(x)[0][:actual], whole[:actual], 1e-5, 1e-6)
        assert len(every.schedules) == MAX_SCHEDULES


def test_the_whole_is_computed_where_rows_can_not_be_told_apart(device):
    g = rlx.Graph()
    x = g.input("x", (4, 3))
    g.set_outputs([g.transpose(x, (1, 0))])
    value = np.arange(12, dtype=np.float32).reshape(4, 3)
    with rlx.compile(g, device) as compiled:
        compiled.run({"x": value})
        compiled.set_active_extent((2, 4))
        np.testing.assert_array_equal(compiled.run({"x": value})[0][:, :2], value.T[:, :2])
        assert "all are computed: the rows of output 0" in compiled.as_text("schedule")


def test_a_handle_keeps_all_its_rows(device):
    g = rlx.Graph()
    state, x = g.input("state", (4, 2)), g.input("x", (4, 2))
    g.set_outputs([state + x])
    single = np.ones((4, 2), np.float32)
    with rlx.compile(g, device) as compiled:
        compiled.bind_gpu_handle("state", 10 * single)
        compiled.set_gpu_handle_feed("state", 0)
        compiled.set_active_extent((2, 4))
        compiled.run_slots(single)
        compiled.run_slots(single)
        assert compiled.read_gpu_handle("state")[:2].tolist() == [[12, 12]] * 2
        compiled.bind_gpu_handle("state", 5 * single)
        compiled.set_active_extent(None)
        assert compiled.run_slots(single)[0].tolist() == [[6, 6]] * 4


def test_refused(device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4, 3)) + 1.0])
    with rlx.compile(g, device) as compiled:
        for extent in ((5, 4), (-1, 4), (1, 3)):
            with pytest.raises(rlx.InputError, match="no such extent"):
                compiled.set_active_extent(extent)
        for extent in ((1.5, 4), 3, (1, 2, 4), "ab"):
            with pytest.raises(rlx.InputError, match="not an extent"):
                compiled.set_active_extent(extent)
        compiled.set_active_extent((2, 4))
        assert compiled.active_extent == (2, 4)


@pytest.mark.webgpu
def test_rows_of_narrow_products(webgpu, rng):
    """Tiles of packed weights, of bytes and of experts over some of their rows."""
    upper, k, n = 150, 64, 72
    g = rlx.Graph("narrow")
    x, a = g.input("x", (upper, k)), g.input("a", (upper, k), "i8")
    idx = g.input("idx", (upper,), "i32")
    packed = g.constant(rlx.ops.quantize_blocks(rng.normal(size=(n, k)), "Q8_0"))
    b = g.constant(rng.integers(-128, 128, (k, n)).astype(np.int8))
    w = g.constant(rng.normal(size=(3, k, n)).astype(np.float32))
    g.set_outputs(
        [
            g.dequant_matmul(x, packed, "Q8_0"),
            g.qmatmul(a, b, 0.5, 0.5),
            g.grouped_matmul(x, w, idx),
        ]
    )
    feeds = {
        "x": rng.normal(size=(upper, k)).astype(np.float32),
        "a": rng.integers(-128, 128, (upper, k)).astype(np.int8),
        "idx": rng.integers(0, 3, upper).astype(np.int32),
    }
    with rlx.compile(g, webgpu) as compiled:
        text = compiled.as_text("schedule")
        for product in ("dequant_(matmul|fragments)", "integer_(tiles|fragments)", "grouped_tiles"):
            assert re.search(rf"{product}\(", text), text
        whole = [np.array(y) for y in compiled.run(feeds)]
        for actual in (70, 1, 149):
            compiled.run({name: np.zeros_like(v) for name, v in feeds.items()})
            compiled.set_active_extent((actual, upper))
            for got, want in zip(compiled.run(feeds), whole, strict=True):
                np.testing.assert_allclose(got[:actual], want[:actual], 1e-5, 1e-5)
            compiled.set_active_extent(None)
