"""A search for slow shapes: random graphs of one node, rlx beside the fastest of ONNX Runtime, NumPy and SciPy.

usage: python benchmarks/cliffs.py [--seed 1] [--cases 300] [--threads 1,2,8] [--only REGEX] [--family REGEX]
                                   [--device cpu|webgpu] [--dims first|all] [--seconds 0.2] [--worst 25]
                                   [--json FILE] [--from-json FILE]

Nobody chose these shapes: a seed draws operators, sizes, axes and attributes as models have them (cliff_draw.py,
cliff_rows.py, cliff_layers.py). Results are compared first; a case that differs is not timed and makes the exit status
1. Contestants have their operands in place (``input_views``; IOBinding) and take turns in bursts (cpu_clock.py). A ratio is
the time of the fastest peer by that of rlx: below 1 rlx is slower. On webgpu the peer is ONNX Runtime's plug-in for
WebGPU. With --dims the first axis of the operands, or every axis, is a dim (``rlx.Dim``), and the peer is rlx on the same
graph with numbers in place of dims. Printed are the distribution and the worst cases; --only with the name of a case
repeats it.
"""

import argparse
import json
import math
import os
import re
import sys
import time
from functools import partial
from pathlib import Path

os.environ["RLX_CACHE"] = "off"

import cliff_layers
import cliff_rows
import numpy as np
import onnx
from cliff_draw import Draw
from cpu import limited
from cpu_clock import in_pairs, quickest
from cpu_ort import session_of
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

import rlx
import rlx.onnx

FAMILIES = (*cliff_rows.FAMILIES, *cliff_layers.FAMILIES)
# Rows of the distribution: at most this share of cases is below this ratio.
BOUNDS = (0.5, 0.67, 0.8, 1.0)


def cases(seed, count):
    """The cases of a seed; the first ones are the same whatever their number."""
    for index in range(count):
        d = Draw(seed * 1_000_003 + index)
        yield d.choice(FAMILIES)(d)


def compiled_of(case, device, threads):
    """The compiled graph with the operands of the case in its inputs."""
    graph = case.graph() if case.graph else rlx.onnx.load(case.model)
    options = rlx.CompileOptions(threads=threads)
    compiled = rlx.compile(graph, device, options=options)
    for name, view in zip(graph.input_names, compiled.input_views, strict=True):
        view[...] = case.feeds[name]
    return compiled


def bound(case, threads, device):
    """A call of ONNX Runtime with bound operands, and its results."""
    import onnxruntime as ort

    if device == "cpu":
        session = session_of(case.model, threads)
    else:
        from gpu_peer_ort import ort_session

        session = ort_session(case.model, fallback=False)
    feeds = {item.name: case.feeds[item.name] for item in session.get_inputs()}
    binding = session.io_binding()
    for name, feed in feeds.items():
        binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(feed))
    result = session.run(None, feeds)
    stored = [ort.OrtValue.ortvalue_from_numpy(np.array(item, order="C")) for item in result]
    for feed, value in zip(session.get_outputs(), stored, strict=True):
        binding.bind_ortvalue_output(feed.name, value)
    return lambda: session.run_with_iobinding(binding), result


def joined(item):
    """Complex results as rlx has them: the real parts, then the imaginary ones."""
    return np.concatenate([item.real, item.imag], -1) if np.iscomplexobj(item) else np.asarray(item)


def error_of(result, expected):
    """The largest error, by the largest of the expected results; infinite where shapes differ."""
    worst = 0.0
    for first, other in zip(result, map(joined, expected), strict=False):
        if first.shape != other.shape:
            return math.inf
        if first.size:
            same = (first == other) | (np.isnan(first) & np.isnan(other))
            apart = np.abs(first.astype(np.float64) - other.astype(np.float64))
            difference = np.where(same, 0.0, np.where(np.isnan(apart), math.inf, apart))
            worst = max(worst, float(difference.max() / max(float(np.abs(other).max()), 1e-30)))
    return worst if len(result) == len(expected) else math.inf


def with_dims(model, which):
    """The model with a free dimension for each size above 1 of its first input, or for the first of them; None without one."""
    result = onnx.load_model_from_string(model)
    shapes = [item.type.tensor_type.shape.dim for item in result.graph.input]
    few = slice(1) if which == "first" else slice(None)
    chosen = {dim.dim_value for shape in shapes[:1] for dim in shape[few]} - {0, 1}
    for dim in (dim for shape in shapes for dim in shape[few]):
        if dim.dim_value in chosen:
            dim.dim_param = f"n{dim.dim_value}"
    return result.SerializeToString() if chosen else None


def twins(case, device, threads, which):
    """``contestants``, where the peer is the graph without dims."""
    options, model = (
        rlx.CompileOptions(threads=threads),
        case.model and with_dims(case.model, which),
    )
    if model is None:
        return None, {}, {}, "no size above 1, or no model"
    calls, results = [], []
    for source in (model, case.model):
        try:
            graph = rlx.onnx.load(source)
        except rlx.ImportModelError as error:
            return None, {}, {}, f"no graph with dims: {error}"
        compiled = rlx.compile(graph, device, options=options)
        if " alone: " in compiled.as_text("fused"):
            return None, {}, {}, "a program of its own for each size"
        calls.append(partial(compiled.run_slots, *(case.feeds[name] for name in graph.input_names)))
        results.append([np.array(slot) for slot in calls[-1]()])
    return calls[0], {"static": calls[1]}, {"static": error_of(*results)}, None


def contestants(case, device, threads):
    """The call of rlx, calls of the peers by name, their errors by name, and why ONNX Runtime is none of them."""
    compiled = compiled_of(case, device, threads)
    outputs = [np.array(slot) for slot in compiled.run_slots()]
    calls = dict(case.others) if device == "cpu" else {}
    results = {name: call() for name, call in calls.items()}
    failed = None
    if case.model:
        try:
            calls["ORT"], results["ORT"] = bound(case, threads, device)
        except Exception as error:  # what the peer can't run is timed beside the others
            failed = " ".join(str(error).split())[:200]
    errors = {name: error_of(outputs, result) for name, result in results.items()}
    return compiled.run_slots, calls, errors, failed


def measured(case, device, threads, seconds, dims):
    """Measures a case on a number of threads."""
    said = {"case": case.name, "family": case.family, "threads": threads}
    how = twins(case, device, threads, dims) if dims else contestants(case, device, threads)
    call, calls, errors, failed = how
    if not errors:
        return said | {"alone": failed or "no peer"}
    # Two peers may differ; what agrees with neither is wrong.
    if min(errors.values()) > case.tolerance:
        return said | {"wrong": errors}
    best = quickest(calls)
    pair = in_pairs([call, calls[best]], seconds, threads)
    return said | {"peer": best, "us": pair.p50, "ratio": pair.ratio, "spread": pair.spread}


def summary(result, console, worst):
    """Prints the distribution and the worst cases; whether a case was wrong."""
    timed = [item for item in result if "ratio" in item]
    table = Table(
        "threads", "cases", "geometric mean", *(f"below {item}" for item in BOUNDS), "worst"
    )
    for threads in sorted({item["threads"] for item in timed}):
        ratios = np.array([item["ratio"] for item in timed if item["threads"] == threads])
        shares = [f"{100 * np.mean(ratios < item):.1f} %" for item in BOUNDS]
        mean = math.exp(np.log(ratios).mean())
        table.add_row(str(threads), str(len(ratios)), f"{mean:.2f}", *shares, f"{ratios.min():.2f}")
    console.print(table)
    table = Table("peer / rlx", "rlx us", "peer us", "threads", "peer", "case")
    for item in sorted(timed, key=lambda item: item["ratio"])[:worst]:
        us = [f"{value:,.1f}" for value in item["us"]]
        table.add_row(f"{item['ratio']:.2f}", *us, str(item["threads"]), item["peer"], item["case"])
    console.print(table)
    for item in result:
        if "wrong" in item:
            console.print(f"WRONG {item['case']}: {item['wrong']}", markup=False)
        if "failure" in item:
            console.print(f"FAILED {item['case']}: {item['failure']}", markup=False)
    alone = sum("alone" in item for item in result)
    console.print(f"{len(timed)} timed, {alone} without a peer")
    return any("wrong" in item or "failure" in item for item in result)


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=300)
    parser.add_argument("--threads", default="1,2", metavar="LIST", help="such as 1,2,8")
    parser.add_argument("--device", default="cpu", choices=["cpu", "webgpu"])
    parser.add_argument("--dims", choices=["first", "all"], help="beside the graph without dims")
    parser.add_argument("--only", default="", metavar="REGEX", help="cases whose name fits")
    parser.add_argument("--family", default="", metavar="REGEX", help="cases whose family fits")
    parser.add_argument("--seconds", type=float, default=0.2, help="of a case")
    parser.add_argument("--worst", type=int, default=25, help="how many cases are listed")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--from-json", type=Path, nargs="+", help="files of --json, in one summary")
    return parser.parse_args()


def main():
    args = parsed()
    console = Console(width=170)
    if args.from_json:
        results = [load for path in args.from_json for load in json.loads(path.read_text())]
        return int(summary(results, console, args.worst))
    only, family, results = re.compile(args.only), re.compile(args.family), []
    chosen = [
        item
        for item in cases(args.seed, args.cases)
        if only.search(item.name) and family.search(item.family)
    ]
    threads = [int(part) for part in args.threads.split(",")] if args.device == "cpu" else [1]
    began = time.monotonic()
    with Progress(console=console, transient=True) as progress:
        for case in progress.track(chosen):
            for count in threads:
                try:
                    with limited(count):
                        results.append(measured(case, args.device, count, args.seconds, args.dims))
                except Exception as error:  # whatever goes wrong costs this case only
                    text = f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
                    results.append({"case": case.name, "family": case.family, "failure": text})
    if args.json:
        args.json.write_text(json.dumps(results, indent=1))
    wrong = summary(results, console, args.worst)
    console.print(f"seed {args.seed}, {time.monotonic() - began:.0f} s")
    return int(wrong)


if __name__ == "__main__":
    sys.exit(main())
