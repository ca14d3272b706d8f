"""Models called with a new length each time, beside ONNX Runtime: speed, compiles, do results agree?

usage: python benchmarks/lengths.py [cpu|webgpu] [--only NAME ...] [--lengths 300] [--seed 1] [--threads 1]

Each length is run once by both, one after the other; ONNX Runtime runs on the CPU. ``speed`` is the geometric mean over all
calls of its time over rlx's, compiles of rlx within, ``later`` that of the second half. ``first`` is the time to open the model
and run the first length, over that of ONNX Runtime. ``difference`` is the largest of all outputs, of the norm of ONNX
Runtime's.
"""

import argparse
import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
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


def timed(run, *args):
    """Seconds of a call, and what it gives."""
    began = time.perf_counter()
    outputs = run(*args)
    return time.perf_counter() - began, outputs


def session_of(raw, threads):
    """ONNX Runtime's session on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])


def measure(name, device, count, seed, threads):
    """The row of a model, and the report of its executables."""
    build, least, limit = INPUTS[name]
    package, folder, file, _, _ = MODELS[name]
    raw, options = contents(package, folder, file), rlx.CompileOptions(threads=threads)
    lengths = np.random.default_rng(seed).integers(least, limit + 1, count)
    opened, session = timed(session_of, raw, threads)
    own, model = timed(lambda: rlx.onnx.Model(raw, device, options=options))
    theirs, ours, worst = [], [], 0.0
    with model:
        for length in map(int, lengths):
            inputs = {key: np.asarray(value) for key, value in build(length).items()}
            seconds, wanted = timed(session.run, None, inputs)
            theirs.append(seconds)
            seconds, result = timed(model.run, inputs)
            ours.append(seconds)
            worst = max(worst, relative_difference(result, wanted))
        report = model.report()
    ratios = np.log(np.array(theirs) / np.array(ours))
    return {
        "model": name,
        "lengths": len(set(lengths.tolist())),
        "compiled": report.compiles,
        "speed": f"{np.exp(ratios.mean()):.2f}",
        "later": f"{np.exp(ratios[count // 2 :].mean()):.2f}",
        "first": f"{(own + ours[0]) / (opened + theirs[0]):.1f}",
        "difference": f"{worst:.1e}",
    }, report


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu")
    parser.add_argument("--only", choices=tuple(INPUTS), nargs="+", metavar="NAME")
    parser.add_argument("--lengths", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    arguments = parser.parse_args()
    table = Table()
    for name in arguments.only or INPUTS:
        row, report = measure(
            name, arguments.device, arguments.lengths, arguments.seed, arguments.threads
        )
        if not table.columns:
            for column in row:
                table.add_column(column, justify="left" if column == "model" else "right")
        table.add_row(*map(str, row.values()))
        print(name, report, flush=True)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
