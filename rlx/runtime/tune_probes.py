"""What the tuner measures: small graphs whose kernels have variants, over the sizes that programs use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from rlx.ir.graph import Graph


class TuneProbe(NamedTuple):
    """One problem.

    Attributes:
        name: What reports call it.
        nbytes: Bytes of its largest tensor; a device that can't bind them leaves it out.
        build: Makes the graph.
    """

    name: str
    nbytes: int
    build: Callable[[], Graph]


# Rows, length of the sums, columns, matrices.
_PRODUCTS = (
    (4096, 4096, 4096, 1), (2048, 2048, 2048, 1), (1024, 1024, 1024, 1), (512, 512, 512, 1),
    (256, 256, 256, 1), (512, 512, 512, 16), (128, 64, 128, 48), (128, 384, 1536, 1),
    (128, 1536, 384, 1), (64, 4096, 4096, 1), (32, 4096, 4096, 1), (1000, 1000, 1000, 1),
    (4096, 64, 4096, 1), (64, 16384, 64, 1),
)  # fmt: skip


def _product(m: int, k: int, n: int, batch: int, turned: bool) -> Graph:
    g = Graph("product")
    a = g.input("a", (batch, m, k) if batch > 1 else (m, k))
    shape = (n, k) if turned else (k, n)
    b = g.input("b", (batch, *shape) if batch > 1 else shape)
    axes = (0, 2, 1) if batch > 1 else (1, 0)
    g.set_outputs([a @ (g.transpose(b, axes) if turned else b)])
    return g


def _products() -> Iterator[TuneProbe]:
    for m, k, n, batch in _PRODUCTS:
        for turned in (False, True):
            name = f"matmul {m} x {k} x {n}" + f", {batch} of them" * (batch > 1)
            largest = 4 * batch * max(m * k, k * n, m * n)
            build = partial(_product, m, k, n, batch, turned)
            yield TuneProbe(name + ", turned" * turned, largest, build)


def probes() -> Iterator[TuneProbe]:
    """All problems, the most telling first."""
    yield from _products()
