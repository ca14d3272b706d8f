"""Ops on made shapes of every rank, on each backend, against the float64 reference."""

from __future__ import annotations

import numpy as np
import pytest
import shapes
from hypothesis import HealthCheck, given, settings

import rlx
from rlx.ir.dtype import widen
from rlx.ops.elementwise.table import TABLE

pytestmark = pytest.mark.per_op

FAMILIES = {
    "where": shapes.where, "reduction": shapes.reduction, "softmax": shapes.softmax,
    "cumsum": shapes.cumsum, "argument": shapes.argument, "ordering": shapes.ordering,
    "transpose": shapes.transpose, "slice": shapes.slicing, "concat": shapes.concat,
    "expand": shapes.expand, "pad": shapes.pad, "tile": shapes.tile, "flip": shapes.flip,
    "gather": shapes.gather, "gather_elements": shapes.gather_elements,
    "scatter_elements": shapes.scatter_elements, "matmul": shapes.matmul,
    "layer_norm": shapes.layer_norm, "convolution": shapes.convolution,
    "attention": shapes.attention, "fft": shapes.fft,
}  # fmt: skip
# Sums cancel: their error is relative to what was summed, of the size of 1, not to what is left of it.
SUMMED = {
    *(row.name for row in TABLE), "sum", "mean", "logsumexp", "cumsum", "matmul", "layer_norm",
    "conv1d", "conv2d", "conv3d", "scatter_elements", "log_softmax", "attention",
}  # fmt: skip
# Sums of thousands of numbers in f32: the reference's tolerance is for a few.
LOOSER = {"sum": 4, "cumsum": 8, "scatter_elements": 8, "matmul": 4}


def check(case, device):
    graph, operands = case.graph(), case.operands()
    with rlx.Session(device).compile(graph) as compiled:
        got = [view.copy() for view in compiled.run_slots(*operands)]
    expected = case.expected(graph, operands)
    for node, a, b in zip(graph.outputs, got, expected, strict=True):
        where = f"{case.opdef.name}{case.sample.shapes} {case.dtypes} {dict(case.sample.attrs)}"
        assert a.shape == b.shape, where
        assert a.dtype == b.dtype, where
        if not node.dtype.is_float:
            np.testing.assert_array_equal(a, b, err_msg=where)
            continue
        x, y = widen(a, node.dtype), widen(b, node.dtype)
        np.testing.assert_array_equal(np.isnan(x), np.isnan(y), err_msg=where)
        finite = np.isfinite(y)
        np.testing.assert_array_equal(x[~finite], y[~finite], err_msg=where)
        if not finite.any():
            continue
        if case.opdef.bound is not None:
            error = np.linalg.norm((x - y)[finite]) / (np.linalg.norm(y[finite]) or 1.0)
            assert error <= case.opdef.bound(node), where
            continue
        floor = 1.0 if case.opdef.name in SUMMED else 0.0
        scale = max(np.max(np.abs(y[finite])), floor) or 1.0
        allowed = case.opdef.tolerance_for(node.dtype) * LOOSER.get(case.opdef.name, 1)
        error = np.max(np.abs(x - y)[finite]) / scale
        assert error <= allowed, f"{where}: error {error:.3g} > {allowed:.3g}"


def explore(strategy, device, examples):
    """Draws cases, the same ones each time."""

    @settings(
        max_examples=examples,
        derandomize=True,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def run(case):
        check(case, device)

    run()


DEVICES = pytest.mark.parametrize(
    "device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)], indirect=True
)


def amounts(few, many):
    """Returns the numbers of examples: in the normal run, and in the slow one."""
    return pytest.mark.parametrize("examples", [few, pytest.param(many, marks=pytest.mark.slow)])


@DEVICES
@amounts(6, 100)
@pytest.mark.parametrize("row", TABLE, ids=lambda row: row.name)
def test_elementwise(row, device, examples):
    explore(shapes.elementwise(row), device, examples)


@DEVICES
@amounts(30, 400)
@pytest.mark.parametrize("family", FAMILIES)
def test_family(family, device, examples):
    explore(FAMILIES[family](), device, examples)
