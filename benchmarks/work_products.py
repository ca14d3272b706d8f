"""Families of products and attention."""

import math
from dataclasses import replace

import numpy as np
from work import F32, SUMS, Workload, noise, rows_of, wide

import rlx
from rlx.ops import decode_blocks, quantize_blocks

F16 = rlx.CompileOptions(precision="f16")
# Results are rounded to f16 (3e-4); sums made in f16 would be off by 1e-2.
HALF = 1e-3


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
    return Workload(
        {"a": a, "w": b},
        build,
        reference,
        2.0 * m * k * n * math.prod(batch),
        # A param could be transposed once, beforehand; here the kernel has to read it as it lies.
        weights=() if tb else ("w",),
        peer=("matmul", {"ta": ta, "tb": tb}),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )


def linear(rng, m, k, n, act=False, residual=False):
    """``a @ w + b``, then gelu, then ``+ r`` where they are asked for: the products of transformers."""
    a, w, b, r = noise(rng, m, k), noise(rng, k, n) * F32(k**-0.5), noise(rng, n), noise(rng, m, n)

    def build(g, x):
        result = x["a"] @ x["w"] + x["b"]
        result = g.gelu(result) if act else result
        return [result + x["r"] if residual else result]

    def reference(outputs):
        x, y, z, rest = wide(a, w, b, r)
        result = x @ y + z
        result = gelu(result) if act else result
        return outputs[0], result + rest if residual else result

    return Workload(
        {"a": a, "w": w, "b": b} | ({"r": r} if residual else {}),
        build,
        reference,
        2.0 * m * k * n,
        weights=("w", "b"),
        peer=("linear", {"act": act, "residual": residual}),
        tolerance=SUMS,
    )


def epilogue(rng, m, k, n):
    """``gelu(a @ w + b) + r``."""
    return replace(linear(rng, m, k, n, act=True, residual=True), peer=("epilogue", {}))


def half_weights(rng, m, k, n):
    """``a @ w`` in f32 with weights of f16."""
    a, w = noise(rng, m, k), noise(rng, k, n, dtype=np.float16) * np.float16(k**-0.5)
    return Workload(
        {"a": a, "w": w},
        lambda g, x: [x["a"] @ g.cast(x["w"], "f32")],
        lambda outputs: (outputs[0], np.matmul(*wide(a, w))),
        2.0 * m * k * n,
        weights=("w",),
        peer=("half_weights", {}),
        tolerance=SUMS,
    )


def grouped(rng, m, k, n, experts, dtype=F32):
    """Rows of x times the matrix of the expert that each row has."""
    x, w = noise(rng, m, k, dtype=dtype), noise(rng, experts, k, n, dtype=dtype) * dtype(k**-0.5)
    half = dtype == np.float16
    idx = rng.integers(0, experts, m).astype(np.int32)

    def reference(outputs):
        expected = np.empty((m, n))
        for index in range(experts):
            expected[idx == index] = x[idx == index].astype(np.float64) @ w[index].astype(
                np.float64
            )
        return outputs[0], expected

    return Workload(
        {"x": x, "w": w, "idx": idx},
        lambda g, v: [g.grouped_matmul(v["x"], v["w"], v["idx"])],
        reference,
        2.0 * m * k * n,
        weights=("w",),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )


def int8(rng, m, k, n):
    """Products of signed bytes, summed in integers, scaled to f32."""
    a = rng.integers(-128, 128, (m, k)).astype(np.int8)
    b = rng.integers(-128, 128, (k, n)).astype(np.int8)

    def reference(outputs):
        x, y = wide(a, b)  # exact: sums stay below 2^53
        return outputs[0], (x @ y) * (0.01 * 0.02)

    return Workload(
        {"a": a, "w": b},
        lambda g, x: [g.qmatmul(x["a"], x["w"], 0.01, 0.02)],
        reference,
        2.0 * m * k * n,
        weights=("w",),
        peer=("int8", {}),
    )


def dequant(rng, m, k, n, scheme, dtype=F32):
    """``x @ W^T`` with W in blocks."""
    x, times = noise(rng, m, k, dtype=dtype), max(1, n // 2048)
    half = dtype == np.float16
    # Encoding many weights takes long: a block of rows stands there several times.
    part = quantize_blocks(noise(rng, n // times, k) * F32(k**-0.5), scheme)
    packed = np.tile(part, (times, 1))
    n = len(packed)

    def reference(outputs):
        product = x.astype(np.float64) @ decode_blocks(part, scheme).astype(np.float64).T
        return outputs[0], np.tile(product, (1, times))

    return Workload(
        {"x": x, "w": packed},
        lambda g, v: [g.dequant_matmul(v["x"], v["w"], scheme)],
        reference,
        2.0 * m * k * n,
        weights=("w",),
        peer=("dequant", {"scheme": scheme}),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )


def attention(rng, b, h, sq, sk, d, kv=None, causal=False, dtype=F32):  # noqa: PLR0913 - the sizes of an attention
    """``softmax(q k^T / sqrt(d)) v``; ``kv`` heads of keys and values, h by default."""
    kv, half = kv or h, dtype == np.float16
    shapes = (b, h, sq, d), (b, kv, sk, d), (b, kv, sk, d)
    q, k, v = (noise(rng, *shape, dtype=dtype) for shape in shapes)

    def reference(outputs):
        heads = rows_of(b * h, 6)
        result, expected = [], []
        for head in heads:
            i, j = divmod(int(head), h)
            rows = rows_of(sq, 512)
            x, y, z = wide(q[i, j][rows], k[i, j * kv // h], v[i, j * kv // h])
            scores = x @ y.T / math.sqrt(d)
            if causal:
                scores[np.arange(sk) > rows[:, None] + (sk - sq)] = -np.inf
            scores = np.exp(scores - scores.max(1, keepdims=True))
            expected.append(scores / scores.sum(1, keepdims=True) @ z)
            result.append(outputs[0][i, j][rows])
        return np.stack(result), np.stack(expected)

    # Of causal attention only the pairs that are seen count.
    pairs = sq * sk - sq * (sq - 1) / 2 if causal else sq * sk
    return Workload(
        {"q": q, "k": k, "v": v},
        lambda g, x: [
            g.attention(
                x["q"], x["k"], x["v"], kind="causal" if causal else "none", num_heads=h, head_dim=d
            )
        ],
        reference,
        4.0 * b * h * pairs * d,
        peer=("attention", {"causal": causal, "group": h // kv}),
        tolerance=HALF if half else SUMS,
        options=F16 if half else rlx.CompileOptions(),
    )
