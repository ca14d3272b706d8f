"""Rows bound by memory on a GPU, and convolutions."""

import numpy as np
from work import BenchmarkRow
from work_streams import chain, conv, copy, max_pool, normed, reduced, resize, scanned

LARGE = 1 << 24


def _rows_of_all():
    for kind in ("softmax", "layer_norm", "rms_norm"):
        for n in (128, 768, 1024, 4096, 16384, 50257):
            rows = LARGE // n
            small = (dict(kind=kind, rows=5, n=n), dict(kind=kind, rows=3, n=n // 2 + 1))
            size = dict(kind=kind, rows=rows, n=n)
            quick = n in (1024, 50257) and kind != "rms_norm"
            yield BenchmarkRow(f"{kind} {rows} x {n}", normed, size, small, quick)


def _reductions():
    for kind in ("sum", "max"):
        for shape, axis, name in (
            ((4096, 4096), 1, "last axis"),
            ((65536, 256), 1, "short last axis"),
            ((4096, 4096), 0, "first axis"),
            ((64, 1024, 256), 1, "middle axis"),
            ((16, LARGE // 16), 1, "long last axis"),
        ):
            small = tuple(
                dict(kind=kind, shape=tuple(max(2, s // by) for s in shape), axis=axis)
                for by in (64, 100)
            )
            size = dict(kind=kind, shape=shape, axis=axis)
            yield BenchmarkRow(f"{kind} {name} {shape}", reduced, size, small, kind == "sum")


def _conv(name, small, quick=False, **size):
    return BenchmarkRow(
        f"conv {name}", conv, size, small if isinstance(small, tuple) else (small,), quick
    )


IMAGE = dict(n=2, c=12, o=20, size=(9, 11))
ROWS = (
    BenchmarkRow("elementwise chain of 8", chain, dict(count=LARGE), (dict(count=4099), dict(count=64)), True),
    *_rows_of_all(),
    *_reductions(),
    BenchmarkRow("cumsum 4096 x 4096, last axis", scanned, dict(shape=(4096, 4096), axis=1),
        (dict(shape=(5, 700), axis=1),), True),
    BenchmarkRow("cumsum 16 x 2^20", scanned, dict(shape=(16, 1 << 20), axis=1), (dict(shape=(2, 9000), axis=1),)),
    BenchmarkRow("cumsum 4096 x 4096, first axis", scanned, dict(shape=(4096, 4096), axis=0),
        (dict(shape=(300, 7), axis=0),)),
    _conv("3x3 64 of 56x56, batch 32", (IMAGE | dict(kernel=3), dict(n=1, c=64, o=70, size=(14, 15), kernel=3)), n=32, c=64, o=64, size=(56, 56), kernel=3, quick=True),
    _conv("f16 3x3 64 of 56x56, batch 32", IMAGE | dict(kernel=3, dtype=np.float16),
          n=32, c=64, o=64, size=(56, 56), kernel=3, dtype=np.float16, quick=True),
    _conv("f16 3x3 256 of 14x14, batch 32", IMAGE | dict(kernel=3, dtype=np.float16),
          n=32, c=256, o=256, size=(14, 14), kernel=3, dtype=np.float16),
    _conv("3x3 256 of 14x14, batch 32", IMAGE | dict(kernel=3), n=32, c=256, o=256, size=(14, 14), kernel=3),
    _conv("3x3 512 of 7x7, batch 32", IMAGE | dict(kernel=3), n=32, c=512, o=512, size=(7, 7), kernel=3),
    _conv("3x3 stride 2, 128 of 56x56, batch 32", IMAGE | dict(kernel=3, stride=2),
          n=32, c=128, o=128, size=(56, 56), kernel=3, stride=2),
    _conv("7x7 stride 2 of 224x224, batch 32", dict(n=1, c=3, o=8, size=(30, 30), kernel=7, stride=2),
          n=32, c=3, o=64, size=(224, 224), kernel=7, stride=2),
    _conv("3x3 64 of 56x56, batch 1", IMAGE | dict(n=1, kernel=3), n=1, c=64, o=64, size=(56, 56), kernel=3),
    _conv("1x1 256 to 64 of 56x56, batch 32", (IMAGE | dict(kernel=1), dict(n=2, c=128, o=64, size=(14, 15), kernel=1)), n=32, c=256, o=64, size=(56, 56), kernel=1, quick=True),
    _conv("1x1 64 to 256 of 56x56, batch 32", IMAGE | dict(kernel=1), n=32, c=64, o=256, size=(56, 56), kernel=1),
    _conv("1x1 2048 to 512 of 7x7, batch 32", IMAGE | dict(kernel=1), n=32, c=2048, o=512, size=(7, 7), kernel=1),
    _conv("depthwise 3x3 256 of 56x56, batch 32", dict(n=2, c=6, o=6, size=(9, 11), kernel=3, groups=6),
          n=32, c=256, o=256, size=(56, 56), kernel=3, groups=256, quick=True),
    _conv("1-D audio 64 to 128, kernel 9", dict(n=2, c=6, o=10, size=(70,), kernel=9, stride=2),
          n=16, c=64, o=128, size=(16000,), kernel=9, stride=2),
    BenchmarkRow("max_pool 3x3 stride 2", max_pool, dict(shape=(32, 64, 112, 112), kernel=3, stride=2, padding=1),
        (dict(shape=(2, 3, 13, 14), kernel=3, stride=2, padding=1),), True),
    BenchmarkRow("resize linear 2x", resize, dict(shape=(16, 64, 64, 64), factor=2),
        (dict(shape=(1, 3, 7, 9), factor=2),), True),
)  # fmt: skip

COPY = BenchmarkRow("copy", copy, dict(count=1 << 25), (dict(count=4096),), quick=True)
