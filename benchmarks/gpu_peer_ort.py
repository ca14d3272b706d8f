"""ONNX Runtime on WebGPU: the slope over copies of a workload in one model.

Operands are made on the device from constants and one number that is fed, and of each result one element
comes back, so that what travels between host and device is the same few bytes however many copies there are.
"""

import numpy as np
from gpu_peers import Absent, slope
from ort_builds import BUILDS, OrtModel

FEW, MANY = 1, 17
# The element that comes back of each copy agrees with that of the first one.
AGREES = 1e-3
# Bytes of results that all copies may hold together.
MAX_BYTES = 8e9


def start():
    """Its version."""
    import onnx  # noqa: F401
    import onnxruntime

    if not _devices():
        raise Absent(
            "onnxruntime-ep-webgpu finds no device (a software one needs its variable set)"
        )
    return f"ONNX Runtime {onnxruntime.__version__}, WebGPU"


def _devices():
    import onnxruntime as ort
    import onnxruntime_ep_webgpu as webgpu

    name = webgpu.get_ep_name()
    if not any(device.ep_name == name for device in ort.get_ep_devices()):
        ort.register_execution_provider_library(name, webgpu.get_library_path())
    return [device for device in ort.get_ep_devices() if device.ep_name == name]


def ort_session(model, optimised=True, fallback=True):
    """A session on WebGPU. Without `fallback`, a model of which it would run a part on the CPU is refused."""
    import onnxruntime as ort

    devices, options = _devices(), ort.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        # Equal copies would be merged into one.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    if not (fallback and optimised):
        # A node without a kernel would run on the CPU, and be no peer.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices[:1], {})
    session = ort.InferenceSession(model, options)
    if devices[0].ep_name not in session.get_providers():
        raise Absent(f"the session runs on {session.get_providers()}")
    return session


def _first_elements(m, results):
    """A node that joins the first element of each result."""
    flat, zero, first = (m.constant(np.array([index], np.int64)) for index in (-1, 0, 1))
    return m.add(
        "Concat",
        [m.add("Slice", [m.add("Reshape", [name, flat]), zero, first]) for name in results],
        axis=0,
    )


def takes(row):
    """Returns whether there is a model for the workload; only the small size has to be made to know."""
    return row.work(row.small[0]).peer[0] in BUILDS


def _model(work, copies):
    """So many copies of the workload; None where there is no model for it."""
    kind, settings = work.peer
    m = OrtModel(work.values)
    m.feeds["s"] = np.ones(1, np.float16 if m.half else np.float32)
    stored = {name: m.constant(value) for name, value in work.values.items()}
    # Constants alone would be computed when the session is made.
    outputs = {
        name: m.add("Mul", [value, "s"])
        for name, value in stored.items()
        if name not in work.weights
    }
    results = [BUILDS[kind](m, stored | outputs, **settings) for _ in range(copies)]
    return None if results[0] is None else m.bytes([_first_elements(m, results)])


def measure(work):
    """Microseconds of one copy; None where there is no model."""
    result = sum(value.nbytes for value in work.values.values())
    if result > 1.9e9:
        raise ValueError("the constants are more than a model may hold")
    many = int(max(3, min(MANY, MAX_BYTES // max(1, result))))
    models = {count: _model(work, count) for count in (FEW, many)}
    if models[FEW] is None:
        return None
    sessions = {count: ort_session(model, False) for count, model in models.items()}
    single = np.ones(1, np.float16 if OrtModel(work.values).half else np.float32)
    first = {count: session.run(None, {"s": single})[0] for count, session in sessions.items()}
    if not np.allclose(first[many], first[FEW][0], AGREES, AGREES):
        raise ArithmeticError("its copies differ")
    return slope(lambda count: sessions[count].run(None, {"s": single}), FEW, many)
