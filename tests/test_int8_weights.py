"""Weights in 8 bits whose model rounds what they multiply: the CPU keeps the codes and rounds to 16 bits."""

import numpy as np
import onnx
import pytest
from onnx import helper
from samples import looped

import rlx
from rlx._ext import cpu
from rlx.backends.base import CompileOptions
from rlx.backends.cpu.layouts import BytePairs

pytestmark = pytest.mark.by_program

# Half a unit of 16 bits: by so much of the largest element of a row an element is off.
ROUNDING = 0.5 / 32767


def product(x, codes, scales):
    """The product on the CPU, with weights that are packed when they are set."""
    g = rlx.Graph("product")
    w, s = g.param("w", codes.shape, "i8"), g.param("s", scales.shape)
    g.set_outputs([g.add_node("rounded_matmul", [g.input("x", x.shape), w, s])])
    with rlx.compile(g, "cpu", {"w": codes, "s": scales}) as cg:
        return cg.run({"x": x})[0]


def exact(x, codes, scales):
    return x.astype("f8") @ (codes.astype("f8") * scales.astype("f8")[:, None]).T


@looped("isa", cpu.isas())
@looped("m", [1, 2, 3, 7, 50])
@looped("k", [1, 2, 31, 510, 511, 700])
def test_products_are_off_by_the_rounding_of_x(monkeypatch, rng, isa, m, k):
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    n = int(rng.integers(1, 150))
    x = (rng.standard_normal((m, k)) * 10.0 ** rng.integers(-20, 20, (m, 1))).astype("f4")
    codes, scales = rng.integers(-128, 128, (n, k), "i1"), rng.random(n).astype("f4")
    result, wanted = product(x, codes, scales), exact(x, codes, scales)
    sizes = np.abs(codes.astype("f8") * scales[:, None]).sum(1)
    allowed = np.abs(x).max(1, keepdims=True) * sizes * (ROUNDING + k * 2.0**-24)
    assert (np.abs(result - wanted) <= allowed + 1e-35).all()


@looped("isa", cpu.isas())
def test_the_largest_sums_do_not_overflow(monkeypatch, isa):
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    codes = np.array([[-128], [127]], "i1").repeat(4099, 1)
    result = product(np.ones((1, 4099), "f4"), codes, np.ones(2, "f4"))
    np.testing.assert_allclose(result, [[-128 * 4099, 127 * 4099]], 1e-6)


@looped("isa", cpu.isas())
def test_rows_without_finite_numbers_are_nan_and_rows_of_zeros_are_zero(monkeypatch, rng, isa):
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    x = rng.standard_normal((6, 19)).astype("f4")
    x[1, 18], x[2, 0], x[3], x[4] = np.nan, -np.inf, 0, 1e-39
    codes, scales = rng.integers(-128, 128, (37, 19), "i1"), rng.random(37).astype("f4")
    result = product(x, codes, scales)
    assert np.isnan(result[1:3]).all()
    assert (result[3:5] == 0).all()
    for row in (0, 5):
        np.testing.assert_allclose(result[row], exact(x[row], codes, scales), 0, 0.05)


@pytest.mark.parametrize("products", [(96,), (66, 33), (64, 32), (1, 1)])
@pytest.mark.parametrize("k", [1, 6, 7])
def test_packed_weights_are_unpacked_again(rng, products, k):
    layout = BytePairs(2, k, products, 32)
    plain = rng.integers(-128, 128, (2, sum(products), k), "i1")
    memory, result = np.zeros(layout.nbytes, np.uint8), np.empty_like(plain)
    layout.pack(plain, memory)
    layout.unpack(memory, result)
    np.testing.assert_array_equal(result, plain)


def layer(rng, dtype, zero, hidden=40, inputs=24):
    """A file with one DynamicQuantizeLSTM in two directions, and its weights as floats."""
    low, high = (0, 256) if dtype == "u1" else (-128, 128)
    w = rng.integers(low, high, (2, inputs, 4 * hidden), dtype)
    r = rng.integers(low, high, (2, hidden, 4 * hidden), dtype)
    scales = (rng.random((2, 4 * hidden)) / 128 / 6).astype("f4")
    zeros = np.full((2, 4 * hidden), zero, dtype)
    stored = {"w": w, "r": r, "ws": scales, "wz": zeros, "rs": scales, "rz": zeros}
    node = helper.make_node(
        "DynamicQuantizeLSTM",
        ["x", "w", "r", "", "", "", "", "", "ws", "wz", "rs", "rz"],
        ["y"],
        domain="com.microsoft",
        hidden_size=hidden,
        direction="bidirectional",
    )
    graph = helper.make_graph(
        [node],
        "layer",
        [helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [5, 2, inputs])],
        [helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [5, 2, 2, hidden])],
        [onnx.numpy_helper.from_array(array, name) for name, array in stored.items()],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    decoded = [
        (codes.astype("f4") - zero).transpose(0, 2, 1) * scales[:, :, None] for codes in (w, r)
    ]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), decoded


@looped("dtype, zero", [("i1", 0), ("u1", 128), ("i1", 3), ("u1", 0)])
def test_layers_keep_codes_whose_zero_is_in_the_middle(device, rng, dtype, zero):
    result, (w, r) = layer(rng, dtype, zero)
    x = rng.standard_normal((5, 2, 24)).astype("f4")
    g = rlx.Graph("floats")
    y, *_ = g.lstm(g.input("x", x.shape), g.constant(w), g.constant(r), direction="bidirectional")
    g.set_outputs([y])
    with rlx.compile(g, "reference") as cg:
        (wanted,) = cg.run({"x": x})
    # Small weights would be folded to floats.
    options = CompileOptions(fold=False)
    with rlx.onnx.Model(result.SerializeToString(), device, options=options) as model:
        np.testing.assert_allclose(model.run({"x": x})[0], wanted, 0, 2e-4)
        text = model.compile({"x": x}).as_text("schedule")
    retained = device == "cpu" and zero == (128 if dtype == "u1" else 0)
    assert ("rounded_matmul" in text) == retained
