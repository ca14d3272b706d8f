"""ONNX models whose shapes are computed from sizes that only a call brings, beside ONNX Runtime."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import rlx

I = TensorProto.INT64  # noqa: E741 - as ONNX's documents write it
SIZES = (5, 2, 3, 64, 7, 129)


def node(op, inputs, outputs, **attributes):
    return helper.make_node(op, inputs.split(), outputs.split(), **attributes)


def shape_of(*entries):
    """A constant of whole numbers."""
    return helper.make_tensor("", I, [len(entries)], entries)


def constant(name, *entries):
    return node("Constant", "", name, value=shape_of(*entries))


def number(name, value, kind=I):
    return node("Constant", "", name, value=helper.make_tensor("", kind, [], [value]))


def floats(*shape):
    """A constant of f32."""
    values = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    return helper.make_tensor("", TensorProto.FLOAT, shape, values.ravel())


def size(name, axis=0):
    """Nodes of the size of an axis of ``x`` as a vector of one entry."""
    return [
        node("Shape", "x", f"{name}_all"),
        constant(f"{name}_axis", axis),
        node("Gather", f"{name}_all {name}_axis", name),
    ]


def zeros_and_ones():
    return [
        *size("n"),
        node(
            "ConstantOfShape",
            "n",
            "zeros",
            value=helper.make_tensor("", TensorProto.FLOAT, [1], [2.0]),
        ),
        node("Unsqueeze", "zeros axis", "column"),
        node("Add", "x column", "y"),
        constant("axis", 1),
    ]


# By name, nodes from ``x`` [n, 4] to ``y``; the order is sorted by the importer.
MODELS = {
    "reshape": [
        *size("n"),
        constant("two", 2),
        constant("rest", -1),
        node("Mul", "n two", "rows"),
        node("Concat", "rows rest", "shape", axis=0),
        node("Reshape", "x shape", "y"),
    ],
    "halves": [
        *size("n"),
        constant("two", 2),
        constant("zero", 0),
        node("Div", "n two", "half"),
        node("Slice", "x zero half zero", "front"),
        node("Slice", "x half n zero", "back"),
        node("ReduceSum", "front zero", "a", keepdims=0),
        node("ReduceSum", "back zero", "b", keepdims=0),
        node("Sub", "a b", "y"),
    ],
    "expand": [
        *size("n"),
        constant("free", -1),
        constant("one", 1),
        constant("four", 4),
        node("Concat", "free n four", "asked", axis=0),
        node("Equal", "asked free", "unset"),
        node("Where", "unset one asked", "shape"),
        node("Expand", "x shape", "y"),
    ],
    "mask": [
        *size("n"),
        node("Squeeze", "n", "count"),
        number("zero", 0),
        number("step", 1),
        constant("axis", 1),
        node("Range", "zero count step", "places"),
        node("Unsqueeze", "places axis", "rows"),
        node("Less", "rows places", "later"),
        node("Cast", "later", "floats", to=TensorProto.FLOAT),
        node("MatMul", "floats x", "y"),
    ],
    "pad": [
        *size("n"),
        constant("four", 4),
        constant("three", 3),
        constant("none", 0),
        node("Add", "n three", "over"),
        node("Div", "over four", "blocks"),
        node("Mul", "blocks four", "wanted"),
        node("Sub", "wanted n", "missing"),
        node("Concat", "none none missing none", "pads", axis=0),
        node("Pad", "x pads", "padded"),
        constant("shape", -1, 16),
        node("Reshape", "padded shape", "y"),
    ],
    "resize": [
        *size("n"),
        constant("two", 2),
        constant("ten", 10),
        constant("image", 1, 1, -1, 4),
        constant("ones", 1, 1),
        node("Mul", "n two", "rows"),
        node("Reshape", "x image", "plane"),
        node("Concat", "ones rows ten", "sizes", axis=0),
        node("Resize", "plane none none sizes", "y", mode="linear"),
    ],
    "floats": [
        *size("n"),
        node("Cast", "n", "real", to=TensorProto.FLOAT),
        node("Constant", "", "half", value=helper.make_tensor("", TensorProto.FLOAT, [1], [0.5])),
        node("Mul", "real half", "product"),
        node("Floor", "product", "whole"),
        node("Cast", "whole", "rows", to=I),
        constant("zero", 0),
        node("Slice", "x zero rows zero", "y"),
    ],
    "tile": [
        *size("n"),
        constant("one", 1),
        node("Concat", "one n", "times", axis=0),
        node("Tile", "x times", "y"),
    ],
    "constant": zeros_and_ones(),
    "places": [
        node("Cast", "x", "whole", to=TensorProto.INT32),
        node("Abs", "whole", "words"),
        node("Transpose", "words", "ids"),
        node("Constant", "", "t", value=floats(150, 8)),
        node("Constant", "", "b", value=floats(8)),
        node("EmbedLayerNormalization", "ids none t t none b b", "y n", domain="com.microsoft"),
    ],
    "value": [
        *size("n"),
        node("Cast", "n", "real", to=TensorProto.FLOAT),
        node("Div", "x real", "y"),
    ],
}


def model_of(nodes, given="x", shape=("n", 4)):
    for item in nodes:  # an operand that is left out has no name
        item.input[:] = [
            "" if name == "none" and item.op_type != "Concat" else name for name in item.input
        ]
    graph = helper.make_graph(
        nodes,
        "sizes",
        [helper.make_tensor_value_info(given, TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10).SerializeToString()


def by_onnxruntime(raw):
    onnxruntime = pytest.importorskip("onnxruntime")
    session = onnxruntime.InferenceSession(raw, providers=["CPUExecutionProvider"])
    return lambda x: session.run(None, {"x": x})[0]


def rows(count):
    return np.random.default_rng(count).standard_normal((count, 4)).astype(np.float32)


@pytest.mark.parametrize("name", MODELS)
def test_one_compile_serves_all_sizes(name, target_device):
    raw = model_of(MODELS[name])
    wanted = by_onnxruntime(raw)
    with rlx.onnx.Model(raw, target_device) as model:
        for count in SIZES:
            (got,) = model.run(rows(count))
            np.testing.assert_allclose(got, wanted(rows(count)), 1e-4, 1e-5, err_msg=str(count))
        assert model.report().compiles == 1
        assert "n of any size" in str(model.report())
        assert model.run(rows(1))[0].shape == wanted(rows(1)).shape


def test_a_branch_that_a_size_decides_is_compiled_for_each_outcome():
    branches = [
        helper.make_graph(
            [node("Mul" if taken else "Neg", "x x" if taken else "x", "z")],
            "branch",
            [],
            [helper.make_tensor_value_info("z", TensorProto.FLOAT, None)],
        )
        for taken in (True, False)
    ]
    nodes = [
        *size("n"),
        number("ten", 10),
        node("Squeeze", "n", "count"),
        node("Less", "count ten", "short"),
        node("If", "short", "y", then_branch=branches[0], else_branch=branches[1]),
    ]
    with rlx.onnx.Model(model_of(nodes), "cpu") as model:
        for count in (4, 9, 10, 50, 5, 20):
            x = rows(count)
            np.testing.assert_array_equal(model.run(x)[0], x * x if count < 10 else -x)
        assert model.report().compiles == 2


def test_a_size_that_is_rounded_is_computed():
    """A product of a size and a float is rounded in f32: the graph computes it, for every size."""
    nodes = [
        *size("n"),
        node("Cast", "n", "real", to=TensorProto.FLOAT),
        node("Constant", "", "part", value=helper.make_tensor("", TensorProto.FLOAT, [1], [0.7])),
        node("Mul", "real part", "product"),
        node("Cast", "product", "rows", to=I),
        constant("zero", 0),
        node("Slice", "x zero rows zero", "y"),
    ]
    raw = model_of(nodes)
    wanted = by_onnxruntime(raw)
    with rlx.onnx.Model(raw, "cpu") as model:
        for count in (10, 20, 10):
            np.testing.assert_array_equal(model.run(rows(count))[0], wanted(rows(count)))
        assert model.report().compiles == 1


def test_sizes_that_are_broadcast_are_compiled_as_they_are():
    graph = helper.make_graph(
        [node("Add", "x b", "y")],
        "sum",
        [
            helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4]),
            helper.make_tensor_value_info("b", TensorProto.FLOAT, ["m", 4]),
        ],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    raw = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    with rlx.onnx.Model(raw.SerializeToString(), "cpu") as model:
        for n, m in ((3, 3), (3, 1), (5, 1), (1, 6), (7, 7)):
            np.testing.assert_array_equal(
                model.run({"x": rows(n), "b": rows(m)})[0], rows(n) + rows(m)
            )
        assert model.report().compiles == 3
        with pytest.raises(rlx.RlxError, match="do not broadcast"):
            model.run({"x": rows(3), "b": rows(2)})


def test_names_of_dims_are_names():
    shape = ("batch size", "2*n + 1", 2, "?")
    raw = model_of([node("Relu", "x", "y")], shape=shape)
    graph = rlx.onnx.load(raw)
    assert list(graph.dims) == ["batch_size", "d_2_n___1", "x_3"]
    x = np.ones((3, 5, 2, 4), np.float32)
    assert rlx.compile(graph, "cpu").run(x)[0].shape == x.shape
