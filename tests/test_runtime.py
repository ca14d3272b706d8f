"""CompiledGraph: params, indices, limits, a second thread, and what bad calls say."""

import inspect

import numpy as np
import pytest
from samples import looped
from side_by_side import side_by_side
from test_tiny import BIAS, EXPECTED, WEIGHT, X, mlp

import rlx
from rlx.backends.base import CompileOptions


def test_a_missing_param_is_named(device):
    compiled = rlx.compile(mlp(), device, params={"w": WEIGHT})
    clone = compiled.clone()
    with pytest.raises(rlx.InputError, match="no value for b"):
        compiled.run_slots(X)
    compiled.set_param("b", BIAS)
    np.testing.assert_allclose(compiled.run_slots(X)[0], EXPECTED, atol=1e-3)
    np.testing.assert_allclose(clone.run_slots(X)[0], EXPECTED, atol=1e-3)


@looped(
    ("call", "error", "text"),
    [
        (lambda c: c.run({"y": X}), rlx.UnknownNameError, "no input named 'y'"),
        (lambda c: c.run({}), rlx.InputError, "missing: x"),
        (lambda c: c.run({"x": X[0]}), rlx.InputError, r"float32\[4\]"),
        (lambda c: c.run({"x": X.astype(complex)}), rlx.InputError, "complex"),
        (lambda c: c.run_slots(X, X), rlx.InputError, "2 arrays"),
        (lambda c: c.run_slots(X[:1]), rlx.InputError, "does not fit"),
        (lambda c: c.set_param("W", WEIGHT), rlx.UnknownNameError, "did you mean 'w'"),
        (lambda c: c.set_param("w", WEIGHT.T), rlx.InputError, r"\[4, 3\]"),
        (lambda c: c.as_text("fusd"), rlx.UnknownNameError, "did you mean 'fused'"),
    ],
)
def test_bad_calls(call, error, text, device):
    compiled = rlx.compile(mlp(), device, params={"w": WEIGHT, "b": BIAS})
    with pytest.raises(error, match=text):
        call(compiled)
    np.testing.assert_allclose(compiled.run_slots(X)[0], EXPECTED, atol=1e-3)


@pytest.mark.parametrize("dtype", ["i32", "i64"])
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("op", ["gather", "gather_nd", "scatter_nd"])
def test_an_index_out_of_range_raises_on_the_cpu(op, depth, dtype):
    """The size of an axis is the first index that it has not; each kernel that looks up indices says so."""
    g = rlx.Graph()
    x = g.input("x", (4, 3)[:depth])
    named = {"gather": (2,), "gather_nd": (2, depth), "scatter_nd": (2, depth)}[op]
    i = g.input("i", named, dtype)
    more = (g.constant(np.zeros(2, "f4")),) if op == "scatter_nd" else ()
    g.set_outputs([getattr(g, op)(x, i, *more)])
    compiled = rlx.compile(g, "cpu")
    data, right = np.ones((4, 3)[:depth], "f4"), np.zeros(named, dtype.replace("i", "int"))
    assert np.isfinite(compiled.run_slots(data, right)[0]).all()
    for axis in range(named[1] if len(named) == 2 else 1):
        for bad in ((4, 3)[axis], -(4, 3)[axis] - 1):
            wrong = right.copy()
            wrong[(1, axis) if len(named) == 2 else 1] = bad
            with pytest.raises(rlx.InputError, match="out of range"):
                compiled.run_slots(data, wrong)
            wrong[wrong == bad] = bad - 1 if bad > 0 else bad + 1
            assert np.isfinite(compiled.run_slots(data, wrong)[0]).all()


def test_the_null_device_runs_nothing():
    compiled = rlx.compile(mlp(), "null", params={"w": WEIGHT, "b": BIAS})
    assert "matmul" in compiled.as_text("schedule")
    with pytest.raises(rlx.DeviceUnavailableError, match="runs nothing"):
        compiled.run({"x": X})


def test_memory_limit():
    options = CompileOptions(memory_limit=64)
    with pytest.raises(rlx.DeviceMemoryError, match="memory_limit"):
        rlx.compile(mlp(), "cpu", options=options)


def test_run_slots_says_what_it_takes(device):
    """It is a plain function of C on the CPU, and help() and editors still show it."""
    run = rlx.compile(mlp(), device, params={"w": WEIGHT, "b": BIAS}).run_slots
    assert str(next(iter(inspect.signature(run).parameters.values()))).startswith("*arrays")
    assert run.__doc__.startswith("Runs the graph and returns its outputs")


def test_a_second_thread_is_refused():
    g = rlx.Graph()
    g.set_outputs([g.input("a", (512, 512)) @ g.input("b", (512, 512))])
    compiled = rlx.compile(g, "cpu")
    refused = []

    def work():
        for _ in range(30):
            try:
                compiled.run_slots()
            except rlx.RlxError as error:
                refused.append(str(error))

    side_by_side(work, work)
    assert refused
    assert "already running" in refused[0]
