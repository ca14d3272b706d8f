"""Workloads of products and attention: P4, P5, P6."""

import math

import numpy as np
from gpu_work import F32, Goal, Row, Work, noise, rows_of

import rlx
from rlx.ops import decode_blocks, quantize_blocks

F16 = rlx.CompileOptions(precision="f16")
# Sums of up to 16,384 products rounded to f32 one after the other stay below; a wrong element does not.
SUMS = 1e-5
# Results are rounded to f16 (3e-4); sums made in f16 would be off by 1e-2.
HALF = 1e-3


def wide(*arrays):
    return [one.astype(np.float64) for one in arrays]


def gelu(x):
    from scipy.special import erf

    return 0.5 * x * (1 + erf(x / math.sqrt(2)))


def matmul(rng, m, k, n, batch=(), dtype=F32, ta=False, tb=False):
    """``a @ b``; ``ta`` and ``tb`` say that an operand lies transposed in memory."""
    a = noise(rng, *batch, *((k, m) if ta else (m, k)), dtype=dtype)
    b = noise(rng, *batch, *((n, k) if tb else (k, n)), dtype=dtype) * dtype(k**-0.5)
    order = (*range(len(batch)), len(batch) + 1, len(batch))

    def build(g, x):
        left = g.transpose(x["a"], order) if ta else x["a"]
        right = g.transpose(x["w"], order) if tb else x["w"]
        return [left @ right]

    def reference(outputs):
        left, right = wide(a, b)
        left = left.swapaxes(-1, -2) if ta else left
        right = right.swapaxes(-1, -2) if tb else right
        return outputs[0], left @ right

    half = dtype == np.float16
    return Work(
        {"a": a, "w": b},
        build,
        reference,
        2.0 * m * k * n * math.prod(batch),
        # A param could be turned once, beforehand; here the kernel has to read it as it lies.
        weights=() if tb else ("w",),
        peer=("matmul", {"ta": ta, "tb": tb}),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )


def epilogue(rng, m, k, n):
    """``gelu(a @ w + b) + r``."""
    a, w, b, r = noise(rng, m, k), noise(rng, k, n) * F32(k**-0.5), noise(rng, n), noise(rng, m, n)

    def reference(outputs):
        x, y, z, residual = wide(a, w, b, r)
        return outputs[0], gelu(x @ y + z) + residual

    return Work(
        {"a": a, "w": w, "b": b, "r": r},
        lambda g, x: [g.gelu(x["a"] @ x["w"] + x["b"]) + x["r"]],
        reference,
        2.0 * m * k * n,
        weights=("w", "b"),
        peer=("epilogue", {}),
        tolerance=SUMS,
    )


def grouped(rng, m, k, n, experts):
    """Rows of x times the matrix of the expert that each row has."""
    x, w = noise(rng, m, k), noise(rng, experts, k, n) * F32(k**-0.5)
    idx = rng.integers(0, experts, m).astype(np.int32)

    def reference(outputs):
        expected = np.empty((m, n))
        for at in range(experts):
            expected[idx == at] = x[idx == at].astype(np.float64) @ w[at].astype(np.float64)
        return outputs[0], expected

    return Work(
        {"x": x, "w": w, "idx": idx},
        lambda g, v: [g.grouped_matmul(v["x"], v["w"], v["idx"])],
        reference,
        2.0 * m * k * n,
        weights=("w",),
    )


def int8(rng, m, k, n):
    """Products of signed bytes, summed in integers, scaled to f32."""
    a = rng.integers(-128, 128, (m, k)).astype(np.int8)
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)

    def reference(outputs):
        x, y = wide(a, b)  # exact: sums stay below 2^53
        return outputs[0], (x @ y) * (0.01 * 0.02)

    return Work(
        {"a": a, "w": b},
        lambda g, x: [g.qmatmul(x["a"], x["w"], 0.01, 0.02)],
        reference,
        2.0 * m * k * n,
        weights=("w",),
        peer=("int8", {}),
    )


def dequant(rng, m, k, n, scheme):
    """``x @ W^T`` with W in blocks."""
    x, times = noise(rng, m, k), max(1, n // 2048)
    # Encoding many weights takes long: a block of rows stands there several times.
    part = quantize_blocks(noise(rng, n // times, k) * F32(k**-0.5), scheme)
    packed = np.tile(part, (times, 1))
    n = len(packed)

    def reference(outputs):
        product = x.astype(np.float64) @ decode_blocks(part, scheme).astype(np.float64).T
        return outputs[0], np.tile(product, (1, times))

    return Work(
        {"x": x, "w": packed},
        lambda g, v: [g.dequant_matmul(v["x"], v["w"], scheme)],
        reference,
        2.0 * m * k * n,
        weights=("w",),
        peer=("dequant", {"scheme": scheme}),
        tolerance=SUMS,
    )


def attention(rng, b, h, sq, sk, d, kv=None, causal=False):
    """``softmax(q k^T / sqrt(d)) v``; ``kv`` heads of keys and values, h by default."""
    kv = kv or h
    q, k, v = noise(rng, b, h, sq, d), noise(rng, b, kv, sk, d), noise(rng, b, kv, sk, d)

    def reference(outputs):
        heads = rows_of(b * h, 6)
        found, expected = [], []
        for at in heads:
            i, j = divmod(int(at), h)
            rows = rows_of(sq, 512)
            x, y, z = wide(q[i, j][rows], k[i, j * kv // h], v[i, j * kv // h])
            scores = x @ y.T / math.sqrt(d)
            if causal:
                scores[np.arange(sk) > rows[:, None] + (sk - sq)] = -np.inf
            scores = np.exp(scores - scores.max(1, keepdims=True))
            expected.append(scores / scores.sum(1, keepdims=True) @ z)
            found.append(outputs[0][i, j][rows])
        return np.stack(found), np.stack(expected)

    # Of causal attention only the pairs that are seen count.
    pairs = sq * sk - sq * (sq - 1) / 2 if causal else sq * sk
    return Work(
        {"q": q, "k": k, "v": v},
        lambda g, x: [
            g.attention(
                x["q"], x["k"], x["v"], kind="causal" if causal else "none", num_heads=h, head_dim=d
            )
        ],
        reference,
        4.0 * b * h * pairs * d,
        peer=("attention", {"causal": causal, "group": h // kv}),
        tolerance=SUMS,
    )


EDGES = (
    dict(m=130, k=70, n=94),
    dict(m=64, k=64, n=64),
    dict(m=1, k=33, n=5),
    dict(m=257, k=256, n=192),
    dict(m=300, k=520, n=388),
    dict(m=128, k=2048, n=128),
)
SKINNY = Goal(part=0.8)


def _skinny():
    """Products of few rows with large weights."""
    for m in (1, 4, 16):
        for n in (4096, 16384):
            small = (dict(m=m, k=256, n=320), dict(m=m, k=130, n=70), dict(m=m, k=n // 2, n=520))
            yield Row(
                f"matmul {m}x4096x{n}", "P4", matmul, dict(m=m, k=4096, n=n), small,
                SKINNY, quick=m == 1 and n == 4096,
            )  # fmt: skip


def _quantised():
    """Quantised weights."""
    for m in (1, 16):
        for scheme in ("Q4_0", "Q8_0"):
            small = (dict(m=m, k=256, n=96, scheme=scheme), dict(m=m, k=64, n=33, scheme=scheme))
            size = dict(m=m, k=4096, n=16384, scheme=scheme)
            yield Row(f"{scheme} matmul M={m}", "", dequant, size, small, quick=m == 1)
    for m in (1, 16, 4096):
        small = (dict(m=min(m, 100), k=256, n=96), dict(m=min(m, 33), k=36, n=20))
        yield Row(f"int8 matmul M={m}", "", int8, dict(m=m, k=4096, n=4096), small)
    for m in (8, 1024):
        small = (dict(m=m // 4, k=70, n=50, experts=3), dict(m=9, k=128, n=64, experts=4))
        size = dict(m=m, k=2048, n=4096, experts=8)
        yield Row(f"grouped matmul {m} rows, 8 experts", "", grouped, size, small)


def _square(m, **more):
    return dict(m=m, k=m, n=m, **more)


ROWS = (
    Row("f32 matmul 4096", "P4", matmul, _square(4096), EDGES, Goal(tflops=42.0), quick=True),
    Row("f32 matmul 1024", "P4", matmul, _square(1024), EDGES, Goal(tflops=30.0), quick=True),
    Row("f32 matmul 2048", "P4", matmul, _square(2048), (_square(96),)),
    Row("f32 matmul 16 x 512", "P4", matmul, _square(512, batch=(16,)),
        (_square(64, batch=(3,)), dict(m=33, k=20, n=50, batch=(2, 2)))),
    Row("f32 matmul 4095x4097x4099", "P4", matmul, dict(m=4095, k=4097, n=4099), (dict(m=63, k=65, n=67),)),
    Row("f32 matmul 4096, A transposed", "P4", matmul, _square(4096, ta=True),
        (_square(64, ta=True), dict(m=70, k=34, n=50, ta=True))),
    Row("f32 matmul 4096, B transposed", "P4", matmul, _square(4096, tb=True),
        (_square(64, tb=True), dict(m=70, k=34, n=50, tb=True))),
    Row("f32 matmul 4096, bias, gelu, residual", "P4", epilogue, _square(4096),
        (_square(64), dict(m=70, k=34, n=50))),
    *_skinny(),
    Row("f16 matmul 4096", "P5", matmul, _square(4096, dtype=np.float16),
        (_square(64, dtype=np.float16), dict(m=130, k=72, n=96, dtype=np.float16)),
        Goal(tflops=60.0), quick=True),
    *_quantised(),
    Row("attention causal", "P6", attention, dict(b=1, h=32, sq=2048, sk=2048, d=64, causal=True),
        (dict(b=1, h=2, sq=70, sk=70, d=64, causal=True), dict(b=2, h=2, sq=33, sk=50, d=32, causal=True)),
        Goal(tflops=25.0), quick=True),
    Row("attention", "P6", attention, dict(b=1, h=32, sq=2048, sk=2048, d=64),
        (dict(b=1, h=2, sq=70, sk=70, d=64), dict(b=2, h=3, sq=17, sk=90, d=40), dict(b=1, h=1, sq=200, sk=300, d=64)), Goal(tflops=25.0)),
    Row("attention causal D128", "P6", attention, dict(b=1, h=32, sq=2048, sk=2048, d=128, causal=True),
        (dict(b=1, h=1, sq=40, sk=40, d=128, causal=True),)),
    Row("attention causal 32 of 8 heads", "P6", attention,
        dict(b=1, h=32, sq=2048, sk=2048, d=64, kv=8, causal=True),
        (dict(b=1, h=8, sq=40, sk=40, d=64, kv=2, causal=True),)),
    Row("decode", "P6", attention, dict(b=1, h=32, sq=1, sk=4096, d=128),
        (dict(b=1, h=4, sq=1, sk=300, d=128), dict(b=2, h=2, sq=1, sk=77, d=64), dict(b=1, h=2, sq=1, sk=2100, d=128)),
        Goal(part=0.7), quick=True),
    Row("decode B8", "P6", attention, dict(b=8, h=32, sq=1, sk=4096, d=128),
        (dict(b=3, h=4, sq=1, sk=100, d=128),), Goal(part=0.7)),
    Row("decode 32 of 8 heads", "P6", attention, dict(b=8, h=32, sq=1, sk=4096, d=128, kv=8),
        (dict(b=2, h=8, sq=1, sk=130, d=64, kv=2),), Goal(part=0.7)),
)  # fmt: skip
