"""Language models: the time of steps at several positions and of prompts of several lengths, and the memory.

usage: python benchmarks/lm.py [cpu|webgpu] [MODEL.gguf] [--precision int8] [--threads 1] [--repeats 9] [--seed 1]

It runs a GGUF file, or a random model of 8 layers. Every prompt and token is new. ``compiled`` counts the graphs that rlx
lowered after the first call, ``moved`` the bytes of a step. ``rlx lm bench MODEL`` has llama.cpp beside it.
"""

import argparse
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

os.environ["RLX_CACHE"] = "off"  # so that each graph that is compiled counts
sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

import numpy as np
import tiny_lm
from rich.console import Console
from rich.table import Table

import rlx

POSITIONS = (16, 256, 2000)
PROMPTS = (300, 512)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--precision", default="f32")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def timed(call, *inputs):
    """The milliseconds of a call."""
    start = time.perf_counter()
    call(*inputs)
    return 1e3 * (time.perf_counter() - start)


def steps(cache, draw, position, repeats):
    """The milliseconds of steps around a position, after one that is not counted."""
    cache.rewind(0)
    cache.read(draw(position - 2))
    return statistics.median([timed(cache.read, [token]) for token in draw(repeats + 1)][1:])


def prompts(cache, draw, repeats):
    """The milliseconds of prompts, which take turns, after one of each that is not counted."""
    times = {count: [] for count in PROMPTS}
    for _ in range(repeats):
        for count, each in times.items():
            cache.rewind(0)
            each.append(timed(cache.read, draw(count)))
    return {f"prompt of {n}": statistics.median(each[1:]) for n, each in times.items()}


def main():
    options = arguments()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if path is None:
            path = Path(folder) / "random.gguf"
            settings = {
                "width": 768,
                "layers": 8,
                "heads": 12,
                "kv_heads": 4,
                "__context_length": 2048,
            }
            path.write_bytes(tiny_lm.model(("Q8_0",), seed=options.seed, **settings))
        chosen = rlx.CompileOptions(threads=options.threads, precision=options.precision)
        with rlx.lm.load(path, options.device, 2048, options=chosen) as model:
            cache = model.take([])

            def draw(count):
                return rng.integers(0, model.vocabulary, count).tolist()

            cache.read(draw(7))
            cache.read(draw(1))
            first = rlx.cache_stats().lowered
            table = Table("what", "ms", "beside the first")
            results = {}
            for position in POSITIONS:
                results[f"step at {position}"] = steps(cache, draw, position, options.repeats)
            results |= prompts(cache, draw, options.repeats)
            base = next(iter(results.values()))
            for name, value in results.items():
                table.add_row(name, f"{value:.2f}", f"{value / base:.2f}")
            Console().print(table)
            compiled = model.compiled
            before = compiled.bytes_moved
            cache.read(draw(1))
            moved = [b - a for a, b in zip(before, compiled.bytes_moved, strict=True)]
            print(f"compiled {rlx.cache_stats().lowered - first}, moved (up, back, copied) {moved}")
            print(f"memory {model.memory()}, measured {compiled.memory()}")


if __name__ == "__main__":
    main()
