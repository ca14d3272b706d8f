"""Random cases of matrix products, windows, recurrences, resizing, transforms and attention."""

from functools import partial

import numpy as np
from cliff_draw import Constant, DrawnCase, node

MICROSOFT = "com.microsoft"
WIDTHS = (16, 24, 32, 48, 64, 96, 100, 128, 192, 256, 300, 320, 384, 512, 768, 1000, 1024, 1536)
# Multiply-adds of a case, at most.
MAX_WORK = 4e8


def _fitting(d, sizes, fits):
    """Draws until the work is small enough."""
    while True:
        result = sizes()
        if fits(*result) <= MAX_WORK:
            return result


def matmul(d):
    rows = (1, 1, 2, 4, 7, 12, 16, 32, 49, 50, 64, 77, 128, 196, 197, 256, 384, 512, 577, 1024)
    m, k, n = _fitting(
        d, lambda: (d.choice(rows), d.choice(WIDTHS), d.choice((*WIDTHS, 1, 10, 2048, 4096))), lambda *s: np.prod(s)
    )  # fmt: skip
    a, b = d.floats((m, k)), d.floats((k, n))
    if d.chance(0.3):
        transposed = d.chance(0.5)
        b = Constant(d.floats((n, k) if transposed else (k, n)))
        return node("products", "Gemm", a, b, Constant(d.floats(n)), transB=int(transposed))
    out = np.empty((m, n), np.float32)
    others = {"NumPy": lambda: [np.matmul(a, b, out=out)]}
    return node("products", "MatMul", a, Constant(b) if d.chance(0.6) else b, others=others)


def batched(d):
    def sizes():
        sides = (d.choice((1, 17, 32, 49, 64, 77, 128, 197, 256)) for _ in range(3))
        return (d.choice((2, 4, 8, 12, 16, 48)), *sides)

    batch, m, k, n = _fitting(d, sizes, lambda *s: np.prod(s))
    a, b = d.floats((1, batch, m, k)), d.floats((1, batch, k, n))
    out = np.empty((1, batch, m, n), np.float32)
    return node("products", "MatMul", a, b, others={"NumPy": lambda: [np.matmul(a, b, out=out)]})


def einsum(d):
    b, h, s, w = (
        d.choice((1, 2, 8)),
        d.choice((1, 4, 12)),
        d.choice((16, 49, 128)),
        d.choice((32, 64)),
    )
    form, left, right = d.choice(
        (
            ("bhid,bhjd->bhij", (b, h, s, w), (b, h, s, w)),
            ("bsd,de->bse", (b, s, w), (w, 2 * w)),
            ("bhij,bjhd->bihd", (b, h, s, s), (b, s, h, w)),
            ("ij,jk->ik", (s, w), (w, s)),
            ("bid,bid->bi", (b, s, w), (b, s, w)),
        )
    )
    return node("products", "Einsum", d.floats(left), d.floats(right), equation=form)


def integers(d):
    m, k, n = _fitting(
        d, lambda: (d.choice((1, 4, 16, 64, 128, 197)), d.choice(WIDTHS), d.choice(WIDTHS)), lambda *s: np.prod(s)
    )  # fmt: skip
    a, b = d.integers((m, k), 0, 256, np.uint8), d.integers((k, n), -128, 128, np.int8)
    zero = Constant(np.array(d.choice([0, 128]), np.uint8))
    if d.chance(0.5):
        return node("products", "MatMulInteger", a, Constant(b), zero)
    scale, small = Constant(np.array(0.02, np.float32)), Constant(np.array(0.01, np.float32))
    wide, null = (
        Constant(np.array(0.02 * 0.01 * 6000 * np.sqrt(k) / 60, np.float32)),
        Constant(np.array(0, np.int8)),
    )
    # Weights of 7 bits: ONNX Runtime saturates sums of two wider products here on processors without VNNI.
    b //= 2
    # A result exactly between two integers may round either way.
    return node(
        "products", "QLinearMatMul", a, scale, zero, Constant(b), small, null, wide, zero, tolerance=1 / 100
    )  # fmt: skip


def convolution(d):
    spatial = d.choice((1, 2, 2, 2, 2, 2))

    def sizes():
        kernel = (
            d.choice((1, 1, 3, 3, 3, 3, 5, 7)) if spatial == 2 else d.choice((1, 3, 5, 9, 16, 31))
        )
        shape = d.images(channels=d.choice((1, 3, *WIDTHS[:14])), spatial=spatial, smallest=4)
        return shape, d.choice(WIDTHS[:14]), kernel, d.choice((1, 1, 1, 2))

    def work(shape, filters, kernel, stride):
        return np.prod(shape) * filters * kernel**spatial / stride**spatial

    shape, filters, kernel, stride = _fitting(d, sizes, work)
    channels, groups = shape[1], 1
    if d.chance(0.3):
        groups = filters = channels
    elif channels % 4 == 0 and filters % 4 == 0 and d.chance(0.15):
        groups = d.choice((2, 4))
    dilation = d.choice((1, 1, 1, 1, 2))
    padding = d.choice((dilation * (kernel // 2), dilation * (kernel // 2), 0))
    if min(shape[2:]) + 2 * padding < dilation * (kernel - 1) + 1:
        padding = dilation * (kernel // 2)
    weights = Constant(d.floats((filters, channels // groups, *[kernel] * spatial)))
    return node(
        "windows", "Conv", d.floats(shape), weights, Constant(d.floats(filters)), strides=[stride] * spatial,
        pads=[padding] * 2 * spatial, group=groups, dilations=[dilation] * spatial,
    )  # fmt: skip


def transposed(d):
    def sizes():
        shape = d.images(channels=d.choice(WIDTHS[:11]), smallest=2, most=2**17)
        return shape, d.choice(WIDTHS[:11]), d.choice((2, 3, 4))

    shape, filters, kernel = _fitting(d, sizes, lambda s, f, k: np.prod(s) * f * k * k)
    weights = Constant(d.floats((shape[1], filters, kernel, kernel)))
    return node(
        "windows", "ConvTranspose", d.floats(shape), weights, Constant(d.floats(filters)),
        strides=[d.choice((1, 2, 2))] * 2, pads=[d.choice((0, (kernel - 1) // 2))] * 4,
    )  # fmt: skip


def pool(d):
    spatial = d.choice((1, 2, 2, 2, 3))
    kernel, stride = d.choice((2, 3, 3, 5)), d.choice((1, 2, 2, 3))
    x = d.floats(d.images(spatial=spatial, smallest=6))
    kind = d.choice(
        ("MaxPool", "MaxPool", "AveragePool", "AveragePool", "GlobalAveragePool", "GlobalMaxPool")
    )
    if kind.startswith("Global"):
        return node("windows", kind, x)
    return node(
        "windows", kind, x, kernel_shape=[kernel] * spatial, strides=[stride] * spatial,
        pads=[d.choice((0, kernel // 2))] * 2 * spatial,
        count_include_pad=d.choice((0, 1)) if kind == "AveragePool" else None,
    )  # fmt: skip


def resize(d):
    x = d.floats(d.images(smallest=4, most=2**19))
    mode = d.choice(("linear", "linear", "nearest", "cubic"))
    how = d.choice(
        ("half_pixel", "asymmetric", "align_corners") if mode == "linear" else ("asymmetric",)
    )
    # Where sides times the factor are no whole numbers, ONNX Runtime aligns other corners than ONNX says.
    factor = d.choice((2.0, 3.0, 4.0) if how == "align_corners" else (0.5, 1.5, 2.0, 2.0, 3.0, 4.0))
    scales = Constant(np.array([1, 1, factor, factor], np.float32))
    return node(
        "resize", "Resize", x, None, scales, mode=mode, coordinate_transformation_mode=how,
        nearest_mode="floor" if mode == "nearest" else None,
    )  # fmt: skip


def recurrence(d):
    kind, gates = d.choice((("LSTM", 4), ("LSTM", 4), ("GRU", 3), ("RNN", 1)))
    directions = d.choice((1, 1, 2))

    def sizes():
        steps, hidden = (
            d.choice((1, 1, 10, 25, 50, 100)),
            d.choice((16, 32, 64, 100, 128, 256, 512)),
        )
        return (
            steps,
            d.choice((1, 1, 2, 4, 8, 16)),
            d.choice((16, 40, 64, 80, 128, 256, 512)),
            hidden,
        )

    steps, batch, width, hidden = _fitting(
        d, sizes, lambda s, b, w, h: s * b * (w + h) * h * gates * directions
    )
    scale = np.float32(0.1)
    operands = [
        d.floats((steps, batch, width)),
        *(
            Constant(d.floats((directions, gates * hidden, item)) * scale)
            for item in (width, hidden)
        ),
        Constant(d.floats((directions, 2 * gates * hidden)) * scale),
    ]
    return node(
        "recurrent", kind, *operands, hidden_size=hidden, outputs=2,
        direction="bidirectional" if directions == 2 else "forward",
        linear_before_reset=d.choice((0, 1)) if kind == "GRU" else None,
    )  # fmt: skip


def _listed(function, operand):
    return [function(operand)]


def transform(d):
    import scipy.fft

    import rlx

    size = d.choice((64, 100, 128, 160, 240, 256, 320, 400, 480, 512, 600, 1000, 1024, 2048, 2187, 4096, 8192, 16384, 65536))  # fmt: skip
    rows = max(1, int(d.elements(2**20) / size))
    real = d.chance(0.6)
    x, imaginary = d.floats((rows, size)), d.floats((rows, size))

    def graph():
        g = rlx.Graph("transform")
        if real:
            return g.set_outputs(g.rfft(g.input("x", x.shape))) or g
        return g.set_outputs(g.fft(g.input("x", (rows, 2 * size)))) or g

    operand = x if real else (x + 1j * imaginary).astype(np.complex64)
    feed = x if real else np.concatenate([x, imaginary], -1)
    kind = "rfft" if real else "fft"
    others = {
        "SciPy": partial(_listed, getattr(scipy.fft, kind), operand),
        "NumPy": partial(_listed, getattr(np.fft, kind), operand),
    }
    return DrawnCase(f"{kind} {rows}x{size}", "spectra", None, {"x": feed}, others, graph)


def attention(d):
    heads, width = d.choice((2, 4, 8, 12, 16)), d.choice((16, 32, 40, 64, 80, 96, 128))
    queries, keys = (
        d.choice((1, 1, 16, 49, 77, 128, 197, 256, 512)),
        d.choice((16, 49, 77, 128, 197, 256, 512, 1024)),
    )
    if d.chance(0.5) and queries > 1:
        keys = queries
    batch = d.choice((1, 1, 1, 4, 8))
    while batch * heads * queries * keys * width > MAX_WORK:
        heads, queries = max(1, heads // 2), max(1, queries // 2)
    q = d.floats((batch, queries, heads * width))
    k, v = (d.floats((batch, keys, heads * width)) for _ in range(2))
    return node("attention", "MultiHeadAttention", q, k, v, domain=MICROSOFT, num_heads=heads)


FAMILIES = (
    *(
        matmul,
        matmul,
        batched,
        einsum,
        integers,
        convolution,
        convolution,
        convolution,
        convolution,
        transposed,
    ),
    *(
        pool,
        pool,
        pool,
        resize,
        resize,
        recurrence,
        recurrence,
        recurrence,
        transform,
        transform,
        attention,
    ),
)
