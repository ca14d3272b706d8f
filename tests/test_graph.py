"""Building, checking, printing and storing graphs, and the errors of wrong ones."""

import functools
import itertools
import json

import numpy as np
import pytest
from samples import ALL, looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.ir.plan import ARENA
from rlx.ops.conformance_cases import cases
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler


def test_operators():
    g = rlx.Graph()
    x = g.input("x", (2, 3))
    nodes = [
        x + 1, 1 - x, x * x, x / 2, x**2, -x, x < 1, x >= x, x[0], x[:, 1:], x[..., None],
        x[::-1], x[-1, ::2], x @ np.ones((3, 2), np.float32),
    ]  # fmt: skip
    shapes = [n.shape for n in nodes]
    assert shapes[8:] == [(3,), (2, 2), (2, 3, 1), (2, 3), (2,), (2, 2)]
    assert nodes[6].dtype is rlx.DType.BOOL
    g.set_outputs(nodes)
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    result = rlx.compile(g, "cpu").run({"x": value})
    assert result[11].tolist() == value[::-1].tolist()
    assert result[12].tolist() == value[-1, ::2].tolist()


@looped("case", itertools.islice(cases(), None, None, 1 if ALL else 3), ids=str)
def test_json_round_trip(case):
    graph = case.graph()
    graph.verify()
    again = rlx.Graph.from_json(graph.to_json())
    assert str(again) == str(graph)
    assert again.to_json() == graph.to_json()


@looped("text", ["", "{}", "[]", '{"rlx_graph": 9}', '{"rlx_graph": 1, "name": "no nodes"}'])
def test_bad_json(text):
    with pytest.raises(rlx.GraphError, match="not a graph"):
        rlx.Graph.from_json(text)


@functools.cache
def first_with():
    """For each operation the first graph of the cases that has it, as JSON."""
    results = {}
    for case in cases():
        graph = case.graph()
        for node in graph.nodes:
            if node.op not in results:
                results[node.op] = graph.to_json()
    return results


def changed(op, key, value):
    """A graph as JSON with one attribute of one node another."""
    data = json.loads(first_with()[op])
    attrs = next(node for node in data["nodes"] if node["op"] == op)["attrs"]
    if value is None:
        del attrs[key]
    else:
        attrs[key] = value
    return json.dumps(data)


F32 = {"$dtype": "f32"}


@pytest.mark.parametrize(
    ("use", "text"),
    [
        (lambda g, several: g.add_node("relu", [several]), "'part' takes one"),
        (lambda g, several: several, "is several values"),
    ],
)
def test_several_values_are_no_operand_and_no_output(use, text):
    g = rlx.Graph()
    (several,) = g.topk(g.input("x", (2, 5)), 2)[0].inputs
    g.set_outputs([use(g, several)])
    with pytest.raises(rlx.VerifyError, match=text):
        g.verify()


@looped(
    ("op", "key", "value", "text"),
    [
        ("argmax", "select_last", "yes", "expected: bool"),
        ("argmax", "select_last", 1, "expected: bool"),
        ("argmax", "select_last", None, "attributes are not those"),
        ("argmax", "last", True, "attributes are not those"),
        ("part", "index", True, "expected: int"),
        ("interpolate", "cubic_coeff_a", "0", "expected: float"),
        ("constant", "value", {"$array": "AAAA", "shape": [3], "dtype": "|u1"}, "wrong type"),
        ("region", "program", [["add", [0, 7], F32, None]], "elementwise steps"),
        ("region", "program", [["add", [0, -1], F32, None]], "elementwise steps"),
        ("region", "program", [["matmul", [0, 1], F32, None]], "elementwise steps"),
        ("region", "program", [["gt", [0, 1], F32, None]], "elementwise steps"),
        ("region", "program", [["literal", [], F32, "x"]], "elementwise steps"),
        ("region", "program", [["literal", [], F32, 1.0]], "elementwise steps"),
        ("region", "program", [["relu", [0], F32, None]] * 65, "elementwise steps"),
        (
            "region",
            "program",
            [["literal", [], F32, 1e39], ["relu", [0], F32, None]],
            "elementwise",
        ),
        ("region", "program", [], "not a graph"),
        ("region", "program", 3, "not a graph"),
        ("part", "index", -1, "a result of the operand"),
        ("leading", "rows", 1 << 40, "the operand's rows"),
        ("leading", "rows", -1, "no array can have"),
        ("ordered", "k", 1 << 40, "last axis"),
        ("ordered", "k", -1, "last axis"),
        ("spectrum_peaks", "n_segments", -1, "operands"),
        ("spectrum_mel", "floor_axes", "abc", "floor_axes"),
        ("recurrence", "reverse", [7], "bools"),
        ("recurrence", "cell", "abc", "a cell"),
        ("while_", "max_trips", 0.5, "max_trips"),
        ("attention", "softcap", "abc", "softcap"),
        ("attention", "present", "mask", "present|operands"),
        ("interpolate_plane", "axis", [1, 1], "two axes"),
        ("slice", "steps", [True], "steps"),
        ("conv2d", "stride", 1 << 70, "not a graph|stride"),
        ("conv2d", "stride", [1.0, 1.0], "not a graph|stride"),
        ("conv2d", "padding", [[-1, 0], [0, 0]], "not a graph|padding"),
        ("fft", "inverse", "abc", "inverse"),
        ("softmax", "axis", -1, "axis"),
        ("layer_norm", "eps", "0", "expected: float"),
        ("layer_norm", "present", ["bias", "weight"], "in order|not a graph"),
        ("expand", "shape", [1 << 62, 1 << 62], "expand"),
    ],
)
def test_attributes_from_a_file_are_checked(op, key, value, text):
    """Kernels believe what builders have seen to."""
    with pytest.raises(rlx.GraphError, match=text):
        rlx.Graph.from_json(changed(op, key, value))


@looped(
    ("build", "error", "text"),
    [
        (lambda g, x: g.input("n", (2**31, 2**31)), rlx.ShapeError, "no array can have"),
        (lambda g, x: g.input("n", (1,) * 33), rlx.ShapeError, "no array can have"),
        (
            lambda g, x: g.conv1d(g.input("n", (1, 1, 4)), g.param("w", (1, 1, 1)), stride=2**31),
            rlx.ShapeError,
            "stride does not fit",
        ),
        (lambda g, x: x @ x, rlx.ShapeError, "shapes do not fit"),
        (lambda g, x: x + g.input("i", (3,), "i32"), rlx.DTypeError, "differ in dtype"),
        (lambda g, x: x + np.complex64(1), rlx.DTypeError, "can't become f32"),
        (lambda g, x: g.reshape(x, (5,)), rlx.ShapeError, "number of elements"),
        (lambda g, x: g.softmax(x, axis=2), rlx.ShapeError, "no such axis"),
        (lambda g, x: g.softmax(x, axes=2), rlx.GraphError, r"softmax\(x, axis=-1\)"),
        (lambda g, x: g.input("x", (2,)), rlx.GraphError, "taken"),
        (lambda g, x: g.input("n", (float("nan"),)), rlx.ShapeError, "not a shape"),
        (lambda g, x: g.input("n", (-1,)), rlx.ShapeError, "not a shape"),
        (lambda g, x: g.input("n", (2,), "f31"), rlx.DTypeError, "did you mean"),
        (lambda g, x: g.binary("ad", x, x), rlx.UnknownNameError, "did you mean 'add'"),
        (lambda g, x: g.set_outputs([]), rlx.GraphError, "no outputs"),
        (
            lambda g, x: g.set_outputs([rlx.Graph().input("x", (2,))]),
            rlx.GraphError,
            "another graph",
        ),
        (lambda g, x: bool(x), rlx.GraphError, "no truth value"),
        (lambda g, x: rlx.compile(rlx.Graph()), rlx.VerifyError, "no nodes"),
        (lambda g, x: rlx.compile(g), rlx.VerifyError, "no outputs"),
        (lambda g, x: rlx.Device.parse("gpuu"), rlx.DeviceParseError, "did you mean"),
        (lambda g, x: rlx.Session("webgpu:99"), rlx.DeviceUnavailableError, "not available"),
        (lambda g, x: rlx.Session("cuda"), rlx.DeviceUnavailableError, "no backend"),
        (lambda g, x: g.welch_peaks(x, 1, 1), rlx.ShapeError, "block layout"),
        (lambda g, x: g.fft(x), rlx.ShapeError, "block layout"),
        (lambda g, x: g.max(g.input("e", (0,))), rlx.ShapeError, "no elements"),
    ],
)
def test_errors(build, error, text):
    g = rlx.Graph()
    x = g.input("x", (2, 3))
    with pytest.raises(error, match=text):
        build(g, x)


def test_every_error_is_in_one_tree():
    for name in dir(rlx):
        value = getattr(rlx, name)
        if isinstance(value, type) and issubclass(value, Exception):
            assert issubclass(value, rlx.RlxError)
    assert issubclass(rlx.ShapeError, ValueError)
    assert issubclass(rlx.DTypeError, ValueError)
    assert issubclass(rlx.InputError, ValueError)
    assert issubclass(rlx.UnknownNameError, KeyError)


def test_the_verifier_shows_the_neighbours():
    g = rlx.Graph("broken")
    x = g.input("x", (2, 3))
    y = g.exp(x)
    g.set_outputs([g.neg(y)])
    y.types = (type(y.type)((5,), y.dtype),)
    with pytest.raises(rlx.VerifyError) as caught:
        g.verify()
    assert "> %1 = exp %0" in str(caught.value)
    assert "%2 = neg %1" in str(caught.value)


def test_environment_variables_that_do_not_parse(monkeypatch):
    monkeypatch.setenv("RLX_CPU_ISA", "sse9")
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,)) + 1.0])
    with pytest.raises(rlx.InputError, match=r"RLX_CPU_ISA.*\n.*sse9"):
        rlx.compile(g, "cpu")


def chain():
    g = rlx.Graph("chain")
    x = g.input("x", (64, 64))
    y = x
    for index in range(6):
        y = g.tanh(y @ g.param(f"w{index}", (64, 64)) + g.param(f"b{index}", (64,))) * 0.5 + x
        y = g.softmax(y)
    g.set_outputs([y, g.sum(y)])
    return g


@pytest.mark.parametrize("reuse", [True, False])
def test_no_two_live_values_overlap(reuse):
    options = CompileOptions()

    def specialise(graph):
        return run_pipeline(graph, lambda name: bool(getattr(options, name)), "cpu")

    fused, _ = specialise(chain())
    schedule = Scheduler(fused, "cpu", {}, specialise).run()
    plan = plan_memory(schedule, reuse=reuse)
    end = len(schedule.calls)
    life = {}
    for step, call in enumerate(schedule.calls):
        for value in (*call.inputs, *call.outputs):
            if value is not None and value.kind in ARENA:
                life.setdefault(value.id, [step, step])[1] = step
    for value in schedule.values:
        if value.kind == "input":
            life[value.id] = [0, end]
        elif value.kind == "output":
            life[value.id][1] = end
    handed_over = {tuple(pair) for pair in plan.reused}
    for a, (a_first, a_last) in life.items():
        for b, (b_first, b_last) in life.items():
            if a >= b or a_last < b_first or b_last < a_first or (b, a) in handed_over:
                continue
            slot_a, slot_b = plan.slots[a], plan.slots[b]
            apart = (
                slot_a.offset + slot_a.nbytes <= slot_b.offset
                or slot_b.offset + slot_b.nbytes <= slot_a.offset
            )
            assert apart, f"v{a} and v{b} share memory while both live"
    if reuse:
        assert plan.nbytes <= 1.05 * plan.live_peak
        assert plan.reused


def test_simplification():
    g = rlx.Graph()
    x = g.input("x", (3,))
    a = g.constant(np.float32([1, 2, 3])) * 2.0
    g.exp(x)
    g.set_outputs([x + a, x + a])
    notes = rlx.compile(g, "null").as_text("fused")
    assert "fold: computed" in notes
    assert "cse:" in notes
    assert "dce: dropped" in notes


def test_nodes_that_do_nothing_are_left_out(device):
    g = rlx.Graph()
    x = g.input("x", (4, 8))
    same = g.transpose(g.reshape(g.narrow(x, 0, 0, 4), (4, 8)), (0, 1))
    same = g.concat([g.cast(g.expand(same[:, 0:8], (4, 8)), "f32")], 0)
    g.set_outputs([same, g.relu(same), g.transpose(x, (1, 0)), x[:, ::-1], g.narrow(x, 0, 1, 3)])
    value = np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32)
    with rlx.compile(g, device) as compiled:
        for _ in range(2):
            result = compiled.run({"x": value})
            wanted = value, np.maximum(value, 0), value.T, value[:, ::-1], value[1:]
            for first, other in zip(result, wanted, strict=True):
                np.testing.assert_array_equal(first, other)
        if device != "reference":
            assert compiled.as_text("fused").count("does nothing") >= 5


def test_names_are_text():
    g = rlx.Graph()
    x = g.input("x", (2,))
    for make in (lambda: rlx.Graph(3), lambda: g.add_node("exp", [x], name=0.5)):
        with pytest.raises(rlx.GraphError, match="a name must be text"):
            make()
    g.set_outputs([g.exp(x)])
    data = json.loads(g.to_json())
    for change in (lambda d: d.update(name=1.5), lambda d: d["nodes"][-1].update(name=2.5)):
        other = json.loads(json.dumps(data))
        change(other)
        with pytest.raises(rlx.GraphError, match="a name must be text"):
            rlx.Graph.from_json(json.dumps(other))
