"""What ``rlx bench`` prints: a table of times, one of differences, and lines for what is not in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.table import Table

from rlx.cli import screen
from rlx.cli.agreement import Agreement
from rlx.cli.bench_row import ContestantRow, first_that_ran
from rlx.errors import printable
from rlx.ir.graph import Graph


def output_names(graph: Graph) -> list[str]:
    """The names of a graph's outputs, each once."""
    names: list[str] = []
    for at, node in enumerate(graph.outputs):
        name = node.name or f"output_{at}"
        names.append(f"{name}_{at}" if name in names else name)
    return names


def show(about: Mapping[str, Any], rows: Sequence[ContestantRow]) -> None:
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
        for one in row.agreements:
            if one.failure:
                screen.say(f"{row.name}, output {printable(one.output)}: {one.failure}")


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _times(title: str, rows: Sequence[ContestantRow]) -> Table:
    """A column for each contestant: there are fewer of them than figures."""
    first = first_that_ran(rows)
    speeds = [row.speed(first) or (None, None, None) for row in rows]
    facts = (
        ("load ms", "load_ms", 1),
        ("compile ms", "compile_ms", 1),
        ("first run ms", "first_ms", 2),
    )
    lines: list[list[object]] = [
        [text, *(_number(row.facts.get(key), f",.{digits}f") for row in rows)]
        for text, key, digits in facts
    ]
    for percentile in (25, 50, 75, 99):
        found = [row.microseconds(percentile) for row in rows]
        lines.append([f"p{percentile} us", *(_number(value, ",.1f") for value in found)])
    medians = [row.microseconds(50) for row in rows]
    lines.append(["runs/s", *(_number(1e6 / p50 if p50 else None, ",.0f") for p50 in medians)])
    for at, text in ((1, f"x {first.name}"), (0, "  quartile 1"), (2, "  quartile 3")):
        lines.append([text, *(_number(speed[at], ".2f") for speed in speeds)])
    lines.append(["MB", *(_number(row.facts.get("memory_mb"), ",.1f") for row in rows)])
    return screen.columns(title, ["", *(row.name for row in rows)], lines, right=True)


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("output", lambda one: one.output),
    ("max abs", lambda one: f"{one.max_abs:.1e}"),
    ("max ULP", lambda one: _number(one.max_ulp, ",")),
    ("RMS", lambda one: f"{one.rms:.1e}"),
    ("relative", lambda one: f"{one.relative:.1e}"),
    ("arg-max", lambda one: _number(one.same_argmax, ".2%")),
    ("NaN", lambda one: _beside(one.nan, one.nan_expected)),
    ("inf", lambda one: _beside(one.inf, one.inf_expected)),
    ("", lambda one: "fails" if one.failure else "ok"),
)


def _beside(found: int, expected: int) -> str:
    return str(found) if found == expected else f"{found}, expected {expected}"


def _differences(title: str, rows: Sequence[ContestantRow]) -> Table:
    lines = [
        [row.name, *(shown(one) for _, shown in _COLUMNS)] for row in rows for one in row.agreements
    ]
    headings = ["", *(heading for heading, _ in _COLUMNS)]
    return screen.narrow(screen.columns(f"difference; {title}", headings, lines))
