"""Arguments that are views of a graph's own memory, that free each other, or that are refused."""

import numpy as np
import pytest
from test_locks import doubled

import rlx


def test_the_views_of_inputs_as_arguments(device):
    g = rlx.Graph()
    a, b, c = (g.input(name, (5,)) for name in "abc")
    g.set_outputs([a + b * 10.0 + c * 100.0])
    cg = rlx.compile(g, device)
    for way in (
        lambda p, q, r: cg.run_slots(p, q, r)[0],
        lambda p, q, r: cg.run({"a": p, "b": q, "c": r})[0],
        lambda p, q, r: cg.run_read_outputs({"a": p, "b": q, "c": r})[0],
        lambda p, q, r: cg.run_pipelined([{"a": p, "b": q, "c": r}])[0][0],
    ):
        for order in ((0, 1, 2), (1, 0, 2), (2, 0, 1), (1, 1, 0), (2, 2, 2)):
            for index, view in enumerate(cg.input_views):
                view[:] = index + 1
            arguments = [cg.input_views[index] for index in order]
            want = sum((index + 1) * 10.0**k for k, index in enumerate(order))
            np.testing.assert_array_equal(way(*arguments), want)
    # A view turned around, and one of another dtype, overlap as well.
    for index, view in enumerate(cg.input_views):
        view[:] = np.arange(5) * 10**index
    p, q, r = cg.input_views
    np.testing.assert_array_equal(
        cg.run_slots(q[::-1], p, r.astype(np.float64))[0],
        np.arange(5)[::-1] * 10.0 + np.arange(5) * 10.0 + np.arange(5) * 10000.0,
    )


def test_the_views_of_outputs_as_arguments(device):
    g = rlx.Graph()
    a, b = g.input("a", (4,)), g.input("b", (4,))
    g.set_outputs([b + 1.0, a * 2.0])
    cg = rlx.compile(g, device)
    first, second = np.arange(4, dtype=np.float32), np.ones(4, np.float32)
    outputs = cg.run_slots(first, second)
    for _ in range(4):
        first, second = second + 1, first * 2
        np.testing.assert_array_equal(outputs, [first, second])
        outputs = cg.run_slots(*outputs)


def test_an_argument_that_frees_another(device):
    g = rlx.Graph()
    a, b = g.input("a", (1 << 16,)), g.input("b", (1 << 16,))
    g.set_outputs([a + b])
    cg = rlx.compile(g, device)
    x, other = np.ones(1 << 16, np.float32), np.ones(1 << 16, np.float32)

    class Frees:
        def __array__(self, *arguments, **named):
            x.resize((1,), refcheck=False)
            return other

    with pytest.raises(rlx.InputError, match="does not fit"):
        cg.run_slots(x, Frees())
    np.testing.assert_array_equal(cg.run_slots(other, other)[0], 2)


def test_a_refused_argument_changes_nothing(device):
    g = rlx.Graph()
    a, b = g.input("a", (4,)), g.input("b", (4,))
    g.set_outputs([a + b])
    cg = rlx.compile(g, device)
    for view in cg.input_views:
        view[:] = 1
    with pytest.raises(rlx.InputError):
        cg.run_slots(np.arange(8.0)[::2], np.ones(3, np.float32))
    np.testing.assert_array_equal(cg.run_slots()[0], 2)


def test_arguments_that_are_no_arrays(device):
    cg = doubled(device, 2)
    with pytest.raises(rlx.InputError, match="inputs of a run"):
        cg.run(None)
    for value in ([[1], [1, 2]], object(), "text", [2**70, 1]):
        with pytest.raises(rlx.InputError):
            cg.run({"x": value})
        with pytest.raises(rlx.InputError):
            cg.run_slots(value)
