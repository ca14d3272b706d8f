"""``rlx bench MODEL``: load, compile, first run, latency, memory and differences, on every device."""

from __future__ import annotations

import argparse
import json
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from importlib import import_module

import numpy as np
from rich.console import Console
from rich.table import Table

import rlx
from rlx.cli import model, tune
from rlx.errors import describe
from rlx.ir.opdef import Array

PEERS = ("onnxruntime",)


@dataclass(frozen=True)
class Row:
    """What one contestant did.

    Attributes:
        name: A device of rlx, or a peer.
        load_ms: Reading the file.
        compile_ms: Making it ready.
        first_ms: The first run.
        p50_us: Median time of a run, inputs and outputs included.
        p99_us: The 99th percentile.
        runs_per_s: One after the other.
        memory_mb: Bytes on the device in units of 1e6; None where they are not known.
        difference: The largest relative difference of an output (by its norm) from the first row that
            ran.
        on_the_host: Ops that a device leaves to the host.
        error: Why it did not run.
    """

    name: str
    load_ms: float | None = None
    compile_ms: float | None = None
    first_ms: float | None = None
    p50_us: float | None = None
    p99_us: float | None = None
    runs_per_s: float | None = None
    memory_mb: float | None = None
    difference: float | None = None
    on_the_host: tuple[str, ...] = ()
    error: str | None = None


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    model.add_arguments(command, optional=True)
    command.add_argument("--devices", default="all", help='separated by commas, or "all"')
    command.add_argument("--against", choices=PEERS, help="a peer, on as many threads")
    command.add_argument("--seconds", type=float, default=2.0, help="of runs for each (2)")
    command.add_argument(
        "--tune",
        action="store_true",
        help="no model: time the variants of GPU kernels and keep the fastest for later compiles",
    )


def run(args: argparse.Namespace) -> int:
    """Times a model; 1 when a contestant did not run.

    Raises:
        RlxError: The file holds no legal model, or there is no such device.
        OSError: A file can't be read.
    """
    if args.tune:
        return tune.run(args)
    if args.model is None:
        raise rlx.InputError(describe("no model", hint="rlx bench MODEL, or rlx bench --tune"))
    if not 0 < args.seconds < float("inf"):
        raise rlx.InputError(describe("--seconds", got=args.seconds, expected="a number above 0"))
    named = args.devices
    devices = rlx.available_devices() if named == "all" else rlx.parse_device_list(named)
    rows, exact = list[Row](), dict[str, list[Array]]()
    with model.progress(args.json) as say:
        say("load")
        began = time.perf_counter()
        graph = model.read(args)
        loaded = (time.perf_counter() - began) * 1e3
        inputs = model.inputs_of(args, graph)
        if args.against:
            say(args.against)
            rows.append(_guarded(args.against, partial(_onnxruntime, args, inputs, exact)))
        for device in devices:
            say(str(device))
            measure = partial(_device, graph, device, loaded, inputs, args.seconds, exact)
            rows.append(_guarded(str(device), measure))
    _print(args, rows)
    return int(any(row.error for row in rows))


def _guarded(name: str, measure: Callable[[], Row]) -> Row:
    """A contestant that fails is a row that says so."""
    try:
        return measure()
    except rlx.RlxError as error:
        return Row(name, error=" ".join(str(error).split()))


def _device(
    graph: rlx.Graph,
    device: rlx.Device,
    load_ms: float,
    inputs: Mapping[str, Array],
    seconds: float,
    exact: dict[str, list[Array]],
) -> Row:
    began = time.perf_counter()
    with rlx.compile(graph, device) as compiled:
        ready = time.perf_counter()
        outputs = compiled.run(inputs)
        first = time.perf_counter()
        times = _times(compiled.run_slots, seconds)
        return _row(
            str(device),
            load_ms,
            (ready - began, first - ready),
            times,
            _difference(outputs, exact),
            compiled.memory()["peak"] / 1e6,
            tuple(str(one) for one in compiled.host_fallbacks),
        )


def _onnxruntime(
    args: argparse.Namespace, inputs: Mapping[str, Array], exact: dict[str, list[Array]]
) -> Row:
    try:
        onnxruntime = import_module("onnxruntime")
    except ImportError as error:
        hint = "pip install onnxruntime"
        raise rlx.InputError(describe("onnxruntime is not installed", hint=hint)) from error
    options = onnxruntime.SessionOptions()
    # The CPU kernels of rlx run on one.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    began = time.perf_counter()
    try:
        session = onnxruntime.InferenceSession(
            args.model, options, providers=["CPUExecutionProvider"]
        )
        ready = time.perf_counter()
        outputs = session.run(None, dict(inputs))
        first = time.perf_counter()
        times = _times(lambda: session.run(None, dict(inputs)), args.seconds)
    except Exception as error:  # its errors have no common type
        raise rlx.InputError(describe("onnxruntime refuses the model", got=error)) from error
    difference = _difference([np.asarray(one) for one in outputs], exact)
    return _row("onnxruntime", None, (ready - began, first - ready), times, difference)


def _times(once: Callable[[], object], seconds: float) -> list[float]:
    """Seconds of each run; those of the first tenth of the time do not count."""
    found: list[float] = []
    warm = end = None
    while end is None or not found or time.perf_counter() < end:
        began = time.perf_counter()
        once()
        now = time.perf_counter()
        if warm is None:
            warm, end = began + seconds / 10, began + seconds
        elif now >= warm:
            found.append(now - began)
    return found


def _difference(outputs: list[Array], exact: dict[str, list[Array]]) -> float:
    """Against those of the first contestant, which are kept."""
    return relative_difference(outputs, exact.setdefault("outputs", outputs))


def relative_difference(outputs: Sequence[Array], wanted: Sequence[Array]) -> float:
    """The largest difference of an output by its norm, relative to the norm of what is wanted.

    Returns:
        Infinity where a shape is another one, or where one side has a NaN or an infinity that the other
        has not.
    """
    most = 0.0
    for got, want in zip(outputs, wanted, strict=True):
        if got.shape != want.shape:
            return math.inf
        one, other = got.astype(np.float64), want.astype(np.float64)
        finite = np.isfinite(one) & np.isfinite(other)
        if not np.array_equal(one[~finite], other[~finite], equal_nan=True):
            return math.inf
        norm = float(np.linalg.norm(other[finite]))
        off = float(np.linalg.norm(one[finite] - other[finite]))
        most = max(most, off / norm if norm else off)
    return most


def _row(
    name: str,
    load_ms: float | None,
    begun: tuple[float, float],
    times: list[float],
    difference: float,
    memory_mb: float | None = None,
    on_the_host: tuple[str, ...] = (),
) -> Row:
    p50, p99 = (float(np.percentile(times, q)) for q in (50, 99))
    return Row(
        name,
        load_ms,
        begun[0] * 1e3,
        begun[1] * 1e3,
        p50 * 1e6,
        p99 * 1e6,
        len(times) / sum(times),
        memory_mb,
        difference,
        on_the_host,
    )


_COLUMNS: tuple[tuple[str, str, str], ...] = (
    ("", "name", ""),
    ("load ms", "load_ms", ",.1f"),
    ("compile ms", "compile_ms", ",.1f"),
    ("first run ms", "first_ms", ",.2f"),
    ("p50 us", "p50_us", ",.1f"),
    ("p99 us", "p99_us", ",.1f"),
    ("runs/s", "runs_per_s", ",.0f"),
    ("MB", "memory_mb", ",.1f"),
    ("difference", "difference", ".1e"),
)


def _print(args: argparse.Namespace, rows: list[Row]) -> None:
    if args.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
        return
    table = Table(title=args.model, title_justify="left")
    for heading, name, _ in _COLUMNS:
        table.add_column(heading, justify="left" if name == "name" else "right")
    for row in rows:
        values = [(getattr(row, name), form) for _, name, form in _COLUMNS]
        table.add_row(*("-" if value is None else format(value, form) for value, form in values))
    console = Console()
    console.print(table)
    for row in rows:
        for line in row.on_the_host:
            console.print(f"{row.name}, on the host: {line}", highlight=False, markup=False)
        if row.error:
            console.print(f"{row.name}: {row.error}", highlight=False, markup=False)
