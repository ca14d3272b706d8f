"""Types of 8, 4 and 2 bits in ONNX files: floats by their codes, integers by their values."""

import ml_dtypes
import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx_oracle import node_model, run_model

import rlx
from rlx.importers.onnx import narrow
from rlx.ir import extended

pytestmark = pytest.mark.by_program

FLOATS = {
    "float8e4m3fn": ml_dtypes.float8_e4m3fn,
    "float8e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
    "float8e5m2": ml_dtypes.float8_e5m2,
    "float8e5m2fnuz": ml_dtypes.float8_e5m2fnuz,
    "float4e2m1": ml_dtypes.float4_e2m1fn,
    "float8e8m0": ml_dtypes.float8_e8m0fnu,
}
CODES = {
    "float8e4m3fn": 17,
    "float8e4m3fnuz": 18,
    "float8e5m2": 19,
    "float8e5m2fnuz": 20,
    "float4e2m1": 23,
}
INTEGERS = {"uint4": 21, "int4": 22, "uint2": 25, "int2": 26}


def cast(to, x, device, shape=None, **attrs):
    info = lambda name, kind: helper.make_tensor_value_info(name, kind, shape or x.shape)  # noqa: E731
    nodes = [helper.make_node("Cast", ["x"], ["y"], to=to, **attrs)]
    graph = helper.make_graph(nodes, "g", [info("x", TensorProto.FLOAT)], [info("y", to)])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    with rlx.onnx.Model(result.SerializeToString(), device=device) as model:
        return model.run({"x": x})[0]


@pytest.mark.parametrize("name", FLOATS)
def test_codes_are_read_as_ml_dtypes_reads_them(name):
    table = narrow.table(name)
    known = np.arange(len(table), dtype=np.uint8).view(FLOATS[name]).astype("f4")
    np.testing.assert_array_equal(table, known)


@pytest.mark.parametrize("name", CODES)
def test_numbers_are_rounded_to_the_nearest_code(name, device):
    """All codes, what lies between two of them, just beside that, and numbers of all sizes."""
    table = narrow.table(name)
    finite = np.unique(table[np.isfinite(table)])
    middle = (finite[1:] + finite[:-1]) / 2
    beside = np.concatenate([np.nextafter(middle, np.float32(s)) for s in (-np.inf, np.inf)])
    rng = np.random.default_rng(0)
    spread = np.exp(rng.uniform(-14, 5, 500)) * rng.choice([-1, 1], 500)
    x = np.concatenate([finite, middle, beside, spread, [0.0]]).astype("f4")
    x = x[np.abs(x) <= finite.max()]
    got = cast(CODES[name], x, device).view(FLOATS[name]).astype("f4")
    np.testing.assert_array_equal(got, x.astype(FLOATS[name]).astype("f4"))


def test_what_is_too_large(device):
    """The largest number, or with saturate=0 NaN and infinity."""
    x = np.float32([1e9, -1e9, 448.1, 500, np.nan])
    for name, item, lost in (
        ("float8e4m3fn", [448, -448, 448, 448, np.nan], [np.nan, np.nan, 448, np.nan, np.nan]),
        ("float8e5m2", [57344, -57344, 448, 512, np.nan], [np.inf, -np.inf, 448, 512, np.nan]),
        ("float8e4m3fnuz", [240, -240, 240, 240, np.nan], [np.nan] * 5),
    ):
        for saturate, wanted in ((1, item), (0, lost)):
            got = cast(CODES[name], x, device, saturate=saturate).view(FLOATS[name])
            np.testing.assert_array_equal(
                got.astype("f4"), np.float32(wanted), err_msg=f"{name} {saturate}"
            )


@pytest.mark.parametrize("raw", [True, False])
@pytest.mark.parametrize("name", INTEGERS)
def test_several_elements_share_a_byte(name, raw):
    bits = int(name[-1])
    low, high = (0, (1 << bits) - 1) if name[0] == "u" else (-(1 << bits - 1), (1 << bits - 1) - 1)
    values = np.arange(7) % (high - low + 1) + low
    tensor = numpy_helper.from_array(values.astype(getattr(ml_dtypes, name)), "w")
    if not raw:
        data = tensor.raw_data
        tensor.ClearField("raw_data")
        tensor.int32_data.extend(data)
    nodes = [helper.make_node("Cast", ["w"], ["y"], to=TensorProto.FLOAT)]
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, (7,))
    graph = helper.make_graph(nodes, "g", [], [out], [tensor])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    (y,) = rlx.onnx.Model(result.SerializeToString(), device="cpu").run({})
    np.testing.assert_array_equal(y, values)


def decoded(weights, scale, zero, opset=23, **attrs):
    """x @ DequantizeLinear(weights)."""
    tensors = [
        numpy_helper.from_array(a, n)
        for n, a in (("w", weights), ("s", scale), ("z", zero))
        if a is not None
    ]
    names = ["w", "s"] + (["z"] if zero is not None else [])
    nodes = [
        helper.make_node("DequantizeLinear", names, ["d"], **attrs),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", weights.shape[0]))
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], tensors)
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)
    return result.SerializeToString()


WEIGHTS = [
    (ml_dtypes.int4, (64, 5), (2, 5), {"axis": 0, "block_size": 32}, True),
    (ml_dtypes.uint4, (64, 5), (2, 5), {"axis": 0, "block_size": 32}, True),
    (ml_dtypes.uint4, (48, 6), (3, 6), {"axis": 0, "block_size": 16}, False),
    (ml_dtypes.int4, (40, 7), (7,), {"axis": 1}, False),
    (ml_dtypes.uint4, (32, 3), (), {}, True),
]


@pytest.mark.parametrize("at", range(len(WEIGHTS)))
def test_weights_of_4_bits(at, rng, device):
    dtype, shape, scales, attrs, zeros = WEIGHTS[at]
    info = ml_dtypes.iinfo(dtype)
    draw = lambda size: rng.integers(info.min, info.max + 1, size).astype(dtype)  # noqa: E731
    zero = draw(scales) if zeros else None
    if zero is not None and scales == ():
        zero = np.array(zero)
    data = decoded(draw(shape), (rng.random(scales) + 0.1).astype("f4")[()], zero, **attrs)
    x = rng.standard_normal((3, shape[0])).astype("f4")
    # Optimized, ONNX Runtime rounds x to 8 bits, too.
    (wanted,) = run_model(data, {"x": x}, optimized=False)
    with rlx.onnx.Model(data, device=device) as model:
        (y,) = model.run({"x": x})
    np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-4)


def test_weights_of_8_bits(rng, device):
    """Floats of 8 bits in a file, decoded by a scale."""
    for name in ("float8e4m3fn", "float8e5m2"):
        w, x = rng.standard_normal((16, 4)).astype(FLOATS[name]), rng.standard_normal((3, 16))
        for zero in (None, np.array(1.5, FLOATS[name])):
            data = decoded(w, np.float32(0.5), zero)
            with rlx.onnx.Model(data, device=device) as model:
                (y,) = model.run({"x": x.astype("f4")})
            less = 0 if zero is None else 1.5
            np.testing.assert_allclose(y, x @ ((w.astype("f4") - less) * 0.5), rtol=1e-4, atol=1e-4)


def test_weights_of_bfloat16(rng, device):
    w = rng.standard_normal((16, 4)).astype(ml_dtypes.bfloat16)
    tensor = helper.make_tensor("w", TensorProto.BFLOAT16, w.shape, w.tobytes(), raw=True)
    nodes = [
        helper.make_node("Cast", ["w"], ["d"], to=1),
        helper.make_node("MatMul", ["x", "d"], ["y"]),
    ]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ("n", 16))
    graph = helper.make_graph(nodes, "g", [x], [helper.make_empty_tensor_value_info("y")], [tensor])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 22)])
    arguments = rng.standard_normal((3, 16)).astype("f4")
    with rlx.onnx.Model(result.SerializeToString(), device=device) as model:
        (y,) = model.run({"x": arguments})
    np.testing.assert_allclose(y, arguments @ w.astype("f4"), rtol=1e-4, atol=1e-4)


def test_codes_are_moved_and_not_computed_with(device):
    x = np.arange(6, dtype="f4").reshape(2, 3)
    steps = [("Cast", {"to": 22}), ("Transpose", {}), ("Cast", {"to": 1})]
    nodes = [
        helper.make_node(op, [f"v{index}"], [f"v{index + 1}"], **a)
        for index, (op, a) in enumerate(steps)
    ]
    info = helper.make_tensor_value_info("v0", 1, x.shape)
    graph = helper.make_graph(nodes, "g", [info], [helper.make_empty_tensor_value_info("v3")])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 23)])
    with rlx.onnx.Model(result.SerializeToString(), device=device) as model:
        np.testing.assert_array_equal(model.run({"v0": x})[0], x.T)
    data, _ = node_model("Add", [x, x], {}, opset=23)
    proto = onnx.load_model_from_string(data)
    for port in proto.graph.input:
        port.type.tensor_type.elem_type = 22
    with pytest.raises(rlx.UnsupportedOpError, match="tensors of int4"):
        rlx.onnx.load(proto.SerializeToString())


def test_large_weights_of_4_bits_stay_packed(rng, device):
    """A byte for two of them, in a product; decoded where something else uses them."""
    for dtype, scales, attrs, turned in (
        (ml_dtypes.int4, (4, 600), {"axis": 0, "block_size": 64}, False),
        (ml_dtypes.uint4, (600,), {"axis": 1}, False),
        (ml_dtypes.uint4, (600, 8), {"axis": 1, "block_size": 32}, True),
        (ml_dtypes.int4, (), {}, True),
    ):
        info = ml_dtypes.iinfo(dtype)
        shape = (600, 256) if turned else (256, 600)
        w = rng.integers(info.min, info.max + 1, shape).astype(dtype)
        s = np.asarray((rng.random(scales) + 0.1).astype("f4"))
        z = (
            None
            if dtype is ml_dtypes.int4 and not turned
            else rng.integers(0, 4, scales).astype(dtype)
        )
        z = None if z is None else np.asarray(z, dtype)
        data = decoded(w, s, z, **attrs)
        if turned:
            proto = onnx.load_model_from_string(data)
            proto.graph.node[1].op_type = "Gemm"
            proto.graph.node[1].attribute.add(name="transB", i=1, type=2)
            proto.graph.input[0].type.tensor_type.shape.dim[1].dim_value = 256
            data = proto.SerializeToString()
        graph = rlx.onnx.load(data, dims={"n": 3})
        assert [n.op for n in graph.nodes].count("dequant_matmul") == 1
        assert graph.param_values["w"].nbytes == 600 * 256 // 2
        x = rng.standard_normal((3, 256)).astype("f4")
        (wanted,) = run_model(data, {"x": x}, optimized=False)
        with rlx.onnx.Model(data, device=device) as model:
            (y,) = model.run({"x": x})
        np.testing.assert_allclose(y, wanted, rtol=1e-4, atol=1e-4 * np.abs(wanted).max())


def test_a_packed_weight_that_is_an_output_is_decoded(rng):
    w = rng.integers(-8, 8, (256, 600)).astype(ml_dtypes.int4)
    proto = onnx.load_model_from_string(decoded(w, np.float32(0.5), None))
    proto.graph.output.append(helper.make_empty_tensor_value_info("d"))
    (_, d) = rlx.onnx.Model(proto.SerializeToString(), device="cpu").run(
        {"x": np.ones((1, 256), "f4")}
    )
    np.testing.assert_array_equal(d, w.astype("f4") * 0.5)


# --- arrays of ml_dtypes ----------------------------------------------------------------------------

EXTENDED = {
    **FLOATS,
    "bfloat16": ml_dtypes.bfloat16,
    **{n: getattr(ml_dtypes, n) for n in INTEGERS},
}


def identity(name):
    code = {"bfloat16": 16, "float8e8m0": 24, **CODES, **INTEGERS}[name]
    info = [helper.make_tensor_value_info(n, code, ["n"]) for n in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", info[:1], info[1:])
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 25)])
    return rlx.onnx.Model(result.SerializeToString(), device="cpu")


@pytest.mark.parametrize("name", EXTENDED)
def test_models_take_and_give_arrays_of_ml_dtypes(name, monkeypatch):
    x = np.array([1, 0, 1], "f4").astype(EXTENDED[name])
    with identity(name) as model:
        for _ in range(2):  # the second run may go a shorter way
            (y,) = model.run({"x": x})
            assert y.dtype == x.dtype
            np.testing.assert_array_equal(y.astype("f4"), x.astype("f4"))
        assert model.run({"x": y})[0].dtype == x.dtype
    monkeypatch.setattr(extended, "_package", lambda: None)  # as if it were not installed
    with identity(name) as model:
        (y,) = model.run({"x": x})
        assert y.dtype == model.inputs[0].element.numpy
        assert model.run({"x": y})[0].tolist() == y.tolist()


def test_a_narrow_float_is_not_taken_for_another():
    with identity("float8e5m2") as model, pytest.raises(rlx.InputError, match="does not convert"):
        model.run({"x": np.ones(3, ml_dtypes.float8_e4m3fn)})


def test_graphs_take_arrays_of_ml_dtypes(device):
    b, g = np.array([1.5, -2.0, 3.25], ml_dtypes.bfloat16), rlx.Graph()
    x, z = g.input("x", (3,), ml_dtypes.bfloat16), g.input("z", (3,))
    i = g.input("i", (3,), "i32")
    w = g.param("w", (3,), "bf16")
    four = g.constant(np.array([1, -2, 3], ml_dtypes.int4))
    assert (x.dtype, four.dtype) == (rlx.DType.BF16, rlx.DType.I8)
    g.set_outputs([g.cast(x + w + g.constant(b), "f32"), z * b, i + g.cast(four, "i32")])
    inputs = {
        "x": b,
        "z": b.astype(ml_dtypes.float8_e5m2),
        "i": np.array([1, 2, 3], ml_dtypes.uint4),
    }
    with rlx.compile(g, device, params={"w": b}) as cg:
        for item in (cg.run(inputs), cg.run_slots(*inputs.values()), cg.run_pipelined([inputs])[0]):
            assert item[0].tolist() == [4.5, -6.0, 9.75]
            assert item[1].tolist() == (inputs["z"].astype("f4") * b.astype("f4")).tolist()
            assert item[2].tolist() == [2, 0, 6]
