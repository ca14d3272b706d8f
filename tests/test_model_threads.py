"""``rlx.onnx.Model`` for applications: any number of threads, asyncio, futures, bytes, and a lost GPU."""

import asyncio
import gc
import io
import threading
import time
import warnings
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlx
from rlx.backends.webgpu.device import gpu_device
from rlx.device.names import Device, info_of

onnx = pytest.importorskip("onnx")
from onnx import helper


def raw_model(inputs=1):
    """tanh(x @ w), and with two inputs, plus the second one; any number of rows."""
    rng = np.random.default_rng(0)
    w = rng.normal(size=(8, 8)).astype(np.float32)
    nodes = [helper.make_node("MatMul", ["x", "w"], ["p"]), helper.make_node("Tanh", ["p"], ["y"])]
    names = ["x"]
    if inputs == 2:
        nodes[-1].output[0] = "t"
        nodes.append(helper.make_node("Add", ["t", "z"], ["y"]))
        names.append("z")
    ports = [helper.make_tensor_value_info(name, 1, ["n", 8]) for name in (*names, "y")]
    weights = [onnx.numpy_helper.from_array(w, "w")]
    graph = helper.make_graph(nodes, "g", ports[:-1], ports[-1:], weights)
    opset = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opset, ir_version=8).SerializeToString(), w


RAW, W = raw_model()


def expected(x):
    return np.tanh(x @ W)


def close(result, x):
    np.testing.assert_allclose(result[0], expected(x), atol=2e-6)


def array(rows, value):
    return np.full((rows, 8), value, np.float32)


def lose(device):
    """Simulates a driver that resets: the device is gone, and nobody was told."""
    gpu_device(info_of(Device.parse(device))).device.destroy()


# --- threads ----------------------------------------------------------------------------------------------------


def test_many_threads_share_a_model(device):
    calls = 1000 if device == "cpu" else 60
    with rlx.onnx.Model(RAW, device) as model:
        alone = {rows: model.run({"x": array(rows, 0.3)})[0] for rows in (1, 2, 5)}

        def work(index):
            for k in range(calls):
                rows = (1, 2, 5)[(k // 7 + index) % 3]
                (result,) = model.run({"x": array(rows, 0.3)})
                assert np.array_equal(result, alone[rows])
            return calls

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(work, range(8))) == 8 * calls
        results = [runner.pool.made for runner in model._executables._runners]
        assert max(results) <= 9  # one for each caller at a time, and the first


def test_results_of_a_thread_are_its_own(device):
    """No run overwrites what another one returned."""
    with rlx.onnx.Model(RAW, device) as model, ThreadPoolExecutor(4) as pool:
        inputs = [array(3, 0.01 * k) for k in range(100)]
        for x, item in zip(inputs, pool.map(lambda x: model.run({"x": x}), inputs), strict=True):
            close(item, x)


def test_a_shape_is_compiled_once_for_all_threads(monkeypatch):
    model, compiled = rlx.onnx.Model(RAW, "cpu"), []
    real = rlx.Session.compile

    def counted(self, *args, **kwargs):
        compiled.append(threading.get_ident())
        time.sleep(0.05)
        return real(self, *args, **kwargs)

    monkeypatch.setattr(rlx.Session, "compile", counted)
    with ThreadPoolExecutor(8) as pool:
        for item in pool.map(lambda _: model.run({"x": array(4, 0.5)}), range(8)):
            close(item, array(4, 0.5))
    assert len(compiled) == 1


def test_shapes_that_are_let_go_of_under_other_threads(device):
    with rlx.onnx.Model(RAW, device, capacity=1) as model, ThreadPoolExecutor(4) as pool:
        inputs = [array(1 + k % 3, 0.1) for k in range(24)]
        for x, item in zip(inputs, pool.map(lambda x: model.run({"x": x}), inputs), strict=True):
            close(item, x)


def test_closing_under_other_threads():
    model, failures, over = rlx.onnx.Model(RAW, "cpu"), [], threading.Event()

    def work():
        while not over.is_set():
            try:
                close(model.run({"x": array(2, 0.1)}), array(2, 0.1))
            except Exception as error:
                failures.append(str(error))
                return

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    time.sleep(0.1)
    model.close()
    over.set()
    for thread in threads:
        thread.join(10)
    assert all("closed" in failure for failure in failures)
    assert model.closed
    with pytest.raises(rlx.InputError, match="closed"):
        model.run({"x": array(2, 0.1)})
    model.close()


def test_a_lent_graph_is_the_callers_own(device):
    with rlx.onnx.Model(RAW, device) as model:
        compiled = model.compile({"x": array(2, 0.0)})
        assert model.compile({"x": array(2, 0.0)}) is compiled
        result = compiled._state.lock.call(model.run, {"x": array(2, 0.5)})  # as if it ran
        close(result, array(2, 0.5))
    assert compiled.closed


# --- what a model is given and says ---------------------------------------------------------------------------------


def test_one_input_may_come_alone(device):
    with rlx.onnx.Model(RAW, device) as model:
        close(model.run(array(2, 0.5)), array(2, 0.5))
        close(model.run([[0.5] * 8]), array(1, 0.5))
    with (
        rlx.onnx.Model(raw_model(2)[0], "cpu") as model,
        pytest.raises(rlx.InputError, match="2 inputs"),
    ):
        model.run(array(2, 0.5))


def test_a_model_says_what_it_is():
    model = rlx.onnx.Model(io.BytesIO(RAW))
    assert model.device is None
    assert model.choice is None
    assert [str(port) for port in model.inputs] == ["x: float [n, 8]"]
    model.run(array(1, 0.1))
    assert model.device == model.choice.device
    assert model.choice.reason
    assert str(model.device) in repr(model)
    other = model.clone()
    assert other.run(array(1, 0.1))[0].tolist() == model.run(array(1, 0.1))[0].tolist()
    model.close()
    other.run(array(1, 0.1))
    with pytest.raises(rlx.InputError, match="on_lost"):
        rlx.onnx.Model(RAW, "cpu", on_lost="ignore")


@pytest.mark.parametrize("form", [bytes, bytearray, memoryview, io.BytesIO])
def test_models_from_memory(form, tmp_path):
    close(rlx.onnx.Model(form(RAW), "cpu").run(array(2, 0.2)), array(2, 0.2))
    g = rlx.Graph("scale")
    g.set_outputs([g.input("x", (2,)) * g.param("w", (2,))])
    g.param_values["w"] = np.float32([3, 4])
    rlx.save_model(g, tmp_path / "scale.rlx", devices=["cpu"])
    stored = (tmp_path / "scale.rlx").read_bytes()
    for check in (False, True):
        result = rlx.load_model(form(stored), check=check)
        assert rlx.compile(result, "cpu").run_slots(np.float32([1, 1]))[0].tolist() == [3.0, 4.0]
    with pytest.raises(rlx.ImportModelError, match="holds no model"):
        rlx.load_model(form(stored[:-1]))
    with pytest.raises(rlx.InputError, match="gives text"):
        rlx.load_model(io.StringIO("text"))


# --- asyncio and futures -------------------------------------------------------------------------------------------


@pytest.fixture(params=["model", "graph"])
def queued(request, device):
    """Something with ``run_async`` and ``submit``."""
    with rlx.onnx.Model(RAW, device) as model:
        yield model if request.param == "model" else model.compile(array(2, 0.0))


def test_a_hundred_tasks_and_cancellations(queued):
    async def main():
        late, over = [0.0], asyncio.Event()

        async def watch():
            while not over.is_set():
                began = time.perf_counter()
                await asyncio.sleep(0.001)
                late[0] = max(late[0], time.perf_counter() - began)

        queued.run({"x": array(2, 0.0)})  # compiled before
        watcher = asyncio.create_task(watch())
        inputs = [array(2, 0.01 * k) for k in range(100)]
        tasks = [asyncio.create_task(queued.run_async({"x": x}, max_pending=8)) for x in inputs]
        await asyncio.sleep(0)
        cancelled = {k for k in range(100) if k % 3 == 1}
        for k in cancelled:
            tasks[k].cancel()
        result = await asyncio.gather(*tasks, return_exceptions=True)
        over.set()
        await watcher
        for k, item in enumerate(result):
            if k in cancelled and isinstance(item, asyncio.CancelledError):
                continue
            close(item, inputs[k])
        return late[0]

    assert asyncio.run(main()) < 1.0  # a blocked loop would wait for all of them
    assert queued._queue._room._inside == 0


def test_a_full_queue_makes_callers_wait(queued):
    free, began = threading.Event(), threading.Event()
    queue = queued._queued()
    real = queue.of

    def slowly(call, *args):
        def slow(*args):
            began.set()
            free.wait(10)
            return call(*args)

        return real(slow, *args)

    queue.of = slowly

    async def main():
        x = {"x": array(2, 0.5)}
        tasks = [asyncio.create_task(queued.run_async(x, max_pending=2)) for _ in range(6)]
        await asyncio.sleep(0.05)
        assert queue._room._inside == 2
        assert len(queue._room._waiting) == 4
        tasks[4].cancel()
        free.set()
        result = await asyncio.gather(*tasks, return_exceptions=True)
        assert isinstance(result[4], asyncio.CancelledError)
        for k in (0, 1, 2, 3, 5):
            close(result[k], array(2, 0.5))

    asyncio.run(main())
    assert began.is_set()


def test_futures(queued):
    inputs = [array(2, 0.02 * k) for k in range(20)]
    futures = [queued.submit({"x": x}, max_pending=4) for x in inputs]
    for x, future in zip(inputs, futures, strict=True):
        close(future.result(), x)
    with pytest.raises(rlx.InputError):
        queued.submit({"x": array(2, 0.0)}, max_pending=0)
    with pytest.raises(rlx.UnknownNameError):
        queued.submit({"z": array(2, 0.0)}).result()
    queued.close()
    with pytest.raises(rlx.InputError, match="closed"):
        queued.submit({"x": array(2, 0.0)})


# --- a lost GPU ----------------------------------------------------------------------------------------------------


def test_a_model_recovers(webgpu):
    with rlx.onnx.Model(RAW, webgpu) as model:
        close(model.run(array(2, 0.5)), array(2, 0.5))
        lose(webgpu)
        with pytest.warns(RuntimeWarning, match="was lost") as told:
            close(model.run(array(2, 0.5)), array(2, 0.5))
        assert len(told) == 1
        assert str(model.device) == str(webgpu)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            close(model.run(array(3, 0.5)), array(3, 0.5))


def test_a_model_goes_on_on_the_cpu(webgpu):
    with rlx.onnx.Model(RAW, webgpu, on_lost="cpu") as model:
        model.run(array(2, 0.5))
        lose(webgpu)
        with pytest.warns(RuntimeWarning, match="continues on the CPU"):
            close(model.run(array(2, 0.5)), array(2, 0.5))
        assert str(model.device) == "cpu"


def test_a_model_that_raises_can_recover(webgpu):
    with rlx.onnx.Model(RAW, webgpu, on_lost="raise") as model:
        model.run(array(2, 0.5))
        lose(webgpu)
        with pytest.raises(rlx.DeviceLostError):
            model.run(array(2, 0.5))
        model.recover()
        close(model.run(array(2, 0.5)), array(2, 0.5))


def test_threads_recover_once(webgpu):
    with rlx.onnx.Model(RAW, webgpu) as model, ThreadPoolExecutor(4) as pool:
        list(pool.map(model.run, [array(2, 0.1)] * 8))
        lose(webgpu)
        with pytest.warns(RuntimeWarning, match="was lost"):
            results = list(pool.map(model.run, [array(2, 0.1)] * 40))
        for item in results:
            close(item, array(2, 0.1))


@pytest.mark.parametrize("noticed", [True, False])
def test_new_graphs_after_a_lost_device(noticed, webgpu):
    """Once all graphs are closed, what is compiled next runs on a new device."""
    for k in range(4):
        g = rlx.Graph()
        x = g.input("x", (2, 8))
        # The first time, pipelines are new as well.
        g.set_outputs([(g.tanh, g.sin, g.cos, g.exp)[k](x)])
        with rlx.compile(g, webgpu) as cg:
            cg.run_slots(array(2, 0.5))
            lose(webgpu)
            if noticed:
                with pytest.raises(rlx.DeviceLostError):
                    cg.run_slots(array(2, 0.5))
        g = rlx.Graph()
        x = g.input("x", (2, 8))
        g.set_outputs(
            [(g.sinh, g.cosh, g.tan, g.erf)[k](x) @ g.constant(np.eye(8, dtype=np.float32))]
        )
        with rlx.compile(g, webgpu) as cg:
            result = cg.run_slots(array(2, 0.5))[0]
        with rlx.compile(g, "reference") as cg:
            np.testing.assert_allclose(result, cg.run_slots(array(2, 0.5))[0], rtol=1e-5)


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_a_thousand_lost_devices(webgpu):
    """Neither memory nor files nor threads grow with them."""
    process, stored = pytest.importorskip("psutil").Process(), []
    gc.collect()
    gc.freeze()  # each loss collects garbage, without the objects of other tests
    with rlx.onnx.Model(RAW, webgpu) as model, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for k in range(1000):
            model.run(array(2, 0.5))
            lose(webgpu)
            close(model.run(array(2, 0.5)), array(2, 0.5))
            if k % 100 == 99:
                handles = getattr(process, "num_fds", getattr(process, "num_handles", None))()
                stored.append((process.memory_info().rss, handles, process.num_threads()))
    first, last = stored[2], stored[-1]
    assert last[0] - first[0] < 10 << 20
    assert last[1] <= first[1] + 4
    assert last[2] <= first[2] + 8
