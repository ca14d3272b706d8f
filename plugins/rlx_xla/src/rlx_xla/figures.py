"""Measures a JAX device once through the calls that runs go through, and stores the figures on disk.

rlx's own probes would tell nothing: XLA fuses a chain of additions into one loop, and removes unread results.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from rlx.plugin import (
    CalibratedModel,
    Calibration,
    Curve,
    Device,
    DeviceInfo,
    Identity,
    calibration_allowed,
    engine_folder,
)
from rlx_xla.engine import devices_of, jax

# Sizes of square products, and bytes of operands. Where time runs out, what was measured is spread over all sizes.
_PRODUCTS = (64, 1024, 4096, 256, 2048, 16)
_BYTES = (1 << 10, 1 << 20, 1 << 26, 1 << 16, 1 << 24)
# The same for a processor, where the largest ones would take seconds.
_SMALL_PRODUCTS, _SMALL_BYTES = (64, 1024, 256, 16), (1 << 10, 1 << 20, 1 << 24)
_DTYPES = {"f32": "float32", "f16": "float16"}
_BUDGET_S, _EACH_S = 12.0, 0.02
# Kernels in a chain that XLA can't join: products of tiny matrices.
_CHAIN = 33
# Columns of ``Calibration.narrow_matmul_ns_by_flops``.
_NARROW = 8
# Steps of a loop, and how many of a recurrent layer's waits a step of XLA's loop counts for (``rlx.cost.dependency_chain``).
_LOOP, _WAITS = 256, 96
_lock = threading.Lock()
_known: dict[tuple[str, int], CalibratedModel] = {}


def model_of(info: DeviceInfo, platform: str) -> CalibratedModel | None:
    """The figures of a device; None where ``RLX_CALIBRATION`` is off.

    The first call on a machine measures for some seconds, most of which XLA compiles.
    """
    if not calibration_allowed():
        return None
    key = info.backend, info.index
    with _lock:
        if key not in _known:
            folder = engine_folder("xla")
            text = f"{info.adapter} {info.driver}"
            path = None if folder is None else folder / f"figures-{_digest(text)}.json"
            points = _read(path)
            if points is None:
                points = _measured(devices_of(platform)[info.index])
                if path is not None:
                    path.write_text(json.dumps(points))
            _known[key] = CalibratedModel(Device(*key), _calibration(info, points))
        return _known[key]


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _read(path: Path | None) -> dict[str, Any] | None:
    """Returns the stored points; None if the file is not as written."""
    try:
        results: dict[str, Any] | None = None if path is None else json.loads(path.read_text())
        _curves(results)
        if results is not None:
            float(results["loop_step_ns"])
    except (OSError, ValueError, KeyError, TypeError, AssertionError):
        return None
    return results


def _curves(points: Mapping[str, Any] | None) -> dict[str, Curve]:
    if points is None:
        return {}
    results = {name: Curve.through(listed) for name, listed in points["curves"].items()}
    assert {"upload", "readback", "copy", "f32"} <= results.keys()
    return results


def _calibration(info: DeviceInfo, points: Mapping[str, Any]) -> Calibration:
    curves = _curves(points)
    products = {name: curves[name] for name in _DTYPES if name in curves}
    thin, narrow = (
        {name: curves[f"{form} {name}"] for name in _DTYPES if f"{form} {name}" in curves}
        for form in ("thin", "narrow")
    )
    step_ns = float(points["loop_step_ns"])
    identity = Identity(
        info.backend, info.adapter, info.api, info.driver, "", str(points["rlx"]), ""
    )
    return Calibration(
        identity=identity,
        threads=1,
        unified_memory=False,
        roundtrip_ns=float(points["roundtrip_ns"]),
        dispatch_ns=float(points["dispatch_ns"]),
        host_thunk_ns=float(points["roundtrip_ns"]),
        upload_ns_by_bytes=curves["upload"],
        readback_ns_by_bytes=curves["readback"],
        copy_ns_by_bytes=curves["copy"],
        matmul_ns_by_flops=products,
        thin_matmul_ns_by_flops=thin or products,
        narrow_matmul_ns_by_flops=narrow or products,
        kernel_ns_by_work={},
        row_ns_by_kind={},
        serial_ns_by_kind={
            "filter": step_ns,
            "state_space": step_ns,
            "recurrence": step_ns / _WAITS,
        },
        measured_at_unix_s=float(points["at"]),
        measuring_s=float(points["took_s"]),
    )


def _measured(device: Any) -> dict[str, Any]:
    import rlx

    start = time.monotonic()
    bench = _Bench(device, start + _BUDGET_S)
    roundtrip = bench.call(lambda x: x + 1, [np.ones(16, np.float32)])
    first, many = (bench.chain(count) for count in (1, _CHAIN))
    curves = {
        "upload": bench.uploads(roundtrip),
        "readback": bench.readbacks(roundtrip),
        "copy": bench.copies(),
    }
    for name, dtype in _DTYPES.items():
        curves[name] = bench.products(dtype)
        curves[f"thin {name}"] = bench.products(dtype, rows=1)
        curves[f"narrow {name}"] = bench.products(dtype, columns=_NARROW)
    return {
        "rlx": rlx.__version__,
        "roundtrip_ns": max(roundtrip, 100.0),
        "dispatch_ns": max((many - first) / (_CHAIN - 1), 10.0),
        "loop_step_ns": bench.loop_step(),
        "curves": {name: listed for name, listed in curves.items() if listed},
        "at": time.time(),
        "took_s": time.monotonic() - start,
    }


class _Bench:
    """Times functions on a device until a moment.

    Args:
        device: JAX's device.
        until: When to stop, by ``time.monotonic``.
    """

    def __init__(self, device: Any, until: float) -> None:
        self._device, self._until = device, until
        small = device.platform == "cpu"
        self._bytes = _SMALL_BYTES if small else _BYTES
        self._products = _SMALL_PRODUCTS if small else _PRODUCTS

    def call(
        self, function: Callable[..., Any], operands: Sequence[Any], read: bool = True
    ) -> float:
        """Least nanoseconds of a call with its operands, and the result on the host if that is wanted."""
        jitted = jax().jit(function)
        done = np.asarray if read else jax().block_until_ready
        with jax().default_device(self._device), jax().default_matmul_precision("highest"):
            done(jitted(*operands))
            best, stop = float("inf"), time.monotonic() + _EACH_S
            while True:
                start = time.perf_counter_ns()
                done(jitted(*operands))
                best = min(best, time.perf_counter_ns() - start)
                if time.monotonic() > stop:
                    return float(best)

    def _placed(self, shape: tuple[int, ...], dtype: str) -> Any:
        return jax().device_put(np.full(shape, 0.01, dtype), self._device)

    def chain(self, count: int) -> float:
        """A chain of products that can't be joined."""

        def function(x: Any) -> Any:
            for _ in range(count):
                x = x @ x
            return x

        return self.call(function, [self._placed((16, 16), "float32")], read=False)

    def loop_step(self) -> float:
        """One step of a loop that carries a state from step to step, as filters and recurrent layers do."""

        def function(state: Any, value: Any) -> Any:
            return jax().lax.scan(lambda s, x: (s * 0.5 + x, s + x), state, value)

        operands = [self._placed(shape, "float32") for shape in ((4,), (_LOOP, 4))]
        return self.call(function, operands, read=False) / _LOOP

    def _each(
        self, works: Sequence[int], measure: Callable[[int], tuple[float, float]]
    ) -> list[Any]:
        results = []
        for index, work in enumerate(works):
            if index and time.monotonic() > self._until:
                break
            results.append(list(measure(work)))
        return results

    def uploads(self, roundtrip: float) -> list[Any]:
        """Measures the time that an operand's bytes on the host add to a call."""

        def measure(nbytes: int) -> tuple[float, float]:
            arguments = np.ones(nbytes // 4, np.float32)
            ns = self.call(lambda x: x[:1] + 1, [arguments])
            return float(nbytes), max(ns - roundtrip, nbytes / 1000.0)

        return self._each(self._bytes, measure)

    def readbacks(self, roundtrip: float) -> list[Any]:
        """Measures the time that a result's bytes add to a call."""

        def measure(nbytes: int) -> tuple[float, float]:
            count = nbytes // 4
            ns = self.call(lambda x: jax().numpy.broadcast_to(x, (count,)) + 1, [np.float32(1)])
            return float(nbytes), max(ns - roundtrip, nbytes / 1000.0)

        return self._each(self._bytes, measure)

    def copies(self) -> list[Any]:
        """Bytes that a kernel reads and writes."""
        least = self.call(lambda x: x + 1, [self._placed((16,), "float32")], read=False)

        def measure(nbytes: int) -> tuple[float, float]:
            ns = self.call(lambda x: x + 1, [self._placed((nbytes // 4,), "float32")], read=False)
            return 2.0 * nbytes, max(ns - least, nbytes / 4000.0)

        return self._each(self._bytes, measure)

    def products(self, dtype: str, rows: int = 0, columns: int = 0) -> list[Any]:
        """Operations of products, and their time besides that of the call.

        Args:
            dtype: Of the operands.
            rows: Of the left operand; square where 0.
            columns: Of the right operand; square where 0.
        """
        tiny = self._placed((1, 1), dtype)
        least = self.call(lambda a: a + 1, [tiny], read=False)

        def measure(size: int) -> tuple[float, float]:
            m, n = rows or size, columns or size
            operands = [self._placed((m, size), dtype), self._placed((size, n), dtype)]
            ns = self.call(lambda a, b: a @ b, operands, read=False)
            flops = 2.0 * m * size * n
            return flops, max(ns - least, flops / 1e6)

        return self._each(self._products, measure)
