"""Convolutions of 8-bit integers in ONNX models: exact, for any number of channels, without f64 where parts do."""

import numpy as np
import onnx
import pytest
from onnx import helper
from samples import looped

import rlx

pytestmark = pytest.mark.by_program

TYPES = {"u1": onnx.TensorProto.UINT8, "i1": onnx.TensorProto.INT8}


def model(x, w, zeros, **attrs):
    """ConvInteger of x, an input, by w, with the zero points that are given."""
    stored = {"w": w} | {
        name: zero for name, zero in zip("pq", zeros, strict=True) if zero is not None
    }
    names = ["x", "w", *(name if name in stored else "" for name in "pq")]
    graph = helper.make_graph(
        [helper.make_node("ConvInteger", names, ["y"], **attrs)],
        "convolution",
        [helper.make_tensor_value_info("x", TYPES[x.dtype.str[1:]], x.shape)],
        [helper.make_tensor_value_info("y", onnx.TensorProto.INT32, None)],
        [onnx.numpy_helper.from_array(value, name) for name, value in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9).SerializeToString()


def exact(x, w, zeros, group=1):
    """Convolution over one axis without padding, in Python's integers' width."""
    p, q = (0 if zero is None else zero.astype(np.int64) for zero in zeros)
    x, w = x.astype(np.int64) - p, w.astype(np.int64) - (q if np.ndim(q) == 0 else q[:, None, None])
    windows = np.lib.stride_tricks.sliding_window_view(x, w.shape[2], 2)
    windows = windows.reshape(len(x), group, -1, *windows.shape[2:])
    parts = w.reshape(group, -1, *w.shape[1:])
    return np.einsum("bgctk,gock->bgot", windows, parts).reshape(len(x), len(w), -1)


@pytest.mark.parametrize("dtype", ["u1", "i1"])
@looped("channels", [1, 28, 29, 96, 130, 260])
@looped("zero", [None, 0, 3, "each"])
def test_the_largest_operands_are_summed_exactly(device, rng, dtype, channels, zero):
    """All taps are the largest numbers, but for a few odd ones that f32 would round away."""
    top = np.iinfo(dtype).max if dtype == "u1" else np.iinfo(dtype).min
    x, w = np.full((2, channels, 12), top, dtype), np.full((5, channels, 9), top, dtype)
    x[:, :, ::5] -= np.sign(top).astype(dtype) if dtype == "i1" else 1
    w[:, 0, :] = rng.integers(0, 100, 9)
    points = np.array([0, 1, 2, 3, 4], dtype) if zero == "each" else zero
    second = None if zero is None else np.asarray(points, dtype)
    zeros = (None if zero is None else np.array(1, dtype), second)
    with rlx.onnx.Model(model(x, w, zeros), device) as onnx_model:
        result = onnx_model.run({"x": x})[0]
        text = onnx_model.compile({"x": x}).as_text("schedule") if device == "cpu" else ""
    np.testing.assert_array_equal(result, exact(x, w, zeros))
    if channels == 96:
        assert "F64" not in text


def test_groups_of_many_channels_are_exact(device, rng):
    x, w = np.full((1, 120, 11), 255, "u1"), rng.integers(200, 256, (4, 60, 9), "u1")
    with rlx.onnx.Model(model(x, w, (None, None), group=2), device) as onnx_model:
        np.testing.assert_array_equal(onnx_model.run({"x": x})[0], exact(x, w, (None, None), 2))


def test_weights_for_fewer_channels_are_refused(rng):
    x, w = np.full((1, 120, 11), 255, "u1"), rng.integers(0, 256, (4, 60, 9), "u1")
    with pytest.raises(rlx.RlxError), rlx.onnx.Model(model(x, w, (None, None)), "cpu") as result:
        result.run({"x": x})
