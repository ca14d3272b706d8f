"""Files that somebody else made: a plan is checked before it is used, and serves no graph but its file's."""

import json

import numpy as np
import pytest
from forged import forge

import rlx
from rlx.compiler import compile_cache
from rlx.compiler.lowering import lower
from rlx.compiler.target import Target
from rlx.errors import InputError
from rlx.ir.opdef import REGISTRY
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.serialize import MAX_NESTED
from rlx.passes.memory_plan import plan_memory

F32 = {"dtype": "f32"}
X = np.float32([0, 1, 2, 3])


@pytest.fixture(autouse=True)
def _folder(tmp_path, monkeypatch):
    """A cache folder of the test's own, in which nothing is stored."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("RLX_CACHE_BYTES", "1")
    compile_cache._kept.clear()
    yield
    compile_cache._kept.clear()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "model.rlx"


def model(name="model"):
    g = rlx.Graph(name)
    x = g.input("x", (4,))
    g.set_outputs([g.flip(g.exp(x) * 2.0, (0,))])
    return g


def expected():
    return (np.exp(X) * 2)[::-1]


def compiled_with(path, device="cpu"):
    """Returns the result of the loaded file, and the counts of the caches."""
    before = rlx.cache_stats()
    with rlx.compile(rlx.load_model(path), device) as cg:
        result = cg.run({"x": X})[0].copy()
    after = rlx.cache_stats()
    return result, after.model_hits - before.model_hits, after.refused - before.refused


def replaced(*nodes, arrays=()):
    """A change that puts other nodes into the plan: op, operands, attributes, the last of them the output."""

    def change(plan, stored):
        stored += arrays
        results = [["input", "x", [], {"shape": [4], "dtype": F32}, ""]]
        results += [
            [op, f"n{index}", list(operands), attrs, ""]
            for index, (op, operands, attrs) in enumerate(nodes)
        ]
        plan["graphs"][plan["graph"]] = ["g", results, [len(results) - 1]]
        plan["offsets"] = []

    return change


STRIDED = {"starts": [0], "stops": [4], "axes": [0], "steps": [1]}
SCALAR = [["x", "x", [], {"shape": [4], "dtype": F32}, ""]]
WRONG = {
    "rows behind the operand": replaced(("leading", [0], {"rows": 1 << 40}), ("narrow", [1], {"axis": 0, "start": 1 << 30, "length": 4})),
    "elements behind the operand": replaced(("narrow", [0], {"axis": 0, "start": 20000, "length": 4})),
    "elements before the operand": replaced(("narrow", [0], {"axis": 0, "start": -20000, "length": 4})),
    "a stride out of the operand": replaced(("slice", [0], {**STRIDED, "steps": [1 << 40]})),
    "another shape": replaced(("reshape", [0], {"shape": [1 << 20]}), ("narrow", [1], {"axis": 0, "start": 0, "length": 4})),
    "a step that reads no operand": replaced(("region", [0], {"program": [["relu", [9], F32, None]]})),
    "a step that writes nothing": replaced(("region", [0], {"program": [["literal", [], F32, 1.0]]})),
    "a step of another type": replaced(("region", [0], {"program": [["relu", [0], {"dtype": "f64"}, None]]})),
    "more steps than registers": replaced(("region", [0], {"program": [["add", [0, max(index, 0)], F32, None] for index in range(200)]})),
    "a kernel's name": replaced(("custom", [0], {"name": "strided_copy", "attrs": []})),
    "a Python function": replaced(("python", [0], {"function": 0x41414141})),
    "a jump": replaced(("jump", [0], {"target": 1 << 40})),
    "a composite": replaced(("resize", [0], {})),
    "a node before itself": replaced(("relu", [1], {})),
    "a node from the end": replaced(("relu", [-1], {})),
    "a node by a bool": replaced(("relu", [False], {})),
    "too few operands": replaced(("add", [0], {})),
    "too many operands": replaced(("relu", [0, 0], {})),
    "an attribute more": replaced(("relu", [0], {"more": 1})),
    "an attribute less": replaced(("flip", [0], {})),
    "an integer for a bool": replaced(("cumsum", [0], {"axis": 0, "exclusive": 1, "reverse": False})),
    "an integer of 71 bits": replaced(("narrow", [0], {"axis": 0, "start": 1 << 70, "length": 4})),
    "a text for an integer": replaced(("narrow", [0], {"axis": "0", "start": 0, "length": 4})),
    "nested lists": replaced(("slice", [0], {**STRIDED, "steps": [[[[[[1]]]]]]})),
    "no number": replaced(("slice", [0], {**STRIDED, "steps": [float("nan")]})),
    "a type without a kernel": replaced(("cast", [0], {"dtype": {"dtype": "f16"}}), ("cumsum", [1], {"axis": 0, "exclusive": False, "reverse": False}), ("cast", [2], {"dtype": F32})),
    "another output": replaced(("narrow", [0], {"axis": 0, "start": 0, "length": 2})),
    "a constant of another type": replaced(("constant", [], {"value": {"array": 0}, "dtype": {"dtype": "i64"}}), arrays=[np.ones(4, np.float32)]),
    "no such op": replaced(("nope", [0], {})),
    "no such graph": lambda plan, stored: plan.update(graph=99),
    "no such tag": replaced(("relu", [0], {"a": {"b": 1}})),
    "an input of another shape": lambda plan, stored: plan["graphs"].__setitem__(plan["graph"], ["g", [["input", "x", [], {"shape": [2], "dtype": F32}, ""]], [0]]),
    "an offset outside": lambda plan, stored: plan.update(offsets=[1 << 40] * max(len(plan["offsets"]), 1)),
    "an offset more": lambda plan, stored: plan["offsets"].append(0),
    "no offsets": lambda plan, stored: plan.pop("offsets"),
    "a graph in two places": lambda plan, stored: plan["subgraphs"].append(plan["graph"]),
    "a subgraph more": lambda plan, stored: (plan["graphs"].append(["s", SCALAR, [0]]), plan["subgraphs"].append(len(plan["graphs"]) - 1)),
    "an input on the host": lambda plan, stored: plan["hosted"].append([0, "why"]),
    "a node on the host that is none": lambda plan, stored: plan["hosted"].append([1 << 40, "why"]),
    "a node from the end on the host": lambda plan, stored: plan["hosted"].append([-1, "why"]),
    "a host node by a bool": lambda plan, stored: plan["hosted"].append([True, "why"]),
    "a host node for no reason": lambda plan, stored: plan["hosted"].append([1, 5]),
    "decisions of a backend that makes none": lambda plan, stored: plan.update(program={"a": 1}),
    "a note that is no text": lambda plan, stored: plan["notes"].append(["fuse", [["%0", 1 << 40]]]),
    "a preparation of no param": lambda plan, stored: (plan["graphs"].append(["s", [["input", "p", [], {"shape": [4], "dtype": F32}, ""]], [0]]), plan["preparations"].append([len(plan["graphs"]) - 1, ["q"]])),
}  # fmt: skip


@pytest.mark.parametrize("what", WRONG)
def test_plans_that_fail_their_checks_are_made_again(path, what, target_device):
    forge(path, model(), WRONG[what], target_device)
    with pytest.warns(RuntimeWarning, match="the model's plan.*is made again"):
        result, hits, refused = compiled_with(path, target_device)
    np.testing.assert_allclose(result, expected(), rtol=1e-5)
    assert (hits, refused) == (0, 1)


@pytest.mark.parametrize(
    "whole",
    [
        lambda kind, data: ("model", data),
        lambda kind, data: (kind, {**data, "name": "0" * 64}),
        lambda kind, data: (kind, []),
        lambda kind, data: (kind, {**data, "lowered": {}}),
    ],
    ids=["another kind", "another name", "a list", "no graph"],
)
def test_what_is_no_plan_is_made_again(path, whole):
    forge(path, model(), lambda plan, stored: None, whole=whole)
    with pytest.warns(RuntimeWarning, match="the model's plan.*is made again"):
        result, hits, refused = compiled_with(path)
    np.testing.assert_allclose(result, expected(), rtol=1e-5)
    assert (hits, refused) == (0, 1)


def test_a_plan_serves_no_graph_but_its_file(path, target_device):
    """The file's plan is legal and computes something else; only the file's own graph may do so."""
    forge(path, model(), replaced(("neg", [0], {})), target_device)
    loaded = rlx.load_model(path)
    for _ in range(2):  # from the file, then from memory
        with rlx.compile(loaded, target_device) as cg:
            np.testing.assert_array_equal(cg.run({"x": X})[0], -X)
        with rlx.compile(model(), target_device) as cg:
            np.testing.assert_allclose(cg.run({"x": X})[0], expected(), rtol=1e-5)
        compile_cache._kept.clear()
        other = rlx.Graph.from_json(loaded.to_json())
        with rlx.compile(other, target_device) as cg:
            np.testing.assert_allclose(cg.run({"x": X})[0], expected(), rtol=1e-5)
        compile_cache._kept.clear()
    # A graph that was changed after it was loaded is no longer the file's.
    loaded.set_outputs([loaded.outputs[0] + 1.0])
    with rlx.compile(loaded, target_device) as cg:
        np.testing.assert_allclose(cg.run({"x": X})[0], expected() + 1, rtol=1e-5)


def test_a_plan_is_used_twice(path):
    forge(path, model(), lambda plan, stored: None)
    loaded, before = rlx.load_model(path), rlx.cache_stats()
    for _ in range(2):
        rlx.compile(loaded, "cpu").close()
    after = rlx.cache_stats()
    done = [
        getattr(after, n) - getattr(before, n) for n in ("model_hits", "memory_hits", "lowered")
    ]
    assert done == [1, 1, 0]


def test_a_file_holds_no_calls_and_no_addresses(path):
    """Evil files once had kernel names, parameters and jumps: a file holds no calls and no addresses."""
    seen = {}
    forge(path, model(), lambda plan, stored: seen.update(plan))
    assert seen["program"] is None
    assert sorted(seen) == [
        "graph", "graphs", "hosted", "notes", "offsets", "preparations", "program", "subgraphs",
    ]  # fmt: skip


def test_subgraphs_that_grow_without_end(path):
    """Each graph with the one before it in two places would be 2^40 nodes written out."""

    def change(plan, stored):
        leaf = [["input", "x", [], {"shape": [4], "dtype": F32}, ""]]
        plan["graphs"] = [["s", leaf, [0]]]
        for index in range(40):
            both = {"then_graph": {"graph": index}, "else_graph": {"graph": index}}
            nodes = [["input", "x", [], {"shape": [4], "dtype": F32}, ""],
                     ["constant", "c", [], {"value": {"array": 0}, "dtype": {"dtype": "bool"}}, ""],
                     ["if_", "i", [1, 0], both, ""], ["part", "p", [2], {"index": 0}, ""]]  # fmt: skip
            plan["graphs"].append(["s", nodes, [3]])
        stored[:] = [np.array(True)]
        plan["graph"] = len(plan["graphs"]) - 1

    forge(path, model(), change)
    with pytest.warns(RuntimeWarning, match="is made again"):
        result, hits, _ = compiled_with(path)
    np.testing.assert_allclose(result, expected(), rtol=1e-5)
    assert not hits


def test_subgraphs_in_subgraphs_are_bounded():
    with pytest.raises(rlx.GraphError, match="deep"):
        rlx.Graph.from_json(deep(MAX_NESTED + 2).to_json())
    assert rlx.Graph.from_json(deep(MAX_NESTED - 1).to_json()).outputs


def deep(levels):
    """Loops within loops."""
    graph = rlx.Graph("innermost")
    graph.set_outputs([graph.input("x", (2,)) * 2.0])
    below = rlx.Graph("below")
    below.set_outputs([below.max(below.input("x", (2,))) < 100.0])
    for _ in range(levels):
        outer = rlx.Graph("outer")
        outer.set_outputs([outer.while_(below, graph, outer.input("x", (2,)))])
        graph = outer
    return graph


# --- memory plans ----------------------------------------------------------------------------------


def planned():
    g = rlx.Graph("wide")
    x = g.input("x", (64, 64))
    parts = [g.softmax(x * float(index + 1), -1) for index in range(6)]
    y = parts[0]
    for part in parts[1:]:
        y = g.softmax(y @ part, -1)
    g.set_outputs([y])
    return lower(g, Target.of(rlx.Device.parse("cpu"), rlx.CompileOptions()))


def test_a_memory_plan_is_checked():
    lowered = planned()
    schedule, plan = lowered.schedule, lowered.plan
    assert isinstance(schedule, Schedule)
    assert isinstance(plan, MemoryPlan)
    good = list(plan.temps)
    assert len(set(good)) > 3
    again = plan_memory(schedule, 256, offsets=good)
    assert again == plan
    for offsets in (
        [good[0]] * len(good),  # overlap
        good[:-1],  # another number
        [good[0] + 4, *good[1:]],  # not aligned
        [1 << 40, *good[1:]],  # outside
        [0, *good[1:]],  # in the inputs
        [-256, *good[1:]],  # negative
        [True, *good[1:]],  # a bool
        [float(good[0]), *good[1:]],  # a float
        ["0", *good[1:]],  # a text
    ):
        with pytest.raises(InputError, match="memory plan"):
            plan_memory(schedule, 256, offsets=offsets)
    # One block moved onto another that lives at the same time is found wherever they are.
    refused = 0
    for index in range(len(good)):
        for other in set(good) - {good[index]}:
            try:
                plan_memory(schedule, 256, offsets=[*good[:index], other, *good[index + 1 :]])
            except InputError:
                refused += 1
    assert refused > len(good)


def test_every_op_of_the_passes_is_checked():
    """Ops that no builder makes are refused like others where their attributes are of other types."""
    internal = [value for value in REGISTRY.values() if value.internal and value.attributes]
    assert len(internal) > 15
    for record in internal:
        g = {"rlx_graph": 1, "name": "g", "outputs": [1], "param_values": {}, "nodes": [
            {"op": "input", "name": "x", "inputs": [], "attrs": {"shape": [4, 4], "dtype": {"$dtype": "f32"}}},
            {"op": record.name, "name": "y", "inputs": [0] * len(record.operands),
             "attrs": {key: {"$graph": 7} for key in record.attributes}}]}  # fmt: skip
        with pytest.raises(rlx.RlxError):
            rlx.Graph.from_json(json.dumps(g))
