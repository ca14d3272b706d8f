"""Runs on a GPU through C and through wgpu-py: same bits, bytes moved, nothing allocated, errors."""

import gc
import importlib
import warnings

import numpy as np
import pytest
from python_process import run_python
from samples import ALL, looped

import rlx
from rlx._ext import webgpu_hot
from rlx.backends.executable import Binding
from rlx.backends.webgpu import native, submission_builder
from rlx.backends.webgpu.provider import provider_of

pytestmark = pytest.mark.webgpu
X = np.random.default_rng(0).normal(size=(4, 16)).astype(np.float32)
W = np.random.default_rng(1).normal(size=(16, 16)).astype(np.float32)


@pytest.fixture(params=["hot", "python"])
def way(request, monkeypatch, webgpu):
    """Both ways of running a submission."""
    monkeypatch.setenv("RLX_WEBGPU_HOT", "1" if request.param == "hot" else "0")
    return request.param


def layer():
    g = rlx.Graph()
    x = g.input("x", (4, 16))
    g.set_outputs([g.softmax(g.gelu(x @ g.param("w", (16, 16)) + 1.0)), g.sum(x, axes=1)])
    return g, {"w": W}


def mixed():
    """Narrow and wide dtypes, odd sizes, nothing at all, and a repeated output."""
    g = rlx.Graph()
    i, b = g.input("i", (3, 5), rlx.DType.I64), g.input("b", (7,), rlx.DType.BOOL)
    h, e = g.input("h", (3, 3), rlx.DType.F16), g.input("e", (0, 4))
    g.set_outputs([i + i, g.logical_not(b), h * 2.0, e, i, i + i])
    return g, {}


def hosted():
    """f64 runs on the host, in the middle of the graph."""
    g = rlx.Graph()
    x = g.input("x", (4, 16))
    wide = g.exp(g.cast(g.tanh(x), rlx.DType.F64))
    g.set_outputs([g.cast(wide, rlx.DType.F32) + x, x * 2.0])
    return g, {}


def arguments(name, seed=0):
    rng = np.random.default_rng(seed)
    if name != "mixed":
        return [rng.normal(size=(4, 16)).astype(np.float32)]
    return [
        rng.integers(-1000, 1000, (3, 5)),
        rng.integers(0, 2, 7).astype(bool),
        rng.normal(size=(3, 3)).astype(np.float16),
        np.zeros((0, 4), np.float32),
    ]


GRAPHS = {"layer": layer, "mixed": mixed, "hosted": hosted}


def compiled(name):
    g, params = GRAPHS[name]()
    return rlx.compile(g, "webgpu", params=params)


def executable(name="layer"):
    return compiled(name)._state.executable


def run(item, *arrays, outputs=None, fresh=True):
    """The outputs of one run of an executable."""
    outputs = range(len(item.output_views)) if outputs is None else outputs
    return item.submit(arrays, outputs, fresh).wait()


def started(item, *arrays, fresh=False):
    """A run of an executable that is not waited for; its outputs are views, or arrays of its own."""
    return item.submit(arrays, range(len(item.output_views)), fresh)


def run_many(item, sets):
    """The outputs of several runs, of which none is waited for before all are submitted."""
    outputs = range(len(item.output_views))
    pending = [item.submit(arrays, outputs, True) for arrays in sets]
    return [each.wait() for each in pending]


@pytest.mark.parametrize("name", GRAPHS)
def test_same_bits(name, webgpu, monkeypatch):
    results = []
    for flag in ("1", "0"):
        monkeypatch.setenv("RLX_WEBGPU_HOT", flag)
        with compiled(name) as first:
            assert first._state.executable._factory.hot == (flag == "1")
            runs = [[y.copy() for y in first.run_slots(*arguments(name, k))] for k in range(3)]
            results.append(runs)
    for ours, theirs in zip(*results, strict=True):
        for first, other in zip(ours, theirs, strict=True):
            assert first.dtype == other.dtype
            assert first.tobytes() == other.tobytes()
    if name == "mixed":
        i, b, h, _ = arguments(name, 2)
        expected = [i + i, ~b, h * np.float16(2), np.zeros((0, 4), np.float32), i, i + i]
        for got, want in zip(results[0][2], expected, strict=True):
            np.testing.assert_array_equal(got, want)


@looped("name", GRAPHS)
def test_every_way_of_running_agrees(name, way):
    single = executable(name)
    inputs = arguments(name)
    expected = run(single, *inputs)

    def same(got):
        for a, b in zip(got, expected, strict=True):
            np.testing.assert_array_equal(a, b)

    run(single, *arguments(name, 1))
    same(run(single, *inputs, fresh=False))
    run(single, *arguments(name, 1))
    started(single, *arguments(name, 2))
    last = started(single, *inputs)
    same(last.wait())
    same(last.wait())
    same(single.output_views)
    sets = [arguments(name, k) for k in (1, 0, 2)]
    many = run_many(single, sets)
    same(many[1])
    for k, got in zip((1, 0, 2), many, strict=True):
        for a, b in zip(got, run(single, *arguments(name, k)), strict=True):
            np.testing.assert_array_equal(a, b)


def test_runs_that_are_taken_in_another_order(way):
    single = executable()
    sets = [arguments("layer", k) for k in range(20)]
    outputs = range(len(single.output_views))
    pending = [single.submit(arrays, outputs, True) for arrays in sets]
    for k in (3, 19, 0, 11):
        for a, b in zip(pending[k].wait(), run(single, *sets[k]), strict=True):
            np.testing.assert_array_equal(a, b)
    del pending
    for a, b in zip(run_many(single, sets)[7], run(single, *sets[7]), strict=True):
        np.testing.assert_array_equal(a, b)


def test_bytes_moved(way):
    single = executable()
    run(single, X)
    assert single.moved() == (256, 256 + 16, 0)
    run(single, X, outputs=[1])
    assert single.moved() == (512, 272 + 16, 0)
    run(single, X, outputs=[0])
    assert single.moved() == (768, 288 + 256, 0)
    run(single, X, outputs=[])
    assert single.moved() == (1024, 544, 0)
    single.read_row(0, 2)
    assert single.moved() == (1024, 544 + 64, 0)
    single.bind(Binding(residents=(0,)))
    run(single, outputs=[1])
    assert single.moved() == (1024, 608 + 16, 0)


def test_rows(way):
    with compiled("mixed") as graph:
        outputs = [y.copy() for y in graph.run_slots(*arguments("mixed"))]
        for value in (0, 1, 2, 5):
            for row in range(len(outputs[value])):
                got = graph.read_output_row(value, row)
                np.testing.assert_array_equal(got, outputs[value][row])
                assert got.dtype == outputs[value].dtype
        before = graph.bytes_moved
        graph.read_output_row(2, 1)  # three f16 values from byte 6 on
        assert graph.bytes_moved.read_back - before.read_back == 8
        for value, row in ((0, 3), (0, -4), (3, 0)):
            with pytest.raises(rlx.InputError, match="no such row"):
                graph.read_output_row(value, row)
        with pytest.raises(rlx.InputError, match="no such output"):
            graph.read_output_row(6, 0)


def state_graph():
    g = rlx.Graph()
    x, s, n = g.input("x", (3,)), g.input("s", (3,)), g.input("n", (3,), rlx.DType.I64)
    g.set_outputs([s * 2.0, s + x, n + n])
    return rlx.compile(g, "webgpu")


def state():
    return state_graph()._state.executable


def test_resident_inputs(way):
    single = state()
    x, s, n = np.ones(3, np.float32), np.arange(3, dtype=np.float32), np.arange(3)
    single.write_input(1, s)
    single.write_input(2, n)
    single.bind(Binding(residents=(1, 2)))
    uploaded = single.moved().uploaded
    for _ in range(3):
        doubled, total, twice = run(single, x)
        np.testing.assert_array_equal(doubled, s * 2)
        np.testing.assert_array_equal(total, s + x)
        np.testing.assert_array_equal(twice, n * 2)
    assert single.moved().uploaded - uploaded == 3 * 12
    np.testing.assert_array_equal(single.read_input(1), s)
    np.testing.assert_array_equal(single.read_input(2), n)
    assert single.read_input(2).dtype == np.int64
    # An input without a value is what the device holds.
    run(single, x * 4)
    np.testing.assert_array_equal(run(single, None)[1], s + x * 4)
    single.bind(Binding())
    np.testing.assert_array_equal(run(single, x, x, n)[1], x + x)


def test_feeds(way):
    g = rlx.Graph()
    a, b, i = g.input("a", (5,)), g.input("b", (5,)), g.input("i", (3,), rlx.DType.I64)
    # The two states change places, and the third grows.
    g.set_outputs([b + 0.0, a + 1.0, i * 2, g.sum(a)])
    single = rlx.compile(g, "webgpu")._state.executable
    single.write_input(0, np.zeros(5, np.float32))
    single.write_input(1, np.full(5, 10, np.float32))
    single.write_input(2, np.arange(3))
    single.bind(Binding(residents=(0, 1, 2), feeds=((0, 0), (1, 1), (2, 2))))
    before, values = single.moved(), (0.0, 10.0)
    for _ in range(5):
        run(single, outputs=[3])
        values = values[1], values[0] + 1
    after = single.moved()
    assert after.uploaded == before.uploaded
    assert after.read_back - before.read_back == 5 * 4
    assert after.copied - before.copied == 5 * 2 * (20 + 20 + 24)
    assert single.read_input(0).tolist() == [values[0]] * 5
    assert single.read_input(1).tolist() == [values[1]] * 5
    assert single.read_input(2).tolist() == [0, 32, 64]
    many = run_many(single, [[]] * 3)
    assert [m[2].tolist() for m in many] == [[0, 64, 128], [0, 128, 256], [0, 256, 512]]


def test_feeds_across_a_host_step(way):
    g = rlx.Graph()
    x = g.input("x", (4,))
    g.set_outputs([g.cast(g.cast(x, rlx.DType.F64) + 1.0, rlx.DType.F32)])
    single = rlx.compile(g, "webgpu")._state.executable
    assert single._batches.host_steps
    single.write_input(0, np.zeros(4, np.float32))
    single.bind(Binding(residents=(0,), feeds=((0, 0),)))
    for _ in range(3):
        last = started(single)
    assert last.wait()[0].tolist() == [3.0] * 4
    assert single.read_input(0).tolist() == [3.0] * 4


def test_a_clone_starts_anew(way):
    first = state()
    first.write_input(1, np.ones(3, np.float32))
    first.bind(Binding(residents=(1,)))
    other = first.clone()
    x, n = np.ones(3, np.float32), np.arange(3)
    np.testing.assert_array_equal(run(other, x, x, n)[1], x + x)
    np.testing.assert_array_equal(run(first, x, n)[1], x + 1)


def test_more_runs_than_fit_the_staging_memory(way, monkeypatch):
    monkeypatch.setattr("rlx.backends.webgpu.staging._MAX_STAGED", 1000)
    single = executable()
    sets = [arguments("layer", k) for k in range(8)]
    many = run_many(single, sets)
    assert len(many) == 8
    for value, got in zip(sets, many, strict=True):
        for a, b in zip(got, run(single, *value), strict=True):
            np.testing.assert_array_equal(a, b)


def test_a_run_that_is_wanted_waits_for_no_later_one(way):
    single, runs = executable(), []
    wanted = [run(single, *arguments("layer", k)) for k in range(40)]
    for k in range(40):
        runs.append(started(single, *arguments("layer", k), fresh=True))
        np.testing.assert_array_equal(runs[max(k, 1) - 1].wait()[0], wanted[max(k, 1) - 1][0])
    assert runs[-1]._staged[0].submitted
    assert len({each._staged[0] for each in runs[6:]}) == 2
    many = [started(single, *arguments("layer", k), fresh=True) for k in range(40)]
    assert len({each._staged[0] for each in many[1:]}) <= 9
    for each, expected in zip(many, wanted, strict=True):
        np.testing.assert_array_equal(each.wait()[0], expected[0])


@pytest.mark.parametrize("most", [0, 100, 1 << 16])
def test_uploads_large_and_small(most, webgpu, monkeypatch):
    """Through memory that stays mapped, and without it, in any order of submitting and waiting."""
    monkeypatch.setattr(submission_builder, "MAX_MAPPED_UPLOAD", most)
    single = executable()
    expected = [run(single, *arguments("layer", k)) for k in range(4)]
    for count in (1, 2, 3, 4):
        for k in range(count):
            last = started(single, *arguments("layer", k))
        for a, b in zip(last.wait(), expected[count - 1], strict=True):
            np.testing.assert_array_equal(a, b)


def test_changes_between_submit_and_wait(way):
    single = executable("layer")
    expected = run(single, X)

    def submitted():
        run(single, X * 2)
        return started(single, X)

    pending = submitted()
    single.bind(Binding(residents=(0,)))
    for a, b in zip(pending.wait(), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    single.bind(Binding())
    pending = submitted()
    np.testing.assert_array_equal(run(single, X, outputs=[1])[0], expected[1])
    np.testing.assert_array_equal(pending.wait()[1], expected[1])
    pending = submitted()
    run_many(single, [[X * 3]])
    for a, b in zip(pending.wait(), expected, strict=True):
        np.testing.assert_array_equal(a, b)


def test_dropped_while_running(way):
    for _ in range(20 if ALL else 10):
        single = executable()
        started(single, X)
        del single
        gc.collect()
    np.testing.assert_allclose(run(executable(), X)[1], X.sum(1), rtol=1e-5)


# --- errors --------------------------------------------------------------------------------------------


def test_wide_values_travel_whole(way):
    single = executable("mixed")
    small = arguments("mixed")
    large = [small[0] * 2**40 - 2**62, *small[1:]]
    for value in (small, large):
        expected = value[0] + value[0]
        np.testing.assert_array_equal(run(single, *value)[0], expected)
        np.testing.assert_array_equal(started(single, *value).wait()[0], expected)
    many = run_many(single, [small, large])
    np.testing.assert_array_equal(many[1][0], large[0] + large[0])
    single.write_input(0, large[0])
    np.testing.assert_array_equal(single.read_input(0), large[0])


def test_arguments_that_do_not_fit(way):
    single = state_graph()
    good = [np.ones(3, np.float32), np.ones(3, np.float32), np.ones(3, np.int64)]
    for view, value in zip(single.input_views, good, strict=True):
        view[:] = value
    expected = [y.copy() for y in single.run_slots()]
    for bad in (np.ones(4, np.float32), np.ones(3, np.complex64)):
        with pytest.raises(rlx.InputError, match="input 1 does not fit"):
            single.run_slots(good[0] * 5, bad, good[2])
    for a, b in zip(single.run_slots(), expected, strict=True):
        np.testing.assert_array_equal(a, b)
    # Other dtypes of the same kind, and strided arrays, are copied as they fit.
    got = single.run_slots(np.ones(3), np.ones(6, np.float32)[::2], np.ones(3, np.int32))
    for a, b in zip(got, expected, strict=True):
        np.testing.assert_array_equal(a, b)


LOST = """
import numpy as np, rlx
g = rlx.Graph()
x = g.input("x", (4,))
g.set_outputs([x + 1.0])
cg = rlx.compile(g, "webgpu")
one = cg._state.executable
array = np.ones(4, np.float32)
cg.run_slots(array)
one._gpu.device.destroy()
calls = [
    lambda: cg.run_slots(array), lambda: one.submit([array], [0], False).wait(),
    lambda: cg.run_pipelined([{"x": array}] * 3), lambda: cg.run({"x": array}),
    lambda: cg.read_output_row(0, 0), lambda: one.read_input(0),
    lambda: one.write_input(0, array), lambda: cg.run_slots(array),
]
for call in calls:
    try:
        call()
    except rlx.DeviceLostError as error:
        assert "is lost" in str(error), error
        assert "cg.recover()" in str(error)
        print("lost")
"""


def test_a_lost_device_is_an_error(way):
    assert run_python("-c", LOST).stdout.split() == ["lost"] * 8


def test_run_slots_of_before_recover_is_closed(way):
    single = compiled("layer")
    run = single.run_slots
    run(X)
    single.recover()
    with pytest.raises(rlx.InputError, match="closed"):
        run(X)
    single.run_slots(X)


# The module of each library that has its functions and numbers.
LIBRARIES = {"wgpu": "wgpu.backends.wgpu_native", "dawn": "wgpudawn.backends.dawn"}


def test_an_unknown_release_of_wgpu_is_said_once(webgpu, monkeypatch):
    dawn = provider_of("webgpu").name == "dawn"
    binding = native.dawn_binding if dawn else native.binding
    monkeypatch.setattr(native, "_DAWN" if dawn else "_NATIVE", (1, 0))
    binding.cache_clear()
    try:
        with pytest.warns(RuntimeWarning, match="not known to rlx"):
            single = executable()
        assert not single._factory.hot
        np.testing.assert_allclose(run(single, X)[1], X.sum(1), rtol=1e-5)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            executable()
    finally:
        binding.cache_clear()


def test_the_declarations_are_those_of_the_library(webgpu):
    """Numbers that webgpu_run.h repeats, as the library's own header has them."""
    library = provider_of("webgpu")
    ffi, module, _ = library.binding()
    lib = importlib.import_module(LIBRARIES[library.name]).lib
    assert lib.WGPUMapAsyncStatus_Success == 1
    assert lib.WGPUMapMode_Read == 1
    assert lib.WGPUCallbackMode_AllowSpontaneous == 3
    assert (lib.WGPUErrorFilter_Validation, lib.WGPUErrorFilter_OutOfMemory) == (1, 2)
    assert (lib.WGPUErrorType_NoError, lib.WGPUErrorType_OutOfMemory) == (1, 3)
    fields = dict(ffi.typeof("WGPUBufferMapCallbackInfo").fields)
    assert list(fields) == ["nextInChain", "mode", "callback", "userdata1", "userdata2"]

    for name in webgpu_hot.FUNCTIONS:
        if name not in module.ABSENT[library.name]:
            ffi.addressof(lib, name)
    api = [0 if function in module.ABSENT[library.name] else 1 for function in module.FUNCTIONS]
    with pytest.raises(ValueError, match="do not fit"):
        module.Api(library.name, [1] * len(api), 0)
    with pytest.raises(ValueError, match="an address for every function"):
        module.Api(library.name, api[1:], 0)
