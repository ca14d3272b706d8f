"""Users' own operations as NumPy functions: results, errors, clones and threads."""

from __future__ import annotations

import ctypes
import threading
from functools import partial

import numpy as np
import pytest
from samples import looped
from side_by_side import side_by_side
from test_control import VECTOR, countdown

import rlx
from rlx._ext import cpu, program
from rlx.abi.kernels import MAX_INPUTS, MAX_OUTPUTS
from rlx.ir.dtype import DType


class Refused(Exception):
    """The exception that the tests' NumPy function raises."""


def _root(x, scale):
    if np.any(x < 0):
        raise Refused(f"negative: {x.min()}")
    return scale * np.sqrt(x)


rlx.register_custom_op("checked_root", shape=lambda x, scale: x, numpy=_root)
rlx.register_custom_op(
    "extent", shape=lambda x: [((), "f32"), (x, "i32")],
    numpy=lambda x: (np.ptp(x), np.argsort(x, kind="stable")),
)  # fmt: skip


def rooted(n=5):
    """A custom op between compiled kernels."""
    g = rlx.Graph("rooted")
    x = g.input("x", (n,))
    g.set_outputs(g.custom("checked_root", [x + 1.0], {"scale": 2.0}) * 3.0)
    return g


def test_a_custom_op_of_several_results(device):
    g = rlx.Graph()
    extent, order = g.custom("extent", [g.input("x", (4,)) * 2.0])
    g.set_outputs([extent + 1.0, order + 1])
    with rlx.compile(g, device) as compiled:
        got = compiled.run({"x": np.float32([3, -1, 2, 0])})
    assert got[0] == 9
    assert got[1].tolist() == [2, 4, 3, 1]
    assert [v.dtype for v in got] == [np.float32, np.int32]


def test_a_custom_op_that_raises(device):
    """Its own error comes out, every time; and the graph, its clone and its views stay usable."""
    with rlx.compile(rooted(), device) as compiled:
        good, bad = np.float32([0, 3, 8, 15, 24]), np.float32([0, 3, -8, 15, 24])
        clone = compiled.clone()
        for item in (compiled, clone):
            for _ in range(3):
                with pytest.raises(Refused, match="negative: -7"):
                    item.run({"x": bad})
                with pytest.raises(Refused, match="negative: -7"):
                    item.run_slots(bad)
                np.testing.assert_allclose(item.run({"x": good})[0], [6, 12, 18, 24, 30], rtol=1e-6)
        view = compiled.run_slots(good)[0]
        with pytest.raises(Refused):
            clone.run_slots(bad)
        np.testing.assert_allclose(view, [6, 12, 18, 24, 30], rtol=1e-6)


def test_a_custom_op_in_a_loop_that_raises(device):
    """The error leaves the loop at once, and the next run starts afresh."""

    def body(g, x):
        return [g.custom("checked_root", [x], {"scale": 1.0}) - 1.0]

    g = countdown(body, VECTOR)
    with rlx.compile(g, device) as compiled:
        x = np.float32([16, 25, 81])
        for _ in range(2):
            with pytest.raises(Refused):
                compiled.run({"n": np.int32(9), "s0": x})
            n, y = compiled.run({"n": np.int32(2), "s0": x})
            assert n == 0
            np.testing.assert_allclose(y, np.sqrt(np.sqrt(x) - 1) - 1, rtol=1e-5)


def test_a_custom_op_of_another_shape_than_its_rule(device):
    rlx.register_custom_op("liar", shape=lambda x: x, numpy=lambda x: x[:-1])
    g = rlx.Graph()
    g.set_outputs(g.custom("liar", [g.input("x", (3,))]))
    with rlx.compile(g, device) as compiled, pytest.raises(rlx.ShapeError, match="shape differs"):
        compiled.run({"x": np.zeros(3, "f4")})


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        (np.array(["a", "b"]), rlx.DTypeError),
        (np.ones(2, complex), rlx.DTypeError),
        (None, rlx.DTypeError),
        ((np.ones(2), np.ones(2)), rlx.ShapeError),
    ],
)
def test_a_custom_op_that_gives_no_such_numbers(result, kind, device):
    rlx.register_custom_op("wrong_numbers", shape=lambda x: x, numpy=lambda x: result)
    g = rlx.Graph()
    g.set_outputs([g.custom("wrong_numbers", [g.input("x", (2,))], {})])
    with (
        rlx.compile(g, device) as cg,
        pytest.raises(kind, match=r"\[custom.*\] the NumPy function gives"),
    ):
        cg.run({"x": np.ones(2, np.float32)})


def test_clones_with_a_custom_op_run_in_threads(device):
    """Each clone has its own memory, also where Python is called amid the kernels."""
    n, failures = 501, []
    with rlx.compile(rooted(n), device) as compiled:

        def work(clone, seed):
            rng = np.random.default_rng(seed)
            try:
                for index in range(30):
                    x = rng.random(n).astype("f4") * 9
                    if index % 7 == 3:
                        x[index] = -5
                        try:
                            clone.run_slots(x)
                            failures.append("nothing was raised")
                        except Refused:
                            continue
                    got = clone.run_slots(x)[0]
                    np.testing.assert_allclose(got, 6 * np.sqrt(x + 1), rtol=1e-5)
            except BaseException as error:
                failures.append(repr(error))

        side_by_side(*(partial(work, compiled.clone(), seed) for seed in range(4)))
    assert not failures, failures[0]


@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_a_second_thread_is_refused_during_a_custom_op(device, request):
    """A function that lets another thread run does not let it into the same graph."""
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    inside, leave = threading.Event(), threading.Event()

    def wait(x):
        inside.set()
        assert leave.wait(20)
        return x

    rlx.register_custom_op("waits", shape=lambda x: x, numpy=wait)
    g = rlx.Graph()
    g.set_outputs(g.custom("waits", [g.input("x", (3,))]))
    with rlx.compile(g, device) as compiled:
        worker = threading.Thread(target=lambda: compiled.run_slots(np.ones(3, "f4")))
        worker.start()
        try:
            assert inside.wait(20)
            with pytest.raises(rlx.RlxError, match="running"):
                compiled.run_slots(np.zeros(3, "f4"))
        finally:
            leave.set()
            worker.join()
        assert compiled.run_slots(np.zeros(3, "f4"))[0].tolist() == [0, 0, 0]


def test_a_c_function_only_sees_the_dtypes_it_is_written_for():
    """It is told no dtypes: f64 and f16 take the NumPy function, in memory of their own width."""
    signature = ctypes.CFUNCTYPE(
        ctypes.c_int,
        ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
        ctypes.POINTER(ctypes.POINTER(ctypes.c_float)),
        ctypes.POINTER(ctypes.c_int64),
        ctypes.POINTER(ctypes.c_double),
    )
    calls = []

    @signature
    def triple(inputs, outputs, sizes, numbers):
        calls.append(sizes[0])
        for index in range(sizes[0]):
            outputs[0][index] = 3 * inputs[0][index]
        return 0

    rlx.register_custom_op("triple", shape=lambda x: x, numpy=lambda x: 3 * x, c=triple)
    for dtype, expected in (("f32", [4]), ("f64", [4]), ("f16", [4])):
        g = rlx.Graph()
        g.set_outputs(g.custom("triple", [g.input("x", (4,), dtype)]))
        x = np.arange(4, dtype=rlx.DType.parse(dtype).numpy)
        (y,) = rlx.compile(g, "cpu").run({"x": x})
        assert y.dtype == x.dtype
        np.testing.assert_array_equal(y, 3 * x)
        assert calls == expected
    with pytest.raises(rlx.DTypeError):
        rlx.register_custom_op("triple", shape=lambda x: x, numpy=lambda x: x, dtypes=["f31"])


POINTERS = ctypes.POINTER(ctypes.POINTER(ctypes.c_float))
FUNCTION = ctypes.CFUNCTYPE(
    ctypes.c_int,
    POINTERS,
    POINTERS,
    ctypes.POINTER(ctypes.c_int64),
    ctypes.POINTER(ctypes.c_double),
)


@FUNCTION
def total(inputs, outputs, sizes, numbers):
    """Each result is the sum of the first entries of all inputs; ``numbers`` holds how many of each."""
    value = sum(inputs[index][0] for index in range(int(numbers[0])))
    for index in range(int(numbers[1])):
        outputs[index][0] = value
    return 0


def counted(inputs, outputs, c):
    """A graph with one custom op of so many inputs and outputs."""
    name = f"total_{inputs}_{outputs}_{c is not None}"
    rlx.register_custom_op(
        name,
        shape=lambda *x, ins, outs: [((1,), "f32")] * outs,
        numpy=lambda *x, ins, outs: tuple(sum(x) for _ in range(outs)),
        c=c,
    )
    g = rlx.Graph(name)
    nodes = [g.input(f"x{index}", (1,)) for index in range(inputs)]
    result = g.custom(name, nodes, {"ins": inputs, "outs": outputs})
    g.set_outputs(result if isinstance(result, tuple) else [result])
    return g


def test_as_many_inputs_and_outputs_as_a_c_function_can_have():
    """The record of a compiled call has room for so many; the NumPy function has no such limit."""
    most_in, most_out = MAX_INPUTS, MAX_OUTPUTS
    for inputs, outputs, c in ((most_in, most_out, total), (most_in + 5, most_out + 3, None)):
        values = {f"x{index}": np.float32([index]) for index in range(inputs)}
        with rlx.compile(counted(inputs, outputs, c), "cpu") as compiled:
            for result in compiled.run(values):
                assert result == sum(range(inputs))


def test_more_inputs_or_outputs_than_a_c_function_can_have_are_refused():
    for inputs, outputs, what in ((9, 1, "inputs"), (1, 5, "outputs")):
        with pytest.raises(rlx.UnsupportedOpError, match=f"too many {what}") as caught:
            rlx.compile(counted(inputs, outputs, total), "cpu")
        assert "without c=" in str(caught.value)
        assert "test_custom_ops.py:" in str(caught.value)


def test_the_compiled_program_refuses_calls_that_do_not_fit():
    """Whoever links calls, nothing is written behind the record."""
    row = (cpu.kernels("plain")["jump"], [0] * 9, [], np.zeros(1, np.int64), "jump", None)
    with pytest.raises(ValueError, match="9 inputs and 0 outputs, where 8 and 4 fit"):
        program.Calls([row], [], None)


@looped("dtype", [item.value for item in DType])
def test_a_custom_op_gets_arrays_that_it_can_not_write(dtype, device):
    """Inputs, results of other operations, and arrays that are widened for it, alone and in a branch."""
    seen = []

    def looks(x):
        seen.append(x.flags.writeable)
        with pytest.raises(ValueError, match="read-only"):
            x[...] = 0
        return x

    rlx.register_custom_op("looks", shape=lambda x: x, numpy=looks)
    side = rlx.Graph("side")
    side.set_outputs([side.custom("looks", [side.input("x", (2,), dtype)])])
    g = rlx.Graph("two")
    x = g.input("x", (2,), dtype)
    y = g.custom("looks", [x])
    g.set_outputs(
        [g.custom("looks", [g.reshape(y, (1, 2))]), g.if_(g.input("c", (), "bool"), side, side, y)]
    )
    with rlx.compile(g, device) as cg:
        arguments = np.array([1, 0], DType.parse(dtype).numpy)
        retained = arguments.copy()
        cg.run({"x": arguments, "c": np.array(True)})
        assert np.array_equal(arguments, retained)
    assert seen
    assert not any(seen)
