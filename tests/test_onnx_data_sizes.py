"""ONNX models whose sizes depend on what their inputs hold, beside ONNX Runtime, with new data in each call."""

import sys
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_onnx import info, model, node

import rlx

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))
onnxruntime = pytest.importorskip("onnxruntime")
I64 = np.int64


def cases():
    from data_size_models import MODELS

    return MODELS


def as_onnx_runtime(raw, draw, device, calls, seed=0):
    """Runs new inputs through both; returns the report, and how many graphs were compiled after the second call."""
    rng, options = np.random.default_rng(seed), onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])
    with rlx.onnx.Model(raw, device) as opened:
        for call in range(calls):
            inputs = draw(rng)
            for got, wanted in zip(opened.run(inputs), session.run(None, inputs), strict=True):
                assert got.dtype == wanted.dtype
                assert got.shape == wanted.shape
                np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-5)
            if call == 1:
                before = rlx.cache_stats().lowered
        return opened.report().compiles, rlx.cache_stats().lowered - before


@pytest.mark.parametrize("name", cases())
def test_as_onnx_runtime(name, target_device):
    if target_device != "cpu" and "8,400" in name:
        return  # a thousand boxes one after the other take long without a GPU
    compiles, later = as_onnx_runtime(*cases()[name], target_device, 6)
    assert compiles == 1
    assert later == 0 or target_device != "cpu"


def branches_of_other_sizes():
    then = helper.make_graph(
        [node("Concat", "x x", "a", axis=0)], "then", [], [info("a", ["p", 3])]
    )
    other = helper.make_graph([node("Slice", "x zero one", "b")], "else", [], [info("b", ["q", 3])])
    nodes = [
        node("ReduceSum", "x", "s", keepdims=0),
        node("Greater", "s none", "c"),
        node("If", "c", "y", then_branch=then, else_branch=other),
        node("ReduceMax", "y first", "top"),
    ]
    weights = {"none": np.float32(0), "zero": I64([0]), "one": I64([1]), "first": I64([0])}
    return model(nodes, [info("x", ["n", 3])], ["y", "top"], weights)


def test_branches_of_other_sizes(target_device):
    def draw(rng):
        return {"x": rng.standard_normal((int(rng.integers(1, 9)), 3)).astype(np.float32)}

    assert as_onnx_runtime(branches_of_other_sizes(), draw, target_device, 10)[0] == 1


@pytest.mark.parametrize("allowed", [0, 1])
def test_targets_of_reshapes(target_device, allowed):
    raw = model(
        [node("Reshape", "x s", "y", allowzero=allowed)],
        [info("x", [2, "n", 3]), info("s", [3], TensorProto.INT64)],
        ["y"],
    )
    with rlx.onnx.Model(raw, target_device) as opened:
        for shape, target in (
            ((2, 4, 3), (4, 2, 3)), ((2, 6, 3), (-1, 3, 3)), ((2, 2, 3), (1, 1, 12)), ((2, 5, 3), (5, -1, 2)),
            ((2, 4, 3), (3, 4, 2)),
        ):  # fmt: skip
            x = np.random.default_rng(0).random(shape, np.float32)
            (y,) = opened.run({"x": x, "s": np.array(target)})
            np.testing.assert_array_equal(y, x.reshape(target))
        with pytest.raises(rlx.SizesError):
            opened.run({"x": x, "s": np.array((7, 4, 2))})
        assert opened.report().compiles == 1


def test_pads_that_crop(target_device):
    raw = model(
        [node("Pad", "x p", "y")], [info("x", ["n", 6]), info("p", [4], TensorProto.INT64)], ["y"]
    )
    x = np.random.default_rng(1).random((5, 6), np.float32)
    with rlx.onnx.Model(raw, target_device) as opened:
        for pads in ([1, 2, 0, 3], [-1, 0, 2, -2], [0, -3, -2, 1]):
            top, left, bottom, right = pads
            cut = x[max(-top, 0) : 5 + min(bottom, 0), max(-left, 0) : 6 + min(right, 0)]
            wanted = np.pad(cut, [(max(top, 0), max(bottom, 0)), (max(left, 0), max(right, 0))])
            np.testing.assert_array_equal(opened.run({"x": x, "p": np.array(pads)})[0], wanted)


def test_a_branch_that_shapes_do_not_allow(target_device):
    """A model for two rates has weights for one of them in each branch: the input's shape says which can run."""
    weights = [np.ones((8, 2), np.float32), np.ones((4, 2), np.float32)]
    sides = [
        helper.make_graph(
            [node("MatMul", f"x w{i}", f"y{i}")], f"side{i}", [], [info(f"y{i}", None)]
        )
        for i in range(2)
    ]
    nodes = [
        node("Equal", "rate high", "c"),
        node("If", "c", "y", then_branch=sides[0], else_branch=sides[1]),
    ]
    constants = {"w0": weights[0], "w1": weights[1], "high": I64(16)}
    raw = model(
        nodes,
        [info("x", [1, "n"]), info("rate", [], TensorProto.INT64)],
        [info("y", None)],
        constants,
    )
    with rlx.onnx.Model(raw, target_device) as opened:
        for rate, n in ((16, 8), (8, 4), (16, 8)):
            x = np.arange(n, dtype=np.float32)[None]
            (y,) = opened.run({"x": x, "rate": I64(rate)})
            np.testing.assert_array_equal(y, np.full((1, 2), x.sum(), np.float32))
        with pytest.raises(rlx.SizesError, match=r"(?s)takes_else_branch.*= 1"):
            opened.run({"x": np.ones((1, 4), np.float32), "rate": I64(16)})


def test_inputs_that_decide_the_structure():
    raw = model(
        [node("ReduceSum", "x axes", "y", keepdims=0)],
        [info("x", [2, 3]), info("axes", [1], TensorProto.INT64)],
        ["y"],
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    with rlx.onnx.Model(raw, "cpu") as opened:
        with pytest.raises(rlx.InputError, match=r"decide axes or attributes: axes(.|\n)*values="):
            opened.run({"x": x, "axes": I64([0])})
    with pytest.raises(rlx.InputError, match="values="):
        rlx.onnx.load(raw)
    with rlx.onnx.Model(raw, "cpu", values={"axes": [1]}) as opened:
        assert [port.name for port in opened.inputs] == ["x"]
        assert opened.run(x)[0].tolist() == [3, 12]
        assert opened.clone().run(x)[0].tolist() == [3, 12]
        with pytest.raises(rlx.UnknownNameError, match="axes"):
            opened.run({"x": x, "axes": I64([0])})
    with pytest.raises(rlx.UnknownNameError, match="did you mean 'axes'"):
        rlx.onnx.Model(raw, "cpu", values={"axis": [1]})


def test_steps_of_nothing_and_trips_without_end():
    numbers = [info(name, [], TensorProto.INT64) for name in "abc"]
    raw = model([node("Range", "a b c", "y")], numbers, ["y"])
    with rlx.onnx.Model(raw, "cpu") as opened:
        with pytest.raises(rlx.SizesError, match="out of range"):
            opened.run({"a": I64(0), "b": I64(5), "c": I64(0)})
        assert opened.run({"a": I64(9), "b": I64(0), "c": I64(-4)})[0].tolist() == [9, 5, 1]
    raw, draw = cases()["growing loop"]
    few = rlx.CompileOptions(max_iterations=3)
    with rlx.onnx.Model(raw, "cpu", options=few) as opened:
        with pytest.raises(rlx.InputError, match="more trips than allowed"):
            opened.run({**draw(np.random.default_rng(0)), "limit": np.float32(1e9)})
