"""ONNX Runtime on WebGPU: the slope over copies of a workload in one model.

Operands are made on the device from constants and one number that is fed, and of each result one element
comes back, so that what travels between host and device is the same few bytes however many copies there are.
"""

import math

import numpy as np
from gpu_peers import Absent, slope

FEW, MANY = 1, 17
# The element that comes back of each copy agrees with that of the first one.
AGREES = 1e-3
# Bytes of results that all copies may hold together.
MOST_BYTES = 8e9


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
    if not any(one.ep_name == name for one in ort.get_ep_devices()):
        ort.register_execution_provider_library(name, webgpu.get_library_path())
    return [one for one in ort.get_ep_devices() if one.ep_name == name]


def ort_session(model, optimised=True):
    """A session on WebGPU."""
    import onnxruntime as ort

    devices, options = _devices(), ort.SessionOptions()
    options.log_severity_level = 3
    if not optimised:
        # Equal copies would be merged into one.
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        # What it has no kernel for would run on the CPU, and be no peer.
        options.add_session_config_entry("session.disable_cpu_ep_fallback", "1")
    options.add_provider_for_devices(devices[:1], {})
    session = ort.InferenceSession(model, options)
    if devices[0].ep_name not in session.get_providers():
        raise Absent(f"the session runs on {session.get_providers()}")
    return session


class _Model:
    """Nodes and constants of a model while it is built."""

    def __init__(self):
        self.nodes, self.constants = [], []

    def add(self, kind, inputs, **attributes):
        """A node; the name of its result."""
        from onnx import helper

        name = f"n{len(self.nodes)}"
        self.nodes.append(helper.make_node(kind, inputs, [name], **attributes))
        return name

    def constant(self, value):
        """An array; its name."""
        from onnx import numpy_helper

        name = f"c{len(self.constants)}"
        self.constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def bytes(self, results):
        """The model from the number ``s`` to the first element of each result."""
        from onnx import TensorProto, helper

        flat, zero, one = (self.constant(np.array([at], np.int64)) for at in (-1, 0, 1))
        firsts = [
            self.add("Slice", [self.add("Reshape", [name, flat]), zero, one]) for name in results
        ]
        self.nodes.append(helper.make_node("Concat", firsts, ["y"], axis=0))
        kind = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        graph = helper.make_graph(
            self.nodes,
            "copies",
            [helper.make_tensor_value_info("s", kind, [1])],
            [helper.make_tensor_value_info("y", kind, [len(results)])],
            self.constants,
        )
        opset = [helper.make_opsetid("", 20)]
        return helper.make_model(graph, opset_imports=opset, ir_version=9).SerializeToString()

    half = False


def _matmul(m, v, ta, tb):
    def turned(name):
        rank = m.ranks[name]
        order = [*range(rank - 2), rank - 1, rank - 2]
        return m.add("Transpose", [v[name]], perm=order)

    return m.add("MatMul", [turned("a") if ta else v["a"], turned("w") if tb else v["w"]])


def _epilogue(m, v):
    product = m.add("Add", [m.add("MatMul", [v["a"], v["w"]]), v["b"]])
    return m.add("Add", [m.add("Gelu", [product]), v["r"]])


def _attention(m, v, causal, group):
    if causal or group > 1:
        return None  # there it would be something else than the three nodes
    turned = m.add("Transpose", [v["k"]], perm=[0, 1, 3, 2])
    scores = m.add("Mul", [m.add("MatMul", [v["q"], turned]), v["scale"]])
    return m.add("MatMul", [m.add("Softmax", [scores], axis=-1), v["v"]])


def _conv(m, v, stride, padding, groups):
    rank = m.ranks["x"] - 2
    return m.add(
        "Conv",
        [v["x"], v["w"], v["b"]],
        strides=[stride] * rank,
        pads=[padding] * (2 * rank),
        group=groups,
    )


def _max_pool(m, v, kernel, stride, padding):
    return m.add(
        "MaxPool", [v["x"]], kernel_shape=[kernel] * 2, strides=[stride] * 2, pads=[padding] * 4
    )


def _reduce(m, v, kind, axis):
    name = {"sum": "ReduceSum", "max": "ReduceMax"}[kind]
    return m.add(name, [v["x"], m.constant(np.array([axis], np.int64))], keepdims=0)


BUILDS = {
    "matmul": _matmul,
    "epilogue": _epilogue,
    "attention": _attention,
    "conv": _conv,
    "max_pool": _max_pool,
    "softmax": lambda m, v: m.add("Softmax", [v["x"]], axis=-1),
    "layer_norm": lambda m, v: m.add("LayerNormalization", [v["x"], v["w"], v["b"]], axis=-1),
    "reduce": _reduce,
}


def takes(row):
    """Whether there is a model for the workload; only the small size has to be made to know."""
    return row.work(row.small[0]).peer[0] in BUILDS


def _model(work, copies):
    """So many copies of the workload; None where there is no model for it."""
    kind, settings = work.peer
    m = _Model()
    m.ranks = {name: value.ndim for name, value in work.values.items()}
    m.half = next(iter(work.values.values())).dtype == np.float16
    held = {name: m.constant(value) for name, value in work.values.items()}
    # Constants alone would be computed when the session is made.
    made = {
        name: m.add("Mul", [one, "s"]) for name, one in held.items() if name not in work.weights
    }
    if kind == "attention":
        scale = 1 / math.sqrt(work.values["q"].shape[-1])
        made["scale"] = m.constant(np.array([scale], np.float32))
    results = [BUILDS[kind](m, held | made, **settings) for _ in range(copies)]
    return None if results[0] is None else m.bytes(results)


def measure(work):
    """Microseconds of one copy; None where there is no model."""
    result = sum(value.nbytes for value in work.values.values())
    if result > 1.9e9:
        raise ValueError("the constants are more than a model may hold")
    many = int(max(3, min(MANY, MOST_BYTES // max(1, result))))
    models = {count: _model(work, count) for count in (FEW, many)}
    if models[FEW] is None:
        return None
    sessions = {count: ort_session(model, False) for count, model in models.items()}
    one = np.ones(
        1, np.float16 if work.values[next(iter(work.values))].dtype == np.float16 else np.float32
    )
    first = {count: session.run(None, {"s": one})[0] for count, session in sessions.items()}
    if not np.allclose(first[many], first[FEW][0], AGREES, AGREES):
        raise ArithmeticError("its copies differ")
    return slope(lambda count: sessions[count].run(None, {"s": one}), FEW, many)
