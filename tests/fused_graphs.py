"""Graphs for the tests of fusion and of joined products: values for them, their schedules, and gates that take all or nothing."""

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
    results = {}
    for node in graph.nodes:
        if node.op in ("input", "param"):
            drawn = rng.normal(size=node.shape)
            wide = np.abs(drawn) * 40 if node.dtype in (rlx.DType.I8, rlx.DType.U8) else drawn
            results[node.name] = wide.astype(node.dtype.numpy)
    if "var" in results:
        results["var"] = np.abs(results["var"]) + 0.5
    return results


def fed(graph):
    """The arguments of a graph, its params, and the results of the reference, which fuses nothing."""
    arguments = values(graph)
    params = {k: arguments.pop(k) for k in graph.param_names}
    with rlx.compile(graph, "reference", params, rlx.CompileOptions(fuse=False)) as exact:
        return arguments, params, exact.run(arguments)


def close(result, want):
    for got, expected in zip(result, want, strict=True):
        np.testing.assert_allclose(got, expected, 1e-4, 1e-4)


def schedule(graph, device, **options):
    """The kernel calls of a graph whose params are set."""
    params = {k: v for k, v in values(graph).items() if k in graph.param_names}
    with rlx.compile(graph, device, params, CompileOptions(**options)) as compiled:
        return compiled.as_text("schedule")


def product(g):
    y = g.input("x", (5, 7)) @ g.param("w", (7, 6)) + g.param("b", (6,))
    return [g.gelu(y)]


def swiglu(g, m=5, act="silu", shape=(24, 18)):
    x = g.input("x", (m, shape[0]))
    return [getattr(g, act)(x @ g.param("wg", shape)) * (x @ g.param("wu", shape))]


def swiglu_of_one_row(g):
    return swiglu(g, 1)


def geglu_with_bias(g):
    x = g.input("x", (2, 3, 24))
    gate = x @ g.param("wg", (24, 20)) + g.param("bg", (20,))
    up = g.param("bu", (20,)) + x @ g.param("wu", (24, 20))
    return [g.gelu(gate) * up]


def silu_written_out(g):
    x = g.input("x", (5, 24))
    gate, up = x @ g.param("wg", (24, 16)), x @ g.param("wu", (24, 16))
    return [up * (g.sigmoid(gate) * gate)]


def qkv(g):
    x = g.input("x", (5, 24))
    return [x @ g.param(name, (24, 16)) for name in ("wq", "wk", "wv")]


def qkv_with_bias(g):
    x = g.input("x", (2, 3, 24))
    sizes = {"q": 32, "k": 8, "v": 8}
    return [
        x @ g.param(f"w{name}", (24, n)) + g.param(f"b{name}", (n,)) for name, n in sizes.items()
    ]


def qkv_with_known_bias(g):
    x, bias = g.input("x", (1, 24)), np.arange(9, dtype=np.float32)
    return [x @ g.param(f"w{index}", (24, 9)) + g.constant(bias * index) for index in range(3)]


def weights(g, n, *names):
    return {name: g.param(name, (n,)) for name in names}


def packed(g, x, rows, seed=0):
    """A product by random weights in blocks."""
    weights = np.random.default_rng(seed).normal(size=(rows, x.shape[-1])) * 0.1
    blocks = rlx.ops.quantize_blocks(weights.astype(np.float32), "Q8_0")
    return g.dequant_matmul(x, g.constant(blocks, "u8"), "Q8_0")


def packed_gate(g):
    x = g.input("x", (1, 64))
    return [g.gelu(packed(g, x, 40)) * packed(g, x, 40, 1)]


def packed_sum(g):
    x, r = g.input("x", (2, 1, 64)), g.input("r", (1, 1, 96))
    return [packed(g, g.narrow(x, 0, 1, 1), 96) + r]


def packed_norm(g):
    x = g.rms_norm(g.input("x", (1, 64)), g.param("w", (64,)))
    return [packed(g, x, 40), packed(g, x, 7, 1)]


def packed_heads(g):
    x = g.rms_norm(g.input("x", (1, 64)), g.param("w", (64,)))
    q, k, v = (g.reshape(packed(g, x, n, n), (1, -1, 16)) for n in (64, 32, 48))
    cos, sin = g.input("cos", (1, 1, 8)), g.input("sin", (1, 1, 8))
    return [g.rope(q, cos, sin, None, "neox"), g.rope(k, cos, sin, None, "neox"), g.exp(v)]


def packed_heads_of_a_cache(g):
    q, k, v = packed_heads(g)
    kept = (g.cast(g.cast(x, "f16"), "f32") for x in (k, v.inputs[0]))
    # Small, since f16 may round to either side of what f32 and f64 leave.
    return [q, *(x * 0.03 for x in kept)]


def half_cache(g):
    q = g.input("q", (2, 3, 4, 8))
    k, v = (g.cast(g.input(name, (2, 9, 2, 8), "f16"), "f32") for name in "kv")
    return [g.attention(q, k, v, kind="causal", num_kv_heads=2, layout="bshd")]


def packed_cache(g):
    q = g.input("q", (2, 3, 4, 32))
    rows = (g.add_node("quantize_q8_0", [g.input(name, (2, 9, 2, 32))]) for name in "kv")
    k, v = (g.dequantize_blocks(item, "Q8_0") for item in rows)
    return [g.attention(q, k, v, kind="causal", num_kv_heads=2, layout="bshd")]


def packed_biases(g):
    x = g.rms_norm(g.input("x", (1, 64)), g.param("w", (64,)))
    return [packed(g, x, n, n) + g.param(f"b{n}", (n,)) for n in (64, 32, 48)]


def half_rows_product(g):
    x, w = g.input("x", (3, 64)), g.param("w", (33, 64), "f16")
    return [g.exp(x @ g.transpose(g.cast(w, "f32")))]


def half_table(g):
    table, rows = g.param("table", (7, 36), "f16"), g.input("rows", (5,), "i32")
    return [g.exp(g.cast(g.gather(table, rows, axis=0), "f32"))]
