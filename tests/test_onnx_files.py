"""ONNX files as other runtimes take them: unsorted nodes, inputs with defaults, loops of no trips, names from outside."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_onnx import F, I, info, model, node

import rlx

X = np.float32([1, -2])


def graph(nodes, inputs, outputs):
    return helper.make_graph(nodes, "body", inputs, outputs)


def run(data, device, feeds):
    with rlx.onnx.Model(data, device) as result:
        return result.run(feeds)


def turned(nodes, **more):
    return model(nodes[::-1], [info("x", [2])], ["y"], **more)


def test_unsorted_nodes_are_sorted(device):
    nodes = [
        node("Relu", "x", "a"),
        node("Neg", "a", "b"),
        node("Add", "a b", "c"),
        node("Add", "c x", "y"),
    ]
    (result,) = run(turned(nodes), device, {"x": X})
    assert result.tolist() == [1, -2]


def test_sorted_nodes_keep_their_order():
    nodes = [node(op, "x", name) for op, name in (("Relu", "a"), ("Neg", "b"), ("Abs", "c"))]
    # One node stands too late; all others stay as they are.
    result = model(
        [*nodes, node("Sum", "a b c d", "y"), node("Sign", "x", "d")], [info("x", [2])], ["y"]
    )
    results = [item.op for item in rlx.onnx.load(result).nodes]
    assert results[1:5] == ["relu", "neg", "abs", "sign"]


def test_unsorted_nodes_of_subgraphs_and_functions():
    then = graph([node("Neg", "t", "o"), node("Add", "x late", "t")], [], [info("o", [2])])
    other = graph([node("Identity", "x", "p")], [], [info("p", [2])])
    branch = helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other)
    # The branch reads a value that stands behind it, and so does its condition.
    nodes = [branch, node("Less", "least zero", "c"), node("ReduceMin", "x", "least", keepdims=0),
             node("Abs", "x", "late")]  # fmt: skip
    result = model(nodes, [info("x", [2])], ["y"], {"zero": np.float32(0)})
    assert run(result, "cpu", {"x": X})[0].tolist() == [-2, 0]
    assert run(result, "cpu", {"x": -X * X})[0].tolist() == [0, 0]
    steps = [node("Neg", "m", "o"), node("Exp", "i", "m")]
    function = helper.make_function("own", "F", ["i"], ["o"], steps, [helper.make_opsetid("", 18)])
    result = model(
        [node("F", "x", "y", domain="own")], [info("x", [2])], ["y"],
        functions=[function], sets=[helper.make_opsetid("own", 1)],
    )  # fmt: skip
    np.testing.assert_allclose(run(result, "cpu", {"x": X})[0], -np.exp(X), rtol=1e-6)


@pytest.mark.parametrize("length", [1, 2, 30])
def test_cycles_are_named(length):
    ring = [
        helper.make_node("Relu", [f"v{index}"], [f"v{(index + 1) % length}"], name=f"n{index}")
        for index in range(length)
    ]
    result = model([*ring, node("Add", "x v0", "y")], [info("x", [2])], ["y"])
    with pytest.raises(rlx.ImportModelError, match=r"in a cycle\n.*'n0' \(Relu\)"):
        rlx.onnx.load(result)


def test_long_chains_are_sorted_without_recursion():
    count = 3000
    nodes = [node("Neg", f"v{index}", f"v{index + 1}") for index in range(count)]
    result = model([*nodes[::-1], node("Relu", f"v{count}", "y")], [info("v0", [2])], ["y"])
    assert len(rlx.onnx.load(result).nodes) == count + 2


# --- inputs with a default ---


def scaled(ir=8):
    return model(
        [node("Mul", "x w", "xw"), node("Add", "xw b", "y")],
        [info("x", ["n"]), info("w", [1]), info("b", ["n"])],
        ["y"],
        {"w": np.float32([2]), "b": np.float32([10, 20])},
        opset=17,
        ir=ir,
    )


@pytest.mark.parametrize("ir", [4, 8])
def test_an_initializer_that_is_an_input_is_a_default(device, ir):
    inputs = {"w": np.float32([5]), "b": np.float32([0, 1])}
    sets = [{}, {"w"}, {}, {"b"}, {"w", "b"}, {"b"}, {}]
    with rlx.onnx.Model(scaled(ir), device) as result:
        assert [port.name for port in result.inputs] == ["x"]
        assert [port.name for port in result.defaults] == ["w", "b"]
        for names in sets * 2:
            more = {name: inputs[name] for name in names}
            w, b = more.get("w", 2), more.get("b", [10, 20])
            assert result.run({"x": X, **more})[0].tolist() == (X * w + b).tolist(), names
        assert result.report().compiles == 4
    with rlx.onnx.Model(scaled(ir), device) as result:  # from what the cache folder knows
        assert result.run({"x": X, "w": inputs["w"]})[0].tolist() == [15, 10]


def test_initializers_of_old_files_are_no_defaults():
    with rlx.onnx.Model(scaled(3), "cpu") as result:
        assert result.defaults == ()
        with pytest.raises(rlx.UnknownNameError, match="no input named 'w'"):
            result.run({"x": X, "w": X[:1]})


def test_a_given_default_has_to_fit():
    with rlx.onnx.Model(scaled(), "cpu") as result:
        with pytest.raises(rlx.InputError, match="input 'w' has the wrong shape"):
            result.run({"x": X, "w": X})
        with pytest.raises(rlx.InputError, match=r"input 'b' has the wrong shape(.|\n)*\{'n': 2\}"):
            result.run({"x": X, "b": X[:1]})
        with pytest.raises(rlx.UnknownNameError, match="did you mean 'w'"):
            result.run({"x": X, "W": X[:1]})
        with pytest.raises(rlx.InputError, match="inputs are missing\n  got: x"):
            result.run({"w": X[:1]})
        assert result.run(X)[0].tolist() == [12, 16]


def test_a_default_that_decides_a_shape():
    result = model(
        [node("Reshape", "x s", "y")],
        [info("x", [6]), info("s", [2], I)],
        ["y"],
        {"s": np.int64([2, 3])},
        ir=8,
    )
    x = np.arange(6, dtype=np.float32)
    with rlx.onnx.Model(result, "cpu") as opened:
        for s in ([2, 3], None, [3, 2], None, [6, 1], [3, 2]):
            more = {} if s is None else {"s": np.int64(s)}
            assert opened.run({"x": x, **more})[0].shape == tuple(s or (2, 3))
        assert opened.report().compiles == 2, "with and without it"
        opened.prewarm([{}, {"s": (2,)}])
    assert rlx.onnx.load(result).outputs[0].shape == (2, 3)
    assert rlx.onnx.load(result, values={"s": np.int64([3, 2])}).outputs[0].shape == (3, 2)


def test_a_default_of_any_size():
    with rlx.onnx.Model(scaled(), "cpu") as result:
        result.run({"x": X})
        for size in (20, 21, 22, 23):
            x, b = np.ones(size, np.float32), np.arange(size, dtype=np.float32)
            assert result.run({"x": x, "b": b})[0].tolist() == (2 + b).tolist()
        assert result.run({"x": X})[0].tolist() == [12, 16]


def test_a_default_of_another_type_than_its_input():
    result = model(
        [node("Relu", "x", "y")], [info("x", [2]), info("w", [2], I)], ["y"], {"w": X}, ir=8
    )
    with pytest.raises(rlx.ImportModelError, match=r"wrong type\n.*'w'\n.*float\n.*int64"):
        rlx.onnx.load(result)


# --- no trips ---


def loop(body_nodes, outputs, sizes, *, declared=None, extra=(), weights=()):
    """A loop over the rows of x, [n, 3]: the body sees the row's number as i."""
    body = graph(
        [*body_nodes, node("Identity", "c", "co")],
        [info("i", [], I), info("c", [], TensorProto.BOOL)],
        [info("co", [], TensorProto.BOOL), *(info(name, declared, kind) for name, kind in outputs)],
    )
    results = [f"y{index}" for index in range(len(outputs))]
    nodes = [
        node("Shape", "x", "n1", start=0, end=1),
        node("Squeeze", "n1", "n"),
        helper.make_node("Loop", ["n", "t"], results, body=body),
    ]
    more = {"t": np.bool_(True), "two": np.float32(2), **dict(weights)}
    return model([*nodes, *extra], [info("x", sizes)], results, more)


def test_results_of_no_trips_have_the_shape_of_a_trip(device):
    steps = [node("Gather", "x i", "r", axis=0), node("Mul", "r two", "s"),
             node("NonZero", "r", "z"), node("Concat", "x r1", "k", axis=0),
             node("Unsqueeze", "r zero", "r1")]  # fmt: skip
    result = loop(steps, [("s", F), ("z", I), ("k", F)], ["n", 3], weights={"zero": np.int64([0])})
    with rlx.onnx.Model(result, device) as opened:
        rows, places, joined = opened.run({"x": np.zeros((0, 3), np.float32)})
        assert (rows.shape, places.shape, joined.shape) == ((0, 3), (0, 1, 0), (0, 1, 3))
        assert (rows.dtype, places.dtype) == (np.float32, np.int64)


def test_rows_of_no_trips_between_rows_of_some(device):
    result = loop([node("Gather", "x i", "r", axis=0)], [("r", F)], ["n", 3])
    with rlx.onnx.Model(result, device) as opened:
        for rows in (2, 0, 3, 0):
            x = np.arange(rows * 3, dtype=np.float32).reshape(rows, 3)
            np.testing.assert_array_equal(opened.run({"x": x})[0], x)


def test_a_declared_shape_stands_in_where_the_body_tells_none():
    # The body gathers from a tensor that is known, and empty.
    steps = [node("Gather", "none i", "r", axis=0)]
    weights = {"none": np.zeros((0, 4), np.float32)}
    result = loop(steps, [("r", F)], ["n", 3], declared=["k", 4], weights=weights)
    x = np.zeros((0, 3), np.float32)
    assert run(result, "cpu", {"x": x})[0].shape == (0, 0, 4)
    result = loop(steps, [("r", F)], ["n", 3], weights=weights)
    with pytest.raises(rlx.UnsupportedOpError, match="no trips, whose shape is not declared"):
        run(result, "cpu", {"x": x})


@pytest.mark.parametrize("axis", [0, 1, -1])
def test_a_scan_of_no_entries(device, axis):
    body = graph(
        [node("Add", "st xi", "so"), node("Gather", "table zero", "t"), node("Mul", "so t", "yo")],
        [info("st", [3]), info("xi", [3])],
        [info("so", [3]), info("yo", [3])],
    )
    scan = helper.make_node(
        "Scan", ["s0", "x"], ["y", "rows"], body=body, num_scan_inputs=1, scan_output_axes=[axis]
    )
    result = model(
        [node("Add", "x x", "table"), scan], [info("s0", [3]), info("x", ["n", 3])], ["y", "rows"],
        {"zero": np.int64(0)},
    )  # fmt: skip
    state = np.float32([1, 2, 3])
    output = run(result, device, {"s0": state, "x": np.zeros((0, 3), np.float32)})
    assert output[0].tolist() == [1, 2, 3]
    assert output[1].shape == ((0, 3) if axis == 0 else (3, 0))


# --- values of the graph around ---


def test_a_value_is_used_by_folding_after_its_elements_were_asked_for(device):
    nodes = [
        node("RandomNormal", "", "r", shape=[2, 3], seed=1.0),
        node("Mul", "r zero", "none"),
        node("Cast", "none", "i", to=I),
        node("ReduceSum", "i", "s", keepdims=0),
        node("Unsqueeze", "s at", "target"),
        # Its elements decide a shape first, and then it is an operand of what is computed at load.
        node("Expand", "x target", "e"),
        node("Add", "target one", "more"),
        node("Cast", "more", "f", to=F),
        node("Add", "e f", "y"),
    ]
    weights = {"zero": np.float32(0), "at": np.int64([0]), "one": np.int64([1])}
    result = model(nodes, [info("x", [0])], ["y"], weights)
    assert run(result, device, {"x": np.zeros(0, np.float32)})[0].shape == (0,)


def test_coded_weights_reach_a_subgraph():
    codes = np.arange(-8, 8, dtype=np.int8).reshape(4, 4)
    packed = helper.make_tensor("w", TensorProto.INT4, [4, 4], codes.ravel().tolist())
    then = graph([node("MatMul", "x d", "o")], [], [info("o", [1, 4])])
    other = graph([node("MatMul", "x d", "p0"), node("Neg", "p0", "p")], [], [info("p", [1, 4])])
    nodes = [
        helper.make_node("Constant", [], ["w"], value=packed),
        node("DequantizeLinear", "w scale", "d"),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Less", "m zero", "c"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    weights = {"scale": np.float32(0.5), "zero": np.float32(0)}
    result = model(nodes, [info("x", [1, 4])], ["y"], weights, opset=21)
    x = np.float32([[1, 2, 3, 4]])
    np.testing.assert_allclose(run(result, "cpu", {"x": x})[0], -(x @ codes) / 2)


def test_a_branch_hides_names_of_the_graph_around_it():
    then = graph([node("Neg", "x", "t"), node("Abs", "t", "o")], [], [info("o", [2])])
    other = graph([node("Add", "t x", "p")], [], [info("p", [2])])
    nodes = [
        node("Exp", "x", "t"),
        node("ReduceMax", "x", "m", keepdims=0),
        node("Less", "m zero", "c"),
        helper.make_node("If", ["c"], ["y"], then_branch=then, else_branch=other),
    ]
    result = model(nodes, [info("x", [2])], ["y"], {"zero": np.float32(0)})
    for x in (X, -np.abs(X)):
        expected = np.abs(x) if x.max() < 0 else np.exp(x) + x
        np.testing.assert_allclose(run(result, "cpu", {"x": x})[0], expected, rtol=1e-6)
