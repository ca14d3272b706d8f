"""Models called with many lengths: the cost of new lengths, in buckets and exactly compiled; do results agree?

usage: python benchmarks/lengths.py [cpu|webgpu] [--only NAME ...] [--lengths 200] [--seed 1] [--threads 1]

Each length is run twice with a model that makes buckets by itself, then with a model that compiles every length.
A row is the median over lengths in milliseconds; the first tenth, in which most buckets are compiled, is left out of
"new length". ``difference`` is the largest of all outputs, of the norm of the exact one.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
from models import MODELS, RNG, contents, noise
from rich.console import Console
from rich.table import Table

sys.path.insert(0, str(Path(__file__).parents[1] / "tests"))

import rlx
from rlx.cli.agreement import relative_difference


def text(n):
    ids = RNG.integers(1000, 20000, (1, n))
    return {"input_ids": ids, "attention_mask": np.ones_like(ids)}


# Inputs of a length, the least and the greatest one.
INPUTS = {
    "silero-vad sequence": (MODELS["silero-vad sequence"][3], 1, 200),
    "nsnet2": (MODELS["nsnet2"][3], 1, 300),
    "brainmaze seizure": (lambda n: {"x": noise(1, 100, n)}, 10, 300),
    "MiniLM-L3": (text, 1, 256),
    "PP-OCRv4 rec": (MODELS["PP-OCRv4 rec"][3], 32, 480),
    "magika": (MODELS["magika"][3], 1, 64),
}


def timed(model, inputs):
    """Milliseconds of a run, and its outputs."""
    began = time.perf_counter()
    outputs = model.run(inputs)
    return (time.perf_counter() - began) * 1e3, outputs


def measure(name, device, count, seed, threads):
    """The row of a model."""
    build, least, limit = INPUTS[name]
    package, folder, file, _, _ = MODELS[name]
    raw, options = contents(package, folder, file), rlx.CompileOptions(threads=threads)
    lengths = np.random.default_rng(seed).integers(least, limit + 1, count)
    fresh, again, exact, worst, seen = [], [], [], 0.0, set()
    with (
        rlx.onnx.Model(raw, device, options=options) as model,
        rlx.onnx.Model(raw, device, options=options, buckets=None) as each,
    ):
        for index, length in enumerate(map(int, lengths)):
            inputs = build(length)
            first, result = timed(model, inputs)
            second, _ = timed(model, inputs)
            whole, wanted = timed(each, inputs)
            worst = max(worst, relative_difference(result, wanted))
            again.append(second)
            if length not in seen:
                exact.append(whole)
                if index >= count // 10:
                    fresh.append(first)
            seen.add(length)
        report = model.report()
    reasons = {executable.reason for executable in report.executables if not executable.bucket}
    return {
        "model": name,
        "lengths": len(seen),
        "compiled": report.compiles,
        "new length": f"{np.median(fresh):.1f}",
        "again": f"{np.median(again):.2f}",
        "exactly": f"{np.median(exact):.1f}",
        "difference": f"{worst:.1e}",
    }, reasons


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--only", choices=tuple(INPUTS), nargs="+", metavar="NAME")
    parser.add_argument("--lengths", type=int, default=200)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    table = Table()
    for name in arguments.only or INPUTS:
        row, reasons = measure(
            name, arguments.device, arguments.lengths, arguments.seed, arguments.threads
        )
        if not table.columns:
            for column in row:
                table.add_column(column, justify="left" if column == "model" else "right")
        table.add_row(*map(str, row.values()))
        print(name, "exact shapes:", "; ".join(sorted(reasons)), flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
