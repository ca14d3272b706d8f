"""Limits of work: small files and small calls that ask for gigabytes or hours are refused at once."""

import gc
import json
import math
import os
import sys

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from python_process import run_python

import rlx
from rlx import resource_limits, signal
from rlx.ops.fold_cost import effort

BIG = 1 << 30
# Most memory that a child process may have taken in the end, in bytes: mostly libraries.
PEAK = 600 << 20


def ints(name, value):
    dims = [len(value)] if isinstance(value, list) else []
    return helper.make_tensor(name, TensorProto.INT64, dims, value if dims else [value])


def model(*nodes, shape=(2,), tensors=(), opset=18):
    result = helper.make_graph(
        list(nodes), "g",
        [helper.make_tensor_value_info("x", 1, list(shape))],
        [onnx.ValueInfoProto(name="y")], list(tensors),
    )  # fmt: skip
    opsets = [helper.make_opsetid("", opset)]
    return helper.make_model(result, opset_imports=opsets, ir_version=8).SerializeToString()


def node(op, inputs, output="y", **attributes):
    return helper.make_node(op, inputs.split(), [output], **attributes)


def loops(depth):
    """Loops in loops, each of as many trips as ``n`` says."""
    name, info = f"d{depth}", helper.make_tensor_value_info
    inner = node("Add", f"s{name} x", f"o{name}")
    if depth > 1:
        inner = loops(depth - 1)
        inner.input[2], inner.output[0] = f"s{name}", f"o{name}"
    body = helper.make_graph(
        [inner], "b",
        [info(f"i{name}", 7, []), info(f"c{name}", 9, []), info(f"s{name}", 1, None)],
        [info(f"c{name}", 9, []), info(f"o{name}", 1, None)],
    )  # fmt: skip
    return node("Loop", "n t x", body=body)


def products(count):
    """Products of constants, each of them small enough to be folded."""
    results = [node("MatMul", f"p{index} w", f"p{index + 1}") for index in range(count)]
    return [
        node("Identity", "w", "p0"),
        *results,
        node("ReduceSum", f"p{count}", "s", keepdims=0),
        node("Add", "x s"),
    ]


def wide_loop():
    """A loop whose body is long, of which nearly nothing is needed, and whose state grows."""
    info = helper.make_tensor_value_info
    idle = [node("Add", "s s", f"z{index}") for index in range(20_000)]
    body = helper.make_graph(
        [*idle, node("Concat", "s x", "o", axis=0)], "b", [info("i", 7, []), info("c", 9, []), info("s", 1, None)],
        [info("c", 9, []), info("o", 1, None)],
    )  # fmt: skip
    return node("Loop", "n t x", body=body)


TRUE = helper.make_tensor("t", TensorProto.BOOL, [], [True])
FILES = {
    "a split into 2^31 parts": lambda: model(node("Split", "x", num_outputs=2**31 - 1)),
    "a split into 2^62 parts": lambda: model(node("Split", "x", num_outputs=2**62)),
    **{f"pad {mode}": lambda mode=mode: model(node("Pad", "x p", mode=mode), tensors=[ints("p", [0, BIG])])
       for mode in ("edge", "reflect", "wrap")},
    "a transform of 2^30": lambda: model(
        node("DFT", "x l", axis=1), shape=(1, 5, 1), tensors=[ints("l", BIG)], opset=17),
    "loops in loops": lambda: model(loops(4), tensors=[ints("n", 400), TRUE], opset=17),
    "a long body": lambda: model(wide_loop(), tensors=[ints("n", 8000), TRUE], opset=17),
    "a range": lambda: model(node("Range", "a b c", "r"), node("Cast", "r", "f", to=1), node("Add", "x f"),
                             tensors=[ints("a", 0), ints("b", BIG), ints("c", 1)]),
    "one hot": lambda: model(node("OneHot", "i d v"), tensors=[
        ints("i", [1]), ints("d", BIG), helper.make_tensor("v", 1, [2], [0.0, 1.0])]),
    "a window": lambda: model(node("HannWindow", "l", "w"), node("Add", "x w"), tensors=[ints("l", BIG)]),
    "a mel matrix": lambda: model(node("MelWeightMatrix", "m l r a b", "w"), node("ReduceSum", "w", "s", keepdims=0),
                                  node("Add", "x s"), tensors=[
        ints("m", 1 << 20), ints("l", 1 << 20), ints("r", 16000),
        helper.make_tensor("a", 1, [], [0.0]), helper.make_tensor("b", 1, [], [8000.0])]),
    "a resize": lambda: model(node("Resize", "x e s", mode="linear"), shape=(1, 1, 2), tensors=[
        helper.make_tensor("e", 1, [0], []), helper.make_tensor("s", 1, [3], [1.0, 1.0, 2.0**29])]),
}  # fmt: skip

# These are read until the limits are met: up to half a minute.
LONG = {"loops in loops", "a long body"}

CHILD = """
import json, resource, sys
sys.path.insert(0, {tests!r})
from test_limits import FILES, LONG, rlx
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
found = {{}}
for name, made in FILES.items():
    if (name in LONG) is not {long}:
        continue
    try:
        rlx.compile(rlx.onnx.load(made()), "cpu")
        found[name] = "compiled"
    except Exception as error:
        found[name] = type(error).__name__ + ": " + str(error)
# Not getrusage: its peak begins with that of the process that started this one.
peak = next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM"))
print(json.dumps([found, int(peak) << 10]))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the peak is read from /proc")
@pytest.mark.timeout(240)
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_small_files_that_ask_for_much(long):
    code = CHILD.format(tests=__file__.rpartition("/test_limits")[0], long=long)
    result, peak = json.loads(run_python("-W", "ignore", "-c", code).stdout)
    assert len(result) == (len(LONG) if long else len(FILES) - len(LONG))
    for name, text in result.items():
        assert text.startswith("LimitError"), (name, text)
        assert "rlx.limits" in text, (name, text)
    assert peak < PEAK


def test_constants_are_folded_as_far_as_the_limits_go():
    """A model of many small products loads; what is too much is left to runs."""
    w = helper.make_tensor("w", 1, [256, 256], np.full(65536, 1 / 256, np.float32))
    graph = rlx.onnx.load(model(*products(400), tensors=[w]))
    with rlx.compile(graph, "cpu") as cg:
        np.testing.assert_allclose(cg.run({"x": np.zeros(2, np.float32)})[0], 256.0, rtol=1e-3)


def test_a_loop_without_an_end_is_not_computed_when_it_is_compiled():
    always, same = rlx.Graph("always"), rlx.Graph("same")
    always.input("x", (2,))
    always.set_outputs([always.constant(True)])
    same.set_outputs([same.input("x", (2,)) * 1.0])
    g = rlx.Graph()
    looped = g.while_(always, same, g.constant(np.ones(2, np.float32)))
    assert effort(looped if looped.op == "while_" else looped.inputs[0]) == math.inf
    g.set_outputs([looped + g.input("x", (2,))])
    rlx.compile(g, "cpu").close()


def test_few_numbers_do_not_become_gigabytes_at_load():
    g = rlx.Graph()
    wide = g.exp(g.expand(g.constant(np.ones(1, np.float32)), (1 << 14, 1 << 14)))
    g.set_outputs([g.input("x", (1 << 14,)) + g.max(wide, 0)])
    with rlx.compile(g, "cpu") as cg:
        assert "computed once" not in cg.as_text("fused")
        assert cg.memory()["params"] < 1 << 24


# --- builders --------------------------------------------------------------------------------------

BUILDERS = {
    "arange": lambda g, x: g.arange(BIG),
    "arange of small steps": lambda g, x: g.arange(0.0, 1.0, 1e-12),
    "one_hot": lambda g, x: g.one_hot(g.cast(x, "i32"), BIG),
    "pad edge": lambda g, x: g.pad(x, [(0, BIG)], mode="edge"),
    "pad wrap": lambda g, x: g.pad(x, [(BIG, 0)], mode="wrap"),
    "trilu": lambda g, x: g.trilu(g.input("big", (1 << 15, 1 << 15))),
    "einsum of a diagonal": lambda g, x: g.einsum("ii->i", g.input("square", (1 << 29, 1 << 29))),
    "stft": lambda g, x: signal.stft(g.input("long", (BIG,)), BIG, 1),
    "mel filters": lambda g, x: signal.mel_filterbank(16000, 1 << 20, 1 << 20),
}  # fmt: skip


@pytest.mark.parametrize("name", BUILDERS)
def test_builders(name):
    g = rlx.Graph()
    with pytest.raises(rlx.LimitError, match=r"expected: at most 6\.7\d*e\+07 elements") as error:
        BUILDERS[name](g, g.input("x", (4,)))
    assert "RLX_MOST_ELEMENTS" in str(error.value)


def test_limits_hold_inside_and_for_each_call(monkeypatch):
    g = rlx.Graph()
    with rlx.limits(elements=100):
        for _ in range(3):
            g.arange(80)
        with pytest.raises(rlx.LimitError, match="at most 100 elements"):
            g.arange(101)
        with rlx.limits(elements=math.inf):
            g.arange(101)
        with rlx.limits(nodes=5):  # the other limits stay
            assert resource_limits.limits_now().elements == 100
    assert g.arange(101).shape == (101,)
    monkeypatch.setenv("RLX_MOST_ELEMENTS", "50")
    with pytest.raises(rlx.LimitError, match="got: 51 elements"):
        g.arange(51)
    for wrong in (0, -1, math.nan, "1"):
        with pytest.raises(rlx.InputError, match="limits"), rlx.limits(elements=wrong):
            pass


def test_each_limit_is_one():
    raw = model(*(node("Add", f"{'x' if not index else f'v{index}'} x", f"v{index + 1}") for index in range(50)),
                node("Relu", "v50"))  # fmt: skip
    assert rlx.onnx.load(raw).outputs
    with (
        rlx.limits(nodes=20),
        pytest.raises(rlx.LimitError, match=r"20 nodes\n(.|\n)*node: '-> v21'"),
    ):
        rlx.onnx.load(raw)
    with rlx.limits(seconds=1e-9), pytest.raises(rlx.LimitError, match="1e-09 seconds"):
        rlx.onnx.load(raw)
    graph = rlx.onnx.load(raw)
    with rlx.limits(seconds=1e-9), pytest.raises(rlx.LimitError, match="seconds"):
        rlx.compile(graph, "cpu", options=rlx.CompileOptions(profile=True))


@pytest.mark.webgpu
def test_loops_written_out_for_a_gpu(webgpu, monkeypatch):
    # Longer ones run on the host before this limit is met.
    monkeypatch.setattr("rlx.ops.control._MAX_STEPS", 1 << 40)
    body = rlx.Graph("body")
    total = body.input("total", (2,)) + body.input("x", (2,))
    body.set_outputs([total, total])
    g = rlx.Graph()
    g.set_outputs([g.scan(body, 1, g.input("start", (2,)), g.input("xs", (1 << 28, 2)))[1]])
    with pytest.raises(rlx.LimitError, match="a loop written out for the GPU"):
        rlx.compile(g, webgpu)


def test_no_memory_to_compile_is_a_typed_error(monkeypatch):
    def none(*_, **__):
        raise MemoryError("Unable to allocate 320 GiB")

    monkeypatch.setattr("rlx.compiler.lowering.plan_memory", none)
    monkeypatch.setenv("RLX_CACHE", "off")
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) * 7.0])
    with pytest.raises(rlx.DeviceMemoryError, match="320 GiB"):
        rlx.compile(g, "cpu")


def test_a_filter_of_many_sections():
    """The step of the whole filter is a matrix of all its states by all its states."""
    from rlx.ops.recurrent.recursive import _step_power

    with pytest.raises(rlx.LimitError, match="sosfilt"):
        _step_power([(1.0, 0.0, 0.0, 1.0, 0.0, 0.0)] * 10_000, 64)


def test_python_does_not_search_for_garbage_during_a_call():
    with resource_limits.budget(), resource_limits.budget():
        assert not gc.isenabled()
        child = os.fork() if hasattr(os, "fork") else None
        if child == 0:
            os._exit(not gc.isenabled())
    assert (gc.isenabled(), child and os.waitpid(child, 0)[1]) in ((True, None), (True, 0))
