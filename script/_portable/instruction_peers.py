"""Cases of instruction_cases.py as ONNX Runtime computes them, on one thread: those that are one operation of ONNX."""

from collections.abc import Callable
from typing import Any

import numpy as np
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

RNG = np.random.default_rng(1)
OPSET, IR = 20, 10
VECTOR, MATRIX, IMAGES = (4096,), (64, 256), (1, 16, 16, 16)
FUNCTIONS = ("Exp", "Tanh", "Gelu", "Erf", "Sigmoid", "Log", "Sin", "Softplus")
# The type of the results of an operation, where it is not that of its first input.
RESULTS = {"MatMulInteger": TensorProto.INT32, "ArgMax": TensorProto.INT64}


def weights(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 0.1).astype(np.float32)


def signed(n: int) -> np.ndarray:
    return RNG.integers(-100, 100, (n, n)).astype(np.int8)


def f32(*shape: int) -> np.ndarray:
    return (RNG.normal(size=shape) * 10).astype(np.float32)


def conv(channels: int, side: int, kernel: int, groups: int = 1) -> tuple:
    attrs = {"pads": [kernel // 2] * 4, "group": groups}
    return (
        "Conv",
        [f32(1, channels, side, side)],
        [weights(channels, channels // groups, kernel, kernel)],
        attrs,
    )


def along(axis: int) -> np.ndarray:
    return np.array([axis], np.int64)


def resize(mode: str) -> tuple:
    return (
        "Resize",
        [f32(*IMAGES)],
        [None, None, np.array([1, 16, 32, 32], np.int64)],
        {"mode": mode},
    )


# By the name of the case: an operation, its inputs, its constants, of which None are left out, and its attributes.
PEERS: dict[str, tuple[str, list[np.ndarray], list[np.ndarray | None], dict[str, Any]]] = {
    **{f"product {n}": ("MatMul", [f32(n, n)], [weights(n, n)], {}) for n in (64, 128, 256, 512)},
    "product 256 of 8-bit integers": ("MatMulInteger", [signed(256)], [signed(256)], {}),
    "convolution 3x3, 32 of 28": conv(32, 28, 3),
    "convolution 5x5, 32 of 14": conv(32, 14, 5),
    "convolution 1x1, 64 of 14": conv(64, 14, 1),
    "depthwise 3x3, 32 of 28": conv(32, 28, 3, 32),
    "depthwise 5x5, 32 of 7": conv(32, 7, 5, 32),
    "softmax 64 x 256": ("Softmax", [f32(*MATRIX)], [], {"axis": 1}),
    "softmax 64 x 256, first axis": ("Softmax", [f32(*MATRIX)], [], {"axis": 0}),
    **{
        f"{name} 64 x 256, axis {axis}": (op, [f32(*MATRIX)], [along(axis)], {"keepdims": 0})
        for name, op in (("sum", "ReduceSum"), ("max", "ReduceMax"))
        for axis in (0, 1)
    },
    **{f"cumsum 64 x 256, axis {axis}": ("CumSum", [f32(*MATRIX)], [along(axis)], {}) for axis in (0, 1)},
    **{
        f"argmax 64 x 256, axis {axis}": ("ArgMax", [f32(*MATRIX)], [], {"axis": axis, "keepdims": 0})
        for axis in (0, 1)
    },
    "topk 8 of 64 x 256": ("TopK", [f32(*MATRIX)], [along(8)], {}),
    "transpose 64 x 256": ("Transpose", [f32(*MATRIX)], [], {}),
    "add 4096": ("Add", [f32(*VECTOR), f32(*VECTOR)], [], {}),
    "max pool 2x2, 16 of 32": ("MaxPool", [f32(1, 16, 32, 32)], [], {"kernel_shape": [2, 2], "strides": [2, 2]}),
    "linear resize, 16 of 16": resize("linear"),
    "nearest resize, 16 of 16": resize("nearest"),
    "f16 to f32": ("Cast", [f32(*VECTOR).astype(np.float16)], [], {"to": TensorProto.FLOAT}),
    "f32 to f16": ("Cast", [f32(*VECTOR)], [], {"to": TensorProto.FLOAT16}),
    **{f"{op.lower()} 4096": (op, [f32(*VECTOR)], [], {}) for op in FUNCTIONS},
}  # fmt: skip


def call_of(case: str) -> Callable[[], object]:
    """Returns a function that runs a case once, with inputs and results that stay in place."""
    op, inputs, constants, attrs = PEERS[case]
    values = {f"x{index}": value for index, value in enumerate(inputs)}
    fixed = {f"w{index}": value for index, value in enumerate(constants) if value is not None}
    names = [
        *values,
        *(f"w{index}" if f"w{index}" in fixed else "" for index in range(len(constants))),
    ]
    results = ["y", "z"][: 1 + (op == "TopK")]

    def typed(name: str, array: np.ndarray) -> Any:
        return helper.make_tensor_value_info(
            name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape
        )

    own = helper.np_dtype_to_tensor_dtype(inputs[0].dtype)
    result = attrs.get("to", RESULTS.get(op, own))
    graph = helper.make_graph(
        [helper.make_node(op, names, results, **attrs)],
        "case",
        [typed(name, value) for name, value in values.items()],
        [helper.make_tensor_value_info("y", result, None)],
        [numpy_helper.from_array(value, name) for name, value in fixed.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    binding = session.io_binding()
    for name, value in values.items():
        binding.bind_cpu_input(name, value)
    binding.bind_output("y")
    return lambda: session.run_with_iobinding(binding)
