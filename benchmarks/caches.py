"""Measures compiling without a cache, from memory and from disk; the numbers of docs/guides/caching.md.

usage: python benchmarks/caches.py [cpu webgpu ...] [--rounds 15]

Times are medians in milliseconds: the steps alone, then whole calls of ``rlx.compile``. Pipelines are cached
in every row: a GPU driver's own compile time is not in these numbers.
"""

import argparse
import os
import statistics
import tempfile
import time

import rlx
from rlx.backends.base import CompileOptions
from rlx.compiler import compile_cache
from rlx.compiler.disk import disk_cache
from rlx.compiler.loading import programmed
from rlx.compiler.lowering import lower
from rlx.compiler.plan_codec import sources_of
from rlx.compiler.signed_cache import sealed_entries
from rlx.compiler.target import Target
from rlx.ir.content import content_hash


def chain(steps=16):
    g = rlx.Graph("chain")
    x = g.input("x", (64, 256))
    for index in range(steps):
        x = g.tanh(x * 1.5) if index % 2 else g.exp(-x)
    g.set_outputs([x])
    return g


def transformer(layers=12, tokens=32, width=256, heads=4):
    g = rlx.Graph("transformer")
    x, each = g.input("x", (tokens, width)), width // heads
    for layer in range(layers):

        def linear(x, name, rows, columns, layer=layer):
            weights = g.param(f"{name}{layer}", (rows, columns))
            return x @ weights + g.param(f"{name}_bias{layer}", (columns,))

        def norm(x, name, layer=layer):
            scale = g.param(f"{name}_scale{layer}", (width,))
            return g.layer_norm(x, scale, g.param(f"{name}_shift{layer}", (width,)))

        def split(x, axes):
            return g.transpose(g.reshape(x, (tokens, heads, each)), axes)

        inner = norm(x, "first")
        q = split(linear(inner, "q", width, width), (1, 0, 2))
        k = split(linear(inner, "k", width, width), (1, 2, 0))
        v = split(linear(inner, "v", width, width), (1, 0, 2))
        mixed = g.transpose(g.softmax((q @ k) * each**-0.5, -1) @ v, (1, 0, 2))
        x = x + linear(g.reshape(mixed, (tokens, width)), "o", width, width)
        hidden = g.gelu(linear(norm(x, "second"), "up", width, 4 * width))
        x = x + linear(hidden, "down", 4 * width, width)
    g.set_outputs([x])
    return g


def median(call, rounds):
    times = []
    for _ in range(rounds):
        begin = time.perf_counter()
        call()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def measured(graph, device, folder, rounds):
    target = Target.of(rlx.Device.parse(device), CompileOptions())
    sources = sources_of(graph)

    def compile_with(cache, forget=False):
        os.environ["RLX_CACHE"] = cache
        if forget:
            compile_cache._kept.clear()
        rlx.compile(graph, device=device).close()

    lowered = programmed(lower(graph, target), target)
    os.environ["RLX_CACHE"] = folder
    entries = sealed_entries()
    name = entries.name("benchmark", device, graph.name)
    calls = {
        "lower": lambda: lower(graph, target),
        "hash": lambda: content_hash(graph),
        "write": lambda: entries.put(name, (lowered, sources)),
        "read": lambda: entries.get(name),
        "off": lambda: compile_with("off"),
        "disk": lambda: compile_with(folder, forget=True),
        "memory": lambda: compile_with(folder),
    }
    for call in calls.values():
        call()
    size = disk_cache(folder).path(name).stat().st_size
    return {name: median(call, rounds) for name, call in calls.items()}, size


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("devices", nargs="*", default=["cpu", "webgpu"])
    parser.add_argument("--rounds", type=int, default=15)
    args = parser.parse_args()
    for device in args.devices:
        rlx.is_available(device)  # imports its backend, which compiling needs in any case
    for backend in ("cpu", "webgpu"):
        begin = time.perf_counter()
        compile_cache.build_id(backend)
        print(f"build id {backend}: {(time.perf_counter() - begin) * 1e3:.1f} ms, once")
    with tempfile.TemporaryDirectory() as folder:
        for device in args.devices:
            for graph in (chain(), transformer()):
                result, size = measured(graph, device, folder, args.rounds)
                shown = ", ".join(f"{name} {ms:.1f}" for name, ms in result.items())
                print(f"{device} {graph.name}, {len(graph.nodes)} nodes, {size} bytes: {shown}")


if __name__ == "__main__":
    main()
