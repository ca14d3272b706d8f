"""Graphs for the tests of fusion: values for them, their schedules, and gates that take all or nothing."""

import math
from dataclasses import replace

import numpy as np

import rlx
from rlx.backends.base import CompileOptions
from rlx.cost.gate import IoFusionGate

ANY = replace(IoFusionGate.webgpu(), min_gain_ns=-math.inf)
NEVER = replace(IoFusionGate.webgpu(), min_gain_ns=math.inf)


def made(build):
    g = rlx.Graph(build.__name__)
    g.set_outputs(build(g))
    return g


def values(graph, seed=0):
    rng = np.random.default_rng(seed)
    found = {}
    for node in graph.nodes:
        if node.op in ("input", "param"):
            drawn = rng.normal(size=node.shape)
            wide = np.abs(drawn) * 40 if node.dtype in (rlx.DType.I8, rlx.DType.U8) else drawn
            found[node.name] = wide.astype(node.dtype.numpy)
    if "var" in found:
        found["var"] = np.abs(found["var"]) + 0.5
    return found


def close(found, want):
    for got, expected in zip(found, want, strict=True):
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


def schedule(graph, device, **options):
    """The kernel calls of a graph whose params are set."""
    params = {k: v for k, v in values(graph).items() if k in graph.param_names}
    with rlx.compile(graph, device, params, CompileOptions(**options)) as compiled:
        return compiled.as_text("schedule")
