"""First runs of models in fresh processes, without caches and with them, beside ONNX Runtime on the same device.

usage: python benchmarks/cold.py [cpu webgpu ...] [--only NAME ...] [--runs 9] [--threads N] [--phases] [--json cold.json] [--docs FILE]

The models are those of ``benchmarks/models.py`` and a chain of 16 nodes. A process loads, compiles and runs one once. ONNX
Runtime is its CPU provider beside "cpu", and its WebGPU provider (package onnxruntime-ep-webgpu) beside GPUs. Times count
from the import of NumPy on, each with the imports of its own package; the ratio without them is the second one.
"""

import argparse
import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
from gpu_cold import chain, onnx_chain
from models import MODELS, contents, text_inputs
from report import markdown, write_between
from rich.console import Console
from rich.table import Table

from rlx.backends.cpu.cpu_backend import processor
from rlx.cli.cold import STATES, measure, show
from rlx.threads import thread_count

PEERS = {"cpu": "onnxruntime"}
ON_GPUS = "onnxruntime webgpu"
HEADINGS = ("model", "device", "caches", "rlx", "ONNX Runtime", "all", "without imports")
# Phases that count for neither.
BEFORE = ("python", "numpy")


def inputs_of(name, raw):
    """The inputs of a model's first shape."""
    make, (first, _) = MODELS[name][3:]
    if make is not None:
        return make(first)
    import onnxruntime

    return text_inputs(onnxruntime.InferenceSession(raw), 1, first)


def models(only, folder):
    """Names, files and inputs."""
    if not only or "chain of 16" in only:
        _, weights, x = chain()
        path = folder / "chain.onnx"
        path.write_bytes(onnx_chain(weights))
        yield "chain of 16", path, {"x": x}
    for name in only or MODELS:
        if name in MODELS:
            path = folder / "model.onnx"
            path.write_bytes(raw := contents(*MODELS[name][:3]))
            yield name, path, inputs_of(name, raw)


def peer_run(spec):
    """One first run of ONNX Runtime's WebGPU: what this file does in a process of its own."""
    results = {"python": (time.time() - spec["started"]) * 1e3}
    began = time.perf_counter()

    def lap(phase):
        nonlocal began
        now = time.perf_counter()
        results[phase] = (now - began) * 1e3
        began = now

    with np.load(spec["inputs"]) as stored:
        inputs = {name: stored[str(index)] for index, name in enumerate(spec["names"])}
    began = time.perf_counter()
    import onnxruntime  # noqa: F401
    import onnxruntime_ep_webgpu  # noqa: F401
    from gpu_peer_ort import ort_session

    lap("import")
    session = ort_session(Path(spec["model"]).read_bytes())
    lap("session")
    session.run(None, inputs)
    lap("first run")
    print(json.dumps(results))


def ratio(item, peer, state, without):
    """Returns the time relative to the peer's."""
    times = [
        sum(row.middle(state, phase) for phase in row.phases() if phase not in without)
        for row in (item, peer)
    ]
    return times[0] / times[1]


def main():
    if sys.argv[1:2] == ["peer"]:
        peer_run(json.loads(sys.argv[2]))
        return
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("devices", nargs="*", default=["cpu"])
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--runs", type=int, default=9)
    parser.add_argument("--threads", type=int)
    parser.add_argument("--phases", action="store_true", help="a table of phases for each model")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="puts the table into this file")
    args = parser.parse_args()
    table = Table(title="First runs, medians in milliseconds; times as long as ONNX Runtime")
    for heading in HEADINGS:
        table.add_column(heading, justify="left" if heading in ("model", "device") else "right")
    rows, cells = [], []
    with tempfile.TemporaryDirectory() as name:
        for model, path, inputs in models(args.only, Path(name)):
            spec = {"model": str(path), "threads": thread_count(args.threads)}
            for device in args.devices:
                peer = PEERS.get(device, ON_GPUS)
                commands = {ON_GPUS: [sys.executable, __file__, "peer"]}
                with tempfile.TemporaryDirectory() as own:
                    result = measure(spec, inputs, [device, peer], args.runs, Path(own), commands)
                if args.phases:
                    show(model, [item for item in result if item.error is None])
                failed = [f"{item.name}: {item.error}" for item in result if item.error]
                if failed:
                    print(f"{model}: {'; '.join(failed)}", flush=True)
                    continue
                for state in STATES:
                    ours, theirs = (
                        sum(item.middle(state, p) for p in item.phases() if p not in BEFORE)
                        for item in result
                    )
                    ratios = [
                        ratio(*result, state, without) for without in (BEFORE, (*BEFORE, "import"))
                    ]
                    rows.append([model, device, state, ours, theirs, *ratios])
                    shown = [f"{ours:,.0f}", f"{theirs:,.0f}", *(f"{item:.2f}" for item in ratios)]
                    cells.append([model, device, state, *shown])
                    table.add_row(*cells[-1])
                    print(model, device, state, *shown, flush=True)
    Console().print(table)
    if args.docs:
        measured = f"Measured on: {processor()}, threads: {thread_count(args.threads)}, medians of {args.runs} processes."
        results = [measured, "", *markdown(list(HEADINGS), cells)]
        write_between(args.docs, "benchmarks/cold.py", "\n".join(results))
    if args.json:
        names = ("model", "device", "caches", "rlx_ms", "peer_ms", "ratio", "without_imports")
        args.json.write_text(
            json.dumps([dict(zip(names, row, strict=True)) for row in rows], indent=1)
        )


if __name__ == "__main__":
    main()
