"""The results of ``rlx bench`` and their output: a table of times, a table of differences, and lines for the rest."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np
from rich.table import Table

from rlx.cli import screen
from rlx.cli.agreement import Agreement
from rlx.dataclasses import dataclass
from rlx.errors import printable
from rlx.ir.graph import Graph


@dataclass
class BenchRow:
    """The results of one contestant.

    Attributes:
        name: A device of rlx, or a peer.
        facts: Milliseconds to load, compile and run first, memory, adapter, driver, what is on the host.
        samples_ns: Nanoseconds of each run, a list for each round.
        agreements: Its outputs beside what was expected.
        error: Why it did not run.
    """

    name: str
    facts: dict[str, Any] = field(default_factory=dict)
    samples_ns: list[list[int]] = field(default_factory=list)
    agreements: list[Agreement] = field(default_factory=list)
    error: str | None = None

    @property
    def differs(self) -> bool:
        """True if an output does not pass."""
        return any(agreement.failure for agreement in self.agreements)

    def microseconds(self, percentile: float) -> float | None:
        """A percentile of all runs."""
        times = [ns for burst in self.samples_ns for ns in burst]
        return float(np.percentile(times, percentile)) / 1e3 if times else None

    def speed(self, first: BenchRow) -> tuple[float, float, float] | None:
        """Compares the speed with another row: quartiles of the rounds' ratios of medians."""
        pairs = zip(first.samples_ns, self.samples_ns, strict=False)
        ratios = [float(np.median(item)) / float(np.median(own)) for item, own in pairs]
        if not ratios:
            return None
        low, middle, high = (float(np.percentile(ratios, q)) for q in (25, 50, 75))
        return low, middle, high


def first_that_ran(rows: Sequence[BenchRow]) -> BenchRow:
    """The row that others are compared with; the first one where none ran."""
    return next((row for row in rows if row.error is None), rows[0])


def output_names(graph: Graph) -> list[str]:
    """The names of a graph's outputs, each once."""
    names: list[str] = []
    for i, node in enumerate(graph.outputs):
        name = node.name or f"output_{i}"
        names.append(f"{name}_{i}" if name in names else name)
    return names


def show(about: Mapping[str, Any], rows: Sequence[BenchRow]) -> None:
    """Prints all: tables that fit 80 columns, one after the other."""
    out = screen.Screen()
    for note in about["made_up"]:
        screen.say(note)
    out.print(_times(f"{about['model']}, {about['threads']} threads", rows))
    out.print(_differences(f"tolerance {about['tolerance']:g} ({about['precision']})", rows))
    for row in rows:
        for line in row.facts.get("on_the_host", ()):
            screen.say(f"{row.name}, on the host: {line}")
        if row.error:
            screen.say(f"{row.name}: {row.error}")
        for agreement in row.agreements:
            if agreement.failure:
                screen.say(f"{row.name}, output {printable(agreement.output)}: {agreement.failure}")


def _times(title: str, rows: Sequence[BenchRow]) -> Table:
    """A column for each contestant: there are fewer of them than figures."""
    first = first_that_ran(rows)
    speeds = [row.speed(first) or (None, None, None) for row in rows]
    facts = (
        ("load ms", "load_ms", 1),
        ("compile ms", "compile_ms", 1),
        ("first run ms", "first_ms", 2),
    )
    lines: list[list[object]] = [
        [text, *(screen.figure(row.facts.get(key), f",.{digits}f") for row in rows)]
        for text, key, digits in facts
    ]
    for percentile in (25, 50, 75, 99):
        results = [row.microseconds(percentile) for row in rows]
        lines.append([f"p{percentile} us", *(screen.figure(value, ",.1f") for value in results)])
    medians = [row.microseconds(50) for row in rows]
    lines.append(
        ["runs/s", *(screen.figure(1e6 / p50 if p50 else None, ",.0f") for p50 in medians)]
    )
    for i, text in ((1, f"x {first.name}"), (0, "  quartile 1"), (2, "  quartile 3")):
        lines.append([text, *(screen.figure(speed[i], ".2f") for speed in speeds)])
    lines.append(["MB", *(screen.figure(row.facts.get("memory_mb"), ",.1f") for row in rows)])
    return screen.columns(title, ["", *(row.name for row in rows)], lines, right=True)


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("output", lambda item: item.output),
    ("max abs", lambda item: f"{item.max_abs:.1e}"),
    ("max ULP", lambda item: screen.figure(item.max_ulp, ",")),
    ("RMS", lambda item: f"{item.rms:.1e}"),
    ("relative", lambda item: f"{item.relative:.1e}"),
    ("arg-max", lambda item: screen.figure(item.same_argmax, ".2%")),
    ("NaN", lambda item: _beside(item.nan, item.nan_expected)),
    ("inf", lambda item: _beside(item.inf, item.inf_expected)),
    ("", lambda item: "fails" if item.failure else "ok"),
)


def _beside(result: int, expected: int) -> str:
    return str(result) if result == expected else f"{result}, expected {expected}"


def _differences(title: str, rows: Sequence[BenchRow]) -> Table:
    lines = [
        [row.name, *(shown(agreement) for _, shown in _COLUMNS)]
        for row in rows
        for agreement in row.agreements
    ]
    headings = ["", *(heading for heading, _ in _COLUMNS)]
    return screen.narrow(screen.columns(f"difference; {title}", headings, lines))
