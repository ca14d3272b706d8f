"""The tuner's probes: small graphs whose kernels have variants, over the sizes that programs use."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

import numpy as np

from rlx.ir.graph import Graph, Node
from rlx.ops.block_formats import FORMATS


class TuneProbe(NamedTuple):
    """One problem.

    Attributes:
        name: Its name in reports.
        nbytes: Bytes of its largest tensor; a device that can't bind them leaves it out.
        build: Makes the graph.
        half: Whether it is of f16, compiled with ``precision="f16"``: for adapters with matrix units.
    """

    name: str
    nbytes: int
    build: Callable[..., Graph]
    half: bool = False


# Rows, length of the sums, columns, matrices.
_PRODUCTS = (
    (4096, 4096, 4096, 1), (2048, 2048, 2048, 1), (1024, 1024, 1024, 1), (512, 512, 512, 1),
    (256, 256, 256, 1), (512, 512, 512, 16), (128, 64, 128, 48), (128, 384, 1536, 1),
    (128, 1536, 384, 1), (64, 4096, 4096, 1), (32, 4096, 4096, 1), (1000, 1000, 1000, 1),
    (4096, 64, 4096, 1), (64, 16384, 64, 1),
)  # fmt: skip


def product(size: int) -> Graph:
    """A product of square matrices."""
    return _product(size, size, size, 1, False)


def _product(m: int, k: int, n: int, batch: int, transposed: bool, dtype: str = "f32") -> Graph:
    g = Graph("product")
    a = g.input("a", (batch, m, k) if batch > 1 else (m, k), dtype)
    shape = (n, k) if transposed else (k, n)
    b = g.input("b", (batch, *shape) if batch > 1 else shape, dtype)
    axes = (0, 2, 1) if batch > 1 else (1, 0)
    g.set_outputs([a @ (g.transpose(b, axes) if transposed else b)])
    return g


def _products() -> Iterator[TuneProbe]:
    for m, k, n, batch in _PRODUCTS:
        for transposed in (False, True):
            name = f"matmul {m} x {k} x {n}" + f", {batch} of them" * (batch > 1)
            largest = 4 * batch * max(m * k, k * n, m * n)
            build = partial(_product, m, k, n, batch, transposed)
            yield TuneProbe(name + ", transposed" * transposed, largest, build)


# Rows, length of the sums and columns of products by weights in blocks and by bytes.
_PACKED = (
    (1, 4096, 4096), (4, 4096, 4096), (8, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096),
    (512, 4096, 4096), (512, 1024, 1024),
)  # fmt: skip
_BYTES = ((1, 4096, 4096), (16, 4096, 4096), (64, 4096, 4096), (512, 512, 512), (2048, 2048, 2048))
# Rows, length of the sums, columns, experts.
_EXPERTS = ((8, 2048, 4096, 8), (32, 2048, 4096, 8), (256, 2048, 1024, 8), (1024, 2048, 4096, 8))


def _packed(m: int, k: int, n: int, scheme: str) -> Graph:
    g = Graph("packed")
    form = FORMATS[scheme]
    packed = g.input("w", (n, k // form.weights * form.nbytes), "u8")
    g.set_outputs([g.dequant_matmul(g.input("x", (m, k)), packed, scheme)])
    return g


def _bytes(m: int, k: int, n: int) -> Graph:
    g = Graph("bytes")
    g.set_outputs([g.matmul_integer(g.input("a", (m, k), "i8"), g.input("b", (k, n), "i8"))])
    return g


def _experts(m: int, k: int, n: int, experts: int) -> Graph:
    g = Graph("experts")
    # The same number of rows for each expert, in scattered order.
    idx = g.constant(np.arange(m, dtype=np.int32) * 5 % experts)
    g.set_outputs([g.grouped_matmul(g.input("x", (m, k)), g.input("w", (experts, k, n)), idx)])
    return g


def _narrow_products() -> Iterator[TuneProbe]:
    for m, k, n in _PACKED:
        nbytes = max(4 * m * k, 4 * m * n, k * n)
        for scheme in ("Q4_0", "Q8_0"):
            yield TuneProbe(f"{scheme} {m} x {k} x {n}", nbytes, partial(_packed, m, k, n, scheme))
    for m, k, n in _BYTES:
        nbytes = max(k * n, 4 * m * n)
        yield TuneProbe(f"int8 {m} x {k} x {n}", nbytes, partial(_bytes, m, k, n))
    for m, k, n, experts in _EXPERTS:
        name = f"grouped {m} x {k} x {n}, {experts} experts"
        yield TuneProbe(name, 4 * experts * k * n, partial(_experts, m, k, n, experts))


# Heads, queries, keys, elements of a key and of a value.
_ATTENTIONS = (
    (32, 2048, 2048, 64), (32, 2048, 2048, 128), (12, 128, 128, 64), (32, 512, 512, 64),
    (32, 1, 4096, 128), (8, 1, 1024, 64),
)  # fmt: skip


def _attention(heads: int, sq: int, sk: int, d: int, kind: str, dtype: str = "f32") -> Graph:
    g = Graph("attention")
    q, k, v = (g.input(n, (1, heads, s, d), dtype) for n, s in (("q", sq), ("k", sk), ("v", sk)))
    g.set_outputs([g.attention(q, k, v, kind=kind)])
    return g


def _attentions() -> Iterator[TuneProbe]:
    for heads, sq, sk, d in _ATTENTIONS:
        for kind in ("none", "causal") if sq > 1 else ("none",):
            name = f"attention {heads} heads, {sq} of {sk}, {d}" + ", causal" * (kind == "causal")
            yield TuneProbe(name, 4 * heads * sk * d, partial(_attention, heads, sq, sk, d, kind))


# Rows and columns of what works along the last axis.
_ROWS = ((65536, 128), (16384, 1024), (2048, 4096), (256, 50257), (64, 768))
_ROW_OPS: dict[str, Callable[[Graph, Node], Node]] = {
    "softmax": lambda g, x: g.softmax(x),
    "rms_norm": lambda g, x: g.rms_norm(x),
    "sum": lambda g, x: g.sum(x, -1),
    "sum of columns": lambda g, x: g.sum(x, 0),
    "cumsum": lambda g, x: g.cumsum(x, -1),
}


def _single(name: str, shape: tuple[int, ...], function: Callable[[Graph, Node], Node]) -> Graph:
    """A graph of one operation on one input."""
    g = Graph(name)
    g.set_outputs([function(g, g.input("x", shape))])
    return g


def _rows() -> Iterator[TuneProbe]:
    for op, function in _ROW_OPS.items():
        for rows, columns in _ROWS:
            build = partial(_single, op, (rows, columns), function)
            yield TuneProbe(f"{op} {rows} x {columns}", 4 * rows * columns, build)


# Rows and points of transforms.
_TRANSFORMS = ((8192, 256), (8192, 1000), (4096, 1024), (512, 4096), (128, 16384), (16, 65536))


def _transforms() -> Iterator[TuneProbe]:
    for rows, points in _TRANSFORMS:
        build = partial(_single, "fft", (rows, 2 * points), lambda g, x: g.fft(x))
        yield TuneProbe(f"fft {rows} x {points}", 8 * rows * points, build)


# Images, channels, outputs, sizes, kernel, stride, groups.
_CONVOLUTIONS = (
    (32, 64, 64, (56, 56), 3, 1, 1), (32, 256, 256, (14, 14), 3, 1, 1), (32, 512, 512, (7, 7), 3, 1, 1),
    (1, 64, 64, (56, 56), 3, 1, 1), (1, 512, 512, (7, 7), 3, 1, 1), (32, 256, 64, (56, 56), 1, 1, 1),
    (32, 64, 256, (56, 56), 1, 1, 1), (8, 32, 32, (112, 112), 3, 1, 1), (8, 3, 64, (224, 224), 7, 2, 1),
    (4, 80, 384, (3000,), 3, 1, 1), (32, 256, 256, (56, 56), 3, 1, 256), (1, 96, 96, (112, 112), 3, 2, 96),
    (8, 256, 256, (500,), 31, 1, 256),
)  # fmt: skip


def _convolution(
    n: int,
    c: int,
    o: int,
    size: tuple[int, ...],
    kernel: int,
    stride: int,
    groups: int,
    dtype: str = "f32",
) -> Graph:
    g = Graph("convolution")
    x = g.input("x", (n, c, *size), dtype)
    w = g.input("w", (o, c // groups, *(kernel,) * len(size)), dtype)
    convolve = g.conv2d if len(size) == 2 else g.conv1d
    g.set_outputs([convolve(x, w, stride=stride, padding=kernel // 2, groups=groups)])
    return g


def _convolutions() -> Iterator[TuneProbe]:
    for convolution in _CONVOLUTIONS:
        n, c, o, size, kernel, stride, groups = convolution
        name = f"convolution {n} x {c} to {o} of {size}, {kernel}, stride {stride}, {groups} groups"
        nbytes = 4 * n * max(c, o) * math.prod(size)
        yield TuneProbe(name, nbytes, partial(_convolution, *convolution))


# Planes and their size; a pool and a resize of them.
_PLANES = ((2048, 112), (512, 56), (64, 112), (48, 512))


def _pool(g: Graph, x: Node, stride: int) -> Node:
    return g.max_pool(x, 3, stride, padding=1)


def _resize(g: Graph, x: Node) -> Node:
    *outer, height, width = x.shape
    return g.resize(x, (*outer, 2 * height, 2 * width), "linear")


def _planes() -> Iterator[TuneProbe]:
    for planes, size in _PLANES:
        nbytes, shape = 4 * planes * size * size, (1, planes, size, size)
        for stride in (1, 2):
            name = f"max_pool {planes} of {size} x {size}, stride {stride}"
            pool = partial(_pool, stride=stride)
            yield TuneProbe(name, nbytes, partial(_single, "pool", shape, pool))
        name = f"resize {planes} of {size} x {size}"
        yield TuneProbe(name, 4 * nbytes, partial(_single, "resize", shape, _resize))


def _halves(probes: Iterator[TuneProbe]) -> Iterator[TuneProbe]:
    """The same problems in f16."""
    for probe in probes:
        build = partial(probe.build, dtype="f16")
        yield TuneProbe(f"{probe.name}, f16", probe.nbytes // 2, build, half=True)


def probes() -> Iterator[TuneProbe]:
    """All problems, the most telling first."""
    yield from _products()
    for some in (_products(), _attentions(), _convolutions()):
        yield from _halves(some)
    yield from _attentions()
    yield from _narrow_products()
    yield from _convolutions()
    yield from _transforms()
    yield from _rows()
    yield from _planes()
