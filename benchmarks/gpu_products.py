"""Rows of products and attention on a GPU."""

import numpy as np
from work import BenchmarkRow
from work_products import attention, dequant, epilogue, grouped, int8, matmul

EDGES = (
    dict(m=130, k=70, n=94),
    dict(m=64, k=64, n=64),
    dict(m=1, k=33, n=5),
    dict(m=257, k=256, n=192),
    dict(m=300, k=520, n=388),
    dict(m=128, k=2048, n=128),
)


def _skinny():
    """Products of few rows with large weights."""
    for m in (1, 4, 16):
        for n in (4096, 16384):
            small = (dict(m=m, k=256, n=320), dict(m=m, k=130, n=70), dict(m=m, k=n // 2, n=520))
            yield BenchmarkRow(
                f"matmul {m}x4096x{n}", matmul, dict(m=m, k=4096, n=n), small, quick=m == 1 and n == 4096,
            )  # fmt: skip


def _quantised():
    """Quantised weights."""
    for m in (1, 16):
        for scheme in ("Q4_0", "Q8_0"):
            small = (dict(m=m, k=256, n=96, scheme=scheme), dict(m=m, k=64, n=33, scheme=scheme))
            size = dict(m=m, k=4096, n=16384, scheme=scheme)
            yield BenchmarkRow(f"{scheme} matmul M={m}", dequant, size, small, quick=m == 1)
    for scheme in ("Q4_0", "Q8_0"):
        small = tuple(
            dict(m=m, k=k, n=n, scheme=scheme, dtype=np.float16)
            for m, k, n in ((100, 256, 96), (33, 64, 33))
        )
        size = dict(m=4096, k=4096, n=4096, scheme=scheme, dtype=np.float16)
        yield BenchmarkRow(f"f16 {scheme} matmul M=4096", dequant, size, small)
    for m in (1, 16, 4096):
        small = (dict(m=min(m, 100), k=256, n=96), dict(m=min(m, 33), k=36, n=20))
        yield BenchmarkRow(f"int8 matmul M={m}", int8, dict(m=m, k=4096, n=4096), small)
    for m in (8, 1024):
        small = (dict(m=m // 4, k=70, n=50, experts=3), dict(m=9, k=128, n=64, experts=4))
        size = dict(m=m, k=2048, n=4096, experts=8)
        yield BenchmarkRow(f"grouped matmul {m} rows, 8 experts", grouped, size, small)
        half = tuple(item | {"dtype": np.float16} for item in small)
        yield BenchmarkRow(
            f"f16 grouped matmul {m} rows, 8 experts", grouped, size | {"dtype": np.float16}, half
        )


def _square(m, **more):
    return dict(m=m, k=m, n=m, **more)


ROWS = (
    BenchmarkRow("f32 matmul 4096", matmul, _square(4096), EDGES, quick=True),
    BenchmarkRow("f32 matmul 1024", matmul, _square(1024), EDGES, quick=True),
    BenchmarkRow("f32 matmul 2048", matmul, _square(2048), (_square(96),)),
    BenchmarkRow("f32 matmul 16 x 512", matmul, _square(512, batch=(16,)),
        (_square(64, batch=(3,)), dict(m=33, k=20, n=50, batch=(2, 2)))),
    BenchmarkRow("f32 matmul 4095x4097x4099", matmul, dict(m=4095, k=4097, n=4099), (dict(m=63, k=65, n=67),)),
    BenchmarkRow("f32 matmul 4096, A transposed", matmul, _square(4096, ta=True),
        (_square(64, ta=True), dict(m=70, k=34, n=50, ta=True))),
    BenchmarkRow("f32 matmul 4096, B transposed", matmul, _square(4096, tb=True),
        (_square(64, tb=True), dict(m=70, k=34, n=50, tb=True))),
    BenchmarkRow("f32 matmul 4096, bias, gelu, residual", epilogue, _square(4096),
        (_square(64), dict(m=70, k=34, n=50))),
    *_skinny(),
    BenchmarkRow("f16 matmul 4096", matmul, _square(4096, dtype=np.float16),
        (_square(64, dtype=np.float16), dict(m=130, k=72, n=96, dtype=np.float16)), quick=True),
    BenchmarkRow("f16 matmul 1024", matmul, _square(1024, dtype=np.float16), (_square(96, dtype=np.float16),), quick=True),
    BenchmarkRow("f16 matmul 4095x4097x4099", matmul, dict(m=4095, k=4097, n=4099, dtype=np.float16),
        (dict(m=63, k=65, n=67, dtype=np.float16),)),
    BenchmarkRow("f16 matmul 64x4096x4096", matmul, dict(m=64, k=4096, n=4096, dtype=np.float16),
        (dict(m=40, k=520, n=72, dtype=np.float16),)),
    BenchmarkRow("f16 matmul 4096, B transposed", matmul, _square(4096, tb=True, dtype=np.float16),
        (dict(m=70, k=34, n=50, tb=True, dtype=np.float16),)),
    BenchmarkRow("f16 attention causal, batch 4 of 16 heads", attention,
        dict(b=4, h=16, sq=2048, sk=2048, d=64, causal=True, dtype=np.float16),
        (dict(b=1, h=2, sq=70, sk=70, d=64, causal=True, dtype=np.float16),), quick=True),
    BenchmarkRow("f16 attention D128", attention, dict(b=1, h=32, sq=2048, sk=2048, d=128, dtype=np.float16),
        (dict(b=1, h=1, sq=40, sk=90, d=128, dtype=np.float16),)),
    *_quantised(),
    BenchmarkRow("attention causal", attention, dict(b=1, h=32, sq=2048, sk=2048, d=64, causal=True),
        (dict(b=1, h=2, sq=70, sk=70, d=64, causal=True), dict(b=2, h=2, sq=33, sk=50, d=32, causal=True)), quick=True),
    BenchmarkRow("attention", attention, dict(b=1, h=32, sq=2048, sk=2048, d=64),
        (dict(b=1, h=2, sq=70, sk=70, d=64), dict(b=2, h=3, sq=17, sk=90, d=40), dict(b=1, h=1, sq=200, sk=300, d=64))),
    BenchmarkRow("attention causal D128", attention, dict(b=1, h=32, sq=2048, sk=2048, d=128, causal=True),
        (dict(b=1, h=1, sq=40, sk=40, d=128, causal=True),)),
    BenchmarkRow("attention causal 32 of 8 heads", attention,
        dict(b=1, h=32, sq=2048, sk=2048, d=64, kv=8, causal=True),
        (dict(b=1, h=8, sq=40, sk=40, d=64, kv=2, causal=True),)),
    BenchmarkRow("decode", attention, dict(b=1, h=32, sq=1, sk=4096, d=128),
        (dict(b=1, h=4, sq=1, sk=300, d=128), dict(b=2, h=2, sq=1, sk=77, d=64), dict(b=1, h=2, sq=1, sk=2100, d=128)), quick=True),
    BenchmarkRow("decode B8", attention, dict(b=8, h=32, sq=1, sk=4096, d=128),
        (dict(b=3, h=4, sq=1, sk=100, d=128),)),
    BenchmarkRow("decode 32 of 8 heads", attention, dict(b=8, h=32, sq=1, sk=4096, d=128, kv=8),
        (dict(b=2, h=8, sq=1, sk=130, d=64, kv=2),)),
)  # fmt: skip
