"""ONNX models as graphs: what is known at load is gone, what is not stays, and what can't be imported is told."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from samples import looped

import rlx
from rlx.importers.onnx import handlers

pytestmark = pytest.mark.by_program

F, I = TensorProto.FLOAT, TensorProto.INT64  # noqa: E741


def info(name, shape, kind=F):
    return helper.make_tensor_value_info(name, kind, shape)


def model(nodes, inputs, outputs, weights=(), opset=18, functions=(), sets=(), ir=10):
    """The bytes of a model; outputs are names, weights a dict."""
    graph = helper.make_graph(
        nodes,
        "g",
        inputs,
        [o if not isinstance(o, str) else helper.make_empty_tensor_value_info(o) for o in outputs],
        [numpy_helper.from_array(np.asarray(v), k) for k, v in dict(weights).items()],
    )
    imports = [helper.make_opsetid("", opset), *sets]
    result = helper.make_model(
        graph, opset_imports=imports, functions=list(functions), ir_version=ir
    )
    return result.SerializeToString()


def node(op, inputs, outputs, **attrs):
    return helper.make_node(op, inputs.split(), outputs.split(), **attrs)


def ops(graph):
    return [n.op for n in graph.nodes if n.op not in ("input", "param", "constant")]


def flattening(**more):
    """reshape(x, [shape(x)[0], -1]) @ w, with the shape computed."""
    return model(
        [
            node("Shape", "x", "s"),
            node("Gather", "s zero", "first", axis=0),
            node("Unsqueeze", "first axes", "row"),
            node("Concat", "row rest", "target", axis=0),
            node("Reshape", "x target", "flat"),
            node("MatMul", "flat w", "y"),
        ],
        [info("x", ["batch", 3, 4])],
        ["y"],
        {
            "zero": np.array(0), "axes": np.array([0]), "rest": np.array([-1]),
            "w": np.arange(24, dtype="f4").reshape(12, 2),
        },
        **more,
    )  # fmt: skip


def test_shape_arithmetic_is_gone():
    g = rlx.onnx.load(flattening(), dims={"batch": 5})
    assert ops(g) == ["reshape", "matmul"]
    assert g.param_names == ("w",)
    assert [n.shape for n in g.outputs] == [(5, 2)]
    np.testing.assert_array_equal(g.param_values["w"], np.arange(24).reshape(12, 2))
    assert not [n for n in g.nodes if n.op == "constant"]


def test_dims():
    g = rlx.onnx.load(flattening())
    assert list(g.dims) == ["batch"]
    assert str(g.outputs[0].shape) == "(batch, 2)"
    with pytest.raises(rlx.UnknownNameError, match="did you mean 'batch'"):
        rlx.onnx.load(flattening(), dims={"bach": 2})
    for bad in (-1, 1.5, "2", 1 << 60):
        with pytest.raises(rlx.InputError, match="batch"):
            rlx.onnx.load(flattening(), dims={"batch": bad})
    anonymous = model([node("Relu", "x", "y")], [info("x", [None, "?", "?", 2])], ["y"])
    assert str(rlx.onnx.load(anonymous).outputs[0].shape) == "(x_0, x_1, x_2, 2)"
    unranked = model([node("Relu", "x", "y")], [info("x", None)], ["y"])
    with pytest.raises(rlx.InputError, match="all of 'x'"):
        rlx.onnx.load(unranked)
    sizes = {"x[0]": 3, "x[1]": 4, "x[2]": 5}
    assert rlx.onnx.load(anonymous, dims=sizes).outputs[0].shape == (3, 4, 5, 2)


def test_model_compiles_once_for_all_sizes(device):
    with rlx.onnx.Model(flattening(), device=device) as result:
        x = np.random.default_rng(0).standard_normal((7, 3, 4)).astype("f4")
        w = np.arange(24, dtype="f4").reshape(12, 2)
        for rows in (7, 2, 7):
            (y,) = result.run({"x": x[:rows]})
            np.testing.assert_allclose(y, x[:rows].reshape(rows, 12) @ w, rtol=1e-4, atol=1e-4)
        assert result.report().compiles == 1
        assert result.compile({"x": x}) is result.compile({"x": x})
        assert result.output_names == ("y",)
        assert [(p.name, p.dims) for p in result.inputs] == [("x", ("batch", 3, 4))]


def test_inputs_of_a_run_are_checked():
    two = model([node("Add", "a b", "y")], [info("a", ["n", 2]), info("b", ["n", 2])], ["y"])
    result = rlx.onnx.Model(two, device="cpu")
    a = np.ones((3, 2), np.float32)
    for feeds, error, what in (
        ({"a": a}, rlx.InputError, "b"),
        ({"a": a, "c": a}, rlx.UnknownNameError, "no input named 'c'"),
        ({"a": a, "b": a[:2]}, rlx.InputError, "wrong shape"),
        ({"a": a, "b": a[0]}, rlx.InputError, "wrong shape"),
        ({"a": a, "b": a + 1j}, rlx.InputError, "does not fit"),
    ):
        with pytest.raises(error, match=what):
            result.run(feeds)


def test_a_shape_that_is_an_input():
    arguments = model(
        [node("Reshape", "x shape", "y")], [info("x", [6]), info("shape", [2], I)], ["y"]
    )
    result = rlx.onnx.Model(arguments, device="cpu")
    x = np.arange(6, dtype=np.float32)
    for shape in ([2, 3], [-1, 2], [2, 3]):
        (y,) = result.run({"x": x, "shape": np.array(shape)})
        np.testing.assert_array_equal(y, x.reshape(shape))
    assert result.report().compiles == 1
    assert rlx.onnx.load(arguments).input_names == ("x", "shape")
    g = rlx.onnx.load(arguments, values={"shape": np.array([3, 2])})
    assert g.input_names == ("x",)
    assert g.outputs[0].shape == (3, 2)


def test_everything_that_can_not_be_imported_is_listed_at_once():
    bad = model(
        [
            node("Relu", "x", "a"),
            helper.make_node("Strange", ["a"], ["b"], name="first strange"),
            node("Strange", "b", "c"),
            helper.make_node("StringConcat", ["c", "c"], ["d"], name="joined"),
            node("Relu", "d", "y"),
        ],
        [info("x", [2])],
        ["y"],
    )
    with pytest.raises(rlx.UnsupportedOpError) as caught:
        rlx.onnx.load(bad)
    text = str(caught.value)
    assert "3 nodes" in text
    assert "2 x Strange" in text
    assert "first strange" in text
    assert "1 x StringConcat" in text
    assert "joined" in text


def test_what_no_output_needs_is_not_read():
    spare = model([node("Strange", "x", "z"), node("Relu", "x", "y")], [info("x", [2])], ["y"])
    assert ops(rlx.onnx.load(spare)) == ["relu"]


def test_errors_name_the_node():
    wrong = model(
        [helper.make_node("MatMul", ["x", "w"], ["y"], name="the product")],
        [info("x", [2, 3])],
        ["y"],
        {"w": np.ones((4, 5), np.float32)},
    )
    with pytest.raises(rlx.ImportModelError, match=r"(?s)shapes do not fit.*the product.*MatMul"):
        rlx.onnx.load(wrong)


@looped(
    ("nodes", "what"),
    [
        ([node("Relu", "b", "a"), node("Relu", "a", "b")], "in a cycle"),
        ([node("Relu", "x", "b"), node("Neg", "x", "b")], "two values have the name"),
        ([node("Relu", "x", "x2"), node("Add", "x2", "b")], "input 1 is missing"),
        ([node("Relu", "nowhere", "b")], "'nowhere' is undefined"),
        ([node("Concat", "x x", "b", axis=7)], "axis 7"),
        ([node("Softmax", "x", "b", axis="one")], "has the wrong type"),
        ([node("Reshape", "x huge", "b")], "no reshape|elements"),
        ([node("Transpose", "x", "b", perm=[0, 0])], "transpose"),
        ([node("Slice", "x huge", "b")], "missing"),
    ],
)
def test_models_that_make_no_sense(nodes, what):
    result = model(nodes, [info("x", [2, 2])], ["b"], {"huge": np.array([1 << 62, 1 << 62])})
    with pytest.raises(rlx.ImportModelError, match=what):
        rlx.onnx.load(result)


def test_huge_shapes_are_refused():
    result = model(
        [node("ConstantOfShape", "huge", "y")], [], ["y"], {"huge": np.array([1 << 40] * 2)}
    )
    with pytest.raises(rlx.ImportModelError, match="1099511627776"):
        rlx.onnx.load(result)


def test_functions_are_written_out(device):
    """One calls the other, takes an attribute of its caller, and leaves an input out."""
    scale = helper.make_function(
        "own", "Scale", ["a", "more"], ["b"],
        [helper.make_node("Elu", ["a"], ["e"]), node("Add", "e e", "b")],
        [helper.make_opsetid("", 18)], ["alpha"],
    )  # fmt: skip
    reference = scale.node[0].attribute.add()
    reference.name, reference.ref_attr_name = "alpha", "alpha"
    reference.type = onnx.AttributeProto.FLOAT
    outer = helper.make_function(
        "own", "Twice", ["a"], ["b"],
        [helper.make_node("Scale", ["a"], ["m"], domain="own", alpha=0.5),
         helper.make_node("Scale", ["m"], ["b"], domain="own", alpha=2.0)],
        [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)],
    )  # fmt: skip
    result = model(
        [helper.make_node("Twice", ["x"], ["y"], domain="own")],
        [info("x", [4])], ["y"], functions=[scale, outer], sets=[helper.make_opsetid("own", 1)],
    )  # fmt: skip
    x = np.float32([-2, -0.5, 0, 3])

    def elu(v, alpha):
        return np.where(v > 0, v, alpha * np.expm1(v)) * 2

    (y,) = rlx.onnx.Model(result, device=device).run({"x": x})
    np.testing.assert_allclose(y, elu(elu(x, 0.5), 2.0), rtol=1e-5)


def test_a_function_that_calls_itself():
    loop = helper.make_function(
        "own", "Again", ["a"], ["b"], [helper.make_node("Again", ["a"], ["b"], domain="own")],
        [helper.make_opsetid("own", 1)],
    )  # fmt: skip
    result = model(
        [helper.make_node("Again", ["x"], ["y"], domain="own")],
        [info("x", [4])], ["y"], functions=[loop], sets=[helper.make_opsetid("own", 1)],
    )  # fmt: skip
    with pytest.raises(rlx.ImportModelError, match="without end"):
        rlx.onnx.load(result)


def branches():
    """Both read the value and the weight of the graph around them."""
    then = helper.make_graph([node("Add", "h w", "t")], "then", [], [info("t", [3])])
    other = helper.make_graph([node("Mul", "h w", "e")], "else", [], [info("e", [3])])
    return {"then_branch": then, "else_branch": other}


def test_if_of_a_known_condition_is_its_branch():
    result = model(
        [node("Relu", "x", "h"), node("If", "c", "y", **branches())],
        [info("x", [3])], ["y"], {"c": np.array(False), "w": np.ones(3, "f4")},
    )  # fmt: skip
    assert ops(rlx.onnx.load(result)) == ["relu", "mul"]


def test_if_of_a_computed_condition(device):
    result = model(
        [
            node("Relu", "x", "h"),
            node("ReduceSum", "x", "total", keepdims=0),
            node("Greater", "total zero", "c"),
            node("If", "c", "y", **branches()),
        ],
        [info("x", [3])],
        ["y"],
        {"w": np.full(3, 4, "f4"), "zero": np.float32(0)},
    )
    with rlx.onnx.Model(result, device=device) as run:
        for x in (np.float32([1, 2, -1]), np.float32([1, 2, -9])):
            h = np.maximum(x, 0)
            (y,) = run.run({"x": x})
            np.testing.assert_allclose(y, h + 4 if x.sum() > 0 else h * 4)
    assert "if_" in ops(rlx.onnx.load(result))


def counting(trips, scans=True):
    """state = state * w + trip, and its square of each trip."""
    nodes = [
        node("Cast", "trip", "number", to=F),
        node("Mul", "state w", "scaled"),
        node("Add", "scaled number", "next"),
        node("Mul", "next next", "square"),
        node("Identity", "going", "still"),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [info("trip", [], I), info("going", [], TensorProto.BOOL), info("state", [2])],
        [
            info("still", [], TensorProto.BOOL),
            info("next", [2]),
            *([info("square", [2])] if scans else []),
        ],
    )
    inputs = [info("x", [2])] + ([info("n", [], I)] if trips is None else [])
    weights = {"w": np.float32([0.5, 0.9])} | ({"n": np.array(trips)} if trips is not None else {})
    names = "last squares" if scans else "last"
    return model(
        [helper.make_node("Loop", ["n", "", "x"], names.split(), body=body)],
        inputs,
        names.split(),
        weights,
    )


def counted(x, trips):
    squares = []
    for trip in range(trips):
        x = x * np.float32([0.5, 0.9]) + trip
        squares.append(x * x)
    return x, np.stack(squares)


@looped(("trips", "kind"), [(3, "mul"), (200, "scan")])
def test_loops_of_known_trips(trips, kind, device):
    x = np.float32([1, -1])
    data = counting(trips)
    assert kind in ops(rlx.onnx.load(data))
    last, squares = rlx.onnx.Model(data, device=device).run({"x": x})
    want, rows = counted(x, trips)
    np.testing.assert_allclose(last, want, rtol=1e-4)
    np.testing.assert_allclose(squares, rows, rtol=1e-4)


def test_a_loop_whose_trips_are_an_input(device):
    x = np.float32([1, -1])
    data = counting(None, scans=False)
    assert "while_" in ops(rlx.onnx.load(data))
    with rlx.onnx.Model(data, device=device) as result:
        for trips in (5, 2, 9):
            (last,) = result.run({"x": x, "n": np.array(trips)})
            np.testing.assert_allclose(last, counted(x, trips)[0], rtol=1e-4)
    with rlx.onnx.Model(counting(None), device=device) as result:
        for trips in (5, 2):
            _, rows = result.run({"x": x, "n": np.array(trips)})
            np.testing.assert_allclose(rows, counted(x, trips)[1], rtol=1e-4)


def test_weights_of_constant_nodes_are_params():
    w = numpy_helper.from_array(np.arange(6, dtype="f4").reshape(2, 3))
    result = model(
        [
            helper.make_node("Constant", [], ["w"], value=w),
            helper.make_node("Constant", [], ["half"], value_float=0.5),
            node("MatMul", "x w", "p"),
            node("Mul", "p half", "y"),
        ],
        [info("x", [4, 2])],
        ["y"],
    )
    g = rlx.onnx.load(result)
    assert g.param_names == ("w",)
    assert ops(g) == ["matmul", "mul"]


def test_an_initializer_that_is_listed_as_an_input_is_a_weight():
    result = model(
        [node("Add", "x w", "y")], [info("x", [2]), info("w", [2])], ["y"], {"w": np.ones(2, "f4")}
    )
    g = rlx.onnx.load(result)
    assert g.input_names == ("x",)
    assert g.param_names == ("w",)


def test_versions_of_the_operator_set():
    """Softmax took everything from an axis on before version 13."""
    x = np.random.default_rng(0).standard_normal((2, 3, 4)).astype("f4")
    for opset, axes in ((11, (1, 2)), (13, (1,))):
        result = model(
            [node("Softmax", "x", "y", axis=1)], [info("x", [2, 3, 4])], ["y"], opset=opset
        )
        (y,) = rlx.onnx.Model(result, device="cpu").run({"x": x})
        want = np.exp(x) / np.exp(x).sum(axes, keepdims=True)
        np.testing.assert_allclose(y, want, rtol=1e-5)
    new = model([node("Relu", "x", "y")], [info("x", [2])], ["y"], opset=999)
    with pytest.raises(rlx.UnsupportedOpError, match="newer"):
        rlx.onnx.load(new)


@looped("dtype", ["u2", "i2", "u8"])
def test_integers_that_rlx_lacks_wrap_as_they_would(dtype, device):
    top = min(np.iinfo(dtype).max, 2**31 - 1 if dtype == "u8" else 2**63)
    a = np.array([1, 2, top, top - 7], dtype)
    b = np.array([5, 1, 3 if dtype != "u8" else 0, 7], dtype)
    kind = helper.np_dtype_to_tensor_dtype(np.dtype(dtype))
    result = model(
        [node("Add", "a b", "s"), node("Less", "a b", "l"), node("Max", "a b", "m")],
        [info("a", [4], kind), info("b", [4], kind)], ["s", "l", "m"],
    )  # fmt: skip
    s, less, limit = rlx.onnx.Model(result, device=device).run({"a": a, "b": b})
    assert s.dtype == a.dtype
    np.testing.assert_array_equal(s, a + b)
    np.testing.assert_array_equal(less, a < b)
    np.testing.assert_array_equal(limit, np.maximum(a, b))


def test_u64_above_the_signed_range():
    a = np.array([2**63 + 5, 3, 2**64 - 1], np.uint64)
    b = np.array([7, 2**63, 2**64 - 2], np.uint64)
    result = model(
        [node("Less", "a b", "l"), node("Min", "a b", "m"), node("BitShift", "a three", "s", direction="RIGHT"),
         node("Cast", "a", "f", to=F)],
        [info("a", [3], TensorProto.UINT64), info("b", [3], TensorProto.UINT64)], ["l", "m", "s", "f"],
        {"three": np.full(3, 3, np.uint64)},
    )  # fmt: skip
    less, least, shifted, floats = rlx.onnx.Model(result, device="cpu").run({"a": a, "b": b})
    np.testing.assert_array_equal(less, a < b)
    np.testing.assert_array_equal(least, np.minimum(a, b))
    np.testing.assert_array_equal(shifted, a >> np.uint64(3))
    np.testing.assert_array_equal(floats, a.astype(np.float32))


def test_messages_name_the_nodes_of_the_model(device):
    result = model(
        [
            helper.make_node("Gemm", ["x", "w"], ["h"], name="/fc/Gemm"),
            helper.make_node("Relu", ["h"], ["r"]),
            helper.make_node("Softmax", ["r"], ["probs"], name="/head/Softmax"),
        ],
        [info("x", [2, 4])], ["probs"], {"w": np.ones((4, 3), np.float32)},
    )  # fmt: skip
    graph = rlx.onnx.load(result)
    names = {node.op: node.where() for node in graph.nodes}
    assert names["matmul"].endswith("matmul '/fc/Gemm' <- the model: Gemm")
    assert names["relu"].endswith("relu 'r' <- the model: Relu")
    assert names["softmax"].endswith("softmax 'probs' <- the model: Softmax '/head/Softmax'")
    assert "# /fc/Gemm" in str(graph)
    with rlx.compile(graph, device) as cg:
        text = cg.as_text("graph") + cg.as_text("fused") + cg.as_text("schedule")
        assert "/head/Softmax" in cg.as_text("schedule") or device == "reference"
        assert "rlx:" not in text
        if cg.capabilities.device_timestamps:
            rows = cg.profile({"x": np.ones((2, 4), np.float32)}, 1).nodes
            assert any("/head/Softmax" in row.name for row in rows)


def test_the_graph_of_a_model_goes_through_json():
    g = rlx.onnx.load(flattening(), dims={"batch": 2})
    again = rlx.Graph.from_json(g.to_json())
    assert str(again) == str(g)


def test_every_operator_is_in_one_module_of_operators():
    """The builders of operators that are one call are made in the module of the table."""
    registered = [(domain, name) for _, domain, names in handlers.MODULES for name in names.split()]
    assert sorted(registered) == sorted(handlers.names())
    for domain, name in registered:
        result = handlers.find(domain, name, 1 << 20)
        assert result is not None
        made_by = result.handler.__module__, result.handler.__qualname__.partition(".")[0]
        assert made_by[0].startswith("rlx.importers.onnx.ops.") or made_by == (
            "rlx.importers.onnx.handlers",
            "builder",
        ), made_by
