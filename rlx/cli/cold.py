"""``rlx bench --cold``: the phases of a model's first run in fresh processes, without caches and with them."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import field
from pathlib import Path
from typing import Any

import rlx
from rlx import model_files
from rlx.cli import model_options, screen
from rlx.cli.cold_start import ORDER
from rlx.dataclasses import dataclass
from rlx.errors import one_line
from rlx.ir.opdef import Array
from rlx.ir.spans import progress
from rlx.python_start import python
from rlx.threads import thread_count

# Drivers keep compiled kernels of their own. These have them do without.
_NO_DRIVER_CACHE = {"__GL_SHADER_DISK_CACHE": "0", "MESA_SHADER_CACHE_DISABLE": "true"}
STATES = ("cold", "warm")
_NO_COMMANDS: Mapping[str, Sequence[str]] = {}


@dataclass
class FirstRuns:
    """The first runs of one contestant.

    Attributes:
        name: A device, or a peer.
        times: For "cold" and "warm", milliseconds by phase of each process.
        error: Why there are none.
    """

    name: str
    times: dict[str, list[dict[str, float]]] = field(
        default_factory=lambda: {s: [] for s in STATES}
    )
    error: str | None = None

    def phases(self) -> list[str]:
        """The phases of its runs, in order."""
        return in_order({name for state in STATES for item in self.times[state] for name in item})

    def middle(self, state: str, phase: str | None = None) -> float:
        """The median of a phase, or of whole runs, in milliseconds."""
        runs = self.times[state]
        return statistics.median(
            sum(r.values()) if phase is None else r.get(phase, 0) for r in runs
        )


def in_order(phases: Set[str]) -> list[str]:
    """Phases as they follow each other; those that nobody foresaw stand before the last one."""
    known = [name for name in ORDER if name in phases]
    return [*known[:-1], *sorted(phases - {*ORDER}), *known[-1:]]


def run(args: Any) -> int:
    """Measures and prints; 1 when a contestant did not run.

    Raises:
        RlxError: The file holds no legal model, or there is no such device.
        OSError: A file can't be read.
    """
    if args.runs < 1:
        raise rlx.InputError("--runs", got=args.runs, expected="1 or more")
    names = model_options.contestants(args)
    with (
        model_options.progress(args.json, "load", "run") as say,
        tempfile.TemporaryDirectory() as folder,
    ):
        say("load")
        graph, notes = model_files.load(args.model, model_options.dims_of(args))
        inputs = model_options.inputs_of(args, graph)
        spec = {"model": args.model, "threads": thread_count(args.threads)}
        say("run")
        result = measure(spec, inputs, names, args.runs, Path(folder))
    if args.json:
        print(
            json.dumps({"model": args.model, "notes": notes, "rows": [_as_json(r) for r in result]})
        )
    else:
        for note in notes:
            screen.say(note)
        show(f"{Path(args.model).name}, first runs, milliseconds", result)
    return int(any(item.error for item in result))


def measure(
    spec: Mapping[str, Any],
    inputs: Mapping[str, Array],
    names: Sequence[str],
    runs: int,
    folder: Path,
    commands: Mapping[str, Sequence[str]] = _NO_COMMANDS,
) -> list[FirstRuns]:
    """First runs of a model, each in a process of its own; the contestants take turns.

    Args:
        spec: The model's file as "model", and "threads".
        inputs: Values of its inputs.
        names: The contestants: devices, or "onnxruntime".
        runs: Processes for each contestant, without caches and with them.
        folder: For inputs and caches.
        commands: The command that measures a contestant; by default ``rlx.cli.cold_start``.
    """
    spec = {**spec, **model_options.saved(inputs, folder)}
    results = [FirstRuns(name) for name in names]
    turns = list(_turns(results, runs))
    for index, (item, state, counts) in enumerate(turns):
        progress(index / len(turns), f"{item.name}, {state}")
        if item.error is None:
            command = commands.get(item.name, python("-m", "rlx.cli.cold_start"))
            times = _fresh(command, spec, item, state, folder)
            if counts and times:
                item.times[state].append(times)
    return results


def _turns(rows: Sequence[FirstRuns], runs: int) -> Iterator[tuple[FirstRuns, str, bool]]:
    """Yields the next contestant, its caches, and whether the run counts: one run fills the caches first."""
    yield from ((row, "warm", False) for row in rows)
    for turn in range(runs):
        for i in range(len(rows)):
            for state in STATES:
                yield rows[(turn + i) % len(rows)], state, True


def _fresh(
    command: Sequence[str], spec: Mapping[str, Any], runs: FirstRuns, state: str, folder: Path
) -> dict[str, float] | None:
    """Measures in a new process; an error goes into the row."""
    environment = dict(os.environ)
    empty = tempfile.TemporaryDirectory(dir=folder)
    environment["RLX_CACHE"] = empty.name if state == "cold" else str(folder / "cache")
    if state == "cold":
        environment |= _NO_DRIVER_CACHE
    inputs = {**spec, "contestant": runs.name, "started": time.time()}
    command = [*command, json.dumps(inputs)]
    with empty:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        runs.error = _last_error(done.stderr) or f"status {done.returncode}"
        return None
    times: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return times


def _last_error(said: str) -> str:
    """The error that a process ended with: the last line of its text that is not indented, and those behind it."""
    lines = said.strip().splitlines()
    begins = [i for i, line in enumerate(lines) if line[:1].strip()]
    return one_line("\n".join(lines[begins[-1] :])) if begins else ""


def _as_json(runs: FirstRuns) -> dict[str, Any]:
    ran = runs.error is None
    return {
        "name": runs.name,
        "error": runs.error,
        **{f"{state}_ms": runs.middle(state) if ran else None for state in STATES},
        "phases_ms": {state: runs.times[state] for state in STATES},
    }


def show(title: str, rows: Sequence[FirstRuns]) -> None:
    """Prints the medians of first runs, phase by phase."""
    ran = [row for row in rows if row.error is None]
    headings = ["", *(f"{item.name}\n{state}" for item in ran for state in STATES)]
    lines = []
    for phase in in_order({name for item in ran for name in item.phases()}):
        shown = [
            f"{item.middle(state, phase):,.1f}" if phase in item.phases() else "-"
            for item in ran
            for state in STATES
        ]
        lines.append([phase, *shown])
    lines.append(["all", *(f"{item.middle(state):,.1f}" for item in ran for state in STATES)])
    screen.Screen().print(screen.columns(title, headings, lines, right=True))
    for row in rows:
        if row.error:
            screen.say(f"{row.name}: {row.error}")
