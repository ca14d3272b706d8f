"""Faults in the middle of work: lost devices, no memory, interrupts; nothing leaks and all stays usable."""

import gc
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from python_process import run_python
from samples import ALL

import rlx
from rlx.backends.webgpu.device import GpuDevice, gpu_device

X = np.arange(16, dtype=np.float32).reshape(4, 4)


def product(dtype="f32"):
    g = rlx.Graph("product")
    x, state = g.input("x", (4, 4)), g.input("state", (4, 4))
    g.set_outputs([x @ g.cast(g.param("w", (4, 4), dtype), "f32") + state, state + 1.0])
    return g


RECOVER = """
import numpy as np, rlx
from test_failures import X, product
w = 2 * np.eye(4, dtype=np.float32)
one = rlx.compile(product(), "webgpu", {"w": w})
other = rlx.compile(product(), "webgpu", {"w": np.eye(4)})
kept = rlx.compile(product(), "webgpu", {"w": w}, rlx.CompileOptions(keep_params=False))
w[:] = 99  # the caller's array is the caller's
one.bind_gpu_handle("state", 10 * X)
one.set_gpu_handle_feed("state", 1)
for _ in range(3):
    one.run_slots(X)
one._state.executable._gpu.device.destroy()
for cg, arrays in ((one, (X,)), (other, (X, X)), (kept, (X, X))):
    for _ in range(2):
        try:
            cg.run_slots(*arrays)
        except rlx.DeviceLostError as error:
            assert "cg.recover()" in str(error)
        else:
            raise AssertionError("not lost")
    cg.recover()
np.testing.assert_array_equal(one.run_slots(X)[0], 12 * X)
np.testing.assert_array_equal(one.read_gpu_handle("state"), 10 * X + 1)
np.testing.assert_array_equal(one.run_slots(X)[0], 12 * X + 1)
np.testing.assert_array_equal(other.run({"x": X, "state": X})[0], 2 * X)
assert one._state.executable._gpu is other._state.executable._gpu
twin = one.clone()
one.recover()
one.set_param("w", np.eye(4))
twin.recover()
np.testing.assert_array_equal(twin.run_slots(X, 0 * X)[0], 2 * X)
try:
    kept.run_slots(X, X)
except rlx.InputError as error:
    assert "never set" in str(error)
kept.set_param("w", np.eye(4))
np.testing.assert_array_equal(kept.run_slots(X, X)[0], 2 * X)
new = rlx.compile(product(), "webgpu", {"w": np.eye(4)})
np.testing.assert_array_equal(new.run_slots(X, X)[0], 2 * X)
for cg in (one, other, kept, new):
    cg.close()
print("recovered")
"""


@pytest.mark.webgpu
@pytest.mark.parametrize("hot", ["1", "0"])
def test_a_lost_device_comes_back(webgpu, hot):
    folders = [str(Path(__file__).parent), os.environ.get("PYTHONPATH", "")]
    path = os.pathsep.join(filter(None, folders))
    environment = {**os.environ, "RLX_WEBGPU_HOT": hot, "PYTHONPATH": path}
    done = subprocess.run(
        [sys.executable, "-P", "-c", RECOVER], env=environment, capture_output=True, text=True
    )
    assert done.stdout.split() == ["recovered"], done.stderr


@pytest.fixture
def gpu(webgpu):
    from rlx.device.names import Device, info_of

    return gpu_device(info_of(Device.parse(webgpu)))


def live_buffers():
    import wgpu

    gc.collect()
    return wgpu.diagnostics.object_counts.get_dict()["Buffer"]["count"]


def test_no_memory_frees_what_was_taken(gpu, monkeypatch):
    """Each buffer in turn finds no room."""
    import wgpu

    make = gpu.device.create_buffer
    with rlx.compile(product(), "webgpu", {"w": np.eye(4)}) as whole:
        whole.run_slots(X, X)
        live = live_buffers()
        messages = []
        for fails in range(20):
            taken = []

            def create(taken=taken, fails=fails, **arguments):
                if len(taken) == fails:
                    raise wgpu.GPUOutOfMemoryError("no room")
                taken.append(make(**arguments))
                return taken[-1]

            monkeypatch.setattr(gpu.device, "create_buffer", create)
            try:
                rlx.compile(product(), "webgpu").close()
            except rlx.DeviceMemoryError as error:
                messages.append(str(error))
            monkeypatch.undo()
            taken.clear()
        assert 3 <= len(messages) < 20
        assert all("bytes for this graph" in m and "bytes more" in m for m in messages)
        assert live_buffers() == live
        np.testing.assert_array_equal(whole.run_slots(X, X)[0], 2 * X)


def test_above_the_limits_says_sizes(webgpu):
    g = rlx.Graph()
    g.set_outputs([g.sum(g.input("x", (1 << 16, 1 << 17)))])
    with pytest.raises(rlx.DeviceMemoryError, match=r"got: \d+ bytes"):
        rlx.compile(g, webgpu)


def test_a_refused_shader_names_op_and_source(webgpu, monkeypatch):
    from rlx.backends.webgpu import elementwise_wgsl

    monkeypatch.setattr(elementwise_wgsl, "_literal", lambda value, dtype: "no_such_function()")
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,)) * 3.25])
    with pytest.raises(rlx.CompileError, match=r"(?s)region.*no_such_function"):
        rlx.compile(g, webgpu)


class _Stop:
    """A custom op that an interrupt hits."""

    def __init__(self):
        self.error = None

    def __call__(self, x):
        if self.error is not None:
            raise self.error
        return x * 2


_STOP = _Stop()
rlx.register_custom_op("stop_here", shape=lambda x: x, numpy=_STOP)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), ZeroDivisionError("in the middle")])
def test_an_exception_in_the_middle_leaves_the_graph_usable(device, error):
    g = rlx.Graph()
    x = g.input("x", (4, 4))
    g.set_outputs([g.custom("stop_here", [x + 1.0]) + 1.0])
    with rlx.compile(g, device) as compiled:
        np.testing.assert_array_equal(compiled.run_slots(X)[0], 2 * X + 3)
        _STOP.error = error
        try:
            for call in (
                lambda: compiled.run_slots(X),
                lambda: compiled.run({"x": X}),
                lambda: compiled.run_pipelined([{"x": X}] * 3),
                lambda: compiled.commit_no_wait({"x": X}),
            ):
                with pytest.raises(type(error)):
                    call()
        finally:
            _STOP.error = None
        compiled.sync_pending()
        np.testing.assert_array_equal(compiled.run_slots(2 * X)[0], 4 * X + 3)
        assert len(compiled.run_pipelined([{"x": X}] * 3)) == 3


def resident_bytes():
    """Memory of this process, where the system tells it; objects are counted everywhere."""
    if not hasattr(os, "sysconf") or not os.path.exists("/proc/self/statm"):
        return 0
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def test_a_device_may_lose_its_queue_before_it_goes():
    """The garbage collector takes wgpu-py's device and rlx's in any order; the queue is freed all the same."""
    result = object.__new__(GpuDevice)
    result.shared, result.queue = False, SimpleNamespace()
    result.device = SimpleNamespace(destroy=lambda: None, queue=None)
    result.__del__()
    assert result.device._device is None
    assert result.queue._device is None


def test_compiles_leak_nothing(device):
    import wgpu

    def cycle():
        compiled = rlx.compile(product(), device, {"w": np.eye(4)})
        compiled.bind_gpu_handle("state", X)
        compiled.set_gpu_handle_feed("state", 1)
        compiled.run_slots(X)
        compiled.clone().run_slots(X, X)
        compiled.close()

    for _ in range(100):
        cycle()
    gc.collect()
    cycles = 1000 if ALL else 250
    objects, memory = wgpu.diagnostics.object_counts.get_dict(), resident_bytes()
    for _ in range(cycles):
        cycle()
    gc.collect()
    assert wgpu.diagnostics.object_counts.get_dict() == objects
    assert resident_bytes() - memory < cycles << 13


KEPT = """
import sys
import numpy as np
import rlx
g = rlx.Graph()
g.set_outputs([g.tanh(g.input("x", (256, 256)))])
cg = rlx.compile(g, sys.argv[1])
sys.kept = [cg, cg.run({"x": np.zeros((256, 256), np.float32)})]  # to the very end of the process
"""


def test_graphs_and_results_that_outlive_the_interpreter(device):
    """Nothing is printed when they are freed, where modules have no names any more. Frozen programs end like that."""
    done = run_python("-P", "-c", KEPT, device)
    assert "Error" not in done.stderr
    assert "Original exception" not in done.stderr
