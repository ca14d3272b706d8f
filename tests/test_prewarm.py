"""``Model.prewarm``: compiling for shapes before runs have them, in the background too."""

import threading
import time

import numpy as np
import pytest
from onnx import TensorProto, helper
from test_import_cache import given, network, resized

import rlx


@pytest.fixture
def model():
    with rlx.onnx.Model(network().SerializeToString(), device="cpu", capacity=4) as result:
        yield result


def compiles(monkeypatch):
    """The shapes that are compiled from now on."""
    seen = []
    before = rlx.Session.compile

    def compile(self, graph, *args, **kwargs):
        seen.append(graph.named("x").shape)
        return before(self, graph, *args, **kwargs)

    monkeypatch.setattr(rlx.Session, "compile", compile)
    return seen


@pytest.mark.parametrize("background", [False, True])
def test_runs_find_it_compiled(model, monkeypatch, background):
    expected = rlx.onnx.Model(network().SerializeToString(), device="reference").run(given(3, 4))
    seen = compiles(monkeypatch)
    future = model.prewarm(
        [{"n": 2, "h": 6}, {"n": 3, "h": 4}, {"x": (2, 3, 6, 5)}], background=background
    )
    assert future.result(timeout=60) == 1, "one executable serves all of them"
    assert list(map(str, seen)) == ["(n, 3, h, 5)"]
    result = model.run(given(3, 4))
    model.run(given(2, 6))
    assert len(seen) == 1
    np.testing.assert_allclose(result[0], expected[0], rtol=1e-4, atol=1e-5)
    assert model.prewarm([{"n": 2, "h": 6}]).result() == 0


@pytest.mark.webgpu
def test_on_a_gpu(webgpu):
    with rlx.onnx.Model(network().SerializeToString(), device=webgpu) as model:
        assert model.prewarm([{"n": 1, "h": 6}], background=True).result(timeout=300) == 1
        expected = rlx.onnx.Model(network().SerializeToString(), device="reference").run(
            given(1, 6)
        )
        np.testing.assert_allclose(model.run(given(1, 6))[0], expected[0], rtol=1e-4, atol=1e-5)


def test_runs_go_on_meanwhile(model, monkeypatch):
    """Runs of shapes that are compiled already do not wait."""
    model.run(given(2, 6))
    began, go_on = threading.Event(), threading.Event()
    before = rlx.Session.compile

    def slow(self, *args, **kwargs):
        began.set()
        assert go_on.wait(30)
        return before(self, *args, **kwargs)

    monkeypatch.setattr(rlx.Session, "compile", slow)
    future = model.prewarm([{"n": 1, "h": 4}], background=True)
    assert began.wait(30)
    for _ in range(10):
        model.run(given(2, 6))
    assert not future.done()
    go_on.set()
    assert future.result(timeout=60) == 1


def test_progress_and_cancellation(model):
    told, token = [], rlx.CancelToken()

    def progress(step):
        told.append(step)
        if step.phase == "shapes":
            token.cancel()

    sets = [{"n": n, "h": 6} for n in range(1, 5)]
    with pytest.raises(rlx.CancelledError):
        model.prewarm(sets, progress=progress, cancel=token)
    assert [step.part for step in told if step.phase == "shapes"] == [0.25]
    assert {"passes", "load"} <= {step.phase for step in told}
    token = rlx.CancelToken()
    token.cancel()
    future = model.prewarm(sets, background=True, cancel=token)
    assert isinstance(future.exception(timeout=60), rlx.CancelledError)
    assert model.prewarm(sets).result() == 1, (
        "the first one was compiled, another executable serves the rest"
    )


def test_a_model_that_is_closed_ends_it(model, monkeypatch):
    before = rlx.Session.compile
    began, closing = threading.Event(), threading.Event()

    def slow(self, *args, **kwargs):
        began.set()
        assert closing.wait(30)
        return before(self, *args, **kwargs)

    monkeypatch.setattr(rlx.Session, "compile", slow)
    future = model.prewarm([{"n": n, "h": 6} for n in range(1, 5)], background=True)
    assert began.wait(30)
    closer = threading.Thread(target=model.close)
    closer.start()
    while not model.closed:
        time.sleep(0.001)
    closing.set()
    closer.join(60)
    error = future.exception(timeout=60)
    assert isinstance(error, rlx.InputError)
    assert "closed" in str(error)


def single():
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def test_a_model_of_one_input():
    with rlx.onnx.Model(single().SerializeToString(), device="cpu") as model:
        assert (
            model.prewarm([(2, 4), {"n": 3}, {"x": [0, 4]}, np.zeros((5, 4), "f4")]).result() == 2
        )
        assert model.run(np.ones((5, 4), np.float32))[0].shape == (5, 4)


def test_contents_that_decide_shapes_need_no_compile_of_their_own():
    with rlx.onnx.Model(resized().SerializeToString(), device="cpu") as model:
        assert model.prewarm([{}, {"shape": np.array([2, 3])}]).result() == 1
        x = np.arange(6, dtype=np.float32)
        for shape in ((3, 2), (2, 3), (6, 1)):
            (result,) = model.run({"x": x, "shape": np.array(shape)})
            assert result.shape == shape
        assert model.report().compiles == 1


@pytest.mark.parametrize(
    ("shapes", "error", "message"),
    [
        ([{"n": 2}], rlx.InputError, "without a size.*got: h"),
        ([{"n": 2, "h": -1}], rlx.InputError, "dimension 'h'"),
        ([{"n": 2, "k": 1}], rlx.UnknownNameError, "no dimension named 'k'"),
        ([{"x": (2, 4, 6, 5)}], rlx.InputError, "wrong shape"),
        ([{"x": (2, 3, -6, 5)}], rlx.InputError, "shape of input 'x'"),
        ([{"x": "large"}], rlx.InputError, "shape of input 'x'"),
        ([{"n": 1, "h": 6, "at": (3,)}], rlx.InputError, "wrong shape"),
        ([(2, 3)], rlx.InputError, "takes 2 inputs"),
    ],
)
def test_bad_shapes(model, shapes, error, message):
    with pytest.raises(error, match=f"(?s){message}"):
        model.prewarm(shapes)
    if len(shapes) <= 4:
        assert isinstance(model.prewarm(shapes, background=True).exception(timeout=60), error)
