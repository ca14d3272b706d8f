"""The parts of rlx.ray without Ray: predictors, lenders of devices, sizes of batches."""

import os
import subprocess
import sys
import time

import numpy as np
import pytest
from python_process import run_python

import rlx
import rlx.ray
from rlx.ray.batch_size import MAX_BYTES, MAX_ROWS, OVERHEAD_S, SHARE
from rlx.ray.lending import Holder, is_alive, this_process

RNG = np.random.default_rng(0)
X = RNG.standard_normal((11, 3)).astype(np.float32)


def graph(rows=4):
    g = rlx.Graph("affine")
    x = g.input("x", (rows, 3))
    g.set_outputs([x * 2.0 + g.param("b", (3,), value=np.ones(3, np.float32)), g.sum(x, -1)])
    return g


@pytest.fixture
def stored(tmp_path):
    rlx.save_model(graph(), tmp_path / "affine.rlx")
    return tmp_path / "affine.rlx"


def onnx_model(first="rows", output_first="rows"):
    """y = x w + b, beside it a scale that is the same for all rows."""
    import onnx
    from onnx import helper

    value = helper.make_tensor_value_info
    floats = onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["p"]),
        helper.make_node("Mul", ["p", "scale"], ["y"]),
        helper.make_node("ReduceSum", ["y"], ["total"], keepdims=1),
    ]
    w = onnx.numpy_helper.from_array(W, "w")
    outputs = [value("y", floats, [output_first, 2])]
    if output_first == "one":
        outputs = [value("total", floats, [1, 1])]
    result = helper.make_graph(
        nodes, "scaled", [value("x", floats, [first, 3]), value("scale", floats, [1])], outputs, [w]
    )
    return helper.make_model(
        result, opset_imports=[helper.make_opsetid("", 18)], ir_version=10
    ).SerializeToString()


W = RNG.standard_normal((3, 2)).astype(np.float32)
SCALE = {"scale": np.array([3.0], np.float32)}


# --- predictors --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 8, 11])
@pytest.mark.parametrize(
    "device", ["reference", "cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)]
)
def test_a_graph_takes_any_number_of_rows(stored, rows, device, request):
    if device == "webgpu":
        device = request.getfixturevalue("webgpu")
    predict = rlx.ray.Predictor(stored, device, keep=["id"])
    assert (predict.rows, predict.inputs, predict.outputs) == (4, ("x",), ("output0", "output1"))
    x = X[:rows]
    result = predict({"x": x, "id": np.arange(rows)})
    np.testing.assert_allclose(result["output0"], x * 2 + 1, rtol=1e-6, atol=1e-6)
    np.testing.assert_allclose(result["output1"], x.sum(-1), rtol=1e-5, atol=1e-6)
    assert list(result["id"]) == list(range(rows))
    predict.close()


def test_an_empty_batch_has_the_columns_of_others(stored):
    predict = rlx.ray.Predictor(stored, "cpu", keep=["id"])
    result = predict({"x": X[:0], "id": np.zeros(0, np.int64)})
    assert {name: value.shape for name, value in result.items()} == {
        "output0": (0, 3),
        "output1": (0,),
        "id": (0,),
    }
    assert result["output0"].dtype == np.float32


@pytest.mark.parametrize("rows", [None, 4])
def test_a_model_with_a_free_axis(rows):
    predict = rlx.ray.Predictor(onnx_model(), "cpu", rows=rows, fixed=SCALE)
    assert predict.rows == rows
    for count in (1, 4, 5, 11):
        result = predict({"x": X[:count]})
        assert list(result) == ["y"]
        np.testing.assert_allclose(result["y"], X[:count] @ W * 3, rtol=1e-5, atol=1e-6)


def test_batches_of_a_free_axis_run_whole_by_one_program(tmp_path):
    g, n = rlx.Graph(), rlx.Dim("n")
    g.set_outputs([g.input("x", (n, 3)) @ g.constant(W)])
    rlx.save_model(g, tmp_path / "free.rlx")
    for predict in (
        rlx.ray.Predictor(onnx_model(), "cpu", fixed=SCALE),
        rlx.ray.Predictor(tmp_path / "free.rlx", "cpu"),
    ):
        seen = set()
        run = predict._model.run

        def noted(inputs, seen=seen, run=run):
            seen.add(len(inputs["x"]))
            return run(inputs)

        predict._model.run = noted
        for count in range(12):
            assert [len(value) for value in predict({"x": X[:count]}).values()] == [count]
        assert (predict.rows, seen) == (None, set(range(1, 12)))


def test_a_model_that_states_its_rows_keeps_them():
    predict = rlx.ray.Predictor(onnx_model(4, 4), "cpu", fixed=SCALE)
    assert predict.rows == 4
    np.testing.assert_allclose(predict({"x": X})["y"], X @ W * 3, rtol=1e-5, atol=1e-6)
    with pytest.raises(rlx.InputError, match="4, which the model is written for"):
        rlx.ray.Predictor(onnx_model(4, 4), "cpu", fixed=SCALE, rows=8)


def test_results_are_not_views_of_what_the_next_call_writes(stored):
    predict = rlx.ray.Predictor(stored, "cpu")
    first = predict({"x": X[:4]})["output0"]
    before = first.copy()
    x = X[4:8]
    x.setflags(write=False)  # as arrays of an object store are
    predict({"x": x})
    assert np.array_equal(first, before)
    assert predict({"x": X[:3]})["output0"].base is None


def test_columns_come_by_name_or_alone(stored):
    predict = rlx.ray.Predictor(stored, "cpu", columns={"x": "window"})
    assert predict({"window": X[:4], "other": X[:4]})["output0"].shape == (4, 3)
    predict = rlx.ray.Predictor(stored, "cpu", keep=["id"])
    assert predict({"data": X[:4], "id": np.arange(4)})["output0"].shape == (4, 3)


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ({"a": X, "b": X}, "no column 'x'"),
        ({"x": np.array([X[0], X[0, :2]], object)}, "different shapes"),
        ({"x": X, "id": np.arange(3)}, "other rows"),
        ({"x": X}, "no column 'id' to keep"),
        ({"x": np.float32(1.0), "id": np.arange(1)}, "the same rows"),
        ({"x": X.astype(np.complex64), "id": np.arange(11)}, "complex"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(stored, batch, said):
    predict = rlx.ray.Predictor(stored, "cpu", keep=["id"])
    with pytest.raises(rlx.InputError, match=said):
        predict(batch)


def test_a_result_without_rows_is_refused():
    predict = rlx.ray.Predictor(onnx_model(output_first="one"), "cpu", fixed=SCALE, rows=4)
    with pytest.raises(rlx.InputError, match="'total' does not have a row"):
        predict({"x": X})


def test_what_is_no_input_is_refused(stored, tmp_path):
    for how in ({"columns": {"y": "x"}}, {"fixed": {"y": 1}}):
        with pytest.raises(rlx.UnknownNameError, match="no input 'y'"):
            rlx.ray.Predictor(stored, "cpu", **how)
    with pytest.raises(rlx.InputError, match="equal first axes"):
        rlx.ray.Predictor(stored, "cpu", fixed={"x": X[:4]})
    with pytest.raises(rlx.InputError, match="rows of a piece"):
        rlx.ray.Predictor(stored, "cpu", rows=0)
    with pytest.raises(rlx.RlxError):
        rlx.ray.Predictor(tmp_path / "none.onnx", "cpu")


# --- lenders -----------------------------------------------------------------------------------------


class Machine:
    """Processes that live until they are ended."""

    def __init__(self, monkeypatch, *devices):
        monkeypatch.setattr(
            "rlx.ray.lending.separate_devices",
            lambda: [rlx.Device.parse(device) for device in devices],
        )
        self.gone = set()

    def lender(self, devices="all"):
        return rlx.ray.DeviceLender(devices, alive=lambda holder: holder.pid not in self.gone)


def test_each_process_gets_a_device_of_its_own_gpus_first(monkeypatch):
    machine = Machine(monkeypatch, "cpu", "webgpu", "webgpu:1")
    lender = machine.lender()
    got = [lender.lend(Holder(pid, 0.0)) for pid in range(3)]
    assert got == ["webgpu", "webgpu:1", "cpu"]
    assert lender.lend(Holder(1, 0.0)) == "webgpu:1"  # asked again
    assert lender.lend(Holder(3, 0.0)) == "webgpu"  # shared, where there are more
    assert lender.held() == {0: "webgpu", 1: "webgpu:1", 2: "cpu", 3: "webgpu"}


def test_the_device_of_a_process_that_is_gone_is_free(monkeypatch):
    machine = Machine(monkeypatch, "cpu", "webgpu")
    lender = machine.lender()
    assert [lender.lend(Holder(pid, 0.0)) for pid in (7, 8)] == ["webgpu", "cpu"]
    machine.gone.add(7)
    assert lender.held() == {8: "cpu"}
    assert lender.lend(Holder(9, 0.0)) == "webgpu"


def test_some_of_the_devices(monkeypatch):
    machine = Machine(monkeypatch, "cpu", "webgpu", "dawn:1")
    lender = machine.lender(["cpu", "dawn:1", "webgpu:5"])
    assert lender.devices() == ["cpu", "dawn:1"]
    assert lender.lend(Holder(1, 0.0), ["cpu"]) == "cpu"
    assert lender.lend(Holder(1, 0.0), ["dawn:1"]) == "dawn:1"
    assert lender.held() == {1: "dawn:1"}
    with pytest.raises(rlx.DeviceUnavailableError, match="webgpu"):
        lender.lend(Holder(2, 0.0), ["webgpu"])
    with pytest.raises(rlx.DeviceUnavailableError, match="on this machine"):
        machine.lender(["webgpu:5"])
    with pytest.raises(rlx.InputError, match="a list of devices"):
        machine.lender("gpu")


def test_a_process_is_known_by_its_number_and_its_birth():
    assert is_alive(this_process())
    assert not is_alive(this_process()._replace(born=1.0))
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        import psutil

        holder = Holder(process.pid, psutil.Process(process.pid).create_time())
        assert is_alive(holder)
        process.kill()
        deadline = time.monotonic() + 10
        while is_alive(holder):  # dead, and not yet waited for
            assert time.monotonic() < deadline
    assert not is_alive(holder)


# --- sizes of batches ----------------------------------------------------------------------------------


class ClockedModel:
    """Takes so many seconds for a run and for a row, on a clock of its own."""

    def __init__(self, monkeypatch, run_s, row_s):
        self.now, self.run_s, self.row_s, self.sizes = 0.0, run_s, row_s, []
        monkeypatch.setattr("rlx.ray.batch_size.time.perf_counter", lambda: self.now)

    def __call__(self, batch):
        rows = len(batch["x"])
        self.sizes.append(rows)
        self.now += self.run_s + rows * self.row_s


@pytest.mark.parametrize("row_s", [1e-6, 3e-5, 1e-3, 0.03, 1.0])
def test_a_batch_is_as_large_as_its_overhead_asks_for(monkeypatch, row_s):
    model = ClockedModel(monkeypatch, 2e-4, row_s)
    result = rlx.ray.measure_batch_size(model, {"x": X})
    wanted = OVERHEAD_S * (1 - SHARE) / SHARE
    assert result.rows & (result.rows - 1) == 0
    if row_s == 1e-6:
        assert not result.enough
        assert result.rows == MAX_ROWS
    else:
        assert result.enough
        assert result.share <= SHARE
        # No more than needed: half as many rows would not do, or it is one row.
        assert result.rows == 1 or 2e-4 + result.rows / 4 * row_s < wanted
    assert len(set(model.sizes)) <= 7


def test_batches_of_a_graph_are_multiples_of_its_rows(monkeypatch):
    model = ClockedModel(monkeypatch, 0.0, 1e-3)
    result = rlx.ray.measure_batch_size(model, {"x": X}, multiple=24, overhead_s=0.006)
    assert result.rows % 24 == 0
    assert all(size % 24 == 0 for size in model.sizes)
    assert result.rows == 96


def test_large_rows_make_small_batches(monkeypatch):
    model = ClockedModel(monkeypatch, 0.0, 1e-9)
    result = rlx.ray.measure_batch_size(model, {"x": np.zeros((2, 1 << 20), np.float32)})
    assert result.rows == MAX_BYTES >> 22
    assert not result.enough
    with pytest.raises(rlx.InputError, match="is empty"):
        rlx.ray.measure_batch_size(model, {"x": X[:0]})


# --- without Ray -----------------------------------------------------------------------------------------


def test_importing_it_imports_no_ray():
    code = (
        "import sys, rlx.ray; rlx.ray.Predictor; rlx.ray.map_batches; print('ray' in sys.modules)"
    )
    assert run_python("-c", code).stdout.strip() == "False"


def test_without_ray_the_message_says_how_to_get_it(tmp_path):
    (tmp_path / "ray.py").write_text("raise ImportError('no ray')")
    code = "import rlx.ray\ntry: rlx.ray.map_batches(None, 'm.onnx')\nexcept rlx.RlxError as e: print(e)"
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    assert "pip install '.[ray]'" in run_python("-c", code, env={"PYTHONPATH": path}).stdout
