"""Models whose sizes depend on their inputs, called with new data each time, beside ONNX Runtime.

usage: python benchmarks/data_sizes.py [cpu|webgpu] [FILE.onnx ...] [--peer cpu|webgpu] [--only NAME ...] [--calls 60] [--seed 1]
       [--threads 1]

Both run each input once, one after the other. ``ratio`` is the geometric mean of ONNX Runtime's time over rlx's, after the first
five calls; ``worst`` is the longest call of rlx. ``later`` counts the graphs that rlx compiled after the first call. A file is a
detector that takes pictures ``[1, 3, height, width]``, which are drawn at 160, 320 and 640.
"""

import argparse
import os
import time
from pathlib import Path

os.environ["RLX_CACHE"] = "off"  # so that each graph that is compiled counts

import numpy as np
import onnxruntime
from data_size_models import MODELS, floats
from rich.console import Console
from rich.table import Table

import rlx
from rlx.cli.agreement import relative_difference


def picture(rng):
    """A picture of one of three sizes."""
    size = int(rng.choice([160, 320, 640]))
    return floats(rng, 1, 3, size, size)


def detector(path):
    raw = Path(path).read_bytes()
    with rlx.onnx.Model(raw, "cpu") as opened:
        (name,) = (port.name for port in opened.inputs)
    return raw, lambda rng: {name: picture(rng)}


def session_of(raw, peer, threads):
    """ONNX Runtime's session, on the CPU or through WebGPU."""
    if peer == "webgpu":
        from gpu_peer_ort import ort_session

        return ort_session(raw)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = threads, 3
    return onnxruntime.InferenceSession(raw, options, providers=["CPUExecutionProvider"])


def measured(raw, draw, asked):
    """The row of a model."""
    rng, threads = np.random.default_rng(asked.seed), asked.threads
    session = session_of(raw, asked.peer, threads)
    own, theirs, worst, first = [], [], 0.0, None
    with rlx.onnx.Model(raw, asked.device, options=rlx.CompileOptions(threads=threads)) as opened:
        for _ in range(asked.calls):
            inputs = draw(rng)
            began = time.perf_counter()
            result = opened.run(inputs)
            middle = time.perf_counter()
            wanted = session.run(None, inputs)
            theirs.append(time.perf_counter() - middle)
            own.append(middle - began)
            first = rlx.cache_stats().lowered if first is None else first
            assert [a.shape for a in result] == [a.shape for a in wanted]
            worst = max(worst, relative_difference(result, wanted))
    ours, peer = np.array(own[5:]), np.array(theirs[5:])
    return {
        "ms": f"{np.median(ours) * 1e3:.3f}",
        "worst": f"{ours.max() * 1e3:.2f}",
        "ONNX Runtime": f"{np.median(peer) * 1e3:.3f}",
        "ratio": f"{np.exp(np.log(peer / ours).mean()):.2f}",
        "later": rlx.cache_stats().lowered - first,
        "difference": f"{worst:.0e}",
    }


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("device", nargs="?", default="cpu", choices=("cpu", "webgpu"))
    parser.add_argument("--peer", default="cpu", choices=("cpu", "webgpu"))
    parser.add_argument("files", nargs="*", metavar="FILE.onnx")
    parser.add_argument("--only", nargs="+", choices=tuple(MODELS), metavar="NAME")
    parser.add_argument("--calls", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args()
    models = {name: MODELS[name] for name in asked.only or ([] if asked.files else MODELS)}
    models |= {Path(path).name: detector(path) for path in asked.files}
    table, ratios = Table(), []
    for name, (raw, draw) in models.items():
        row = measured(raw, draw, asked)
        if not table.columns:
            for column in ("model", *row):
                table.add_column(column, justify="left" if column == "model" else "right")
        table.add_row(name, *map(str, row.values()))
        ratios.append(float(row["ratio"]))
    Console(width=130).print(table)
    print(f"geometric mean {np.exp(np.log(ratios).mean()):.2f}, least {min(ratios):.2f}")


if __name__ == "__main__":
    main()
