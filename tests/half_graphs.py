"""Graphs of products of halves and bytes, and what checks their results on a device."""

import numpy as np

import rlx
from rlx.ops.block_formats import FORMATS, scrambled_blocks


def product(  # noqa: PLR0913 - what a product may be
    m, k, n, batch=(), left=False, right=False, act=None, bias=False, dtype="f16"
):
    g = rlx.Graph()
    a = g.input("a", (*batch, *((k, m) if left else (m, k))), dtype)
    b = g.input("b", (*batch, *((n, k) if right else (k, n))), dtype)
    turn = (*range(len(batch)), len(batch) + 1, len(batch))
    y = (g.transpose(a, turn) if left else a) @ (g.transpose(b, turn) if right else b)
    if bias:
        y = y + g.input("bias", (n,), dtype)
    g.set_outputs([y if act is None else getattr(g, act)(y)])
    return g


def gated(m, k, n, bias=False):
    g = rlx.Graph()
    x, wg, wu = (g.input(*item, "f16") for item in (("x", (m, k)), ("g", (k, n)), ("u", (k, n))))
    biases = [g.input(name, (n,), "f16") for name in ("bg", "bu")] if bias else [0.0, 0.0]
    g.set_outputs([g.silu(x @ wg + biases[0]) * (x @ wu + biases[1])])
    return g


def joined(m, k, columns):
    g = rlx.Graph()
    x = g.input("x", (m, k), "f16")
    g.set_outputs([x @ g.param(f"w{index}", (k, n), "f16") for index, n in enumerate(columns)])
    return g


def integers(a, b, signs):
    g = rlx.Graph()
    g.set_outputs([g.matmul_integer(g.input("a", a, signs[0]), g.input("b", b, signs[1]))])
    return g


def attention(q, k, v, mask=None, dtype="f16", **attrs):
    g = rlx.Graph()
    operands = [g.input(name, shape, dtype) for name, shape in zip("qkv", (q, k, v), strict=True)]
    if mask is not None:
        operands.append(g.input("m", mask, "bool" if attrs["kind"] == "custom" else dtype))
    g.set_outputs([g.attention(*operands, **attrs)])
    return g


def convolution(x, w, bias=True, dtype="f16", **attrs):
    g = rlx.Graph()
    operands = [g.input("x", x, dtype), g.input("w", w, dtype)]
    if bias:
        operands.append(g.input("b", (w[0],), dtype))
    g.set_outputs([getattr(g, f"conv{len(x) - 2}d")(*operands, **attrs)])
    return g


def packed(m, scheme, n, blocks):
    """Rows of f32 by weights in blocks; the graph and its operands."""
    form = FORMATS[scheme]
    k = blocks * form.weights
    w = scrambled_blocks(scheme, n, k)
    g = rlx.Graph()
    x = g.input("x", (m, k))
    g.set_outputs([g.dequant_matmul(x, g.input("w", w.shape, "u8"), scheme)])
    return g, [np.random.default_rng(4).standard_normal((m, k)).astype(np.float32), w]


def by_expert(m, k, n, experts, dtype="f16"):
    g = rlx.Graph()
    x, w, idx = (
        g.input("x", (m, k), dtype),
        g.input("w", (experts, k, n), dtype),
        g.input("idx", (m,), "i32"),
    )
    g.set_outputs([g.grouped_matmul(x, w, idx)])
    return g


def random_products(seed, count):
    rng = np.random.default_rng(seed)
    for _ in range(count):
        m, k, n = (int(rng.choice([rng.integers(17, 140), 8 * rng.integers(3, 18)])) for _ in "mkn")
        batch = ((), (3,), (2, 2))[rng.integers(3)]
        left, right = (bool(integer) for integer in rng.integers(0, 2, 2))
        act = (None, "relu", "gelu")[rng.integers(3)]
        bias = bool(rng.integers(2)) and not batch
        yield {
            "m": m,
            "k": k,
            "n": n,
            "batch": batch,
            "left": left,
            "right": right,
            "act": act,
            "bias": bias,
        }


PRODUCTS = list(random_products(26, 12))
ATTENTIONS = (
    (((1, 1, 40, 8),) * 3, {}),
    (((1, 2, 70, 64), (1, 2, 130, 64), (1, 2, 130, 64)), {"kind": "causal"}),
    (((2, 2, 17, 6), (2, 1, 70, 6), (2, 1, 70, 5)), {}),
    (((1, 2, 90, 40), (1, 2, 70, 40), (1, 2, 70, 72)), {"kind": "causal"}),
    (((1, 200, 64), (1, 200, 32), (1, 200, 32)), {"num_heads": 4, "num_kv_heads": 2, "kind": "sliding:50"}),
    (((2, 33, 2, 20), (2, 66, 2, 20), (2, 66, 2, 30)), {"layout": "bshd", "softcap": 2.0}),
    (((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 75)), {"kind": "custom"}),
    (((2, 2, 40, 8), (2, 2, 75, 8), (2, 2, 75, 8), (2, 1, 40, 75)), {"kind": "bias"}),
    (((1, 2, 40, 16), (1, 2, 3, 16), (1, 2, 3, 16)), {"kind": "causal"}),
    (((1, 1, 33, 64), (1, 1, 200, 64), (1, 1, 200, 64)), {"scale": 3.0}),
)  # fmt: skip
CONVOLUTIONS = (
    ((1, 16, 9, 8), (16, 16, 3, 3), {"padding": 1}),
    ((2, 20, 9, 11), (33, 20, 3, 3), {"padding": 1, "stride": 2}),
    ((2, 16, 9, 11), (18, 16, 1, 1), {"bias": False}),
    ((1, 40, 37), (24, 40, 5), {"padding": 2, "dilation": 2}),
    ((2, 32, 7, 6), (48, 16, 3, 2), {"groups": 2, "padding": (1, 0)}),
    ((1, 9, 5, 6, 7), (10, 9, 2, 3, 2), {"padding": 1}),
    ((1, 128, 4, 4), (16, 128, 3, 3), {"padding": 1}),
)
# The last expert of each has no rows.
EXPERTS = (
    (40, 36, 68, 3, "f16"),
    (100, 64, 32, 4, "f16"),
    (70, 33, 50, 9, "f16"),
    (60, 40, 40, 2, "f32"),
)
INTEGERS = (((40, 36), (36, 68)), ((3, 20, 132), (3, 132, 200)), ((33, 260), (260, 40)))
PACKED = ((40, "Q4_0", 36, 3), (33, "Q8_0", 66, 2), (67, "Q6_K", 9, 1), (40, "Q5_0", 33, 5),
          (40, "Q4_K", 36, 1), (33, "Q5_K", 66, 2))  # fmt: skip
SIGNS = [(a, b) for a in ("i8", "u8") for b in ("i8", "u8")]


def on_units(device, graph, arrays, precision="f16"):
    compiled = rlx.Session(device, precision=precision).compile(graph)
    try:
        assert "subgroupMatrixMultiplyAccumulate" in compiled.as_text("kernels")
        return [np.array(slot, np.float64) for slot in compiled.run_slots(*arrays)]
    finally:
        compiled.close()


def draw(rng, shapes):
    return [rng.standard_normal(shape).astype(np.float16) for shape in shapes]


def check_attention(device, shapes, attrs, tolerance, fragments=False):
    rng = np.random.default_rng(5)
    masked = attrs.get("kind") == "custom"
    arrays = draw(rng, shapes[:3])
    if len(shapes) > 3:
        arrays.append(rng.random(shapes[3]) < 0.6 if masked else draw(rng, shapes[3:])[0])
    graph = attention(*shapes, **attrs)
    if fragments:
        (result,) = on_units(device, graph, arrays)
    else:
        result = rlx.Session(device, precision="f16").compile(graph).run_slots(*arrays)[0]
    wide = [x if x.dtype == bool else x.astype(np.float32) for x in arrays]
    (wanted,) = rlx.compile(attention(*shapes, dtype="f32", **attrs), "cpu").run_slots(*wide)
    assert np.abs(np.float64(result) - wanted).max() <= tolerance


def check_convolution(device, x, w, attrs, fragments=False):
    rng = np.random.default_rng(6)
    shapes = [x, w] + ([(w[0],)] if attrs.get("bias", True) else [])
    arrays = draw(rng, shapes)
    graph = convolution(x, w, **attrs)
    if fragments:
        (result,) = on_units(device, graph, arrays)
    else:
        result = rlx.Session(device, precision="f16").compile(graph).run_slots(*arrays)[0]
    wide = [array.astype(np.float32) for array in arrays]
    (wanted,) = rlx.compile(convolution(x, w, dtype="f32", **attrs), "cpu").run_slots(*wide)
    assert np.abs(np.float64(result) - wanted).max() <= 1e-3 * np.abs(wanted).max()


def check_fewer_images(device):
    """A run of 2 of 4 images computes those as a run of all does: what belongs to weights stays whole."""
    graph = convolution((4, 16, 5, 6), (24, 16, 3, 3), padding=1)
    rng = np.random.default_rng(7)
    x, w, b = draw(rng, [(4, 16, 5, 6), (24, 16, 3, 3), (24,)])
    other = draw(rng, [(4, 16, 5, 6), (24, 16, 3, 3), (24,)])
    with rlx.Session(device, precision="f16").compile(graph) as compiled:
        wanted = compiled.run_slots(x, w, b)[0].copy()
        compiled.run_slots(*other)  # so that no right answer is left over
        compiled.set_active_extent((2, 4))
        result = compiled.run_slots(x, w, b)[0]
        assert np.array_equal(result[:2], wanted[:2])
