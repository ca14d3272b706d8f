"""Graphs with dims: shapes, guards and text, and every way of running them, for any sizes by one executable."""

import pickle

import numpy as np
import pytest

import rlx
from rlx.ir.content import content_hash
from rlx.ir.static_sizes import with_sizes

DEVICES = ["reference", "cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]
W = np.float32(np.arange(12).reshape(4, 3) / 12)


def rows(n, seed=0):
    return np.random.default_rng(seed).standard_normal((n, 4)).astype(np.float32)


def network():
    """Rows times weights, and what joins them with other rows."""
    n, m = rlx.Dim("n"), rlx.Dim("m", max=10)
    g = rlx.Graph("network")
    x, other = g.input("x", (n, 4)), g.input("other", (m, 3))
    y = g.softmax(x @ g.param("w", (4, 3)), axis=1)
    both = g.concat([y, other], 0)
    g.set_outputs([g.reshape(y[1:], (-1,)), g.sum(both, axes=0), g.dim(both, 0), y * x.shape[0]])
    return g


def expected(x, other):
    e = np.exp(x.astype(np.float64) @ W)
    y = e / e.sum(1, keepdims=True)
    return [y[1:].ravel(), np.concatenate([y, other]).sum(0), len(x) + len(other), y * len(x)]


def check(results, x, other):
    for got, wanted in zip(results, expected(x, other), strict=True):
        np.testing.assert_allclose(got, wanted, rtol=1e-5, atol=1e-5)
        assert got.shape == np.shape(wanted)


@pytest.fixture(params=DEVICES)
def cg(request):
    if request.param == "webgpu":
        request.getfixturevalue("webgpu")
    with rlx.compile(network(), device=request.param, params={"w": W}) as compiled:
        yield compiled


# --- graphs ----------------------------------------------------------------------------------------


def test_shapes_are_sizes():
    g = network()
    assert str(g.outputs[0].type) == "f32[3*n - 3]"
    assert str(g.outputs[3].type) == "f32[n, 3]"
    assert "size=m + n" in str(g)
    assert list(g.dims) == ["n", "m"]
    assert not g.assumptions.guards  # nothing was assumed that another size could break


def test_a_graph_is_the_same_after_a_round_trip():
    g = network()
    for copied in (rlx.Graph.from_json(g.to_json()), pickle.loads(pickle.dumps(g))):
        assert str(copied) == str(g)
        assert content_hash(copied) == content_hash(g)
        assert copied.dims == g.dims
        check(
            rlx.compile(copied, device="cpu", params={"w": W}).run({"x": rows(1), "other": W[:2]}),
            rows(1),
            W[:2],
        )


def test_bounds_are_part_of_a_graph():
    def graph(dim):
        g = rlx.Graph("g")
        g.set_outputs([g.input("x", (dim,)) + 1.0])
        return g

    hashes = {content_hash(graph(d)) for d in (5, rlx.Dim("n"), rlx.Dim("m"), rlx.Dim("n", max=8))}
    assert len(hashes) == 4


def test_sizes_in_place_of_dims():
    g = with_sizes(network(), {"n": 5, "m": 2})
    assert not g.dims
    assert [node.shape for node in g.outputs] == [(12,), (3,), (), (5, 3)]


def test_what_a_builder_assumed_is_checked():
    g = rlx.Graph("halves")
    x = g.input("x", (rlx.Dim("n"),))
    with g.deciding():
        half = g.narrow(x, 0, 0, 8) if x.shape[0] > 10 else x
    g.set_outputs([half * 2.0])
    cg = rlx.compile(g, device="cpu")
    assert cg.run(np.ones(11))[0].shape == (8,)
    with pytest.raises(rlx.SizesError, match="was built for other sizes") as error:
        cg.run(np.ones(3))
    assert "n - 10 > 0" in str(error.value)
    assert cg.run(np.ones(12))[0].shape == (8,)


def test_messages_of_graphs():
    g = rlx.Graph("g")
    x = g.input("x", (rlx.Dim("n"), 4))
    with pytest.raises(rlx.UnknownSizeError, match="the size n is known only when the graph runs"):
        np.ones(x.shape)
    with pytest.raises(rlx.ShapeError, match="a dim of this name has other bounds"):
        g.input("y", (rlx.Dim("n", max=3),))
    with pytest.raises(rlx.ShapeError, match="a param has a static shape"):
        g.param("w", (rlx.Dim("n"),))
    with pytest.raises(rlx.ShapeError, match="do not broadcast"):
        g.add(g.input("five", (rlx.Dim("k", max=5),)), np.ones(6, np.float32))
    h = rlx.Graph("h")
    h.set_outputs([h.input("a", (rlx.Dim("p") * rlx.Dim("q"),)) + 1.0])
    with pytest.raises(rlx.GraphError, match="no input shows the size of dim 'p'"):
        rlx.compile(h, device="cpu")


# --- runs ------------------------------------------------------------------------------------------


def test_runs_of_any_size(cg):
    for n, m in ((5, 2), (1, 0), (0, 3), (7, 10), (5, 2), (33, 1)):
        x, other = rows(n, n), W[:1].repeat(m, 0)
        check(cg.run({"x": x, "other": other}), x, other)
        check(cg.run_slots(x, other), x, other)
        check(cg.run_raw({"x": x.astype(np.float64), "other": other}), x, other)
        check(cg.run_read_outputs({"x": x, "other": other}), x, other)


def test_many_sizes(cg):
    """More sizes than programs are kept."""
    for n in [*range(1, 40), 3, 17]:
        check(cg.run({"x": rows(n), "other": W[:1]}), rows(n), W[:1])


def test_one_program_of_the_cpu_serves_many_sizes():
    with rlx.compile(network(), device="cpu", params={"w": W}) as cg:
        for n in (*range(3, 40), 500, 3):
            check(cg.run({"x": rows(n), "other": W[:2]}), rows(n), W[:2])
        sized = cg._state.sized
        assert len(sized._ranges) <= 3
        assert not sized._programs


def test_programs_of_single_sizes_say_why():
    notes = {}
    for device in ("cpu", "reference"):
        g = rlx.Graph("small")
        g.set_outputs([g.input("x", (rlx.Dim("n", max=1),)) + 1.0])
        notes[device] = rlx.compile(g, device=device).as_text("fused")
    assert "alone" not in notes["cpu"], "one program, also of a size that is 0 or 1"
    assert "alone: the device has no programs for many sizes" in notes["reference"]


def test_pipelined_and_without_waiting(cg):
    batches = [{"x": rows(n), "other": W[:n]} for n in (1, 3, 2)]
    for results, batch in zip(cg.run_pipelined(batches), batches, strict=True):
        check(results, *batch.values())
    cg.commit_no_wait(batches[1])
    cg.sync_pending()
    np.testing.assert_allclose(
        cg.read_output_row(3, -1), expected(*batches[1].values())[3][-1], rtol=1e-5
    )


def test_raw_bytes_have_the_sizes_of_now(cg):
    x, other = rows(2), W[:3]
    cg.set_sizes(n=2, m=3)
    inputs = [(name, array.tobytes(), "f32") for name, array in (("x", x), ("other", other))]
    results = [np.frombuffer(data, dtype.numpy) for data, dtype in cg.run_typed(inputs)]
    for got, wanted in zip(results, expected(x, other), strict=True):
        np.testing.assert_allclose(got, np.ravel(wanted), rtol=1e-5)
    cg.set_sizes(n=3, m=3)
    with pytest.raises(rlx.InputError, match="bytes of 'x' do not fill it"):
        cg.run_typed(inputs)


def test_sizes_of_runs_without_arguments(cg):
    cg.set_sizes(n=3, m=1)
    for view, array in zip(cg.input_views, (rows(3), W[:1]), strict=True):
        view[...] = array
    check(cg.run_slots(), rows(3), W[:1])
    cg.warm()
    for sizes, message in (
        ({"n": 3}, "the sizes of a graph"), ({"n": 3, "m": 11}, "m is 0 to 10"), ({"n": -1, "m": 1}, "n is 0 or more"),
        ({"n": 3.0, "m": 1}, "dim 'n'"), ({"n": 3, "m": 1, "k": 2}, "the sizes of a graph"),
    ):  # fmt: skip
        with pytest.raises(rlx.InputError, match=message):
            cg.set_sizes(**sizes)


def test_handles_and_feeds(cg):
    cg.bind_handle("other", W[:4])
    for n in (3, 2):
        check(cg.run({"x": rows(n)}), rows(n), W[:4])
    assert cg.read_handle("other").shape == (4, 3)
    cg.bind_gpu_handle("other", W[:2])
    check(cg.run(rows(5)), rows(5), W[:2])
    with pytest.raises(rlx.InputError, match="the handle of input 'other' has another size"):
        cg.set_sizes(n=3, m=3)
    check(cg.clone().run({"x": rows(2), "other": W[:3]}), rows(2), W[:3])
    check(pickle.loads(pickle.dumps(cg)).run(rows(6)), rows(6), W[:2])


def test_a_handle_takes_an_output(cg):
    n = rlx.Dim("n")
    g = rlx.Graph("sums")
    total, x = g.input("total", (n,)), g.input("x", (n,))
    g.set_outputs([total + x])
    with rlx.compile(g, device=cg.device) as sums:
        for size in (3, 5):
            sums.bind_gpu_handle("total", np.zeros(size))
            sums.set_gpu_handle_feed("total", 0)
            for _ in range(3):
                sums.run(np.ones(size))
            assert sums.read_handle("total").tolist() == [3.0] * size


def test_params_reach_all_sizes_and_clones(cg):
    clone = cg.clone()
    cg.run({"x": rows(2), "other": W[:1]})
    clone.run({"x": rows(3), "other": W[:1]})
    cg.set_param("w", np.zeros((4, 3)))
    for n in (2, 3, 4):
        for each in (cg, clone):
            np.testing.assert_allclose(
                each.run({"x": rows(n), "other": W[:1]})[3], n / 3, rtol=1e-6
            )
    assert cg.memory()["arena"] >= 0
    assert cg.bytes_moved.uploaded >= 0


def test_wrong_sizes_run_nothing(cg):
    for inputs, message in (
        ({"x": np.zeros((2, 5)), "other": W[:1]}, r"expected: \(n, 4\)"),
        ({"x": np.zeros(2), "other": W[:1]}, r"expected: \(n, 4\)"),
        ({"x": rows(2), "other": np.zeros((11, 3))}, "m is 0 to 10"),
        ({"x": rows(2)}, "inputs are missing"),
    ):
        with pytest.raises(rlx.InputError, match=message):
            cg.run(inputs)
    with pytest.raises(rlx.InputError, match="run_slots takes every input"):
        cg.run_slots(rows(2))
    with pytest.raises(rlx.InputError, match="has dims"):
        cg.set_active_extent((1, 2))


def test_dims_that_have_to_be_equal():
    g = rlx.Graph("g")
    g.set_outputs([g.input("a", (rlx.Dim("p"),)) + g.input("b", (rlx.Dim("q", max=20),))])
    cg = rlx.compile(g, device="cpu")
    assert cg.run({"a": [1, 2], "b": [3, 4]})[0].tolist() == [4.0, 6.0]
    with pytest.raises(rlx.ShapeError, match="shapes do not broadcast"):
        cg.run({"a": [1, 2], "b": [3, 4, 5]})


def test_a_dim_in_several_inputs():
    n = rlx.Dim("n", multiple_of=2, max=8)
    g = rlx.Graph("g")
    a, b, c = g.input("a", (n,)), g.input("b", (n // 2,)), g.input("c", (3 * n + 1,))
    g.set_outputs(
        [
            a[::2] + b,
            g.reshape(a, (n // 2, 2)),
            c[:n] + a,
            g.arange(n),
            g.trilu(g.expand(a, (n, n))),
        ]
    )
    cg = rlx.compile(g, device="cpu")
    for size in (0, 2, 8):
        a, b, c = (np.arange(k, dtype=np.float32) for k in (size, size // 2, 3 * size + 1))
        first, second, third, fourth, fifth = cg.run({"a": a, "b": b, "c": c})
        assert first.tolist() == (a[::2] + b).tolist()
        assert second.shape == (size // 2, 2)
        assert third.tolist() == (2 * a).tolist()
        assert fourth.tolist() == list(range(size))
        assert fifth.tolist() == np.triu(np.broadcast_to(a, (size, size))).tolist()
    with pytest.raises(rlx.InputError, match="n is 0 to 8, a multiple of 2"):
        cg.run({"a": np.ones(10), "b": np.ones(5), "c": np.ones(31)})
    with pytest.raises(rlx.InputError, match="where other inputs say n = 6"):
        cg.run({"a": np.ones(4), "b": np.ones(3), "c": np.ones(13)})


# --- around runs -----------------------------------------------------------------------------------


def test_devices_and_estimates():
    g = network()
    assert rlx.compile(g, params={"w": W}).run({"x": rows(2), "other": W[:1]})[2] == 3
    assert rlx.estimate_graph_cost(g, rlx.cost.CpuCostModel()) > 0
    assert rlx.profile_graph_io(g).kernel_launches > 0
    assert rlx.choose(g).device


def test_files(tmp_path):
    g = network()
    g.param_values["w"] = W
    notes = rlx.save_model(g, tmp_path / "network.rlx", devices=["cpu"])
    assert notes == ["cpu: it is compiled when it is loaded, since its graph has dims"]
    with rlx.compile(rlx.load_model(tmp_path / "network.rlx"), device="cpu") as cg:
        check(cg.run({"x": rows(3), "other": W[:2]}), rows(3), W[:2])
        assert "softmax" in cg.as_text("schedule")


def test_a_lost_device_comes_back(webgpu):
    with rlx.compile(network(), device="webgpu", params={"w": W}) as cg:
        cg.bind_gpu_handle("other", W[:2])
        check(cg.run(rows(3)), rows(3), W[:2])
        cg.recover()
        check(cg.run(rows(4)), rows(4), W[:2])
