"""Recordings of many days: a series for each case and device, and where its level changes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import field
from itertools import pairwise
from os import PathLike
from pathlib import Path

import numpy as np
import ruptures

from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.regress.record_schema import DeviceLine, Run
from rlx.regress.recording import Measured, Recording, read
from rlx.regress.statistics import LEAST_SPREAD, ratio_of
from rlx.regress.timing import deciding, spread

# A level lasts for at least so many recordings.
_SHORTEST = 2
# A change costs this many times the variance of a recording and the logarithm of the length (as BIC counts).
_PENALTY = 4.0
_LEAST_CHANGE = math.log(1.05)


@dataclass(frozen=True)
class Point:
    """A case in one recording.

    Attributes:
        run: The recording.
        device: The device in it.
        ns: The median of the medians of its processes, in nanoseconds.
        spread: Standard deviation of the processes' logarithms; 0 for one process.
        bits: Digests of the outputs.
    """

    run: Run
    device: DeviceLine
    ns: float
    spread: float
    bits: tuple[str, ...]


@dataclass(frozen=True)
class Change:
    """A change of level in a series.

    Attributes:
        at: The number of the first point after it.
        ratio: The level after by the level before.
        causes: The differences between the two recordings around it: commit, driver, versions, machine.
    """

    at: int
    ratio: float
    causes: tuple[str, ...]


@dataclass(frozen=True)
class Series:
    """A case on one device in recordings of many days, by date.

    Attributes:
        adapter: The hardware.
        case: The case's digest.
        name: The case for people.
        op: Its operation.
        metric: The kind of time (``timing.METRICS``).
        points: The recordings.
        changes: Where the level of the time changes.
        new_bits: Numbers of points whose bits are not those of the point before.
    """

    adapter: str
    case: str
    name: str
    op: str
    metric: str
    points: tuple[Point, ...] = field(repr=False)
    changes: tuple[Change, ...] = ()
    new_bits: tuple[int, ...] = ()


def load(folder: str | PathLike[str]) -> list[Series]:
    """The series of all record files in a folder.

    Raises:
        InputError: A file is no record file, or there is none.
        OSError: A file can't be read.
    """
    paths = sorted(Path(folder).glob("*.rlxreg"))
    if not paths:
        raise InputError("no record files", where=folder, expected="files *.rlxreg")
    return series(read(paths))


def series(recordings: Sequence[Recording]) -> list[Series]:
    """A series for each case and adapter that at least two recordings have, by date."""
    results: dict[tuple[str, str, str], list[tuple[Point, Measured]]] = {}
    for recording in sorted(recordings, key=lambda item: item.run.began):
        for (name, digest), measured in recording.measured.items():
            device = recording.devices[name]
            for metric, point in _points(recording, device, measured):
                results.setdefault((device.adapter, digest, metric), []).append((point, measured))
    return [
        _series(adapter, digest, metric, rows)
        for (adapter, digest, metric), rows in results.items()
        if len(rows) > 1
    ]


def _points(
    recording: Recording, device: DeviceLine, measured: Measured
) -> list[tuple[str, Point]]:
    bits = tuple(output.bits for output in measured.case.outputs) if measured.case else ()
    return [
        (metric, Point(recording.run, device, math.exp(float(np.median(logs))), spread(logs), bits))
        for metric, logs in deciding(measured).items()
    ]


def _series(
    adapter: str, digest: str, metric: str, rows: Sequence[tuple[Point, Measured]]
) -> Series:
    points = tuple(point for point, _ in rows)
    case = rows[-1][1].case
    assert case is not None
    levels = [math.log(point.ns) for point in points]
    ends = change_points(levels)
    edges = [0, *ends, len(points)]
    changes = []
    for end, before, after in zip(ends, edges, edges[2:], strict=False):
        step = float(np.median(levels[end:after]) - np.median(levels[before:end]))
        changes.append(Change(end, ratio_of(step), causes(points[end - 1], points[end])))
    bits = tuple(i for i in range(1, len(points)) if points[i].bits != points[i - 1].bits)
    return Series(adapter, digest, case.name, case.op, metric, points, tuple(changes), bits)


def change_points(levels: Sequence[float]) -> list[int]:
    """The numbers of the first values of new levels, by PELT (Killick and others, 2012) on logarithms.

    The noise is taken from the differences of neighbours, which a few changes of level hardly touch. A change by
    less than 5 % is none.

    Args:
        levels: Logarithms of times, by date.
    """
    count = len(levels)
    if count < 2 * _SHORTEST:
        return []
    values = np.asarray(levels, np.float64)
    steps = np.abs(np.diff(values))
    # 1.4826 times the median of |N(0, s)| is s; neighbours differ by two draws.
    noise = max(1.4826 * float(np.median(steps)) / math.sqrt(2), LEAST_SPREAD)
    search = ruptures.Pelt(model="l2", min_size=_SHORTEST, jump=1).fit(values[:, None])
    ends = [int(end) for end in search.predict(pen=_PENALTY * noise**2 * math.log(count))][:-1]
    retained: list[int] = []
    for i, after in pairwise([*ends, count]):
        before = values[retained[-1] if retained else 0 : i]
        if abs(float(np.median(values[i:after]) - np.median(before))) >= _LEAST_CHANGE:
            retained.append(i)
    return retained


def causes(before: Point, after: Point) -> tuple[str, ...]:
    """Lists the differences between two recordings: commit, version, driver, machine."""
    results = [
        (name, getattr(before.run, key), getattr(after.run, key))
        for name, key in (
            ("commit", "commit"),
            ("build of rlx", "build"),
            ("rlx", "rlx"),
            ("system", "system"),
            ("processor", "cpu"),
            ("instruction set", "isa"),
            ("threads", "threads"),
        )
    ]
    results.append(("driver", before.device.driver, after.device.driver))
    for name in sorted({*before.run.versions, *after.run.versions}):
        was, now = (point.run.versions.get(name, "-") for point in (before, after))
        results.append((name, was, now))
    return tuple(
        f"{name} {_short(was)} -> {_short(now)}" for name, was, now in results if was != now
    )


def _short(value: object) -> str:
    """Shortens a commit or a digest to its first digits; other names are unchanged."""
    text = str(value) or "-"
    return text[:12] if len(text) >= 32 and " " not in text else text
