"""Inputs that a graph updates in place: handles keep the rows that runs write, whatever program makes the run."""

import copy
import pickle

import numpy as np
import pytest

import rlx

SHAPE = (12, 3)


def cache(g, position, *, shape=SHAPE, rows="n", circular=False, dtype="f32"):
    """A graph that writes rows into a state and sums the filled rows; all of the state for a ring."""
    n = rlx.Dim(rows, min=1, max=shape[0]) if isinstance(rows, str) else rows
    state, new = g.input("state", shape, dtype), g.input("new", (n, shape[1]), dtype)
    position = g.input("position", (), "i64") if position is None else position
    if isinstance(position, rlx.Node):
        position = g.read_size(position, max=None if circular else shape[0] - n)
    updated = g.update(state, new, position, circular=circular)
    filled = updated if circular else g.narrow(updated, 0, 0, position + n)
    g.set_outputs([g.sum(g.cast(filled, "f32"), axes=0), new + new])
    return g


def rows(rng, count, dtype=np.float32):
    return rng.integers(-9, 9, (count, SHAPE[1])).astype(dtype)


@pytest.mark.parametrize("dtype", ["f32", "f16"])
@pytest.mark.parametrize("bind", ["bind_handle", "bind_gpu_handle"])
def test_a_handle_keeps_what_runs_write(device, rng, bind, dtype):
    kept = rows(rng, SHAPE[0], rlx.DType.parse(dtype).numpy)
    with rlx.compile(cache(rlx.Graph(), None, dtype=dtype), device) as cg:
        getattr(cg, bind)("state", kept)
        at = 0
        for count in (4, 1, 1, 2, 3, 1):  # few and many rows may be other programs
            new = rows(rng, count, kept.dtype)
            kept[at : at + count] = new
            total, doubled = cg.run({"new": new, "position": at})
            np.testing.assert_array_equal(total, kept[: at + count].astype("f4").sum(0))
            np.testing.assert_array_equal(doubled, 2 * new)
            at += count
        np.testing.assert_array_equal(cg.read_handle("state"), kept)
        np.testing.assert_array_equal(cg.run_slots(new, np.array(0))[0], new.astype("f4").sum(0))


def test_an_argument_is_left_as_it_is(device, rng):
    state, new = rows(rng, SHAPE[0]), rows(rng, 2)
    before = state.copy()
    with rlx.compile(cache(rlx.Graph(), None), device) as cg:
        for _ in range(3):
            total = cg.run({"state": state, "new": new, "position": 5})[0]
            np.testing.assert_array_equal(total, before[:5].sum(0) + new.sum(0))
            np.testing.assert_array_equal(cg.run_slots(state, new, np.array(5))[0], total)
        np.testing.assert_array_equal(state, before)


def test_input_views_are_left_as_they_are(device, rng):
    g = cache(rlx.Graph(), 3, rows=2)
    with rlx.compile(g, device) as cg:
        state, new = rows(rng, SHAPE[0]), rows(rng, 2)
        cg.input_views[0][...], cg.input_views[1][...] = state, new
        for _ in range(2):
            np.testing.assert_array_equal(cg.run_slots()[0], state[:3].sum(0) + new.sum(0))
            np.testing.assert_array_equal(cg.input_views[0], state)


def test_a_ring(device, rng):
    kept = np.zeros(SHAPE, np.float32)
    with rlx.compile(cache(rlx.Graph(), None, circular=True), device) as cg:
        cg.bind_gpu_handle("state", kept)
        at = 0
        for count in (5, 5, 5, 1, 12, 3, 7, 12, 1):
            new = rows(rng, count)
            kept[(at + np.arange(count)) % SHAPE[0]] = new
            np.testing.assert_array_equal(
                cg.run({"new": new, "position": at})[0], kept.sum(0, dtype=np.float32)
            )
            at += count
        np.testing.assert_array_equal(cg.read_gpu_handle("state"), kept)


@pytest.mark.parametrize("axis", [0, 1, 2])
@pytest.mark.parametrize("dtype", ["f32", "i64", "f16", "u8"])
def test_every_axis(device, rng, axis, dtype):
    shape, kind = (4, 5, 6), rlx.DType.parse(dtype).numpy
    g = rlx.Graph()
    part = list(shape)
    part[axis] = rlx.Dim("n", max=shape[axis])
    x, new, at = g.input("x", shape, dtype), g.input("new", part, dtype), g.input("at", (), "i32")
    g.set_outputs(g.update(x, new, at, axis))
    with rlx.compile(g, device) as cg:
        x = rng.integers(0, 99, shape).astype(kind)
        cg.bind_handle("x", x)
        for position, count in ((1, 2), (0, 4), (3, 1), (0, 0), (2, 2)):
            part[axis] = count
            new = rng.integers(0, 99, part).astype(kind)
            np.moveaxis(x, axis, 0)[position : position + count] = np.moveaxis(new, axis, 0)
            np.testing.assert_array_equal(cg.run({"new": new, "at": np.int32(position)})[0], x)


def test_updates_in_a_row(device, rng):
    g = rlx.Graph()
    a, b = g.input("a", (2,)), g.input("b", (3,))
    x = g.update(g.update(g.input("x", (9,)), a, 1), b, 5)
    g.set_outputs([g.sum(x), x])
    with rlx.compile(g, device) as cg:
        wanted = np.zeros(9, np.float32)
        cg.bind_gpu_handle("x", wanted)
        for _ in range(3):
            new = rng.integers(-9, 9, 5).astype("f4")
            wanted[1:3], wanted[5:8] = new[:2], new[2:]
            total, whole = cg.run({"a": new[:2], "b": new[2:]})
            np.testing.assert_array_equal(whole, wanted)
            assert total == wanted.sum()


def test_an_update_that_no_output_needs(device, rng):
    g = rlx.Graph()
    x, at = g.input("x", (2,)), g.input("at", (), "i64")
    g.update(g.input("record", (8,)), x, at, circular=True)
    g.set_outputs([x * 2.0])
    with rlx.compile(g, device) as cg:
        cg.bind_handle("record", np.zeros(8, np.float32))
        for i in range(5):
            cg.run({"x": np.full(2, i, np.float32), "at": 2 * i})
        assert cg.read_handle("record").tolist() == [4, 4, 1, 1, 2, 2, 3, 3]


def test_a_value_that_is_no_input(device, rng):
    g = rlx.Graph()
    x = g.input("x", (6, 2))
    g.set_outputs([g.update(x * 2.0, g.input("new", (1, 2)), 4), g.update(x + 0.0, x * 3.0, 0)])
    with rlx.compile(g, device) as cg:
        x, new = rng.normal(size=(6, 2)).astype("f4"), np.ones((1, 2), np.float32)
        first, second = cg.run({"x": x, "new": new})
        np.testing.assert_array_equal(first, np.concatenate([x[:4] * 2, new, x[5:] * 2]))
        np.testing.assert_array_equal(second, x * np.float32(3))


def test_clones_and_pickles_have_states_of_their_own(device, rng):
    with rlx.compile(cache(rlx.Graph(), None), device) as cg:
        cg.bind_handle("state", np.zeros(SHAPE, np.float32))
        new = rows(rng, 2)
        cg.run({"new": new, "position": 0})
        with cg.clone() as clone, pickle.loads(pickle.dumps(cg)) as other:
            clone.bind_handle("state", np.zeros(SHAPE, np.float32))
            clone.run({"new": new + 1, "position": 0})
            np.testing.assert_array_equal(cg.read_handle("state")[:2], new)
            np.testing.assert_array_equal(other.read_handle("state")[:2], new)
            other.run({"new": new + 2, "position": 0})
            np.testing.assert_array_equal(cg.read_handle("state")[:2], new)
            np.testing.assert_array_equal(clone.read_handle("state")[:2], new + 1)


def test_a_step_moves_no_state(device, rng):
    shape = 4096, SHAPE[1]
    with rlx.compile(cache(rlx.Graph(), None, shape=shape), device) as cg:
        cg.bind_gpu_handle("state", np.zeros(shape, np.float32))
        new = rows(rng, 1)
        cg.run({"new": new, "position": 0})
        before = cg.bytes_moved
        for at in range(1, 5):
            cg.run({"new": new, "position": at})
        moved = [b - a for a, b in zip(before, cg.bytes_moved, strict=True)]
        assert moved[2] == 0
        assert max(moved) <= 4 * 512, "rows, positions, sizes and sums alone"


@pytest.mark.parametrize(("position", "count"), [(12, 1), (11, 2), (-1, 1), (1 << 40, 1), (0, 13)])
def test_rows_outside_of_the_state(device, rng, position, count):
    kept = rows(rng, SHAPE[0])
    with rlx.compile(cache(rlx.Graph(), None), device) as cg:
        cg.bind_handle("state", kept)
        with pytest.raises(rlx.InputError):
            cg.run({"new": rows(rng, count), "position": position})
        np.testing.assert_array_equal(cg.read_handle("state"), kept, "nothing is lost")
        new = rows(rng, 1)
        assert cg.run({"new": new, "position": 0})[0].tolist() == new[0].tolist()


def test_what_is_refused():
    def built(build):
        g = rlx.Graph()
        build(g, g.input("x", (4, 2)), g.input("new", (1, 2)))
        return g

    for arguments in ((4,), (-1,), (0, 1), (0, 2)):
        with pytest.raises(rlx.GraphError):
            built(lambda g, x, new, arguments=arguments: g.update(x, new, *arguments))
    with rlx.compile(cache(rlx.Graph(), 0, rows=1), "cpu") as cg:
        cg.bind_handle("state", np.zeros(SHAPE, np.float32))
        with pytest.raises(rlx.InputError, match="takes no output"):
            cg.set_gpu_handle_feed("state", 0)


@pytest.mark.parametrize(
    ("build", "reason"),
    [
        (lambda g, x, new: (g.update(x, new, 0), g.sum(x)), "reads it beside an update"),
        (lambda g, x, new: (g.update(x, new, 0), g.update(x, new, 1)), "reads it beside"),
        (lambda g, x, new: (g.update(x, new, 0), x), "is an output before an update"),
        (lambda g, x, new: (g.update(g.input("y", (rlx.Dim("n"), 2)), new, 0), x), None),
    ],
)
def test_inputs_that_are_not_updated_in_place(device, rng, build, reason):
    """They are values as others are, but no handles."""
    g = rlx.Graph()
    g.set_outputs(list(build(g, g.input("x", (4, 2)), g.input("new", (1, 2)))))
    arrays = {
        "x": rng.normal(size=(4, 2)).astype("f4"),
        "new": rng.normal(size=(1, 2)).astype("f4"),
        **({} if reason else {"y": rng.normal(size=(3, 2)).astype("f4")}),
    }
    with rlx.compile(g, device) as cg, rlx.compile(g, "reference") as exact:
        for got, wanted in zip(cg.run(arrays), exact.run(arrays), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-5)
        with pytest.raises(rlx.InputError, match=reason or "is not fixed"):
            cg.bind_handle("x" if reason else "y", arrays["x"])


def test_a_state_that_a_later_part_of_the_graph_reads(device, rng):
    """The rows that are read are as many as the graph computes behind the update."""
    g = rlx.Graph()
    x, new = g.input("x", SHAPE), g.input("new", (1, SHAPE[1]))
    updated = g.update(x, new, g.read_size(g.input("at", (), "i64"), max=SHAPE[0] - 1))
    count = g.read_size(g.cast(g.sum(g.narrow(updated, 1, 0, 1)), "i64"), max=SHAPE[0])
    g.set_outputs([g.sum(g.narrow(updated, 0, 0, count), axes=0)])
    with rlx.compile(g, device) as cg:
        kept = np.zeros(SHAPE, np.float32)
        cg.bind_gpu_handle("x", kept)
        for at in (0, 3, 1, 0):
            new = np.array([[2, at, 1]], np.float32)
            kept[at] = new
            count = int(kept[:, 0].sum())
            np.testing.assert_array_equal(cg.run({"new": new, "at": at})[0], kept[:count].sum(0))


def test_a_graph_is_left_as_it_was():
    g = cache(rlx.Graph(), None)
    outputs, text = g.outputs, str(g)
    for device in ("reference", "cpu"):
        rlx.compile(copy.deepcopy(g), device).close()
        rlx.compile(g, device).close()
    assert g.outputs == outputs
    assert str(g) == text


def test_a_profile_counts_the_rows_that_a_step_moves(target_device, rng):
    shape = 4096, SHAPE[1]
    with rlx.compile(cache(rlx.Graph(), None, shape=shape), target_device) as cg:
        cg.bind_gpu_handle("state", np.zeros(shape, np.float32))
        profile = cg.profile({"new": rows(rng, 2), "position": np.array(5)}, runs=2)
        moved = {row.name: row.nbytes for row in profile.rows}
    assert moved["update_slice"] == 2 * 2 * 4 * SHAPE[1]


def test_an_active_extent_leaves_states_whole(target_device, rng):
    g = rlx.Graph()
    state, new = g.input("state", (8, 3)), g.input("new", (2, 3))
    g.set_outputs([g.update(state, new, 3), g.input("x", (8, 2)) * 2.0])
    with rlx.compile(g, target_device) as cg:
        kept = rows(rng, 8)
        cg.bind_handle("state", kept)
        cg.set_active_extent((4, 8))
        kept[3:5] = new = rows(rng, 2)
        x = np.ones((8, 2), np.float32)
        whole, doubled = cg.run({"new": new, "x": x})
        np.testing.assert_array_equal(whole, kept)
        np.testing.assert_array_equal(doubled, 2 * x)


def test_an_update_of_a_param(device, rng):
    """It is computed when the param is set."""
    g = rlx.Graph()
    table = g.update(g.param("table", (5, 2)), g.param("row", (1, 2)), 3)
    g.set_outputs([g.input("x", (5, 2)) + table])
    params = {"table": rows(rng, 5)[:, :2], "row": rows(rng, 1)[:, :2]}
    with rlx.compile(g, device, params) as cg:
        wanted = params["table"].copy()
        wanted[3:4] = params["row"]
        np.testing.assert_array_equal(cg.run({"x": np.zeros((5, 2), np.float32)})[0], wanted)


@pytest.mark.webgpu
def test_an_update_on_the_host_of_a_gpu(webgpu, rng):
    """Numbers of f64 are updated there."""
    g = rlx.Graph()
    x, new = g.input("x", (5, 2)), g.input("new", (1, 2))
    wide = g.update(g.cast(x, "f64") * np.float64(2), g.cast(new, "f64"), 1)
    g.set_outputs([g.cast(wide, "f32")])
    with rlx.compile(g, webgpu) as cg:
        x, new = rows(rng, 5)[:, :2], rows(rng, 1)[:, :2]
        wanted = 2 * x
        wanted[1:2] = new
        np.testing.assert_array_equal(cg.run({"x": x, "new": new})[0], wanted)


def test_a_state_is_read_between_its_updates_by_runs_that_are_under_way_together(target_device):
    """A sum that goes on from run to run on the device; each run has another size, and none waits for the one before."""
    g = rlx.Graph()
    x, at = g.input("x", (1,)), g.read_size(g.input("at", (), "i64"), max=8)
    given = g.update(g.input("state", (3,)), x, 1)
    total = g.narrow(given, 0, 0, 1) + x
    g.update(given, total, 0)
    g.set_outputs([total, g.sum(g.narrow(g.constant(np.arange(8, dtype="f4")), 0, 0, at))])
    cg = rlx.compile(g, target_device)
    cg.bind_gpu_handle("state", np.zeros(3, np.float32))
    runs = [cg.enqueue({"x": np.float32([n]), "at": np.int64(n)}, [n % 2]) for n in range(1, 7)]
    assert [float(run.wait()[0].sum()) for run in runs] == [0, 3, 3, 10, 10, 21]
    assert float(cg.read_output_row(0, 0)) == 21
    np.testing.assert_array_equal(cg.read_gpu_handle("state"), [21, 6, 0])


def scaled(size, cut=False):
    """A product and a sum; ``cut``: of as many elements as the graph computes."""
    g = rlx.Graph()
    x, k = g.input("x", (size,)), g.input("k", ())
    if cut:
        x = g.narrow(x, 0, 0, g.read_size(g.cast(k, "i64") * np.int64(0) + np.int64(4), max=4))
    g.set_outputs([x * k, g.sum(x)])
    return g


@pytest.mark.parametrize("graph", [scaled(4), scaled(rlx.Dim("n", max=9)), scaled(4, cut=True)])
@pytest.mark.parametrize("how", ["run", "run_slots", "run_read_outputs", "commit", "enqueue"])
def test_a_run_between_enqueue_and_wait_leaves_its_results(graph, how, target_device, rng):
    with rlx.compile(graph, target_device) as cg:
        calls = {
            "run": lambda x, k: cg.run({"x": x, "k": k}),
            "run_slots": cg.run_slots,
            "run_read_outputs": lambda x, k: cg.run_read_outputs({"x": x, "k": k}, [0]),
            "commit": lambda x, k: (
                cg.commit_no_wait({"x": x, "k": k}) or cg.sync_pending() or [x * k]
            ),
            "enqueue": lambda x, k: cg.enqueue({"x": x, "k": k}).wait(),
        }
        for _ in range(3):
            first, second = rng.standard_normal((2, 4)).astype("f4")
            pending = cg.enqueue({"x": first, "k": np.float32(3)})
            np.testing.assert_array_equal(calls[how](second, np.float32(5))[0], second * 5)
            got, total = pending.wait()
            np.testing.assert_array_equal(got, first * 3)
            np.testing.assert_allclose(total, first.sum(), 1e-5, 1e-5)
