"""CPU kernels against ONNX Runtime, SciPy and librosa on the same threads.

usage: python benchmarks/cpu.py [--only REGEX] [--quick] [--threads 1,2] [--peak GFLOPS,GBPS] [--json cpu.json]
                                [--docs docs/benchmarks.md]
       python benchmarks/cpu.py --from-json benchmarks/cpu.json --docs docs/benchmarks.md
       python benchmarks/cpu.py --check

rlx and the peer stand ready with operands of their own (``input_views``; IOBinding), nothing is copied in a call,
and take turns in bursts, so that both see the same machine (``cpu_clock``). Where the peer has several kernels for
a workload, or SciPy is faster, the fastest one counts. Every row is compared with float64 first, and so is the peer; a row that is
wrong is not timed and makes the exit status 1. A peer that is not installed is said to be absent.
"""

import argparse
import json
import os
import platform
import sys
import time
from contextlib import nullcontext
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

os.environ["RLX_CACHE"] = "off"  # each row is compiled here and now

import cpu_ort
import cpu_report
import cpu_scipy
import report
from cpu_clock import in_pairs, quickest
from cpu_rows import ROWS
from rich.console import Console
from rich.progress import Progress
from work import error_of, graph_of, touched

import rlx

# Of a peer's results: its own error is below, a wrong transcription of the workload far above.
AGREES = 2e-3
PEERS = ("onnxruntime", "onnx", "numpy", "scipy", "librosa", "threadpoolctl")
# Seconds of a row on one number of threads, and with --quick.
SECONDS, QUICK_SECONDS = 2.0, 0.5


def ready(work, threads):
    """The workload compiled for so many threads, with its operands in place."""
    graph = graph_of(work)
    weights = {name: work.values[name] for name in work.weights}
    compiled = rlx.compile(graph, "cpu", weights, replace(work.options, threads=threads))
    for name, view in zip(graph.input_names, compiled.input_views, strict=True):
        view[...] = work.values[name]
    return compiled


def peers_of(work, threads):
    """Ways of the peer that are right, and what there is to say of the others."""
    calls, failed, absent = {}, {}, {}
    for name, make in (cpu_ort.ways(work, threads) | cpu_scipy.ways(work, threads)).items():
        try:
            call, outputs = make()
            call()
            error = error_of(work, outputs())
        except ImportError as missing:
            absent[name] = f"{missing.name or missing} is not installed"
            continue
        except Exception as other:  # whatever a peer raises costs it this way
            failed[name] = report.failure(other)["failure"]
            continue
        if error > max(AGREES, work.tolerance):
            failed[name] = f"error {error:.2g}"
        else:
            calls[name] = call
    return calls, {"peer_failures": failed, "peer_absent": absent}


def checked(work, threads):
    """The workload compiled, and what a row says of its correctness."""
    compiled = ready(work, threads)
    error = error_of(work, [slot.copy() for slot in compiled.run_slots()])
    right = error <= work.tolerance
    return compiled, {"error": error, "tolerance": work.tolerance, "correct": right}


def check_row(row, threads):
    """A line for each of a row's small sizes; a peer that fails there makes it wrong, too."""
    for size in row.small:
        line = {"row": row.name, "size": size, "variant": f"{threads} threads"}
        try:
            work = row.work(size)
            _, facts = checked(work, threads)
            calls, said = peers_of(work, threads)
            line |= facts | {"peers": list(calls)} | said
            if said["peer_failures"]:
                line |= {"correct": False, "failure": f"peer: {said['peer_failures']}"}
        except Exception as error:  # whatever goes wrong costs this row only
            line |= report.failure(error)
        yield line


def time_row(work, threads, arguments):
    """Checks a workload, then times it if it is right."""
    compiled, result = checked(work, threads)
    nbytes = touched(work)
    result |= {"flops": work.flops, "nbytes": nbytes}
    if not result["correct"]:
        return result
    ways, said = peers_of(work, threads)
    result |= said
    runs = [compiled.run_slots]
    if ways:
        result["peer"] = quickest(ways)
        runs.append(ways[result["peer"]])
    result |= vars(in_pairs(runs, arguments.seconds, threads))
    return result | cpu_report.speeds(result, arguments.peak)


def limited(threads):
    """Inside it the BLAS of NumPy and SciPy uses so many threads, where that can be set."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:
        return nullcontext()
    return threadpool_limits(threads)


def about():
    """The machine and the versions."""
    from rlx.device.names import info_of

    info = info_of(rlx.Device.parse("cpu"))
    versions = {"rlx": rlx.__version__}
    for name in PEERS:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = "absent"
    return {
        "processor": info.adapter,
        "kernels": info.driver,
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "load": os.getloadavg() if hasattr(os, "getloadavg") else None,
        "versions": versions,
        "rows": [],
    }


def numbers(text):
    """Numbers between commas."""
    return [float(part) for part in text.split(",")]


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name fits")
    parser.add_argument("--quick", action="store_true", help="the rows that tell most, briefly")
    parser.add_argument("--check", action="store_true", help="compare only, at small sizes")
    parser.add_argument("--small", action="store_true", help="time at the small sizes")
    parser.add_argument("--threads", default="1,2", metavar="LIST", help="such as 1,2")
    parser.add_argument("--seconds", type=float, help="of each row on each number of threads")
    parser.add_argument(
        "--peak", type=numbers, metavar="GFLOPS,GBPS", help="what the processor can do at best"
    )
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    arguments = parser.parse_args()
    arguments.threads = [int(part) for part in arguments.threads.split(",")]
    arguments.seconds = arguments.seconds or (QUICK_SECONDS if arguments.quick else SECONDS)
    return arguments


def main():
    arguments = parsed()
    console = Console(width=190)
    if arguments.from_json:
        return finish(json.loads(arguments.from_json.read_text()), arguments, console)
    rows = report.asked_for(ROWS, arguments)
    if arguments.check:
        return check(rows, arguments, console)
    return measure(rows, arguments, console)


def check(rows, arguments, console):
    """Every row at small sizes on every number of threads."""
    began, lines = time.monotonic(), []
    with Progress(console=console, transient=True) as progress:
        for row in progress.track(rows):
            for threads in arguments.threads:
                lines += check_row(row, threads)
    console.print(cpu_report.checks(lines))
    return report.tell_checks(lines, began, arguments, console)


def measure(rows, arguments, console):
    """Every row, one after the other."""
    result = about()
    with Progress(console=console, transient=True) as progress:
        for row in progress.track(rows):
            size = row.small[0] if arguments.small else row.size
            work = row.work(size)
            for threads in arguments.threads:
                line = {"row": row.name, "size": size, "threads": threads}
                try:
                    with limited(threads):
                        line |= time_row(work, threads, arguments)
                except Exception as error:  # whatever goes wrong costs this row only
                    line |= report.failure(error)
                console.print(cpu_report.one_line(line), markup=False, highlight=False)
                result["rows"].append(line)
                report.save(result, arguments)
    return finish(result, arguments, console)


def finish(result, arguments, console):
    """Tables and files from what was measured."""
    console.print(cpu_report.table(result))
    for line in cpu_report.notes(result):
        console.print(line, markup=False, highlight=False)
    report.save(result, arguments)
    if arguments.docs:
        report.write_between(arguments.docs, cpu_report.SCRIPT, cpu_report.markdown(result))
    return int(not result["rows"] or not all(line["correct"] for line in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
