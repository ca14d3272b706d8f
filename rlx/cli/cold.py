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

import numpy as np

import rlx
from rlx import model_files
from rlx.cli import model, screen
from rlx.cli.cold_start import ORDER
from rlx.dataclasses import dataclass
from rlx.errors import describe, one_line
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
        found = {name for state in STATES for one in self.times[state] for name in one}
        return in_order(found)

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
        raise rlx.InputError(describe("--runs", got=args.runs, expected="1 or more"))
    devices = (
        rlx.available_devices() if args.devices == "all" else rlx.parse_device_list(args.devices)
    )
    names = [*([args.against] if args.against else []), *(str(one) for one in devices)]
    if not names:
        raise rlx.InputError(describe("--devices names none", got=repr(args.devices)))
    with model.progress(args.json, "load", "run") as say, tempfile.TemporaryDirectory() as folder:
        say("load")
        graph, notes = model_files.load(args.model, model.dims_of(args))
        inputs = model.inputs_of(args, graph)
        spec = {"model": args.model, "threads": thread_count(args.threads)}
        say("run")
        found = measure(spec, inputs, names, args.runs, Path(folder))
    if args.json:
        print(
            json.dumps({"model": args.model, "notes": notes, "rows": [_as_json(r) for r in found]})
        )
    else:
        for note in notes:
            screen.say(note)
        show(f"{Path(args.model).name}, first runs, milliseconds", found)
    return int(any(one.error for one in found))


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
        commands: What measures a contestant, where that is not ``rlx.cli.cold_start``.
    """
    saved: dict[str, Any] = {str(at): one for at, one in enumerate(inputs.values())}
    np.savez(folder / "inputs.npz", **saved)
    spec = {**spec, "names": list(inputs), "inputs": str(folder / "inputs.npz")}
    found = [FirstRuns(name) for name in names]
    turns = list(_turns(found, runs))
    for at, (one, state, counts) in enumerate(turns):
        progress(at / len(turns), f"{one.name}, {state}")
        if one.error is None:
            command = commands.get(one.name, python("-m", "rlx.cli.cold_start"))
            times = _fresh(command, spec, one, state, folder)
            if counts and times:
                one.times[state].append(times)
    return found


def _turns(rows: Sequence[FirstRuns], runs: int) -> Iterator[tuple[FirstRuns, str, bool]]:
    """Who is next, with which caches, and whether it counts: one run fills them first."""
    yield from ((one, "warm", False) for one in rows)
    for turn in range(runs):
        for at in range(len(rows)):
            for state in STATES:
                yield rows[(turn + at) % len(rows)], state, True


def _fresh(
    command: Sequence[str], spec: Mapping[str, Any], one: FirstRuns, state: str, folder: Path
) -> dict[str, float] | None:
    """What a new process measures; an error goes into the row."""
    environment = dict(os.environ)
    empty = tempfile.TemporaryDirectory(dir=folder)
    environment["RLX_CACHE"] = empty.name if state == "cold" else str(folder / "cache")
    if state == "cold":
        environment |= _NO_DRIVER_CACHE
    given = {**spec, "contestant": one.name, "started": time.time()}
    with empty:
        done = subprocess.run(
            [*command, json.dumps(given)],
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        one.error = _last_error(done.stderr) or f"status {done.returncode}"
        return None
    times: dict[str, float] = json.loads(done.stdout.strip().splitlines()[-1])
    return times


def _last_error(said: str) -> str:
    """The error that a process ended with: the last line of its text that is not indented, and those behind it."""
    lines = said.strip().splitlines()
    begins = [at for at, line in enumerate(lines) if line[:1].strip()]
    return one_line("\n".join(lines[begins[-1] :])) if begins else ""


def _as_json(one: FirstRuns) -> dict[str, Any]:
    ran = one.error is None
    return {
        "name": one.name,
        "error": one.error,
        **{f"{state}_ms": one.middle(state) if ran else None for state in STATES},
        "phases_ms": {state: one.times[state] for state in STATES},
    }


def show(title: str, rows: Sequence[FirstRuns]) -> None:
    """Prints the medians of first runs, phase by phase."""
    ran = [one for one in rows if one.error is None]
    headings = ["", *(f"{one.name}\n{state}" for one in ran for state in STATES)]
    lines = []
    for phase in in_order({name for one in ran for name in one.phases()}):
        shown = [
            f"{one.middle(state, phase):,.1f}" if phase in one.phases() else "-"
            for one in ran
            for state in STATES
        ]
        lines.append([phase, *shown])
    lines.append(["all", *(f"{one.middle(state):,.1f}" for one in ran for state in STATES)])
    screen.Screen().print(screen.columns(title, headings, lines, right=True))
    for one in rows:
        if one.error:
            screen.say(f"{one.name}: {one.error}")
