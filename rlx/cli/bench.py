"""``rlx bench MODEL``: how fast a model is on each device and beside a peer, and whether they agree."""

from __future__ import annotations

import argparse
import json
import math
import platform
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx import model_files
from rlx.cli import bench_report, cold, model_options, tune
from rlx.cli.agreement import TOLERANCES, agreement, precision_of
from rlx.cli.bench_report import BenchRow, first_that_ran
from rlx.cli.contestant import PEERS
from rlx.files import digest_of_file
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import progress
from rlx.python_start import python
from rlx.runtime.session import DENORMALS
from rlx.threads import thread_count

DIFFERS = 3
"""The exit status where outputs are apart, or hold NaN."""

# The contestants take turns this often, at least and at most.
_ROUNDS = 5, 40
# A slow model ends its rounds when this many times the wanted seconds are over.
_PATIENCE = 3


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    model_options.add_arguments(command, optional=True)
    command.add_argument("--devices", default="all", help='separated by commas, or "all"')
    command.add_argument("--against", choices=PEERS, help="also time a peer, on as many threads")
    command.add_argument(
        "--threads", type=int, help="CPU threads of each contestant (rlx's default)"
    )
    command.add_argument(
        "--denormals",
        choices=DENORMALS,
        default="flush",
        help="treatment of subnormal numbers on the CPU (flush)",
    )
    command.add_argument(
        "--seconds", type=float, default=2.0, help="seconds of runs per contestant (2)"
    )
    usual = ", ".join(f"{name} {value:g}" for name, value in TOLERANCES.items())
    command.add_argument(
        "--tolerance",
        type=float,
        help="the largest passing difference of an element, relative to the output's largest value "
        f"(default by the model's dtype: {usual})",
    )
    command.add_argument(
        "--expect",
        action="append",
        default=[],
        metavar="OUTPUT=FILE.npy",
        help="the expected value of an output, in place of the first contestant's; may be repeated",
    )
    command.add_argument(
        "--allow-nan", action="store_true", help="accept NaN where NaN is expected"
    )
    command.add_argument(
        "--cold",
        action="store_true",
        help="time the phases of first runs in fresh processes, without caches and with them",
    )
    command.add_argument(
        "--runs", type=int, default=5, help="with --cold: processes for each contestant (5)"
    )
    command.add_argument(
        "--tune",
        action="store_true",
        help="without a model: time the variants of GPU kernels and keep the fastest for later compiles",
    )
    command.add_argument(
        "--only", default="", metavar="REGEX", help="with --tune: only families whose names match"
    )


def run(args: argparse.Namespace) -> int:
    """Times a model. 1 when a contestant did not run, ``DIFFERS`` when outputs are apart.

    Raises:
        RlxError: The file holds no legal model, or there is no such device.
        OSError: A file can't be read.
    """
    if args.tune:
        return tune.run(args)
    if args.only:
        raise rlx.InputError("--only is for --tune", got=args.only)
    if args.model is None:
        raise rlx.InputError("no model", hint="rlx bench MODEL, or rlx bench --tune")
    if args.cold:
        return cold.run(args)
    for name, value in (("seconds", args.seconds), ("threads", args.threads)):
        if value is not None and not 0 < value < math.inf:
            raise rlx.InputError(f"--{name}", got=value, expected="a number above 0")
    if args.tolerance is not None and not 0 <= args.tolerance < math.inf:
        raise rlx.InputError("--tolerance", got=args.tolerance, expected="0 or more")
    names = model_options.contestants(args)
    with (
        model_options.progress(args.json, "load", "run") as say,
        tempfile.TemporaryDirectory() as folder,
    ):
        say("load")
        graph, notes = model_files.load(args.model, model_options.dims_of(args))
        inputs = model_options.inputs_of(args, graph)
        expected = _expected(args, graph)
        threads = thread_count(args.threads)
        tolerance = TOLERANCES[precision_of(graph)] if args.tolerance is None else args.tolerance
        say("run")
        spec = {
            "model": args.model,
            "dims": model_files.sizes_in(args.model, graph),
            "threads": threads,
            "denormals": args.denormals,
        }
        rows, outputs = _contest(spec, inputs, names, args.seconds, Path(folder))
    _compare(rows, outputs, graph, expected, tolerance, args.allow_nan)
    about = {
        "model": str(args.model),
        "model_sha256": digest_of_file(args.model),
        "inputs": {name: list(value.shape) for name, value in inputs.items()},
        "made_up": notes,
        "threads": threads,
        "denormals": args.denormals,
        "precision": precision_of(graph),
        "tolerance": tolerance,
        "seconds": args.seconds,
        **_machine(),
    }
    if args.json:
        print(json.dumps({**about, "rows": [_as_json(row, rows) for row in rows]}, indent=2))
    else:
        bench_report.show(about, rows)
    if any(row.error for row in rows):
        return 1
    return DIFFERS if any(row.differs for row in rows) else 0


def _contest(
    spec: Mapping[str, Any],
    inputs: Mapping[str, Array],
    names: Sequence[str],
    seconds: float,
    folder: Path,
) -> tuple[list[BenchRow], dict[str, list[Array]]]:
    """Loads a process for each contestant, then lets them take turns. Gives rows, and outputs by name."""
    rows, outputs = [BenchRow(name) for name in names], dict[str, list[Array]]()
    spec = {**spec, **model_options.saved(inputs, folder)}
    with ExitStack() as stack:
        ready = []
        for i, row in enumerate(rows):
            progress(i / (2 * len(rows)), row.name)
            process = stack.enter_context(_started())
            path = folder / f"outputs_{i}.npz"
            row.facts = _asked(process, {**spec, "contestant": row.name, "outputs": str(path)}, row)
            if row.error is None:
                with np.load(path) as result:
                    outputs[row.name] = [result[str(k)] for k in range(len(result.files))]
                ready.append((row, process))
        _take_turns(ready, seconds)
    return rows, outputs


def _take_turns(ready: Sequence[tuple[BenchRow, subprocess.Popen[str]]], seconds: float) -> None:
    """Bursts of runs, in another order each round, so that what slows the machine slows all alike."""
    least, limit = _ROUNDS
    for turn in range(limit):
        if turn >= least and any(
            sum(map(sum, row.samples_ns)) > _PATIENCE * seconds * 1e9 for row, _ in ready
        ):
            return
        progress(0.5 + turn / (2 * limit), f"round {turn + 1} of {limit}")
        for i in range(len(ready)):
            row, process = ready[(turn + i) % len(ready)]
            if row.error is None:
                result = _asked(process, {"seconds": seconds / limit}, row)
                row.samples_ns += [result["ns"]] if "ns" in result else []


def _started() -> subprocess.Popen[str]:
    command, pipe = python("-m", "rlx.cli.contestant"), subprocess.PIPE
    return subprocess.Popen(
        command, stdin=pipe, stdout=pipe, stderr=subprocess.DEVNULL, text=True, encoding="utf-8"
    )


def _asked(
    process: subprocess.Popen[str], command: Mapping[str, Any], row: BenchRow
) -> dict[str, Any]:
    """A contestant's answer; an error goes into its row."""
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        process.stdin.write(json.dumps(command) + "\n")
        process.stdin.flush()
        line = process.stdout.readline()
    except OSError:
        line = ""
    results: dict[str, Any] = (
        json.loads(line) if line else {"error": f"the process ended with status {process.wait()}"}
    )
    row.error = results.pop("error", None)
    return results


def _expected(args: argparse.Namespace, graph: Graph) -> dict[int, Array]:
    """Returns the outputs of ``--expect``, by the number of the output."""
    names, result = bench_report.output_names(graph), dict[int, Array]()
    for text in args.expect:
        expected = "OUTPUT=FILE.npy"
        name, _, array = model_options.array_of(text, "--expect", expected, "output", names)
        result[names.index(name)] = array
    return result


def _compare(
    rows: Sequence[BenchRow],
    outputs: Mapping[str, list[Array]],
    graph: Graph,
    expected: Mapping[int, Array],
    tolerance: float,
    allow_nan: bool,
) -> None:
    """Every contestant's outputs against what is expected, else against the first contestant's."""
    first, names = next(iter(outputs.values()), []), bench_report.output_names(graph)
    for row in rows:
        for i, got in enumerate(outputs.get(row.name, [])):
            want, dtype = expected.get(i, first[i]), graph.outputs[i].dtype
            row.agreements.append(agreement(names[i], got, want, tolerance, dtype, allow_nan))


def _as_json(row: BenchRow, rows: Sequence[BenchRow]) -> dict[str, Any]:
    """A row with its raw samples; what is not finite is null, since JSON has no infinity."""
    first = first_that_ran(rows)
    speed = row.speed(first)
    return {
        "name": row.name,
        "error": row.error,
        **row.facts,
        **{f"p{part}_us": row.microseconds(part) for part in (25, 50, 75, 99)},
        "first": first.name,
        "times_as_fast_as_first": None
        if speed is None
        else dict(zip(("p25", "p50", "p75"), speed, strict=True)),
        "agreements": [
            {
                k: None if isinstance(v, float) and not math.isfinite(v) else v
                for k, v in asdict(item).items()
            }
            for item in row.agreements
        ],
        "differs": row.differs,
        "samples_us": [[ns / 1e3 for ns in burst] for burst in row.samples_ns],
    }


def _machine() -> dict[str, Any]:
    versions = {"rlx": rlx.__version__, "python": platform.python_version()}
    for name in ("numpy", "wgpu", "onnxruntime"):
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    system = f"{platform.system()} {platform.release()} {platform.machine()}"
    return {"versions": versions, "system": system}
