"""Inputs of new users that must be right or refused, on every device."""

import numpy as np
import pytest
from onnx import TensorProto, helper

import rlx

X = np.array([0.0, 1.5, -2.0], np.float32)
rlx.register_custom_op("doubled", shape=lambda x: x, numpy=lambda x: x * 2)


def added(device, dtype="f32", shape=(3,)):
    g = rlx.Graph("added")
    g.set_outputs([g.input("x", shape, dtype) + g.constant(1, dtype)])
    return rlx.compile(g, device)


# --- operators --------------------------------------------------------------------------------------


def test_equality_of_nodes_is_computed(device):
    g = rlx.Graph()
    x = g.input("x", (3,))
    g.set_outputs([g.where(x == 0.0, 1.0, x), x != 1.5, 0.0 == x, x == x, x != x])
    retained, other, zero, same, differs = rlx.compile(g, device).run({"x": X})
    np.testing.assert_array_equal(retained, [1.0, 1.5, -2.0])
    np.testing.assert_array_equal(other, [True, False, True])
    np.testing.assert_array_equal(zero, [True, False, False])
    assert same.all()
    assert not differs.any()


def test_nodes_are_told_apart_by_identity():
    g = rlx.Graph()
    x, y = g.input("x", (3,)), g.input("y", (3,))
    assert {x: 1, y: 2}[x] == 1
    assert len({x, y, x}) == 2
    assert x is g.nodes[0]
    with pytest.raises(rlx.GraphError, match="no truth value"):
        bool(x == y)
    with pytest.raises(rlx.GraphError, match="no truth value"):
        x in [y]  # noqa: B015


OPERATORS = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": lambda a, b: a / b,
    "**": lambda a, b: a**b,
    "@": lambda a, b: a @ b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
}


@pytest.mark.parametrize("sign", OPERATORS)
def test_an_array_on_the_left_makes_a_node(device, sign):
    apply, arguments = OPERATORS[sign], np.array([3.0, 1.5, 2.0], np.float32)
    lefts = [arguments, np.float32(2.0), arguments.astype(np.float64)]
    if sign == "@":
        lefts = [arguments, np.outer(arguments, arguments)]
    g = rlx.Graph()
    x = g.input("x", (3,))
    results = [apply(left, x) for left in lefts]
    assert all(isinstance(node, rlx.Node) for node in results)
    g.set_outputs(results)
    value = np.array([1.0, 1.5, 2.0], np.float32)
    for item, left in zip(rlx.compile(g, device).run({"x": value}), lefts, strict=True):
        np.testing.assert_allclose(item, apply(np.asarray(left), value), rtol=1e-6)


def test_a_function_of_numpy_refuses_a_node():
    with pytest.raises(TypeError, match="ufunc"):
        np.exp(rlx.Graph().input("x", (3,)))


# --- input views ------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", ["f32", "f16", "i32", "i64", "f64"])
def test_arguments_count_for_their_call_alone(device, dtype):
    cg = added(device, dtype)
    (view,) = cg.input_views
    kind = view.dtype
    first, other = np.array([1, 2, 3], kind), np.array([7, 8, 9], kind)
    np.testing.assert_array_equal(cg.run_slots()[0], 1)  # zeros until something is written
    np.testing.assert_array_equal(cg.run_slots(other)[0], other + 1)
    np.testing.assert_array_equal(cg.run_slots()[0], 1)
    view[...] = first
    ways = {
        "slots": lambda: cg.run_slots(other)[0],
        "strided": lambda: cg.run_slots(np.repeat(other, 2)[::2])[0],
        "another dtype": lambda: cg.run_slots(other.astype(np.int8))[0],
        "pipelined": lambda: cg.run_pipelined([{"x": other}])[0][0],
    }
    for name, way in ways.items():
        np.testing.assert_array_equal(way(), other + 1, err_msg=name)
        np.testing.assert_array_equal(view, first, err_msg=name)
        np.testing.assert_array_equal(cg.run_slots()[0], first + 1, err_msg=name)
    for by_name in (cg.run, cg.run_raw, cg.run_read_outputs, cg.commit_no_wait):
        by_name({"x": first + first})
        cg.sync_pending()
        np.testing.assert_array_equal(cg.run_slots(other)[0], other + 1)
        np.testing.assert_array_equal(cg.run_slots()[0], first + 1)
    # An output that is an argument of the next run.
    out = cg.run_slots()[0]
    np.testing.assert_array_equal(cg.run_slots(out)[0], first + 2)
    np.testing.assert_array_equal(cg.run_slots(out)[0], first + 3)
    np.testing.assert_array_equal(cg.run_slots()[0], first + 1)


def test_arguments_count_for_their_call_alone_in_custom_operations(device):
    g = rlx.Graph()
    x, y = g.input("x", (3,)), g.input("y", (3,))
    g.set_outputs([g.custom("doubled", [x]) + y])
    cg = rlx.compile(g, device)
    for view in cg.input_views:
        view[...] = X
    for _ in range(2):
        np.testing.assert_array_equal(cg.run_slots(X + 1, X)[0], 2 * (X + 1) + X)
        np.testing.assert_array_equal(cg.run_slots()[0], 3 * X)
    cg.bind_handle("x", X + 5)
    np.testing.assert_array_equal(cg.run_slots(X)[0], 2 * (X + 5) + X)
    np.testing.assert_array_equal(cg.run_slots()[0], 2 * (X + 5) + X)


def test_sizes_that_are_no_whole_words(device):
    cg = added(device, "i8", (3,))
    cg.input_views[0][...] = [1, 2, 3]
    np.testing.assert_array_equal(cg.run_slots(np.array([4, 5, 6], np.int8))[0], [5, 6, 7])
    np.testing.assert_array_equal(cg.run_slots()[0], [2, 3, 4])


def test_runs_between_many_that_are_not_waited_for(device):
    cg = added(device)
    cg.input_views[0][...] = X + 5
    cg.commit_no_wait({"x": X + 10})
    np.testing.assert_array_equal(cg.run_slots(X)[0], X + 1)
    np.testing.assert_array_equal(cg.run_slots()[0], X + 6)
    np.testing.assert_array_equal(cg.run({"x": X + 7})[0], X + 8)
    cg.commit_no_wait({"x": X + 20})
    cg.sync_pending()
    np.testing.assert_array_equal(cg.run_raw({"x": X + 2})[0], X + 3)
    np.testing.assert_array_equal(cg.run_slots(X)[0], X + 1)
    np.testing.assert_array_equal(cg.run_slots()[0], X + 6)


# --- values -----------------------------------------------------------------------------------------

LOST = {
    "f32": [1e300, -1e39, 2**24 + 1, -(2**53) - 1],
    "f16": [65520.0, 2049],
    "bf16": [3.4e38],
    "i32": [2**31, -(2**40)],
    "i8": [128, -129],
}
KEPT = {
    "f32": [0.1, 3e38, 2**24, np.inf, -np.inf, np.nan, True, np.uint8(200)],
    "f16": [0.1, 65504.0, 2048],
    "bf16": [0.1, 3e38, np.inf, np.nan],
    "i32": [2**31 - 1, -(2**31), True],
    "i8": [127, -128],
}


def ways(cg, value, dtype):
    """Ways of giving the graph an input."""
    yield lambda: cg.run({"x": value})
    yield lambda: cg.run(value)
    yield lambda: cg(x=value)
    if dtype != "bf16":  # whose slots hold its bits as uint16
        yield lambda: cg.run_slots(value)
        yield lambda: cg.run_slots(np.asarray(value)[::-1][::-1])


@pytest.mark.parametrize("dtype", sorted({*LOST, *KEPT}))
def test_values_that_the_dtype_holds_are_taken_and_others_refused(device, dtype):
    g = rlx.Graph()
    g.set_outputs([g.cast(g.input("x", (2,), dtype), "f32")])
    cg = rlx.compile(g, device)
    for value in LOST.get(dtype, ()):
        for way in ways(cg, np.array([0, value]), dtype):
            with pytest.raises(rlx.InputError, match=r"(?s)('x'|input 0) .*can't hold"):
                way()
    for value in KEPT.get(dtype, ()):
        for way in ways(cg, np.array([value, value]), dtype):
            np.testing.assert_allclose(way()[0], np.float32(value), rtol=4e-3)


def test_integers_of_other_signs_and_sizes(device):
    cg = added(device, "u8", (1,))
    np.testing.assert_array_equal(cg.run(np.array([200], np.uint16))[0], 201)
    with pytest.raises(rlx.InputError, match="can't hold"):
        cg.run(np.array([256], np.uint16))
    with pytest.raises(rlx.InputError, match="does not convert"):
        cg.run(np.array([1]))
    with pytest.raises(rlx.InputError, match="can't hold"):
        added(device, "i8", (1,)).run(np.array([200], np.uint8))


def test_integers_near_the_ends_of_their_range():
    cg = added("cpu", "f64", (1,))
    for value in (2**53, -(2**63), np.uint64(2**63)):
        assert cg.run(np.array([value]))[0] == float(value) + 1
    for value in (2**53 + 1, 2**63 - 1, np.uint64(2**64 - 1)):
        with pytest.raises(rlx.InputError, match="can't hold"):
            cg.run(np.array([value]))


def test_params_and_handles_are_converted_by_the_same_rule(device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (1,)) * g.param("w", (1,))])
    cg = rlx.compile(g, device)
    for give in (lambda v: cg.set_param("w", v), lambda v: cg.bind_handle("x", v)):
        for value in (1e300, 2**24 + 1, 1j, "a", None):
            with pytest.raises(rlx.InputError, match=r"'w'|'x'"):
                give(np.array([value]))
        give(np.array([2]))
    np.testing.assert_array_equal(cg.run({})[0], 4)


def test_a_model_converts_by_the_same_rule(device):
    kinds = {"f": TensorProto.FLOAT, "h": TensorProto.FLOAT16, "i": TensorProto.INT32}
    ports = [helper.make_tensor_value_info(name, kind, ["n"]) for name, kind in kinds.items()]
    nodes = [helper.make_node("Neg", [name], [f"-{name}"]) for name in kinds]
    results = [helper.make_tensor_value_info(f"-{n}", kind, ["n"]) for n, kind in kinds.items()]
    graph = helper.make_graph(nodes, "negated", ports, results)
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    retained = {"f": [0.1, 3e38], "h": [0.1, 65504.0], "i": [2**31 - 1, -5]}
    with rlx.onnx.Model(result.SerializeToString(), device) as model:
        for item, value in zip(model.run(retained), retained.values(), strict=True):
            np.testing.assert_allclose(item, -np.array(value), rtol=1e-3)
        lost = [
            ("f", 1e300),
            ("f", 2**24 + 1),
            ("h", 7e4),
            ("i", 2**31),
            ("i", 0.5),
            ("f", 1j),
            ("h", "a"),
        ]
        for name, value in lost:
            with pytest.raises(rlx.InputError, match=f"input '{name}'"):
                model.run({**retained, name: [0, value]})


def test_a_value_that_decides_a_shape_is_not_cut(device):
    ports = [
        helper.make_tensor_value_info("x", TensorProto.FLOAT, [4]),
        helper.make_tensor_value_info("shape", TensorProto.INT64, [2]),
    ]
    out = [helper.make_tensor_value_info("y", TensorProto.FLOAT, ["a", "b"])]
    graph = helper.make_graph([helper.make_node("Reshape", ["x", "shape"], ["y"])], "g", ports, out)
    result = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)
    raw = result.SerializeToString()
    loaded = rlx.onnx.load(raw, values={"shape": [2, 2]})
    assert rlx.compile(loaded, device).run(np.arange(4))[0].shape == (2, 2)
    for wrong in ([2.7, 1.5], ["2", "2"], None):
        with pytest.raises(rlx.InputError, match="'shape'"):
            rlx.onnx.load(raw, values={"shape": wrong})


# --- ways of calling --------------------------------------------------------------------------------


def test_a_graph_with_one_input_takes_its_array_alone(device):
    cg = added(device)
    for value in (X, X.tolist(), X.astype(np.float64)):
        for item in (cg.run(value), cg.run_raw(value), cg.run_read_outputs(value, [0])):
            np.testing.assert_array_equal(item[0], X + 1)


def test_what_is_no_array_is_refused_with_what_to_pass(device):
    cg = added(device)
    with pytest.raises(rlx.InputError, match=r"\{'x': \.\.\.\}"):
        cg.run(None)
    g = rlx.Graph()
    g.set_outputs([g.input("x", (3,)) + g.input("y", (3,))])
    two = rlx.compile(g, device)
    for inputs in (X, [X, X], None, "x"):
        with pytest.raises(rlx.InputError, match=r"\{'x': \.\.\., 'y': \.\.\.\}"):
            two.run(inputs)
    for value, hint in ((X + 1j, "imag"), (["a", "b", "c"], "numbers"), ([None] * 3, "numbers")):
        for way in ways(cg, value, "f32"):
            with pytest.raises(rlx.InputError, match=hint):
                way()


def test_help_of_run_slots_says_what_it_does(device):
    cg = added(device)
    for function in (cg.run_slots, rlx.run_slots, rlx.compile(cg._state.graph, device).run_slots):
        assert "input_views" in (function.__doc__ or "")
        assert "declaration" in function.__doc__
