"""ONNX nodes at the edges of what is allowed: the right numbers, or an error that says what is wrong."""

import numpy as np
import pytest
from onnx import helper
from onnx_suite import run_with_values
from test_onnx import info, model

import rlx

I64 = np.int64


def run(kind, arrays, opset=22, outputs=1, **attrs):
    """The results of one node, all operands fed (they differ from those known at load by nothing else)."""
    names = [f"x{index}" for index in range(len(arrays))]
    arrays = [np.asarray(array) for array in arrays]
    results = [f"y{index}" for index in range(outputs)]
    types = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in arrays]
    inputs = [info(n, a.shape, type) for n, a, type in zip(names, arrays, types, strict=True)]
    node = helper.make_node(kind, names, results, **attrs)
    data = model([node], inputs, results, opset=opset)
    return run_with_values(data, "cpu", dict(zip(names, arrays, strict=True)))


@pytest.mark.parametrize("kind", ["i1", "u1", "i4", "u4", "i8"])
def test_integer_matrix_products_wrap(kind):
    rng, limits = np.random.default_rng(0), np.iinfo(kind)
    a, b = (rng.integers(limits.min, limits.max, shape, kind) for shape in ((3, 5), (5, 2)))
    (result,) = run("MatMul", [a, b])
    assert np.array_equal(result, a @ b)
    (result,) = run("Gemm", [a, b, a[:1, :2]], transA=0)
    assert np.array_equal(result, a @ b + a[:1, :2])


def test_products_of_two_types_are_refused():
    with pytest.raises(rlx.UnsupportedOpError, match="factors of i8 and f32"):
        run("MatMul", [np.ones((2, 3), "i1"), np.ones((3, 4), "f4")])


@pytest.mark.parametrize(
    "shapes", [((4,), (5, 4, 2)), ((5, 3, 4), (4,)), ((4,), (4,)), ((3, 4), (4, 2))]
)
@pytest.mark.parametrize("points", [(), (8,), (8, 3)])
def test_integer_products_of_vectors_with_zero_points(shapes, points):
    rng = np.random.default_rng(0)
    a, b = (rng.integers(0, 255, shape, np.uint8) for shape in shapes)
    (result,) = run("MatMulInteger", [a, b, *map(np.uint8, points)])
    p, q = (*points, 0, 0)[:2]
    np.testing.assert_array_equal(result, (a.astype(np.int32) - p) @ (b.astype(np.int32) - q))


@pytest.mark.parametrize(("points", "sums"), [((128, 0), 1), ((0, 3), 1), ((0, 0), 0), ((5, 3), 2)])
def test_a_zero_point_of_zero_sums_nothing(points, sums):
    """Known zero points: what is multiplied by 0 is not computed, and the results stay exact."""
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (3, 5), np.uint8), rng.integers(-128, 128, (5, 2), np.int8)
    node = helper.make_node("MatMulInteger", ["a", "b", "p", "q"], ["y"])
    weights = {"p": np.uint8(points[0]), "q": np.int8(points[1])}
    data = model([node], [info("a", a.shape, 2), info("b", b.shape, 3)], ["y"], weights)
    graph = rlx.onnx.load(data)
    assert sum(node.op == "sum" for node in graph.nodes) == sums
    (result,) = rlx.compile(graph, "cpu").run({"a": a, "b": b})
    expected = (a.astype(np.int32) - points[0]) @ (b.astype(np.int32) - points[1])
    np.testing.assert_array_equal(result, expected)


def test_long_shifts_of_u64_leave_nothing():
    x = np.uint64([2**63 + 5, 7, 2**63 + 8])
    (result,) = run("BitShift", [x, np.uint64([64, 2**63 + 1, 63])], direction="RIGHT")
    assert result.tolist() == [0, 0, 1]


def test_norm_of_half_precision_does_not_overflow():
    (result,) = run("ReduceL2", [np.float16([300, 400])])
    assert result == [500]


@pytest.mark.parametrize(
    ("kind", "x", "expected"),
    [
        ("ReduceLogSum", np.float16([1, 1 / 1024, 1 / 4096]), np.log(1 + 5 / 4096)),
        ("ReduceSumSquare", np.full(97, 1.0107421875, np.float16), 97 * 1.0107421875**2),
    ],
)
def test_known_sums_of_half_precision_are_rounded_at_the_end(kind, x, expected):
    """A rounded sum near 1 has another logarithm, and rounded squares another sum."""
    node = helper.make_node(kind, ["x"], ["y"])
    data = model([node], [], ["y"], weights={"x": x}, opset=22)
    (result,) = run_with_values(data, "cpu", {})
    assert result[0] == np.float16(expected)


def test_a_gate_of_half_precision_takes_an_alpha_beyond_it():
    (result,) = run("Swish", [np.float16([0, 2, -2])], opset=24, alpha=1e30)
    np.testing.assert_array_equal(result, [0, 2, 0])


def test_an_auto_pad_without_letters_is_none():
    x = np.arange(10, dtype=np.float32).reshape(1, 1, 5, 2)
    windows = {"kernel_shape": [3, 2], "strides": [3, 3], "ceil_mode": 1, "auto_pad": ""}
    (result,) = run("MaxPool", [x], **windows)
    np.testing.assert_array_equal(result.ravel(), [5, 9])


def test_a_pool_of_half_precision_holds_large_squares_and_exponents():
    x = np.float16([[[300, -400, 0.5, 0]]])
    (result,) = run("LpPool", [x], kernel_shape=[2])
    assert result.tolist() == [[[500, 400, 0.5]]]
    (result,) = run("LpPool", [x], opset=15, kernel_shape=[2], p=1 << 31)
    assert result[0, 0, 2] == 0
    (result,) = run("GlobalLpPool", [x])
    assert result.tolist() == [[[500]]]


def test_celu_with_a_negative_alpha():
    x = np.float32([-1, -0.5, 0, 2])
    (result,) = run("Celu", [x], alpha=-0.5)
    expected = np.maximum(0, x) + np.minimum(0, -0.5 * np.expm1(x / -0.5))
    np.testing.assert_allclose(result, expected, rtol=1e-6)


def test_powers_of_integers_are_exact_in_f64():
    base = I64([961203, -3])
    (result,) = run("Pow", [base, np.float32([2, 3])])
    assert result.tolist() == [961203**2, -27]


def test_logarithm_of_a_sum_of_integers():
    (result,) = run("ReduceLogSum", [np.int32([[100, 50]])], opset=13, keepdims=0)
    assert result.tolist() == 5


def test_bounds_of_clip_leave_the_shape():
    (result,) = run("Clip", [np.float32(3), np.float32([1]), np.float32([2])], opset=13)
    assert (result.shape, result) == ((), 2)


def test_powers_of_zero_in_half_precision():
    node = helper.make_node("Pow", ["x", "p"], ["y"])
    weights = {"p": np.float32([-0.649, 2.1893, 2])}
    data = model(
        [node],
        [info("x", (3,), helper.np_dtype_to_tensor_dtype(np.dtype("f2")))],
        ["y"],
        weights,
        23,
    )
    (result,) = run_with_values(data, "cpu", {"x": np.float16([-0.0, 0, -3])})
    np.testing.assert_array_equal(result, [np.inf, 0, 9])


def test_regions_of_no_size_are_zero():
    x, rois = np.ones((1, 1, 4, 4), np.float32), np.float32([[2, 2, 1, 1], [0, 0, 2, 2]])
    (result,) = run("RoiAlign", [x, rois, I64([0, 0])], opset=16, output_height=1, output_width=1)
    assert result.ravel().tolist() == [0, 1]


def test_nothing_is_kept_of_an_empty_axis():
    (result,) = run("Compress", [np.zeros(0, np.float32), np.zeros(0, bool)])
    assert result.shape == (0,)


def test_the_mask_of_an_old_dropout_has_the_type_of_the_operand():
    _, mask = run("Dropout", [np.float32([1, 2])], opset=9, outputs=2)
    assert mask.dtype == np.float32


@pytest.mark.parametrize("kind", ["f2", "f4", "f8"])
def test_running_statistics_keep_their_type(kind):
    rng = np.random.default_rng(2)
    x = rng.normal(1, 2, (5, 3, 4)).astype("f4")
    scale, bias = rng.normal(size=(2, 3)).astype("f4")
    mean, var = (np.array([1, 2, 3], kind) for _ in range(2))
    result = run("BatchNormalization", [x, scale, bias, mean, var], 15, 3, training_mode=1)
    assert [item.dtype for item in result] == ["f4", kind, kind]
    expected = 0.9 * np.stack([mean, var]) + 0.1 * np.stack([x.mean((0, 2)), x.var((0, 2))])
    np.testing.assert_allclose(result[1:], expected, 2e-3 if kind == "f2" else 1e-5)


def test_exponents_are_not_rounded_to_the_type_of_the_base():
    """-2 to the power of 3.0001 is no number, though the exponent is 3 in 16 bits."""
    (result,) = run("Pow", [np.array([-2, 2], "f2"), np.array([3.0001, 3.0001], "f4")], 15)
    np.testing.assert_array_equal(result, np.array([np.nan, 8], "f2"), strict=True)


def test_determinants_in_16_bits_are_those_of_the_matrix():
    x = np.array([[0.744, 0.4944, 2.24], [1.474, 0.7544, 3.115], [1.889, 0.4314, 1.318]], "f2")
    (result,) = run("Det", [x])
    np.testing.assert_allclose(result, np.float16(np.linalg.det(x.astype("f8"))), 1e-3, strict=True)
    x = np.diag([300, 300, 0.25]).astype("f2")  # the product of the first pivots overflows f16
    data = model([helper.make_node("Det", ["x"], ["y"])], [info("x", (3, 3), 10)], ["y"])
    assert rlx.onnx.load(data, values={"x": x}).outputs[0].attrs["value"] == 22500


@pytest.mark.parametrize(("stop", "count"), [(-9, 1), (-3, 1), (-2, 0), (0, 0)])
def test_a_slice_that_goes_back_begins_at_the_front_at_least(stop, count):
    """The standard holds a start to the axis; NumPy does not."""
    x = np.float32([1, 2])
    (result,) = run("Slice", [x, I64([-5]), I64([stop]), I64([0]), I64([-1])])
    assert result.tolist() == x[:count].tolist()


def test_zeros_beyond_all_windows_are_at_the_end():
    x = np.ones((1, 1, 2, 1, 1), np.float32)
    (result,) = run("ConvTranspose", [x, x[:, :, :1]], output_shape=[5, 1, 1], strides=[2, 1, 1])
    assert result.ravel().tolist() == [1, 0, 1, 0, 0]


def test_no_axes_are_cropped():
    x = np.ones((3, 4), np.float32)
    node = helper.make_node("CenterCropPad", ["x", "s"], ["y"])
    node.attribute.append(helper.make_attribute("axes", [], attr_type=7))
    data = model([node], [info("x", (3, 4))], ["y"], {"s": np.zeros(0, I64)})
    with rlx.onnx.Model(data, "cpu") as result:
        assert np.array_equal(result.run({"x": x})[0], x)


F = np.ones((2, 3, 4, 4), np.float32)
W = np.ones((3, 2, 2, 2), np.float32)
M = np.ones((2, 3), np.float32)
SCATTER = (np.ones((1, 2, 3, 2), np.float32), np.ones((1, 2, 4, 2), np.float32))
BOXES = np.zeros((1, 2, 4), np.float32)
RECURRENT = (np.ones((2, 1, 3), "f4"), np.ones((1, 8, 3), "f4"), np.ones((1, 8, 2), "f4"))
ANGLES = np.ones((2, 2, 1), np.float32)
# Operator, operands, attributes, what the error says. Each was taken, and gave numbers.
REFUSED = (
    ("ReduceSum", [M], {"keepdims": 2}, "'keepdims'.*got: 2.*0 or 1"),
    ("CumSum", [M, I64(0)], {"exclusive": -1}, "'exclusive'"),
    ("TopK", [M, I64([1])], {"sorted": 7}, "'sorted'"),
    ("BitShift", [np.uint8([1]), np.uint8([1])], {"direction": "UP"}, "'direction'.*'LEFT'"),
    ("Gelu", [M], {"approximate": "x"}, "'approximate'"),
    ("LpNormalization", [M], {"p": 3}, "'p'.*1 or 2"),
    ("LRN", [F], {"size": 0}, "'size'"),
    ("ReverseSequence", [M, I64([1, 1])], {"time_axis": 0, "batch_axis": 0}, "both axis 0"),
    ("Trilu", [np.ones(3, "f4")], {}, "rank 1"),
    ("Compress", [M, np.array([True] * 4)], {"axis": 1}, "condition is longer"),
    ("Gemm", [M, np.ones(3, "f4")], {}, "factors of shapes"),
    ("Gemm", [M, M.T.copy(), np.ones((4, 1, 2), "f4")], {}, "a summand of shape"),
    ("Clip", [M, np.zeros(3, "f4")], {}, "one number"),
    ("ConvTranspose", [F, W], {"kernel_shape": [1, 3]}, "kernel_shape"),
    ("ConvTranspose", [F, W], {"pads": [1]}, "1 pads"),
    ("Conv", [F, np.ones((1, 3, 2, 2), "f4")], {"auto_pad": "VALID", "pads": [1] * 4}, "both pads and"),
    ("LpPool", [F], {}, "'kernel_shape' is missing"),
    ("GridSample", [F, np.zeros((1, 2, 2, 2), "f4")], {}, "a grid of"),
    ("NonMaxSuppression", [BOXES, np.zeros((1, 1, 3), "f4")], {}, "boxes and scores do not fit"),
    ("NonMaxSuppression", [BOXES, np.zeros((1, 1, 2), "f4"), I64(1), np.float32(2)], {}, "a value is out of range"),
    ("RoiAlign", [F, np.zeros((1, 5), "f4"), I64([0])], {}, "regions of shape"),
    ("RoiAlign", [F, np.zeros((1, 4), "f4"), I64([[0]])], {}, "images of 1 regions"),
    ("Col2Im", [F, I64([2, 2]), I64([2, 2])], {}, "columns of shape"),
    ("Slice", [M, I64([0, 0]), I64([1, 1]), I64([1, -1])], {}, "named twice"),
    ("Tile", [M, I64([2])], {}, "1 repeats of 2 axes"),
    ("Split", [M, I64([1, 2])], {"axis": 1, "num_outputs": 2}, "both the sizes"),
    ("CenterCropPad", [M, I64([1])], {"axes": [-3]}, "no such axis|axis"),
    ("CenterCropPad", [M, I64([1, 1])], {"axes": [0, -2]}, "named twice|axis"),
    ("STFT", [np.ones((1, 16, 1), "f4"), I64(2), np.ones((2, 2), "f4"), I64(4)], {}, "a window"),
    ("STFT", [np.ones((1, 16, 1), "f4"), I64(2), np.ones(2, "f4"), I64(4)], {}, "a window"),
    ("Pad", [M, I64([1, 0, 0, 1]), np.float32(0), I64([0, 2])], {}, "axis"),
    ("Pad", [M, I64([1, 0, 0, 1]), np.float32(0), I64([0, -2])], {}, "named twice"),
    ("CenterCropPad", [M, I64([1])], {"axes": [0, 1]}, "one for each of 2 axes|axes|shape"),
    ("HannWindow", [I64(-1)], {}, "a window of -1"),
    ("DFT", [np.ones((1, 4, 1), "f4")], {"inverse": 1, "onesided": 1}, "complex"),
    ("DFT", [np.ones((1, 4, 2), "f4")], {"onesided": 1}, "half a spectrum"),
    ("NegativeLogLikelihoodLoss", [F, np.zeros((2, 1, 4, 4), I64)], {}, "labels of shape"),
    ("SoftmaxCrossEntropyLoss", [F, np.zeros((2, 4, 4), I64), np.ones(4, "f4")], {}, "weights of shape"),
    ("DequantizeLinear", [np.ones((2, 4), "i1"), np.ones((3, 2), "f4")], {"block_size": 2}, "scales of shape"),
    ("DequantizeLinear", [np.ones((2, 4), "i1"), np.float32(1)], {"block_size": 2}, "no single scale"),
    ("QuantizeLinear", [M, np.float32(1), np.uint8(0)], {"output_dtype": 3}, "output_dtype 3"),
    ("MaxUnpool", [F[:1, :1, :1, :1], I64([[[[0]]]]), I64([2, 2, 2, 2])], {"kernel_shape": [2, 2]}, "result of shape"),
    ("LSTM", RECURRENT, {"hidden_size": 3}, "hidden_size 3"),
    ("Constant", [], {"value_int": 1, "value_float": 2.0}, "one value is needed"),
    ("RotaryEmbedding", [np.ones((2, 1, 2, 3), "f4"), ANGLES, ANGLES], {}, "in pairs"),
    ("RotaryEmbedding", [np.ones((2, 1, 2, 2), "f4"), ANGLES, ANGLES, np.zeros((2, 2), I64)], {}, "two axes"),
    ("Conv", [F, np.ones((1, 3, 2, 2), "f4")], {"pads": [-1, 0, 0, 0]}, "'pads'"),
    ("OneHot", [I64([1]), I64(2), np.ones(3, "f4")], {}, "values of shape"),
    ("Col2Im", [np.ones((1, 4, 2), "f4"), I64([5]), I64([2, 2])], {}, "an image and blocks"),
    ("Col2Im", [np.ones((2, 4, 3), "f4"), I64([3, 3]), I64([2, 2])], {}, "3 blocks, not 4"),
    ("Det", [np.ones((0, 1, 4), "f4")], {}, "a determinant of"),
    ("Reshape", [np.ones((2, 0), "f4"), I64([0, -1])], {"allowzero": 1}, "out of range: .*got: .* = -1"),
    ("TensorScatter", SCATTER, {}, "4 new entries of a cache of 3"),
    ("TensorScatter", [SCATTER[0], SCATTER[0]], {"axis": 0}, "axis 0"),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "arrays", "attrs", "says"), REFUSED)
def test_what_makes_no_sense_is_refused(kind, arrays, attrs, says):
    newest = {"RotaryEmbedding": 23, "TensorScatter": 24}
    # Some numbers are known only as it runs.
    errors = rlx.ImportModelError, rlx.SizesError, rlx.InputError
    with pytest.raises(errors) as raised:
        run(kind, arrays, opset=newest.get(kind, 22), **attrs)
    import re

    assert re.search(f"(?s){says}", str(raised.value)), raised.value


def test_a_type_that_rlx_has_not_is_refused():
    """17 is an 8-bit float, which graphs hold in a wider type."""
    with pytest.raises(rlx.UnsupportedOpError, match="output_dtype 17"):
        run("DequantizeLinear", [np.ones(4, "i1"), np.float32(1)], opset=23, output_dtype=17)


def test_bits_of_another_size_are_refused():
    data = model([helper.make_node("BitCast", ["x"], ["y"], to=2)], [], ["y"], {"x": M}, opset=26)
    with pytest.raises(rlx.ImportModelError, match="another size"):
        rlx.onnx.load(data)


def test_an_absurd_window_is_more_than_the_limits():
    with pytest.raises(rlx.LimitError, match="a window of"):
        run("AveragePool", [F], kernel_shape=[2, 2**31 - 1], auto_pad="SAME_UPPER")
