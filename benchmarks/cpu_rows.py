"""Rows of the table of ``benchmarks/cpu.py``: the shapes, chosen before any was measured.

Each table holds name, size and whether ``--quick`` takes it; small sizes are those of its family.
"""

from work import BenchmarkRow
from work_products import attention, dequant, half_weights, int8, linear, matmul
from work_recurrent import recurrent
from work_signal import fft, log_mel, psd, stft, welch
from work_streams import (
    binary,
    chain,
    conv,
    max_pool,
    normed,
    reduced,
    resize,
    scanned,
    unary,
)


def rows(family, small, *table):
    """Rows of one family."""
    for name, size, *quick in table:
        yield BenchmarkRow(name, family, size, small, quick=any(quick))


def mkn(m, k, n, **more):
    return dict(m=m, k=k, n=n, **more)


PRODUCTS = (
    *rows(
        matmul,
        (mkn(1, 33, 5), mkn(17, 70, 50), mkn(5, 9, 7, batch=(2, 3))),
        ("matmul 1x64x64", mkn(1, 64, 64), True),
        ("matmul 1x384x384", mkn(1, 384, 384)),
        ("matmul 1x768x768", mkn(1, 768, 768)),
        ("matmul 1x4096x4096", mkn(1, 4096, 4096), True),
        ("matmul 4x768x3072", mkn(4, 768, 3072)),
        ("matmul 16x384x1536", mkn(16, 384, 1536)),
        ("matmul 16x4096x4096", mkn(16, 4096, 4096)),
        ("matmul 64^3", mkn(64, 64, 64)),
        ("matmul 256^3", mkn(256, 256, 256)),
        ("matmul 512^3", mkn(512, 512, 512), True),
        ("matmul 1024^3", mkn(1024, 1024, 1024)),
        ("matmul 2048^3", mkn(2048, 2048, 2048)),
        ("matmul 4096^3", mkn(4096, 4096, 4096)),
        ("matmul 1023x1025x1027", mkn(1023, 1025, 1027)),
        ("matmul 4096x64x4096", mkn(4096, 64, 4096)),
        ("matmul 64x4096x64", mkn(64, 4096, 64)),
        ("matmul 12 x 128x64x128", mkn(128, 64, 128, batch=(12,))),
        ("matmul 12 x 128x128x64", mkn(128, 128, 64, batch=(12,))),
    ),
    *rows(
        matmul,
        (mkn(17, 70, 50, tb=True),),
        ("matmul 128x768x768, B transposed", mkn(128, 768, 768, tb=True)),
    ),
    *rows(
        linear,
        (mkn(17, 70, 50), mkn(3, 40, 33, act=True), mkn(5, 40, 33, residual=True)),
        ("MiniLM q, k, v, o: 128x384x384", mkn(128, 384, 384)),
        ("MiniLM up, gelu: 128x384x1536", mkn(128, 384, 1536, act=True), True),
        ("MiniLM down, residual: 128x1536x384", mkn(128, 1536, 384, residual=True)),
        ("BERT q, k, v, o: 128x768x768", mkn(128, 768, 768)),
        ("BERT up, gelu: 128x768x3072", mkn(128, 768, 3072, act=True)),
        ("BERT down, residual: 128x3072x768", mkn(128, 3072, 768, residual=True)),
        ("BERT pooler: 1x768x768", mkn(1, 768, 768)),
    ),
    *rows(
        int8,
        (mkn(1, 40, 33), mkn(17, 70, 50)),
        ("int8 matmul 1x768x3072", mkn(1, 768, 3072)),
        ("int8 matmul 128x768x3072", mkn(128, 768, 3072), True),
        ("int8 matmul 1024^3", mkn(1024, 1024, 1024)),
    ),
    *rows(
        half_weights,
        (mkn(1, 40, 33), mkn(17, 70, 50)),
        ("f16 weights 1x768x3072", mkn(1, 768, 3072)),
        ("f16 weights 1x4096x4096", mkn(1, 4096, 4096)),
        ("f16 weights 128x768x768", mkn(128, 768, 768)),
    ),
    *(
        row
        for scheme in ("Q4_0", "Q8_0")
        for row in rows(
            dequant,
            (mkn(1, 64, 33, scheme=scheme), mkn(17, 96, 50, scheme=scheme)),
            (f"{scheme} weights 1x4096x4096", mkn(1, 4096, 4096, scheme=scheme), scheme == "Q4_0"),
            (f"{scheme} weights 16x2048x2048", mkn(16, 2048, 2048, scheme=scheme)),
        )
    ),
)


def heads(h, s, d=64, sq=None, **more):
    return dict(b=1, h=h, sq=sq or s, sk=s, d=d, **more)


ATTENTION = tuple(
    rows(
        attention,
        (heads(2, 33, 32), heads(3, 40, 64, causal=True), heads(2, 70, 64, sq=1)),
        ("attention 1x12x128x64", heads(12, 128), True),
        ("attention 1x12x128x64 causal", heads(12, 128, causal=True)),
        ("attention 1x12x128x32", heads(12, 128, 32)),
        ("attention 1x8x2048x64", heads(8, 2048)),
        ("attention 1x8x2048x64 causal", heads(8, 2048, causal=True)),
        ("attention, one query of 1x8x2048x64", heads(8, 2048, sq=1)),
    )
)


def image(c, o, side, kernel, stride=1, **more):
    return dict(n=1, c=c, o=o, size=(side, side), kernel=kernel, stride=stride, **more)


def audio(c, o, length, kernel, stride=1, **more):
    return dict(n=1, c=c, o=o, size=(length,), kernel=kernel, stride=stride, **more)


IMAGE = dict(n=2, c=6, o=10, size=(9, 11))
CONVOLUTIONS = (
    *rows(
        conv,
        (IMAGE | dict(kernel=3), IMAGE | dict(kernel=3, stride=2), IMAGE | dict(kernel=1)),
        ("ResNet 7x7/2, 3 to 64 of 224", image(3, 64, 224, 7, 2)),
        ("ResNet 1x1, 64 to 64 of 56", image(64, 64, 56, 1)),
        ("ResNet 3x3, 64 to 64 of 56", image(64, 64, 56, 3), True),
        ("ResNet 1x1, 64 to 256 of 56", image(64, 256, 56, 1)),
        ("ResNet 1x1, 256 to 64 of 56", image(256, 64, 56, 1)),
        ("ResNet 1x1/2, 256 to 512 of 56", image(256, 512, 56, 1, 2)),
        ("ResNet 3x3/2, 128 to 128 of 56", image(128, 128, 56, 3, 2)),
        ("ResNet 3x3, 128 to 128 of 28", image(128, 128, 28, 3)),
        ("ResNet 1x1, 512 to 128 of 28", image(512, 128, 28, 1)),
        ("ResNet 3x3, 256 to 256 of 14", image(256, 256, 14, 3)),
        ("ResNet 1x1, 1024 to 256 of 14", image(1024, 256, 14, 1)),
        ("ResNet 3x3, 512 to 512 of 7", image(512, 512, 7, 3)),
        ("ResNet 1x1, 512 to 2048 of 7", image(512, 2048, 7, 1)),
    ),
    *rows(
        conv,
        (
            IMAGE | dict(kernel=3, o=6, groups=6),
            IMAGE | dict(kernel=5, o=6, groups=6, stride=2),
        ),
        ("depthwise 3x3, 32 of 112", image(32, 32, 112, 3, groups=32)),
        ("depthwise 3x3/2, 144 of 56", image(144, 144, 56, 3, 2, groups=144)),
        ("depthwise 5x5, 240 of 28", image(240, 240, 28, 5, groups=240), True),
        ("depthwise 3x3, 960 of 7", image(960, 960, 7, 3, groups=960)),
    ),
    *rows(
        conv,
        (
            dict(n=2, c=4, o=6, size=(70,), kernel=9, stride=2),
            dict(n=1, c=3, o=3, size=(300,), kernel=65, groups=3),
        ),
        ("audio kernel 10/5, 1 to 512 of 16,000", audio(1, 512, 16000, 10, 5)),
        ("audio kernel 3/2, 512 to 512 of 3,199", audio(512, 512, 3199, 3, 2)),
        ("audio kernel 9, 64 to 64 of 4,000", audio(64, 64, 4000, 9), True),
        ("audio kernel 31, depthwise 256 of 1,000", audio(256, 256, 1000, 31, groups=256)),
        ("audio kernel 256, 1 to 32 of 16,000", audio(1, 32, 16000, 256)),
        ("audio kernel 1025, depthwise 8 of 16,000", audio(8, 8, 16000, 1025, groups=8)),
        ("audio kernel 4097, 1 to 1 of 48,000", audio(1, 1, 48000, 4097)),
    ),
    *rows(
        max_pool,
        (dict(shape=(2, 3, 13, 14), kernel=3, stride=2, padding=1),),
        (
            "max_pool 3x3/2, 64 of 112",
            dict(shape=(1, 64, 112, 112), kernel=3, stride=2, padding=1),
        ),
    ),
    *rows(
        resize,
        (dict(shape=(1, 3, 7, 9), factor=2),),
        ("resize linear 2x, 64 of 64", dict(shape=(1, 64, 64, 64), factor=2)),
    ),
)


def normalised(kind, *shapes):
    for n, *quick in shapes:
        r, c = n
        size = dict(kind=kind, rows=r, n=c)
        small = (dict(kind=kind, rows=5, n=33), dict(kind=kind, rows=2, n=1030))
        yield from rows(normed, small, (f"{kind} {r}x{c}", size, *quick))


def functions(kind, *shapes):
    for shape, *quick in shapes:
        name = f"{kind} {'x'.join(map(str, shape))}"
        yield from rows(
            unary, (dict(kind=kind, shape=(7, 33)),), (name, dict(kind=kind, shape=shape), *quick)
        )


def broadcast(kind, left, right):
    name = f"{kind} {'x'.join(map(str, left))} and {'x'.join(map(str, right))}"
    small = tuple(min(9, n) for n in left), tuple(min(9, n) for n in right)
    yield from rows(
        binary,
        (dict(kind=kind, left=small[0], right=small[1]),),
        (name, dict(kind=kind, left=left, right=right)),
    )


def sums(kind, shape, axis, name, *quick):
    small = dict(kind=kind, shape=tuple(max(2, n // 30) for n in shape), axis=axis)
    size = dict(kind=kind, shape=shape, axis=axis)
    yield from rows(reduced, (small,), (f"{kind} {name} {shape}", size, *quick))


MEGA = 1 << 20
STREAMS = (
    *normalised("softmax", ((128, 50257), True), ((1536, 128),), ((1024, 1024),), ((1, 1000),)),
    *normalised("layer_norm", ((128, 768), True), ((128, 384),), ((1, 768),), ((4096, 1024),)),
    *normalised("rms_norm", ((128, 4096),), ((1, 4096),)),
    *functions("gelu", ((128, 3072), True), ((1, 3072),)),
    *functions("exp", ((MEGA,),)),
    *functions("tanh", ((MEGA,), True), ((1, 64),)),
    *functions("erf", ((MEGA,),)),
    *functions("sigmoid", ((MEGA,),)),
    *broadcast("add", (4 * MEGA,), (4 * MEGA,)),
    *broadcast("add", (128, 768), (768,)),
    *broadcast("mul", (64, 56, 56), (64, 1, 1)),
    *rows(
        chain,
        (dict(count=64), dict(count=4099)),
        ("elementwise chain of 8, 4,096", dict(count=4096)),
        ("elementwise chain of 8, 2^22", dict(count=4 * MEGA), True),
    ),
    *sums("sum", (1024, 1024), 1, "last axis", True),
    *sums("sum", (1024, 1024), 0, "first axis"),
    *sums("sum", (16, 256, 256), 1, "middle axis"),
    *sums("sum", (4, MEGA), 1, "long last axis"),
    *sums("max", (1024, 1024), 1, "last axis"),
    *sums("max", (2048, 49), 1, "short last axis"),
    *rows(
        scanned,
        (dict(shape=(5, 70), axis=1),),
        ("cumsum 256x4096", dict(shape=(256, 4096), axis=1)),
    ),
)

POINTS = 1 << 18


def _transforms():
    for real in (False, True):
        name, small = ("rfft" if real else "fft"), (dict(rows=3, n=60, real=real),)
        for n in (64, 256, 400, 1024, 4096, 4099, 16384, 65536):
            size = dict(rows=POINTS // n, n=n, real=real)
            yield from rows(fft, small, (f"{name} {POINTS // n} x {n}", size, n == 1024))
        size = dict(rows=1, n=512, real=real)
        yield from rows(fft, small, (f"{name} 1 x 512", size))


SIGNAL = (
    *_transforms(),
    *rows(
        psd,
        (dict(signals=3, samples=400, n_fft=128),),
        ("Welch 8 x 512, n_fft 256", dict(signals=8, samples=512, n_fft=256), True),
        ("Welch 64 x 9,760, n_fft 256", dict(signals=64, samples=9760, n_fft=256)),
        ("Welch 1 x 2^20, n_fft 4096", dict(signals=1, samples=MEGA, n_fft=4096)),
    ),
    *rows(
        welch,
        (dict(signals=5, segments=4, n_fft=128, k=4),),
        ("Welch peaks 64 x 8 x 256, k 16", dict(signals=64, segments=8, n_fft=256, k=16)),
    ),
    *rows(
        stft,
        (dict(signals=2, samples=1360, n_fft=400, hop=160),),
        ("stft of 1 s, 400/160", dict(signals=1, samples=16000, n_fft=400, hop=160)),
        ("stft of 30 s, 1024/256", dict(signals=1, samples=480000, n_fft=1024, hop=256)),
    ),
    *rows(
        log_mel,
        (dict(signals=2, samples=1360, n_fft=400, hop=160, mels=40),),
        ("log-mel of 1 s", dict(signals=1, samples=16000, n_fft=400, hop=160, mels=80), True),
        ("log-mel of 30 s", dict(signals=1, samples=480000, n_fft=400, hop=160, mels=80)),
    ),
)


def cell(kind, steps, inputs, hidden, batch=1):
    return dict(cell=kind, steps=steps, batch=batch, inputs=inputs, hidden=hidden)


RECURRENT = tuple(
    row
    for kind in ("lstm", "gru")
    for row in rows(
        recurrent,
        (cell(kind, 1, 7, 9), cell(kind, 5, 9, 16, 3)),
        (f"{kind} step 128, 128", cell(kind, 1, 128, 128), True),
        (f"{kind} step 400, 400", cell(kind, 1, 400, 400)),
        (f"{kind} 100 steps 128, 128", cell(kind, 100, 128, 128)),
        (f"{kind} 100 steps 256, 256, batch 8", cell(kind, 100, 256, 256, 8)),
    )
)

ROWS: tuple[BenchmarkRow, ...] = (
    *PRODUCTS,
    *ATTENTION,
    *CONVOLUTIONS,
    *STREAMS,
    *SIGNAL,
    *RECURRENT,
)
assert len({row.name for row in ROWS}) == len(ROWS) >= 60
