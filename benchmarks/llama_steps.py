"""The time of a language model's steps at several positions, and of prompts of several lengths.

usage: python benchmarks/llama_steps.py [cpu|webgpu] [MODEL.gguf] [--threads 1] [--repeats 9] [--seed 1]

It runs examples/llama on a GGUF file, or on a random model of 8 layers. Every prompt and token is new. ``compiled`` counts
the graphs that rlx lowered after the first call, ``moved`` the bytes of a step.
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
from llama import Decoder, tiny
from rich.console import Console
from rich.table import Table

import rlx

POSITIONS = (16, 256, 2000)
PROMPTS = (300, 512)


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("model", nargs="?")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


def timed(call, *inputs):
    """The milliseconds of a call."""
    start = time.perf_counter()
    call(*inputs)
    return 1e3 * (time.perf_counter() - start)


def steps(decoder, rng, position, repeats):
    """The milliseconds of steps around a position, after one that is not counted."""
    decoder.prefill(rng.integers(0, decoder.network.vocabulary, position - 2).tolist())
    tokens = rng.integers(0, decoder.network.vocabulary, repeats + 1).tolist()
    return statistics.median([timed(decoder.step, token) for token in tokens][1:])


def prompts(decoder, rng, repeats):
    """The milliseconds of prompts, which take turns, after one of each that is not counted."""
    times = {count: [] for count in PROMPTS}
    for _ in range(repeats):
        for count, each in times.items():
            tokens = rng.integers(0, decoder.network.vocabulary, count).tolist()
            each.append(timed(decoder.prefill, tokens))
    return {f"prompt of {n}": statistics.median(each[1:]) for n, each in times.items()}


def main():
    options = arguments()
    rng = np.random.default_rng(options.seed)
    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if path is None:
            path = Path(folder) / "random.gguf"
            settings = {"width": 768, "layers": 8, "heads": 12, "kv_heads": 4, "context": 2048}
            path.write_bytes(tiny.model(("Q8_0",), seed=options.seed, **settings))
        chosen = rlx.CompileOptions(threads=options.threads)
        with Decoder(path, options.device, options=chosen) as decoder:
            tokens = decoder.network.vocabulary
            decoder.prefill(rng.integers(0, tokens, 7).tolist())
            decoder.step(1)
            first = rlx.cache_stats().lowered
            table = Table("what", "ms", "beside the first")
            results = {}
            for position in POSITIONS:
                results[f"step at {position}"] = steps(decoder, rng, position, options.repeats)
            results |= prompts(decoder, rng, options.repeats)
            base = next(iter(results.values()))
            for name, value in results.items():
                table.add_row(name, f"{value:.2f}", f"{value / base:.2f}")
            Console().print(table)
            before = decoder.compiled.bytes_moved
            decoder.step(2)
            moved = [b - a for a, b in zip(before, decoder.compiled.bytes_moved, strict=True)]
            print(f"compiled {rlx.cache_stats().lowered - first}, moved (up, back, copied) {moved}")


if __name__ == "__main__":
    main()
