"""Numbers at the edges of what types hold: each was wrong once, on the device or in the reference that others follow."""

import functools
from fractions import Fraction

import numpy as np
import pytest

import rlx

pytestmark = pytest.mark.by_program

LEAST, MOST = np.iinfo(np.int64).min, np.iinfo(np.int64).max


def one(build, device, **arrays):
    """The first output of a graph of inputs like the arrays."""
    g = rlx.Graph()
    g.set_outputs([build(g, *(g.input(name, a.shape, a.dtype) for name, a in arrays.items()))])
    return rlx.compile(g, device).run(arrays)[0]


@functools.cache
def bf16_sizes():
    """Every finite number of bf16 that is not negative, exactly and in order: their positions are their bits."""
    every = np.arange(0x7F80, dtype=np.uint32)
    return np.array([Fraction(float(f)) for f in (every << 16).view(np.float32)], object)


def bf16(values):
    """bf16 of any numbers, by Python's exact arithmetic: the bits of the nearest, ties to even."""
    results, floats = [], bf16_sizes()
    for value in values:
        size = Fraction(abs(value))
        position = int(np.searchsorted(floats, size))
        near = [k for k in (position - 1, position) if 0 <= k < len(floats)]
        best = min(near, key=lambda k: (abs(floats[k] - size), k & 1))
        results.append(best | (0x8000 if value < 0 else 0))
    return np.array(results, np.uint16)


@pytest.mark.parametrize("n", [5, 300, 301, 5000, 70001])
def test_the_mean_of_a_norm_is_corrected(n, device):
    """A mean of 1000 is rounded by 6e-5, and the differences from it are about 1."""
    x = np.float32(1000) + np.random.default_rng(n).normal(size=(3, n)).astype(np.float32)
    result = one(lambda g, x: g.layer_norm(x, axis=1, eps=0.0), device, x=x)
    exact = x - x.mean(1, np.float64, keepdims=True)
    exact /= np.sqrt(np.mean(exact**2, 1, keepdims=True))
    np.testing.assert_allclose(result, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", [5, 300, 5000])
def test_a_norm_of_equal_numbers_is_0(n, device):
    x = np.full((3, n), 1.1e9, np.float32)
    np.testing.assert_array_equal(one(lambda g, x: g.layer_norm(x, axis=1), device, x=x), 0.0)


# --- rounding -------------------------------------------------------------------------------------------------


def test_f64_to_f16_rounds_once(device):
    ties = np.arange(0, 2049, 7) / 2048.0 + 1
    beyond = np.concatenate([ties + d for d in (-(2.0**-40), 0.0, 2.0**-40)])
    edges = [65519.999999, 65520.0, 65536.0, 2.0**-25, 2.0**-25 + 2.0**-60, 2.0**-24 * 1.5, 1e-300]
    special = [0.0, np.inf, np.nan, 1e300]
    x = np.concatenate([beyond, beyond * 2.0**-20, edges, special])
    x = np.concatenate([x, -x])
    result = one(lambda g, x: g.cast(x, "f16"), device, x=x)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(result, x.astype(np.float16))
    np.testing.assert_array_equal(np.signbit(result), np.signbit(x))


def test_f64_to_bf16_rounds_once(device):
    rng = np.random.default_rng(3)
    whole = rng.integers(128, 256, 60) + 0.5
    x = np.concatenate([whole + d for d in (-(2.0**-30), 0.0, 2.0**-30)])
    x = np.concatenate([x, -x * 2.0**-130, x * 2.0**100])
    result = one(lambda g, x: g.cast(x, "bf16"), device, x=x)
    np.testing.assert_array_equal(result, bf16(x))


@pytest.mark.parametrize("dtype", [np.int32, np.uint32, np.int64])
def test_integers_to_bf16_round_once(dtype, device):
    limits, rng = np.iinfo(dtype), np.random.default_rng(4)
    bits = limits.bits - (limits.min < 0)
    results = [0, 1, limits.max, limits.min, limits.max - 1]
    for exponent in range(8, bits):
        half = (int(rng.integers(128, 256)) << (exponent - 8)) + (1 << max(exponent - 9, 0))
        results += [half + d for d in (-1, 0, 1) if half + d <= limits.max]
    x = np.array(results + ([-f for f in results[1:3] + results[5:]] if limits.min else []), dtype)
    got = one(lambda g, x: g.cast(x, "bf16"), device, x=x)
    np.testing.assert_array_equal(got, bf16([int(v) for v in x]))


# --- integers ---------------------------------------------------------------------------------------------------


def quotient(a, b):
    """The quotient toward zero, wrapped to 64 bits; 0 for a divisor of 0."""
    if b == 0:
        return 0
    result = abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)
    return (result + 2**63) % 2**64 - 2**63


EDGES = [0, 1, -1, 3, -3, 2**31, -(2**31), 2**32 + 1, 2**53 + 1, -(2**53) - 1, 10**18, MOST, LEAST]


@pytest.mark.parametrize("known", ["inputs", "constants", "divisor"])
def test_division_of_i64_is_exact(known, device):
    pairs = [(a, b) for a in EDGES for b in EDGES]
    a, b = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    want = [quotient(x, y) for x, y in pairs]
    g = rlx.Graph()
    x = g.constant(a) if known == "constants" else g.input("a", a.shape, "i64")
    y = g.input("b", b.shape, "i64") if known == "inputs" else g.constant(b)
    g.set_outputs([x / y])
    inputs = {"a": a, "b": b}
    result = rlx.compile(g, device).run({name: inputs[name] for name in g.input_names})[0]
    np.testing.assert_array_equal(result, want)


def test_a_state_of_zero_stays_where_its_decay_overflows(device):
    x, delta = np.ones((1, 3, 2), np.float32), np.full((1, 3, 2), 100, np.float32)
    a = np.full((2, 4), 10, np.float32)
    b, c = np.zeros((1, 3, 4), np.float32), np.ones((1, 3, 4), np.float32)
    b[:, 2] = 1
    arrays = {"x": x, "delta": delta, "a": a, "b": b, "c": c}
    result = one(lambda g, *nodes: g.selective_scan(*nodes), device, **arrays)
    np.testing.assert_array_equal(result, [[[0, 0], [0, 0], [400, 400]]])


# --- indices ------------------------------------------------------------------------------------------------------

INDEXED = {
    "gather": lambda g, x, i: g.gather(x, g.reshape(i, (1,)), 0),
    "gather_nd": lambda g, x, i: g.gather_nd(x, i),
    "gather_elements": lambda g, x, i: g.gather_elements(x, g.reshape(i, (1,)), 0),
    "scatter_nd": lambda g, x, i: g.scatter_nd(x, i, g.constant(np.ones(1, np.float32))),
    "scatter_elements": lambda g, x, i: g.scatter_elements(
        x, g.reshape(i, (1,)), g.constant(np.ones(1, np.float32)), 0
    ),
}


@pytest.mark.parametrize("known", ["input", "constant"])
@pytest.mark.parametrize("name", INDEXED)
def test_an_index_out_of_range(name, known, device):
    """A typed error where values are checked; where constants are out of range, compiling is none."""
    for index in (7, -3, 2**40, LEAST):
        g, i = rlx.Graph(), np.array([[index]], np.int64)
        x = g.input("x", (2,)) if known == "input" else g.constant(np.ones(2, np.float32))
        position = g.input("i", (1, 1), "i64") if known == "input" else g.constant(i)
        g.set_outputs([INDEXED[name](g, x, position)])
        cg = rlx.compile(g, device)
        arguments = {"x": np.ones(2, np.float32), "i": i} if known == "input" else {}
        if device == "webgpu":
            cg.run(arguments)  # unspecified elements, no error: the page of the operation says so
        else:
            with pytest.raises(rlx.InputError):
                cg.run(arguments)


@pytest.mark.parametrize("known", ["input", "constant"])
def test_gather_nd_of_scalars_and_of_nothing(known, device):
    for x, index in ((np.float32([1, 2, 3]), [1]), (np.zeros((3, 0), np.float32), [[1]])):
        i, g = np.array(index, np.int64), rlx.Graph()
        node = g.gather_nd(
            g.input("x", x.shape) if known == "input" else g.constant(x),
            g.input("i", i.shape, "i64") if known == "input" else g.constant(i),
        )
        g.set_outputs([node])
        result = rlx.compile(g, device).run({"x": x, "i": i} if known == "input" else {})[0]
        np.testing.assert_array_equal(result, x[tuple(i.T)] if i.ndim > 1 else x[tuple(i)])


# --- attributes ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "build",
    [
        lambda g, x: g.trilu(x, 2**64),
        lambda g, x: g.find_peaks(x, distance=2**64)[0],
        lambda g, x: g.sum(x, axes=[2**63]),
        lambda g, x: g.pad(x, ((0, 2**70), (0, 0))),
        lambda g, x: g.softmax(x, axis=2**64),
        lambda g, x: g.reshape(x, (2**64, 2)),
    ],
)
def test_numbers_of_more_than_64_bits(build):
    g = rlx.Graph()
    with pytest.raises(rlx.GraphError):
        build(g, g.input("x", (3, 3)))


# --- files --------------------------------------------------------------------------------------------------------


def model(nodes, inputs, outputs, initializers=(), opset=18):
    onnx = pytest.importorskip("onnx")
    from onnx import helper

    graph = helper.make_graph(
        nodes,
        "g",
        [helper.make_tensor_value_info(*item) for item in inputs],
        [onnx.ValueInfoProto(name=name) for name in outputs],
        list(initializers),
    )
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
    return result.SerializeToString()


def ints(name, values):
    helper = pytest.importorskip("onnx").helper
    return helper.make_tensor(name, 7, [len(values)] if isinstance(values, list) else [],
                              values if isinstance(values, list) else [values])  # fmt: skip


@pytest.mark.parametrize("axis", [2, -3, 2**31, -(2**63)])
@pytest.mark.parametrize(
    "op", ["ReduceSum", "ReduceMean", "ReduceMax", "ReduceL2", "ReduceLogSumExp", "ReduceSumSquare"]
)
def test_an_axis_of_a_file_out_of_range(op, axis):
    node = pytest.importorskip("onnx").helper.make_node(op, ["x", "a"], ["y"])
    raw = model([node], [("x", 1, [2, 3])], ["y"], [ints("a", [axis])])
    with pytest.raises(rlx.ImportModelError, match="no such axis"):
        rlx.onnx.load(raw)


@pytest.mark.parametrize(
    ("op", "named"),
    [
        ("Hardmax", {"axis": 2}),
        ("Softmax", {"axis": -3}),
        ("LogSoftmax", {"axis": 7}),
        ("Flatten", {"axis": 3}),
        ("ArgMax", {"axis": 2}),
        ("LpNormalization", {"axis": 5}),
        ("Concat", {"axis": 2}),
        ("MeanVarianceNormalization", {"axes": [0, 5]}),
    ],
)
def test_an_axis_attribute_out_of_range(op, named):
    node = pytest.importorskip("onnx").helper.make_node(op, ["x"], ["y"], **named)
    for opset in (11, 18):
        raw = model([node], [("x", 1, [2, 3])], ["y"], opset=opset)
        with pytest.raises(rlx.RlxError):
            rlx.onnx.load(raw)


@pytest.mark.parametrize("trips", [0, 1, 511, 513, 8191, 8192, 8193, 10_000, (1 << 20) + 1])
def test_a_loop_makes_all_of_its_trips(trips, device):
    onnx = pytest.importorskip("onnx")
    if device == "reference" and trips > 20_000:
        trips = 20_000
    h = onnx.helper
    body = h.make_graph(
        [h.make_node("Identity", ["c"], ["d"]), h.make_node("Add", ["s", "one"], ["t"])],
        "body",
        [
            h.make_tensor_value_info(n, t, s)
            for n, t, s in (("i", 7, []), ("c", 9, []), ("s", 1, [1]))
        ],
        [h.make_tensor_value_info("d", 9, []), h.make_tensor_value_info("t", 1, [1])],
        [h.make_tensor("one", 1, [1], [1.0])],
    )
    loop = h.make_node("Loop", ["n", "go", "x"], ["y"], body=body)
    raw = model(
        [loop], [("x", 1, [1])], ["y"], [ints("n", trips), h.make_tensor("go", 9, [], [True])], 17
    )
    result = rlx.onnx.Model(raw, device=device).run({"x": np.zeros(1, np.float32)})[0]
    np.testing.assert_array_equal(result, trips)


@pytest.mark.parametrize("element", [1, 10, 11])
def test_layer_normalization_gives_statistics_in_the_type_asked_for(element):
    h = pytest.importorskip("onnx").helper
    dtype = {1: np.float32, 10: np.float16, 11: np.float64}[element]
    node = h.make_node("LayerNormalization", ["x", "s"], ["y", "mean", "inverse"])
    raw = model([node], [("x", element, [2, 4]), ("s", element, [4])], ["y", "mean", "inverse"])
    x = np.arange(8).reshape(2, 4).astype(dtype) * 100
    y, mean, inverse = rlx.onnx.Model(raw, device="cpu").run({"x": x, "s": np.ones(4, dtype)})
    assert (y.dtype, mean.dtype, inverse.dtype) == (dtype, np.float32, np.float32)
    np.testing.assert_allclose(mean[:, 0], x.mean(1), rtol=1e-5)
    np.testing.assert_allclose(inverse[:, 0], 1 / x.astype(np.float64).std(1), rtol=1e-5)


def test_a_tensor_of_an_impossible_shape():
    onnx = pytest.importorskip("onnx")
    tensor = onnx.TensorProto(name="w", data_type=1, raw_data=b"")
    tensor.dims.extend([0, 2**62])
    raw = model([onnx.helper.make_node("Identity", ["w"], ["y"])], [], ["y"], [tensor])
    with pytest.raises(rlx.ImportModelError, match="no array can have"):
        rlx.onnx.load(raw)
