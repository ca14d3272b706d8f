"""Random graphs give the same results on every backend, fused or not, with and without memory reuse."""

import numpy as np
import pytest
from random_graphs import CHOICES, random_graph, unrounded
from samples import ALL, SIZED_BY_DATA

import rlx
from rlx.backends.base import CompileOptions
from rlx.ir.dtype import widen
from rlx.ir.opdef import REGISTRY
from rlx.ops.interpret import interpret

pytestmark = pytest.mark.by_program

OPTIONS = {
    "fused": CompileOptions(),
    "unfused": CompileOptions(fuse=False, fold=False, cse=False, dce=False),
    "no reuse": CompileOptions(reuse_memory=False),
}
FEW = 40
# One test for each: a graph that is compiled wrong may end the process.
SEEDS = range(1000 if ALL else FEW)
# Allowed error by dtype, relative to the largest value; and how many times what rounding alone does.
TOLERANCE = {"f32": 2e-5, "f16": 4e-3, "bf16": 3e-2}
TIMES_ROUNDING = 64


def check(seed, device):
    graph, inputs, params = random_graph(seed)
    leaves = {**inputs, **params}
    expected = interpret(graph, leaves)
    exact = unrounded(graph, leaves)
    for mode, options in OPTIONS.items():
        with rlx.Session(device, options=options).compile(graph, params) as compiled:
            got = compiled.run(inputs)
        for index, (node, a, b, wide) in enumerate(
            zip(graph.outputs, got, expected, exact, strict=True)
        ):
            where = f"seed {seed}, {device}, {mode}, output {index}: {node.where()}"
            assert a.shape == b.shape, where
            assert a.dtype == b.dtype, where
            if not node.dtype.is_float:
                assert np.array_equal(a, b), where
                continue
            x, y = widen(a, node.dtype), widen(b, node.dtype)
            assert np.array_equal(np.isnan(x), np.isnan(y)), where
            both = np.isfinite(y)
            assert np.array_equal(x[~both & ~np.isnan(y)], y[~both & ~np.isnan(y)]), where
            if not both.any():
                continue
            scale = np.max(np.abs(y[both]))
            with np.errstate(all="ignore"):
                carried = np.abs(y - wide)[both]
            carried = np.max(carried[np.isfinite(carried)], initial=0.0)
            allowed = TOLERANCE[str(node.dtype)] * max(scale, 1.0) + TIMES_ROUNDING * carried
            error = np.max(np.abs(x - y)[both])
            assert error <= allowed, (
                f"{where}: error {error:.3g} > {allowed:.3g} (scale {scale:.3g})"
            )


@pytest.mark.parametrize("seed", SEEDS)
def test_cpu(seed):
    check(seed, "cpu")


@pytest.mark.webgpu
@pytest.mark.parametrize("seed", SEEDS)
def test_webgpu(seed, webgpu):
    check(seed, webgpu)


def test_every_op_occurs():
    public = {name for name, op in REGISTRY.items() if not op.internal}
    assert public - set(CHOICES) == SIZED_BY_DATA
    seen = set()
    for seed in range(FEW):
        graph, _, _ = random_graph(seed)
        seen |= {node.op for node in graph.nodes}
    # Composites leave no node of their own name.
    nodes = {name for name in CHOICES if REGISTRY[name].expand is None}
    # A new operation changes all graphs: more seeds (FEW) reach more operations.
    assert len(seen & nodes) > 0.6 * len(nodes), f"FEW seeds reach too few: {nodes - seen} lack"
