"""Measures the peaks of a device without rlx's kernels: did the machine change, or a kernel?

The CPU is measured by NumPy, a GPU by small WGSL programs of this file. These must stay as they are: files of other
releases are compared with them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

import rlx
from rlx.backends.base import DeviceInfo
from rlx.device.names import info_of
from rlx.regress.record_schema import Peaks

# A measurement grows its work until it takes this long, and is then repeated.
_LONG_S = 0.02
_REPEATS = 5
_FLOATS = 1 << 20
_MAX_FLOATS = 1 << 26

_COPY = """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>, @builtin(num_workgroups) groups: vec3<u32>) {
    let at = id.x + id.y * groups.x * 256u;
    if (at < arrayLength(&y)) { y[at] = x[at]; }
}
"""
# Eight independent chains of multiply-adds hide the latency of each; 64 operations a step.
_FMA = """
@group(0) @binding(0) var<storage, read> x: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> y: array<vec4<f32>>;
@compute @workgroup_size(256)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let m = x[0];
    var p = m; var q = m + 1.0; var r = m + 2.0; var s = m + 3.0;
    var t = m + 4.0; var u = m + 5.0; var v = m + 6.0; var w = m + 7.0;
    for (var i = 0u; i < 64u; i++) {
        p = fma(p, m, m); q = fma(q, m, m); r = fma(r, m, m); s = fma(s, m, m);
        t = fma(t, m, m); u = fma(u, m, m); v = fma(v, m, m); w = fma(w, m, m);
    }
    y[id.x % arrayLength(&y)] = p + q + r + s + t + u + v + w;
}
"""
_FMA_FLOPS = 64 * 8 * 4 * 2


def peaks(run: str, device: str, process: int) -> Peaks:
    """Measures a device; a figure is None where nothing here can measure it.

    Args:
        run: The recording.
        device: The device.
        process: Number of this process.

    Raises:
        DeviceUnavailableError: It is not on this machine.
    """
    info = info_of(rlx.Device.parse(device))
    measure = {"cpu": _cpu, "webgpu": _webgpu}.get(info.backend)
    figures: _Figures = (None,) * 4 if measure is None else measure(info)
    return Peaks(run, device, process, *figures)


_Figures = tuple[float | None, float | None, float | None, float | None]


def _seconds(work: Callable[[], Any]) -> float:
    """Returns the shortest time of some work: the device's speed while nothing else runs."""
    results = []
    for _ in range(_REPEATS):
        began = time.perf_counter()
        work()
        results.append(time.perf_counter() - began)
    return min(results)


def _sizes() -> Iterator[int]:
    size = _FLOATS
    while size <= _MAX_FLOATS:
        yield size
        size *= 2


def _cpu(info: DeviceInfo) -> _Figures:
    """One thread's copies, NumPy's product of matrices, and a call of NumPy on one number."""
    copy = 0.0
    for size in _sizes():
        x, y = np.ones(size, np.float32), np.zeros(size, np.float32)
        taken = _seconds(partial(np.copyto, y, x))
        copy = 8 * size / taken / 1e9
        if taken > _LONG_S:
            break
    fma = 0.0
    for side in (256, 512, 1024, 2048):
        a = np.ones((side, side), np.float32)
        np.matmul(a, a)
        taken = _seconds(partial(np.matmul, a, a))
        fma = 2 * side**3 / taken / 1e9
        if taken > _LONG_S:
            break
    single = np.ones(1, np.float32)

    def calls() -> None:
        for _ in range(2000):
            np.negative(single, out=single)

    return copy, fma, _seconds(calls) / 2000 * 1e6, None


def _webgpu(info: DeviceInfo) -> _Figures:
    import wgpu

    gpu = _Gpu(_adapter(wgpu, info), wgpu)
    try:
        return gpu.copy(), gpu.fma(), gpu.dispatch(), gpu.upload()
    finally:
        gpu.close()


def _adapter(wgpu: Any, info: DeviceInfo) -> Any:
    """The adapter that rlx means: the first of its name, API and driver, and of its number among those."""
    results = [
        item
        for item in wgpu.gpu.enumerate_adapters_sync()
        if (item.info["device"], item.info["backend_type"]) == (info.adapter, info.api)
    ]
    same = [
        i
        for i in range(info.index)
        if (other := info_of(rlx.Device(info.backend, i))).adapter == info.adapter
        and other.api == info.api
    ]
    return results[min(len(same), len(results) - 1)]


class _Gpu:
    """A device of wgpu with the programs of this file."""

    def __init__(self, adapter: Any, wgpu: Any) -> None:
        self._usage = wgpu.BufferUsage
        limit = adapter.limits["max-storage-buffer-binding-size"]
        self._most = min(_MAX_FLOATS, limit // 4, adapter.limits["max-buffer-size"] // 4)
        limits = {"max-storage-buffer-binding-size": limit, "max-buffer-size": self._most * 4}
        self._device = adapter.request_device_sync(required_limits=limits)
        self._x = self._buffer(_FLOATS)
        self._y = self._buffer(_FLOATS)
        self._small = self._buffer(64)

    def close(self) -> None:
        """Frees the device."""
        self._device.destroy()

    def _buffer(self, floats: int) -> Any:
        usage = self._usage.STORAGE | self._usage.COPY_DST | self._usage.COPY_SRC
        return self._device.create_buffer(size=4 * floats, usage=usage)

    def _program(self, code: str, x: Any, y: Any) -> tuple[Any, Any]:
        module = self._device.create_shader_module(code=code)
        pipeline = self._device.create_compute_pipeline(
            layout="auto", compute={"module": module, "entry_point": "main"}
        )
        entries = [
            {"binding": i, "resource": {"buffer": b, "offset": 0, "size": b.size}}
            for i, b in enumerate((x, y))
        ]
        layout = pipeline.get_bind_group_layout(0)
        return pipeline, self._device.create_bind_group(layout=layout, entries=entries)

    def _run(self, program: tuple[Any, Any], groups: tuple[int, int], times: int) -> None:
        """Dispatches a program so often, and waits for the last."""
        encoder = self._device.create_command_encoder()
        compute = encoder.begin_compute_pass()
        compute.set_pipeline(program[0])
        compute.set_bind_group(0, program[1])
        for _ in range(times):
            compute.dispatch_workgroups(*groups, 1)
        compute.end()
        self._device.queue.submit([encoder.finish()])
        self._wait()

    def _wait(self) -> None:
        self._device.queue.read_buffer(self._small, size=4)

    def _clear(self, program: tuple[Any, Any], groups: tuple[int, int]) -> tuple[float, int]:
        """Seconds and number of dispatches, as many as make waiting for them small."""
        times = 1
        while True:
            self._run(program, groups, times)
            taken = _seconds(partial(self._run, program, groups, times))
            if taken > _LONG_S or times >= 1 << 14:
                return taken, times
            times = max(2 * times, min(1 << 14, int(times * _LONG_S / max(taken, 1e-6))))

    def copy(self) -> float:
        """Gigabytes per second, read and written, of buffers larger than most caches."""
        size = self._most if self._fast() else _FLOATS * 4
        x, y = self._buffer(min(size, self._most)), self._buffer(min(size, self._most))
        groups = -(-x.size // 16 // 256)
        across = min(groups, 65535)
        taken, times = self._clear(self._program(_COPY, x, y), (across, -(-groups // across)))
        result = 2.0 * float(x.size) * times / taken / 1e9
        x.destroy()
        y.destroy()
        return result

    def _fast(self) -> bool:
        """Returns whether the device is hardware: software devices get small probes."""
        return str(self._device.adapter.info["adapter_type"]) != "CPU"

    def fma(self) -> float:
        """Billions of operations per second."""
        groups = (16384, 1) if self._fast() else (256, 1)
        taken, times = self._clear(self._program(_FMA, self._x, self._y), groups)
        return _FMA_FLOPS * 256.0 * groups[0] * times / taken / 1e9

    def dispatch(self) -> float:
        """Microseconds from the call of a tiny program to its result."""
        program = self._program(_COPY, self._small, self._x)
        self._run(program, (1, 1), 1)

        def calls() -> None:
            for _ in range(20):
                self._run(program, (1, 1), 1)

        return _seconds(calls) / 20 * 1e6

    def upload(self) -> float:
        """Gigabytes per second from the host."""
        data = np.ones(_FLOATS, np.float32)

        def calls() -> None:
            for _ in range(8):
                self._device.queue.write_buffer(self._x, 0, data)
            self._wait()

        calls()
        return 8.0 * data.nbytes / _seconds(calls) / 1e9
