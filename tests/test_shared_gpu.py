"""A wgpu device of the program: rlx computes on it, leaves results in its buffers, and never takes it away."""

import gc

import numpy as np
import pytest

import rlx
from rlx.backends.webgpu import adapters as listed
from rlx.backends.webgpu import device as devices
from rlx.backends.webgpu.provider import provider_of

# The package of the library that the device "webgpu" goes through.
wgpu = provider_of("webgpu").module()
pytestmark = pytest.mark.webgpu
WORDS = 3000


@pytest.fixture
def shared(webgpu):
    device = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync(label="the program's")
    yield device
    device.destroy()


def scaled(rows=4, columns=30):
    """A graph of two inputs, a param and two outputs, and what it gives."""
    graph = rlx.Graph("scaled")
    x, y = graph.input("x", (rows, columns)), graph.input("y", (rows, columns))
    w = graph.param("w", (columns, columns))
    graph.set_outputs([graph.tanh(x @ w), x + y])
    rng = np.random.default_rng(rows * columns)
    x, y, w = (
        rng.normal(size=s).astype(np.float32) for s in [(rows, columns)] * 2 + [(columns,) * 2]
    )
    return graph, {"x": x, "y": y}, {"w": w}


def read(device, where, dtype=np.float32):
    size = -(-where.nbytes // 4) * 4
    return np.frombuffer(device.queue.read_buffer(where.buffer, where.offset, size), np.uint8)[
        : where.nbytes
    ].view(dtype)


def test_results_stay_in_the_programs_buffers(shared):
    graph, inputs, params = scaled()
    want = rlx.compile(graph, "webgpu", params).run(inputs)
    with rlx.compile(graph, shared, params) as cg:
        cg.run_gpu(inputs)
        assert cg.bytes_moved.read_back == 0
        for where, first in zip(cg.output_buffers, want, strict=True):
            assert isinstance(where.buffer, wgpu.GPUBuffer)
            assert where.offset % 256 == 0
            assert where.nbytes == first.nbytes
            assert read(shared, where).tobytes() == first.tobytes()
        # Other ways of running do the same on such a device, and leave their results there as well.
        for first, other in zip(cg.run(inputs), want, strict=True):
            assert first.tobytes() == other.tobytes()
        assert cg.bytes_moved.read_back >= sum(item.nbytes for item in want)


def test_the_program_writes_inputs_on_the_gpu(shared):
    graph, inputs, params = scaled()
    with rlx.compile(graph, shared, params) as cg:
        cg.run_gpu(inputs)
        x, y = cg.input_buffers
        before = cg.bytes_moved.uploaded
        for factor in (2.0, -3.0):
            # One copy on the GPU, submitted before the run: the run sees it.
            arguments = inputs["y"] * np.float32(factor)
            source = shared.create_buffer_with_data(data=arguments, usage=wgpu.BufferUsage.COPY_SRC)
            encoder = shared.create_command_encoder()
            encoder.copy_buffer_to_buffer(source, 0, y.buffer, y.offset, y.nbytes)
            shared.queue.submit([encoder.finish()])
            cg.run_gpu()
            result = read(shared, cg.output_buffers[1]).reshape(arguments.shape)
            np.testing.assert_array_equal(result, inputs["x"] + arguments)
        assert cg.bytes_moved.uploaded == before  # nothing came from the host
        # An input that is given counts, the other stays.
        cg.run_gpu({"x": np.zeros_like(inputs["x"])})
        np.testing.assert_array_equal(read(shared, cg.output_buffers[1]), arguments.ravel())
        assert read(shared, x).tolist() == [0.0] * inputs["x"].size


def test_a_shader_of_the_program_reads_the_results(shared):
    """Work that is submitted after ``run_gpu`` sees its outputs, run after run, without a wait."""
    graph = rlx.Graph()
    x = graph.input("x", (WORDS,))
    y = x
    for _ in range(20):
        y = y * 1.0 + 1.0
    graph.set_outputs([y])
    code = f"""
    @group(0) @binding(0) var<storage, read> given: array<f32>;
    @group(0) @binding(1) var<storage, read_write> sums: array<f32>;
    @compute @workgroup_size(1) fn main() {{
        var sum = 0.0;
        for (var i = 0u; i < {WORDS}u; i++) {{ sum += given[i]; }}
        sums[u32(given[0]) - 20u] = sum;
    }}"""
    module = shared.create_shader_module(code=code)
    usage = wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC
    sums = shared.create_buffer(size=64, usage=usage)
    with rlx.compile(graph, shared) as cg:
        (where,) = cg.output_buffers
        pipeline = shared.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        resources = [
            {"buffer": where.buffer, "offset": where.offset, "size": where.nbytes},
            {"buffer": sums, "offset": 0, "size": 64},
        ]
        group = shared.create_bind_group(
            layout=pipeline.get_bind_group_layout(0),
            entries=[
                {"binding": index, "resource": resource} for index, resource in enumerate(resources)
            ],
        )
        for turn in range(16):
            cg.run_gpu({"x": np.full(WORDS, turn, np.float32)})
            encoder = shared.create_command_encoder()
            compute = encoder.begin_compute_pass()
            compute.set_pipeline(pipeline)
            compute.set_bind_group(0, group)
            compute.dispatch_workgroups(1)
            compute.end()
            shared.queue.submit([encoder.finish()])
        result = np.frombuffer(shared.queue.read_buffer(sums), np.float32)
    np.testing.assert_array_equal(result, [WORDS * (turn + 20.0) for turn in range(16)])


@pytest.mark.parametrize("dtype", ["f32", "f16", "bf16", "i32", "i64", "u8", "bool"])
def test_elements_stand_as_in_numpy(dtype, shared):
    graph = rlx.Graph()
    x, y = graph.input("x", (3, 7), dtype), graph.input("y", (5,), dtype)
    graph.set_outputs([graph.transpose(x, (1, 0)), graph.concat([y, y], 0)])
    stored = rlx.DType.parse(dtype).numpy
    x, y = np.arange(21).reshape(3, 7) % 2, np.arange(5) % 2
    if dtype == "bf16":
        x, y = (
            (item.astype(np.float32).view(np.uint32) >> 16).astype(np.uint16) for item in (x, y)
        )
    inputs = {"x": x.astype(stored), "y": y.astype(stored)}
    with rlx.compile(graph, shared) as cg:
        cg.run_gpu(inputs)
        results = [read(shared, where, stored) for where in cg.output_buffers]
    assert results[0].tobytes() == np.ascontiguousarray(inputs["x"].T).tobytes()
    assert results[1].tobytes() == np.concatenate([inputs["y"]] * 2).tobytes()


def test_feeds_and_handles_stay_on_the_gpu(shared):
    graph = rlx.Graph()
    state, step = graph.input("state", (8,)), graph.input("step", (8,))
    graph.set_outputs([state + step])
    with rlx.compile(graph, shared) as cg:
        cg.bind_gpu_handle("state", np.zeros(8, np.float32))
        cg.set_gpu_handle_feed("state", 0)
        for _ in range(5):
            cg.run_gpu({"step": np.full(8, 2, np.float32)})
        np.testing.assert_array_equal(read(shared, cg.output_buffers[0]), [10.0] * 8)
        np.testing.assert_array_equal(cg.read_gpu_handle("state"), [10.0] * 8)
        with pytest.raises(rlx.InputError, match="fed by a handle"):
            cg.run_gpu({"state": np.zeros(8, np.float32)})


def test_active_extent(shared):
    graph = rlx.Graph()
    graph.set_outputs([graph.input("x", (8, 64)) * 2.0])
    with rlx.compile(graph, shared) as cg:
        cg.run_gpu({"x": np.ones((8, 64), np.float32)})
        cg.set_active_extent((3, 8))
        cg.run_gpu({"x": np.full((8, 64), 5, np.float32)})
        result = read(shared, cg.output_buffers[0]).reshape(8, 64)
        assert (result[:3] == 10).all()
        cg.set_active_extent(None)
        cg.run_gpu({"x": np.full((8, 64), 6, np.float32)})
        assert (read(shared, cg.output_buffers[0]) == 12).all()


def test_parts_on_the_host_are_waited_for(shared):
    graph = rlx.Graph()
    x = graph.input("x", (6, 8))
    y = graph.cast(graph.exp(graph.cast(x * 2.0, "f64")), "f32") + x
    graph.set_outputs([y])
    arguments = np.linspace(-1, 1, 48, dtype=np.float32).reshape(6, 8)
    want = rlx.compile(graph, "reference").run({"x": arguments})[0]
    with rlx.compile(graph, shared) as cg:
        assert cg.host_fallbacks
        for _ in range(3):
            cg.run_gpu({"x": arguments})
        result = read(shared, cg.output_buffers[0]).reshape(6, 8)
    np.testing.assert_allclose(result, want, rtol=1e-6)


def test_clones_have_buffers_of_their_own(shared):
    graph, inputs, params = scaled()
    with rlx.compile(graph, shared, params) as cg, cg.clone() as other:
        cg.run_gpu(inputs)
        other.run_gpu({name: -item for name, item in inputs.items()})
        first, two = (read(shared, which.output_buffers[1]) for which in (cg, other))
        np.testing.assert_array_equal(first, -two)
        assert cg.output_buffers[0].buffer is not other.output_buffers[0].buffer


def test_waiting_for_it(shared):
    graph, inputs, params = scaled()
    with rlx.compile(graph, shared, params) as cg:
        want = cg.run(inputs)
        other = {name: item * 2 for name, item in inputs.items()}
        cg.commit_no_wait(inputs)
        cg.run_gpu(other)
        cg.sync_pending()  # brings back what commit_no_wait computed, and waits for both
        cg.sync_pending()
        views = cg._state.executable.output_views
        for first, view in zip(want, views, strict=True):
            assert first.tobytes() == view.tobytes()
        np.testing.assert_array_equal(cg.read_output_row(1, 2), 2 * want[1][2])


def test_watched_runs_give_the_same(shared, tmp_path):
    graph, inputs, params = scaled()
    with rlx.compile(graph, shared, params) as cg:
        cg.run_gpu(inputs)
        want = read(shared, cg.output_buffers[0]).tobytes()
        with cg.trace(str(tmp_path / "trace.json")):
            cg.run_gpu({name: item * 2 for name, item in inputs.items()})
            cg.run_gpu(inputs)
        assert read(shared, cg.output_buffers[0]).tobytes() == want
        assert '"run_gpu"' in (tmp_path / "trace.json").read_text()


def test_without_the_compiled_path(shared, monkeypatch):
    monkeypatch.setenv("RLX_WEBGPU_HOT", "0")
    graph, inputs, params = scaled()
    want = rlx.compile(graph, "webgpu", params).run(inputs)
    with rlx.compile(graph, shared, params) as cg:
        for _ in range(3):
            cg.run_gpu(inputs)
        for where, item in zip(cg.output_buffers, want, strict=True):
            assert read(shared, where).tobytes() == item.tobytes()


def test_experts_are_counted(shared):
    graph = rlx.Graph()
    x = graph.input("x", (6, 8))
    router, up = graph.param("r", (8, 4)), graph.param("up", (4, 8, 8))
    _, chosen = graph.topk(x @ router, 1)
    chosen = graph.reshape(chosen, (6,))
    graph.set_outputs([graph.grouped_matmul(x, up, chosen)])
    rng = np.random.default_rng(3)
    params = {
        n: rng.normal(size=s).astype(np.float32) for n, s in (("r", (8, 4)), ("up", (4, 8, 8)))
    }
    arguments = rng.normal(size=(6, 8)).astype(np.float32)
    with rlx.compile(graph, shared, params) as cg:
        want = cg.run({"x": arguments})[0]
        cg.set_moe_resident_experts([True, False, True, False])
        cg.take_moe_residency_stats()
        cg.run_gpu({"x": arguments})
        assert len(cg.output_buffers) == 1
        result = read(shared, cg.output_buffers[0]).reshape(want.shape)
        np.testing.assert_allclose(result, want, rtol=1e-5, atol=1e-6)
        stats = cg.take_moe_residency_stats()
        assert stats.runs == 1
        assert stats.tokens_per_expert[0].sum() == 6


def test_limits_and_features_are_those_of_the_device(shared):
    cg = rlx.compile(scaled()[0], shared)
    info = cg._state.target.info
    assert info.features == set(listed.FEATURES) & set(shared.features)
    assert info.limits["max-buffer-size"] == shared.limits["max-buffer-size"]
    graph = rlx.Graph()
    graph.set_outputs(
        [graph.input("x", (1 << 26,)) * 2.0]
    )  # 256 MiB: above what this device may have
    small = dict(listed.DEFAULT_LIMITS)
    adapter = wgpu.gpu.enumerate_adapters_sync()[0]
    device = adapter.request_device_sync(required_limits=small)
    with pytest.raises(rlx.DeviceMemoryError, match="max-buffer-size"):
        rlx.compile(graph, device)
    device.destroy()


def test_the_device_stays_the_programs(shared):
    graph, inputs, params = scaled()
    cg = rlx.compile(graph, shared, params)
    clone = cg.clone()
    cg.run_gpu(inputs)
    assert cg.device == rlx.Device.parse(shared) != rlx.Device.parse("webgpu")
    assert "shares its wgpu device" in cg.choice.reason
    assert str(cg.device).startswith("webgpu")
    cg.close()
    clone.close()
    del cg, clone
    gc.collect()
    assert id(shared) not in devices._shared  # nothing of rlx keeps it
    buffer = shared.create_buffer_with_data(data=b"12345678", usage=wgpu.BufferUsage.COPY_SRC)
    assert bytes(shared.queue.read_buffer(buffer)) == b"12345678"
    with rlx.compile(graph, shared, params) as again:
        again.run_gpu(inputs)


def test_a_lost_device_is_the_programs_to_replace(shared):
    graph, inputs, params = scaled()
    cg = rlx.compile(graph, shared, params)
    cg.run_gpu(inputs)
    shared.destroy()
    with pytest.raises(rlx.DeviceLostError):
        cg.run_gpu(inputs)
    with pytest.raises(rlx.DeviceUnavailableError, match=r"the program's wgpu device .* is lost"):
        cg.recover()
    with pytest.raises(rlx.DeviceUnavailableError, match="make a new wgpu device"):
        rlx.compile(graph, shared, params)
    cg.close()
    fresh = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync()
    with rlx.compile(graph, fresh, params) as cg:
        cg.run_gpu(inputs)
    fresh.destroy()


def test_what_can_not_be_done(shared):
    graph, inputs, params = scaled()
    with rlx.compile(graph, "cpu", params) as cg:
        for ask in (cg.run_gpu, lambda: cg.output_buffers, lambda: cg.input_buffers):
            with pytest.raises(rlx.CompileError, match="cpu has no values in GPU buffers"):
                ask()
    cg = rlx.compile(graph, shared)
    with pytest.raises(rlx.InputError, match="no value for w"):
        cg.run_gpu()
    cg.set_param("w", params["w"])
    with pytest.raises(rlx.UnknownNameError, match="no input named 'z'"):
        cg.run_gpu({"z": inputs["x"]})
    with pytest.raises(rlx.InputError):
        cg.run_gpu({"x": inputs["x"][:1]})
    cg.close()
    for ask in (cg.run_gpu, lambda: cg.output_buffers):
        with pytest.raises(rlx.InputError, match="closed"):
            ask()
    foreign = object.__new__(type("Browser", (wgpu.GPUDevice,), {"__del__": lambda self: None}))
    with pytest.raises(rlx.DeviceUnavailableError, match="can't share"):
        rlx.compile(graph, foreign)
    for wrong in (None, 7, object(), wgpu.gpu.enumerate_adapters_sync()[0]):
        with pytest.raises(rlx.DeviceParseError):
            rlx.compile(graph, wrong)


def test_a_model_runs_on_it(shared, tmp_path):
    onnx = pytest.importorskip("onnx")
    node = onnx.helper.make_node("Tanh", ["x"], ["y"])
    ports = [onnx.helper.make_tensor_value_info(n, 1, [None, 3]) for n in "xy"]
    result = onnx.helper.make_model(onnx.helper.make_graph([node], "m", ports[:1], ports[1:]))
    with rlx.onnx.Model(result.SerializeToString(), shared) as model:
        arguments = np.float32([[0.5, 1, 2]])
        np.testing.assert_allclose(model.run(arguments)[0], np.tanh(arguments), rtol=1e-6)
        compiled = model.compile(arguments)
        compiled.run_gpu({"x": arguments})
        output = read(shared, compiled.output_buffers[0])
        np.testing.assert_allclose(output, np.tanh(arguments)[0], rtol=1e-6)
        shared.destroy()
        with (
            pytest.warns(RuntimeWarning, match="was lost"),
            pytest.raises(rlx.DeviceUnavailableError),
        ):
            model.run(arguments)


def test_adapters_are_looked_for_again(webgpu, monkeypatch):
    """An unplugged GPU is missing after the next loss, and is found once it is plugged in again."""
    graph = rlx.Graph()
    graph.set_outputs([graph.input("x", (2,)) + 1.0])
    cg = rlx.compile(graph, "webgpu")
    there = wgpu.gpu.enumerate_adapters_sync
    assert rlx.available_devices(again=True)[1:]
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", lambda: [])
    cg._state.executable._gpu.device.destroy()
    assert rlx.available_devices()[1:]  # nothing has looked again yet
    with pytest.raises(rlx.DeviceLostError):
        cg.run([1, 2])
    with pytest.raises(rlx.DeviceUnavailableError, match="is not on this machine any more"):
        cg.recover()
    assert [str(device) for device in rlx.available_devices()] == ["cpu"]
    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", there)
    assert rlx.available_devices(again=True)[1:]
    cg.recover()
    assert cg.run([1, 2])[0].tolist() == [2.0, 3.0]
    cg.close()
