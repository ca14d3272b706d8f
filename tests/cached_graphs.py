"""A small graph for tests of caches, and what the caches did with it."""

import dataclasses

import numpy as np

import rlx
from rlx.compiler import compile_cache


def mlp(scale=0.5, rows=4, dtype="f32", name="mlp"):
    g = rlx.Graph(name)
    x, w = g.input("x", (rows, 8), dtype), g.param("w", (8, 8), dtype)
    table = g.constant(np.linspace(0, scale, 8).astype(np.float32))
    g.set_outputs([g.tanh(x @ w + g.cast(table, dtype)) * scale])
    return g


def counted(before):
    """Returns the changes of the caches' counters since ``before``."""
    now = rlx.cache_stats()
    pairs = dataclasses.asdict(now).items()
    done = {name: count - getattr(before, name) for name, count in pairs}
    return {name: count for name, count in done.items() if count}


def compiled_twice(graph, device, *, forget=True):
    """A fresh executable and one from a cache, and what the caches did for the second."""
    first = rlx.compile(graph, device=device)
    if forget:
        compile_cache._kept.clear()
    before = rlx.cache_stats()
    return first, rlx.compile(graph, device=device), counted(before)
