"""``run`` reads large inputs and writes large outputs in place: nothing that callers hold is shared or changed."""

import gc
import sys

import numpy as np
import pytest
from python_process import run_python

import rlx
from rlx._ext.program import idle_bytes

# Below and above the size from which arrays are used where they are (LARGE in cython_src/fresh.pxi).
SIZES = (5, 20_003)
LARGE = SIZES[-1]
rlx.register_custom_op("failing", shape=lambda x: x, numpy=lambda x: 1 / 0 if x[0] < 0 else x + 5)


def three(device, n, **options):
    g = rlx.Graph("three")
    a, b, c = (g.input(name, (n,)) for name in "abc")
    g.set_outputs([a * b + c, a - c])
    return rlx.compile(g, device, options=rlx.CompileOptions(**options))


def expected(value):
    a, b, c = (np.asarray(value[name], np.float32) for name in "abc")
    return [a * b + c, a - c]


def inputs(n, seed=0):
    rng = np.random.default_rng(seed)
    return {name: rng.normal(size=n).astype(np.float32) for name in "abc"}


def check(result, wanted):
    for first, other in zip(result, wanted, strict=True):
        np.testing.assert_allclose(first, other, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("n", SIZES)
def test_outputs_stay_as_they_are(device, n):
    cg = three(device, n)
    retained = []
    for seed in range(5):
        arguments = inputs(n, seed)
        wanted = expected(arguments)
        retained.append((cg.run(arguments), wanted))
        for array in arguments.values():
            array[:] = -99
        cg.run_slots(*arguments.values())
    for item, wanted in retained:
        check(item, wanted)
        assert all(array.flags.writeable and array.flags.c_contiguous for array in item)
    arrays = [array for item, _ in retained for array in item]
    for index, array in enumerate(arrays):
        array[:] = index
    assert [array[0] for array in arrays] == list(range(len(arrays)))
    check(cg.run(inputs(n)), expected(inputs(n)))


def ways_of_holding(array):
    """The same values in arrays that differ in how they stand in memory."""
    n = array.size
    raw = np.empty(array.nbytes + 1, np.uint8)
    unaligned = raw[1:].view(np.float32)
    unaligned[:] = array
    fixed = array.copy()
    fixed.setflags(write=False)
    wide = np.zeros((n, 3), np.float32)
    wide[:, 1] = array
    return {
        "plain": array,
        "unaligned": unaligned,
        "read-only": fixed,
        "strided": wide[:, 1],
        "backwards": array[::-1].copy()[::-1],
        "byte-swapped": array.astype(array.dtype.newbyteorder()),
        "of float64": array.astype(np.float64),
        "a part": np.concatenate([array, array])[n:],
        "a list": array.tolist(),
        "a subclass": array.view(np.matrix).reshape(1, n).view(np.ndarray)[0],
    }


@pytest.mark.parametrize("n", SIZES)
def test_inputs_of_every_kind(device, n):
    cg, arguments = three(device, n), inputs(n)
    wanted = expected(arguments)
    for name, array in ways_of_holding(arguments["b"]).items():
        result = cg.run({**arguments, "b": array})
        check(result, wanted)
        result = cg(**{**arguments, "b": array})
        check(result, wanted)
        np.testing.assert_allclose(array, arguments["b"], err_msg=name)
    same = arguments["a"]
    check(cg.run(dict.fromkeys("abc", same)), expected(dict.fromkeys("abc", same)))
    long = np.arange(2 * n, dtype=np.float32) / n
    overlapping = {"a": long[:n], "b": long[1 : n + 1], "c": long[n:]}
    check(cg.run(overlapping), expected(overlapping))
    for wrong in (
        {**arguments, "b": np.zeros(n + 1, np.float32)},
        {"a": same},
        {**arguments, "d": same},
    ):
        with pytest.raises(rlx.RlxError):
            cg.run(wrong)
    check(cg.run(arguments), wanted)


@pytest.mark.parametrize("n", SIZES)
def test_outputs_as_the_inputs_of_the_next_run(device, n):
    cg, arguments = three(device, n), inputs(n)
    for _ in range(4):
        first, second = cg.run(arguments)
        check([first, second], expected(arguments))
        arguments = {"a": second, "b": first * np.float32(0.1), "c": second}
        del first, second
    views = cg.run_slots(*arguments.values())
    wanted = expected({"a": views[0], "b": views[1], "c": views[0]})
    check(cg.run({"a": views[0], "b": views[1], "c": views[0]}), wanted)
    raw = cg.run_raw(arguments)
    wanted = expected({"a": raw[1], "b": raw[0], "c": raw[1]})
    check(cg.run({"a": raw[1], "b": raw[0], "c": raw[1]}), wanted)


@pytest.mark.parametrize("n", SIZES)
def test_runs_by_name_leave_the_input_views(device, n):
    cg, arguments, other = three(device, n), inputs(n), inputs(n, 1)
    zeros = {name: np.zeros(n, np.float32) for name in "abc"}
    cg.run(arguments)
    check(cg.run_slots(), expected(zeros))
    views = cg.input_views
    for view, array in zip(views, arguments.values(), strict=True):
        view[...] = array
    check(cg.run(other), expected(other))
    check(cg.run_slots(), expected(arguments))
    check(views, arguments.values())
    cg.run_slots(*other.values())
    check(views, arguments.values())
    views[0][:] = 1
    check(cg.run_slots(), expected({**arguments, "a": views[0]}))
    swapped = {"a": views[1], "b": views[0], "c": views[2][::-1]}
    wanted = expected({name: array.copy() for name, array in swapped.items()})
    check(cg.run(swapped), wanted)
    check(cg.run_pipelined([swapped, other])[0], wanted)
    check(cg.run_slots(), expected({**arguments, "a": views[0]}))


@pytest.mark.parametrize("n", SIZES)
def test_runs_by_name_in_turn_with_other_ways(device, n):
    cg = three(device, n)
    first, second = inputs(n), inputs(n, 1)
    for view, array in zip(cg.input_views, first.values(), strict=True):
        view[...] = array
    check(cg.run(second), expected(second))
    cg.commit_no_wait(second)
    cg.sync_pending()
    check(cg.run_slots(), expected(first))
    cg.bind_handle("b", second["b"])
    check(cg.run_slots(), expected({**first, "b": second["b"]}))
    result = cg.run({"a": second["a"], "c": second["c"]})
    check(result, expected(second))
    np.testing.assert_array_equal(cg.read_handle("b"), second["b"])


@pytest.mark.parametrize("n", SIZES)
def test_rows_and_addresses_of_the_last_outputs(device, n):
    g = rlx.Graph()
    x = g.input("x", (2, n))
    g.set_outputs([x + 1.0, x * 2.0])
    cg, x = rlx.compile(g, device), np.arange(2 * n, dtype=np.float32).reshape(2, n) / n
    result = cg.run({"x": x})
    np.testing.assert_array_equal(cg.read_output_row(0, 1), result[0][1])
    del result
    cg.run_slots(x + 5)
    np.testing.assert_array_equal(cg.read_output_row(0, 1), (x + 5 + 1)[1])
    cg.run({"x": x})
    if not cg.capabilities.arena_ptr:
        return
    import ctypes

    address = cg.arena_ptr
    for step in (0, 3):
        if step:
            cg.run({"x": x + step})
        for (offset, count), wanted in zip(
            cg.output_slots, (x + step + 1, (x + step) * 2), strict=True
        ):
            memory = (ctypes.c_float * count).from_address(address + offset)
            np.testing.assert_array_equal(np.frombuffer(memory, np.float32), wanted.reshape(-1))


@pytest.mark.parametrize("n", SIZES)
def test_outputs_that_are_inputs_or_stand_twice(device, n):
    g = rlx.Graph()
    x, w = g.input("x", (2, n)), g.param("w", (n,))
    y = x * 2.0
    g.set_outputs([x, y, g.reshape(y, (n, 2)), y, w, g.constant(np.ones(n, np.float32)), y + 1.0])
    x, w = np.random.default_rng(0).normal(size=(2, 2, n)).astype(np.float32)
    cg = rlx.compile(g, device, params={"w": w[0]})
    for _ in range(2):
        result = cg.run({"x": x})
        check(result, [x, 2 * x, (2 * x).reshape(n, 2), 2 * x, w[0], np.ones(n), 2 * x + 1])
        for index, array in enumerate(result):
            array[:] = index
        assert [array.flat[-1] for array in result] == list(range(7))


@pytest.mark.parametrize("shape", [(0,), (3, 0, 2)])
def test_empty_arrays(device, shape):
    g = rlx.Graph()
    x, y = g.input("x", shape), g.input("y", (LARGE,))
    g.set_outputs([x + 1.0, y * 2.0])
    cg = rlx.compile(g, device)
    for _ in range(3):
        empty, doubled = cg.run({"x": np.zeros(shape, np.float32), "y": np.ones(LARGE, np.float32)})
        assert empty.shape == shape
        assert (doubled == 2).all()


@pytest.mark.parametrize("dtype", ["f16", "bf16", "f64", "i8", "i32", "i64", "bool"])
def test_other_dtypes(device, dtype):
    g = rlx.Graph()
    x = g.input("x", (3, LARGE), dtype)
    g.set_outputs([g.flip(x, [0])])
    cg = rlx.compile(g, device)
    arguments = (np.arange(3 * LARGE) % 2).reshape(3, LARGE).astype(cg.input_views[0].dtype)
    for item in (rlx.compile(g, device), cg):
        results = [item.run({"x": arguments})[0] for _ in range(2)]
        for array in results:
            assert array.dtype == arguments.dtype
            np.testing.assert_array_equal(array, arguments[::-1])


def test_custom_operations_between_large_values(device):
    g = rlx.Graph()
    x, y = g.input("x", (LARGE,)), g.input("y", (LARGE,))
    first = x + y
    seen = g.custom("failing", [first])
    g.set_outputs([first, seen, seen * y, g.custom("failing", [x])])
    cg = rlx.compile(g, device)
    x, y = np.ones((2, LARGE), np.float32)
    for step in (1, 2, 3):
        result = cg.run({"x": x * step, "y": y})
        for array, wanted in zip(result, (step + 1, step + 6, step + 6, step + 5), strict=True):
            assert (array == wanted).all()


def test_a_run_that_fails_loses_no_memory(device):
    g = rlx.Graph()
    x = g.input("x", (LARGE,))
    g.set_outputs([x * 2.0, g.custom("failing", [x]), x + 1.0])
    cg = rlx.compile(g, device)
    good, bad = np.ones(LARGE, np.float32), np.full(LARGE, -1, np.float32)
    cg.run({"x": good})
    cg.run_slots(good)
    gc.collect()
    before = idle_bytes()
    for _ in range(5):
        with pytest.raises(Exception, match="division"):
            cg.run({"x": bad})
        assert idle_bytes() == before
    retained = cg.run({"x": good})
    assert [array[0] for array in retained] == [2, 6, 2]
    assert [array[0] for array in cg.run_slots(2 * good)] == [4, 7, 3]
    assert [array[0] for array in retained] == [2, 6, 2]


@pytest.mark.parametrize("n", SIZES)
def test_feeds_take_what_run_returns(device, n):
    g = rlx.Graph()
    state, x = g.input("state", (n,)), g.input("x", (n,))
    new = state * 0.5 + x
    g.set_outputs([new, new, new + 1.0])
    cg = rlx.compile(g, device)
    cg.bind_gpu_handle("state", np.zeros(n))
    cg.set_gpu_handle_feed("state", 1)
    state, x, retained = np.zeros(n, np.float32), np.ones(n, np.float32), []
    for _ in range(4):
        state = state * np.float32(0.5) + x
        retained.append((cg.run({"x": x}), state))
        np.testing.assert_array_equal(cg.read_gpu_handle("state"), state)
        state = state * np.float32(0.5) + x
        np.testing.assert_array_equal(cg.run_slots(x)[0], state)
    for item, wanted in retained:
        check(item, [wanted, wanted, wanted + 1])


def test_control_flow_writes_to_the_returned_arrays(device):
    g = rlx.Graph()
    x, more = g.input("x", (LARGE,)), g.input("more", (), "bool")
    then, other = rlx.Graph("then"), rlx.Graph("other")
    then.set_outputs([then.input("x", (LARGE,)) * 3.0])
    other.set_outputs([other.input("x", (LARGE,)) - 1.0])
    g.set_outputs([g.if_(more, then, other, x), x + 1.0])
    cg = rlx.compile(g, device)
    x, retained = np.ones(LARGE, np.float32), []
    for flag in (True, False, True):
        retained.append((cg.run({"x": x, "more": np.array(flag)}), 3 if flag else 0))
    for (array, plus), wanted in retained:
        assert (array == wanted).all()
        assert (plus == 2).all()


def test_loops_write_to_the_returned_arrays(device):
    below, double = rlx.Graph("below"), rlx.Graph("double")
    below.set_outputs([below.max(below.input("x", (LARGE,))) < 100.0])
    double.set_outputs([double.input("x", (LARGE,)) * 2.0])
    g = rlx.Graph()
    x = g.input("x", (LARGE,))
    g.set_outputs([g.while_(below, double, x), x])
    cg = rlx.compile(g, device)
    retained = []
    for start, end in ((1, 128), (200, 200), (3, 192)):
        x = np.full(LARGE, start, np.float32)
        retained.append((cg.run({"x": x}), end, start))
    for (array, same), end, start in retained:
        assert (array == end).all()
        assert (same == start).all()


def test_fewer_rows_write_to_the_returned_arrays(device):
    g = rlx.Graph()
    x = g.input("x", (8, LARGE))
    g.set_outputs([x * 2.0 + 1.0])
    cg = rlx.compile(g, device)
    x = np.random.default_rng(0).normal(size=(8, LARGE)).astype(np.float32)
    retained = []
    for rows in (3, 8, 5):
        cg.set_active_extent((rows, 8))
        retained.append((rows, cg.run({"x": x})[0]))
    for rows, array in retained:
        check([array[:rows]], [x[:rows] * 2 + 1])


def test_weights_that_move_between_runs(device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (LARGE,)) * g.param("w", (LARGE,))])
    cg = rlx.compile(g, device, params={"w": np.ones(LARGE)})
    clone, x, retained = cg.clone(), np.ones(LARGE, np.float32), []
    for value in (2, 3, 4):
        cg.set_param("w", np.full(LARGE, value))
        retained += [(cg.run({"x": x})[0], value), (clone.run({"x": x})[0], value)]
    for array, value in retained:
        assert (array == value).all()


def test_arrays_outlive_the_graph(device):
    cg = three(device, LARGE)
    arguments = inputs(LARGE)
    result, wanted = cg.run(arguments), expected(arguments)
    part = result[0][5:]
    del result
    cg.close()
    del cg
    gc.collect()
    other = three(device, LARGE)
    for seed in range(3):
        other.run(inputs(LARGE, seed))
    np.testing.assert_allclose(part, wanted[0][5:], rtol=1e-6, atol=1e-6)


def test_memory_is_used_again_when_all_views_are_gone():
    cg = three("cpu", LARGE)
    arguments = inputs(LARGE)
    first, second = cg.run(arguments)
    address, part = first.ctypes.data, first[::2]
    assert address % 64 == 0
    del first
    cg.run_slots(*arguments.values())  # the graph itself holds the outputs of the last run
    again = cg.run(arguments)
    assert address not in [array.ctypes.data for array in again]
    del part, again
    cg.run_slots(*arguments.values())
    results = [cg.run(arguments) for _ in range(3)]
    assert address in [array.ctypes.data for outputs in results for array in outputs]
    del second


def test_idle_memory_is_bounded():
    g = rlx.Graph()
    g.set_outputs([g.input("x", (1 << 21,)) + 1.0])
    cg, x = rlx.compile(g, "cpu"), np.zeros(1 << 21, np.float32)
    retained = [cg.run({"x": x})[0] for _ in range(40)]
    assert all((array == 1).all() for array in retained)
    del retained
    assert 0 < idle_bytes() <= 1 << 28
    small = three("cpu", LARGE)
    retained = [small.run(inputs(LARGE)) for _ in range(100)]
    del retained
    assert 0 < idle_bytes() <= 1 << 28
    cg.close()
    assert idle_bytes() == 0


def test_a_closed_graph_lets_go_of_its_arguments():
    import weakref

    cg = three("cpu", LARGE)
    arguments = inputs(LARGE)
    cg.run(arguments)
    stored = [weakref.ref(array) for array in arguments.values()]
    cg.close()
    arguments.clear()
    assert [item() for item in stored] == [None] * 3


GROWTH = """
import numpy as np, rlx, sys
g = rlx.Graph()
x, y = g.input("x", (20003,)), g.input("y", (7,))
g.set_outputs([x + 1.0, x * 2.0, y + 1.0])
cg = rlx.compile(g, sys.argv[1])
def kib():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
y = np.zeros(7, np.float32)
def calls(times):
    for at in range(times):
        cg.run({"x": np.full(20003, at, np.float32), "y": y})
calls(1000)
before = kib()
calls(10_000)
print(kib() - before)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="/proc is Linux's")
@pytest.mark.parametrize("device", ["cpu"])
def test_memory_stays_flat(device):
    assert int(run_python("-c", GROWTH, device).stdout) < 1024
