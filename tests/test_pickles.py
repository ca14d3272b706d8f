"""Graphs, compiled graphs and models in pickles: what another process makes of them, and what can't be handed over."""

import copy
import multiprocessing
import pickle
from concurrent.futures import ProcessPoolExecutor

import numpy as np
import pytest

import rlx

DEVICES = ["reference", "cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]


def _graph(value=None):
    g = rlx.Graph("linear")
    x, state = g.input("x", (3, 4)), g.input("state", (3, 2))
    w = g.param("w", (4, 2), value=value)
    y = x @ w + g.constant(np.arange(2, dtype=np.float32)) + state
    g.set_outputs([y, g.relu(y)])
    return g


def sample_model(columns=5):
    """An ONNX model of one product, of any number of rows."""
    from onnx import TensorProto, helper, numpy_helper

    w = np.random.default_rng(3).standard_normal((3, columns)).astype(np.float32)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["rows", 3])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["rows", columns])
    node, weight = helper.make_node("MatMul", ["x", "w"], ["y"]), numpy_helper.from_array(w, "w")
    graph = helper.make_graph([node], "product", [x], [y], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    return model.SerializeToString()


def _again(thing):
    return pickle.loads(pickle.dumps(thing))


@pytest.mark.parametrize("take", [_again, copy.deepcopy, copy.copy])
def test_graphs(rng, take):
    value = rng.standard_normal((4, 2)).astype(np.float32)
    graph = _graph(value)
    result = take(graph)
    assert result is not graph
    assert str(result) == str(graph)
    np.testing.assert_array_equal(result.param_values["w"], value)


def test_a_node_comes_with_its_graph():
    node = _graph().outputs[0]
    result = _again(node)
    assert (result.id, result.op, str(result.graph)) == (node.id, node.op, str(node.graph))


def test_a_graph_without_outputs_is_refused():
    with pytest.raises(rlx.GraphError, match="no outputs yet"):
        pickle.dumps(rlx.Graph())


@pytest.mark.parametrize("dtype", ["f16", "bf16", "i64"])
def test_values_of_other_types(dtype):
    g = rlx.Graph()
    w = g.param("w", (3,), dtype)
    g.set_outputs([w + g.constant(np.ones(3), dtype)])
    values = np.arange(3).astype("int64" if dtype == "i64" else "float32")
    with rlx.compile(g, "cpu", {"w": values}) as compiled, _again(compiled) as other:
        np.testing.assert_array_equal(other.run({})[0], compiled.run({})[0])


@pytest.mark.parametrize("device", DEVICES)
def test_compiled_graphs_keep_what_they_were_told(rng, device):
    old, new = (rng.standard_normal((4, 2)).astype(np.float32) for _ in "12")
    x, state = (rng.standard_normal(shape).astype(np.float32) for shape in ((3, 4), (3, 2)))
    options = rlx.CompileOptions(fuse=False)
    with rlx.compile(_graph(old), device, options=options) as compiled:
        compiled.set_param("w", new)
        compiled.bind_gpu_handle("state", state)
        compiled.set_gpu_handle_feed("state", 1)
        with _again(compiled) as other:
            assert other.device == compiled.device
            assert other.has_gpu_handle("state")
            for _ in range(3):  # the handle takes the second output each time
                for got, expected in zip(other.run({"x": x}), compiled.run({"x": x}), strict=True):
                    np.testing.assert_array_equal(got, expected)


def test_missing_params_stay_missing():
    with rlx.compile(_graph(), "cpu") as compiled, _again(compiled) as other:
        with pytest.raises(rlx.InputError, match="no value for w"):
            other.run({"x": np.zeros((3, 4)), "state": np.zeros((3, 2))})


def test_active_rows_stay(rng):
    g = rlx.Graph()
    g.set_outputs([g.softmax(g.input("x", (8, 5)))])
    x = rng.standard_normal((8, 5)).astype(np.float32)
    with rlx.compile(g, "cpu") as compiled:
        compiled.set_active_extent((3, 8))
        with _again(compiled) as other:
            assert other.active_extent == (3, 8)
            np.testing.assert_array_equal(other.run({"x": x})[0][:3], compiled.run({"x": x})[0][:3])


def test_placed_experts_stay(rng):
    g = rlx.Graph()
    x, idx = g.input("x", (6, 4)), g.input("idx", (6,), "i32")
    g.set_outputs([g.grouped_matmul(x, g.param("w", (3, 4, 2)), idx)])
    inputs = {"x": rng.standard_normal((6, 4)), "idx": np.arange(6) % 3}
    with rlx.compile(g, "cpu", {"w": rng.standard_normal((3, 4, 2))}) as compiled:
        compiled.set_moe_resident_experts([True, False, True])
        compiled.enable_moe_topk_capture(3)
        with _again(compiled) as other:
            np.testing.assert_array_equal(other.run(inputs)[0], compiled.run(inputs)[0])
            assert other.take_moe_residency_stats() is not None
            assert len(other.take_moe_topk_capture()) == 1


def test_a_closed_graph_is_refused():
    compiled = rlx.compile(_graph(), "cpu")
    compiled.close()
    with pytest.raises(rlx.InputError, match="closed"):
        pickle.dumps(compiled)


@pytest.mark.webgpu
@pytest.mark.wgpu_native
def test_a_device_of_the_program_is_refused():
    import wgpu

    shared = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync()
    with rlx.compile(_graph(), shared) as compiled:
        with pytest.raises(rlx.DeviceError, match="can't be used in another"):
            pickle.dumps(compiled)


def test_options_and_devices():
    for thing in (
        rlx.Device.parse("vulkan:1"),
        rlx.CompileOptions(precision="f16", threads=2),
        rlx.DType.BF16,
    ):
        assert _again(thing) == thing


def test_models_by_path_and_by_bytes(tmp_path, rng):
    data = sample_model()
    path = tmp_path / "größe.onnx"
    path.write_bytes(data)
    x = rng.standard_normal((2, 3)).astype(np.float32)
    for value in (path, data):
        model = rlx.onnx.Model(value, "cpu", capacity=3)
        result = _again(model)
        np.testing.assert_array_equal(result.run(x)[0], model.run(x)[0])
        assert len(pickle.dumps(rlx.onnx.Model(path, "cpu"))) < len(data) + 1000
    assert _again(rlx.onnx.Model(path)).device is None


def test_another_file_in_its_place_is_refused(tmp_path):
    path = tmp_path / "model.onnx"
    path.write_bytes(sample_model())
    retained = pickle.dumps(rlx.onnx.Model(path, "cpu"))
    path.write_bytes(sample_model(columns=50))
    with pytest.raises(rlx.ImportModelError, match="was replaced"):
        pickle.loads(retained)


def _run(compiled, x):
    return compiled.run({"x": x, "state": np.zeros((3, 2), np.float32)})[0]


def test_other_processes_run_them(rng):
    """Processes are spawned, as on Windows and macOS."""
    value = rng.standard_normal((4, 2)).astype(np.float32)
    xs = rng.standard_normal((4, 3, 4)).astype(np.float32)
    with rlx.compile(_graph(value), "cpu") as compiled:
        context = multiprocessing.get_context("spawn")
        with ProcessPoolExecutor(2, mp_context=context) as pool:
            results = list(pool.map(_run, [compiled] * len(xs), xs))
        for x, got in zip(xs, results, strict=True):
            np.testing.assert_array_equal(got, _run(compiled, x))
