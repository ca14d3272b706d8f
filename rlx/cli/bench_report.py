"""What ``rlx bench`` prints: a table of times, one of differences, and lines for what is not in them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.table import Table

from rlx.cli.agreement import Agreement
from rlx.cli.bench_row import Row, first_that_ran
from rlx.ir.graph import Graph


def output_names(graph: Graph) -> list[str]:
    """The names of a graph's outputs, each once."""
    names: list[str] = []
    for at, node in enumerate(graph.outputs):
        name = node.name or f"output_{at}"
        names.append(f"{name}_{at}" if name in names else name)
    return names


def show(about: Mapping[str, Any], rows: Sequence[Row]) -> None:
    """Prints all."""
    console = Console()
    for note in about["made_up"]:
        console.print(note, highlight=False, markup=False)
    title = f"{about['model']}, {about['threads']} threads"
    console.print(_times(title, rows))
    console.print(_differences(f"tolerance {about['tolerance']:g} ({about['precision']})", rows))
    for row in rows:
        for line in row.facts.get("on_the_host", ()):
            console.print(f"{row.name}, on the host: {line}", highlight=False, markup=False)
        if row.error:
            console.print(f"{row.name}: {row.error}", highlight=False, markup=False)
        for one in row.agreements:
            if one.failure:
                text = f"{row.name}, output {one.output}: {one.failure}"
                console.print(text, highlight=False, markup=False)


def _number(value: float | None, form: str) -> str:
    return "-" if value is None else format(value, form)


def _times(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=title, title_justify="left")
    for heading in ("", "load ms", "compile ms", "first run ms", "p50 us", "p25 to p75", "p99 us"):
        table.add_column(heading, justify="right" if heading else "left")
    table.add_column("runs/s", justify="right")
    first = first_that_ran(rows)
    table.add_column(f"x {first.name} (quartiles)", justify="right")
    table.add_column("MB", justify="right")
    for row in rows:
        p25, p50, p75, p99 = (row.microseconds(q) for q in (25, 50, 75, 99))
        speed = row.speed(first)
        table.add_row(
            row.name,
            _number(row.facts.get("load_ms"), ",.1f"),
            _number(row.facts.get("compile_ms"), ",.1f"),
            _number(row.facts.get("first_ms"), ",.2f"),
            _number(p50, ",.1f"),
            "-" if p25 is None else f"{p25:,.1f} to {p75:,.1f}",
            _number(p99, ",.1f"),
            _number(1e6 / p50 if p50 else None, ",.0f"),
            "-" if speed is None else f"{speed[1]:.2f} ({speed[0]:.2f} to {speed[2]:.2f})",
            _number(row.facts.get("memory_mb"), ",.1f"),
        )
    return table


_COLUMNS: tuple[tuple[str, Callable[[Agreement], str]], ...] = (
    ("output", lambda one: one.output),
    ("max abs", lambda one: f"{one.max_abs:.1e}"),
    ("max ULP", lambda one: _number(one.max_ulp, ",")),
    ("RMS", lambda one: f"{one.rms:.1e}"),
    ("relative", lambda one: f"{one.relative:.1e}"),
    ("same arg-max", lambda one: _number(one.same_argmax, ".2%")),
    ("NaN", lambda one: _beside(one.nan, one.nan_expected)),
    ("inf", lambda one: _beside(one.inf, one.inf_expected)),
    ("", lambda one: "fails" if one.failure else "ok"),
)


def _beside(found: int, expected: int) -> str:
    return str(found) if found == expected else f"{found}, expected {expected}"


def _differences(title: str, rows: Sequence[Row]) -> Table:
    table = Table(title=f"difference; {title}", title_justify="left")
    table.add_column("")
    for at, (heading, _) in enumerate(_COLUMNS):
        table.add_column(heading, justify="right" if at else "left")
    for row in rows:
        for one in row.agreements:
            table.add_row(row.name, *(shown(one) for _, shown in _COLUMNS))
    return table
