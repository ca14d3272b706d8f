"""Samples of every operation against the float64 reference, what executables promise, and random graphs."""

import mlx.core as mx
import numpy as np
import pytest
import rlx_mlx
from conftest import EVERYTHING
from dispatches import planned_as
from rlx_mlx.hand import RECORDS
from rlx_mlx.limits import HOSTED, reason
from test_random_graphs import check

import rlx
import rlx.testing
from rlx.plugin import OPS

FEW = None if EVERYTHING else 3
OPERATIONS = sorted(op for op, record in OPS.items() if record.samples)
SEEDS = range(300 if EVERYTHING else 8)


@pytest.mark.parametrize("op", OPERATIONS)
def test_operation(op):
    report = rlx.testing.conformance("mlx", [op], FEW)
    assert {verdict.outcome for verdict in report.verdicts} <= {"right", "host"}, str(report)
    for verdict in report.verdicts:
        graph = planned_as(verdict.case.graph())
        left = [
            node for node in graph.nodes if node.op not in ("input", "constant") and reason(node)
        ]
        # Constant folding leaves nothing to run.
        assert (verdict.outcome == "host") <= bool(left), verdict


@pytest.mark.parametrize("op", sorted({*HOSTED, *RECORDS}))
def test_what_is_named_is_an_operation(op):
    assert op in OPS


def test_most_operations_run_in_mlx():
    """A figure of its own, so that the list of what is left can't grow in silence."""
    ours = [op for op in OPERATIONS if op not in HOSTED]
    assert len(HOSTED) <= 16
    assert len(ours) >= 150


@pytest.mark.parametrize("promise", rlx.testing.PROMISES, ids=lambda item: item.name)
def test_promise(promise):
    promise.check("mlx")


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graph(seed):
    check(seed, "mlx")


def test_results_stay_in_arrays_of_mlx():
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", (4, 3)) @ g.param("w", (3, 2))])
    w = np.ones((3, 2), np.float32)
    with rlx.compile(g, "mlx", {"w": w}) as cg:
        (y,) = rlx_mlx.run_on_device(cg, np.ones((4, 3), np.float32))
        assert isinstance(y, mx.array)
        assert np.array(y).tolist() == [[3.0, 3.0]] * 4


def test_what_metal_lacks_runs_on_the_host_with_its_reason():
    g = rlx.Graph("wide")
    g.set_outputs([g.cast(g.exp(g.cast(g.input("x", (3,)), "f64")), "f32") + 1.0])
    with rlx.compile(g, "mlx") as cg:
        assert {text.rpartition(": ")[2] for text in cg.host_fallbacks} == {"Metal has no f64"}
        np.testing.assert_allclose(cg.run_slots(np.zeros(3, np.float32))[0], 2.0)
    with pytest.raises(rlx.UnsupportedOpError, match="Metal has no f64"):
        rlx.compile(g, "mlx", options=rlx.CompileOptions(allow_host_fallback=False))


def test_other_precisions_are_refused():
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2, 2)) @ g.input("y", (2, 2))])
    for precision in ("tf32", "bf16", "f16"):
        with pytest.raises(rlx.CompileError, match=precision):
            rlx.Session("mlx", precision=precision).compile(g)


def test_long_sums_do_not_pile_up_errors():
    g = rlx.Graph("sum")
    g.set_outputs([g.sum(g.input("x", (100_003,)))])
    x = np.full(100_003, 0.1, np.float32)
    with rlx.compile(g, "mlx") as cg:
        assert abs(cg.run_slots(x)[0] / (x.astype(np.float64).sum()) - 1) < 2e-6


def test_what_is_only_passed_on_may_be_f64():
    g = rlx.Graph("passed")
    x = g.input("x", (2,), "f64")
    g.set_outputs([x, g.input("y", (2,)) + 1.0])
    arguments = np.array([1 / 3, 2 / 3])
    with rlx.compile(g, "mlx") as cg:
        np.testing.assert_array_equal(
            cg.run_slots(arguments, np.zeros(2, np.float32))[0], arguments
        )


def test_auto_does_not_take_mlx_on_the_processor():
    g = rlx.Graph("large")
    g.set_outputs([g.input("x", (1024, 1024)) @ g.param("w", (1024, 1024))])
    rows = {str(row.device): row for row in rlx.GraphDevices(g).report()}
    assert rows["mlx"].viable
    if rows["mlx"].label.startswith("MLX on the processor"):
        assert rows["mlx"].estimate_ns > rows["cpu"].estimate_ns


def test_a_shift_by_all_bits_gives_what_numpy_gives():
    g = rlx.Graph("shift")
    x, by = g.input("x", (3,), "i32"), g.input("by", (3,), "i32")
    g.set_outputs([g.shift_left(x, by), g.shift_right(x, by)])
    arguments = np.array([-8, 2, 1], np.int32), np.array([32, 40, 1], np.int32)
    with rlx.compile(g, "mlx") as cg, rlx.compile(g, "reference") as expected:
        for first, other in zip(
            cg.run_slots(*arguments), expected.run_slots(*arguments), strict=True
        ):
            np.testing.assert_array_equal(first, other)


def test_a_function_that_mlx_lacks_is_a_typed_error(monkeypatch):
    monkeypatch.delattr(mx, "tanh")
    g = rlx.Graph()
    g.set_outputs([g.tanh(g.input("x", (3,)))])
    with pytest.raises(rlx.UnsupportedOpError, match="has no function tanh"):
        rlx.compile(g, "mlx").run_slots(np.zeros(3, np.float32))
