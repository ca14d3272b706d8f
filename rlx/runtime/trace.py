"""Recorded runs as a file that Perfetto opens: the JSON of Chrome's trace events."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rlx.backends.recorder import Recorder
from rlx.errors import InputError
from rlx.ir.spans import CALL, KERNEL, PART, PHASE, Span

_HOST, _DEVICE = 1, 2
# Process and thread of each kind of span. Kernels of the CPU run inside the call that they are part of.
_HOST_TRACKS = {PHASE: (_HOST, 1), CALL: (_HOST, 2), PART: (_HOST, 2), KERNEL: (_HOST, 2)}
_DEVICE_TRACKS = {**_HOST_TRACKS, KERNEL: (_DEVICE, 1)}
_NAMES = {(_HOST, 1): "compile", (_HOST, 2): "runs", (_DEVICE, 1): "kernels"}


def check_writable(path: Path) -> None:
    """Checks that a file can be written. An existing one keeps its content.

    Raises:
        InputError: It can't.
    """
    try:
        path.open("a", encoding="utf-8").close()
    except OSError as error:
        raise InputError("a trace can't be written there", where=path, got=error) from error


def write_trace(
    path: Path,
    recorder: Recorder,
    phases: Sequence[Span],
    on_host: bool,
    about: dict[str, str],
    began: int,
) -> None:
    """Writes the recorded trace.

    Args:
        path: The file.
        recorder: Spans and counters of runs.
        phases: Those of the compile. They are moved to end where the recording began: a program may
            have waited for hours between the two.
        on_host: Whether kernels ran on the host, inside the calls.
        about: The file's description of itself, and the name of the device under "device".
        began: When the recording began, on the clock of ``time.perf_counter_ns``.

    Raises:
        InputError: It can't be written.
    """
    over = max((span.end for span in phases), default=began)
    moved = began - over
    spans = [replace(span, start=span.start + moved, end=span.end + moved) for span in phases]
    spans += recorder.spans
    origin = min((span.start for span in spans), default=began)
    tracks = _HOST_TRACKS if on_host else _DEVICE_TRACKS
    # Outer spans come before inner ones.
    ordered = sorted(spans, key=lambda span: (span.start, -span.end))
    shown = [_complete(span, *tracks[span.kind], origin) for span in ordered]
    moving = any(any(count.values.values()) for count in recorder.counts)
    counters = [
        {
            "ph": "C",
            "name": count.name,
            "pid": _HOST,
            "ts": _us(count.at - origin),
            "args": dict(count.values),
        }
        for count in recorder.counts
        if moving
    ]
    used = sorted({tracks[span.kind] for span in spans})
    moved_note = f"{moved / 1e9:.3f} s later than it was, to end where the recording begins"
    document = {
        "traceEvents": [*_metadata(used, about["device"]), *shown, *counters],
        "displayTimeUnit": "ns",
        "otherData": {**about, **recorder.notes, "compile": moved_note},
    }
    try:
        path.write_text(json.dumps(document), encoding="utf-8")
    except OSError as error:
        raise InputError("the trace can't be written", where=path, got=error) from error


def _metadata(used: Iterable[tuple[int, int]], device: str) -> list[dict[str, Any]]:
    names: list[dict[str, Any]] = []
    for process, name in ((_HOST, "rlx"), (_DEVICE, device)):
        names.append(_name("process_name", process, 0, name))
    names += [_name("thread_name", pid, tid, _NAMES[pid, tid]) for pid, tid in used]
    return [name for name in names if name["pid"] in {pid for pid, _ in used}]


def _name(what: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"ph": "M", "name": what, "pid": pid, "tid": tid, "args": {"name": name}}


def _complete(span: Span, pid: int, tid: int, origin: int) -> dict[str, Any]:
    return {
        "ph": "X",
        "name": span.name,
        "cat": span.kind,
        "pid": pid,
        "tid": tid,
        "ts": _us(span.start - origin),
        "dur": _us(span.end - span.start),
        "args": dict(span.args),
    }


def _us(ns: int) -> float:
    return ns / 1000
