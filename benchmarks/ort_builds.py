"""Workloads as nodes of an ONNX model: what ONNX Runtime runs, on a GPU and on a CPU."""

import math

import numpy as np


class OrtModel:
    """A model while it is built.

    Attributes:
        values: The workload's operands by name, for what a node has to know of them.
        feeds: What the session is fed, by name; nodes may ask for another layout.
        back: From the session's results to those of the workload.
    """

    def __init__(self, values):
        self.values, self.feeds, self.back = values, {}, list
        self._nodes, self._constants, self._domains = [], [], set()

    def add(self, kind, inputs, results=1, **attributes):
        """A node; the name of its result, or a list of names where it has several."""
        from onnx import helper

        self._domains.add(attributes.get("domain", ""))
        names = [f"n{len(self._nodes)}_{index}" for index in range(results)]
        self._nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names[0] if results == 1 else names

    def constant(self, value):
        """An array; its name."""
        from onnx import numpy_helper

        name = f"constant{len(self._constants)}"
        self._constants.append(numpy_helper.from_array(np.ascontiguousarray(value), name))
        return name

    def bytes(self, results, opset=20):
        """The model from ``feeds`` to the named results."""
        from onnx import TensorProto, helper

        kind = TensorProto.FLOAT16 if self.half else TensorProto.FLOAT
        graph = helper.make_graph(
            self._nodes,
            "workload",
            [
                helper.make_tensor_value_info(
                    name, helper.np_dtype_to_tensor_dtype(value.dtype), value.shape
                )
                for name, value in self.feeds.items()
            ],
            [helper.make_tensor_value_info(name, kind, None) for name in results],
            self._constants,
        )
        versions = [helper.make_opsetid(name, 1 if name else opset) for name in self._domains]
        model = helper.make_model(graph, opset_imports=versions, ir_version=10)
        return model.SerializeToString()

    @property
    def half(self):
        """True if the workload is of f16."""
        return all(value.dtype == np.float16 for value in self.values.values())


def _matmul(m, v, ta, tb):
    def transposed(name):
        rank = m.values[name].ndim
        order = [*range(rank - 2), rank - 1, rank - 2]
        return m.add("Transpose", [v[name]], perm=order)

    return m.add("MatMul", [transposed("a") if ta else v["a"], transposed("w") if tb else v["w"]])


def _epilogue(m, v):
    product = m.add("Add", [m.add("MatMul", [v["a"], v["w"]]), v["b"]])
    return m.add("Add", [m.add("Gelu", [product]), v["r"]])


def _attention(m, v, causal, group):
    if causal or group > 1:
        return None  # there it would be something else than the three nodes
    scale = m.constant(np.array([1 / math.sqrt(m.values["q"].shape[-1])], np.float32))
    transposed = m.add("Transpose", [v["k"]], perm=[0, 1, 3, 2])
    scores = m.add("Mul", [m.add("MatMul", [v["q"], transposed]), scale])
    return m.add("MatMul", [m.add("Softmax", [scores], axis=-1), v["v"]])


def _conv(m, v, stride, padding, groups):
    rank = m.values["x"].ndim - 2
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
