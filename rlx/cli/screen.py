"""The output of commands: tables, lines and bars of texts that come from files and drivers.

Nothing else prints such texts. Here they are never markup, and never drive the terminal.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import IO, Any

from rich import box
from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from rlx.errors import one_line, printable, printable_lines

MOST = 30
"""Rows of a table of ``rlx regress``; the files of ``--json`` and ``--html`` have all."""

# Columns of characters in a file or a pipe.
_WIDE = 200
# A column of texts up to this length is not made narrower.
_SHORT = 14
# A cell of a table; a list is a cell of several lines.
Cell = object


class Screen(Console):
    """A console that shows texts as they are, and characters that do not print as escapes.

    It is wide where no terminal says how wide it is.

    Args:
        stderr: Whether it is standard error.
        file: Where else it writes.
        width: Its columns.
    """

    def __init__(
        self, stderr: bool = False, file: IO[str] | None = None, width: int | None = None
    ) -> None:
        super().__init__(
            stderr=stderr, file=file, width=width, highlight=False, markup=False, emoji=False
        )
        if width is None and not self.is_terminal:
            self.width = max(self.width, _WIDE)

    def render_str(self, text: str, **how: Any) -> Text:
        """Every text that is printed, in a table or by itself, goes through here."""
        return super().render_str(printable_lines(text), **how)


def say(text: object, error: bool = False) -> None:
    """Prints lines, as they are however wide the terminal is.

    Args:
        text: One line, or several.
        error: Whether they go to standard error.
    """
    print(printable_lines(text), file=sys.stderr if error else sys.stdout, flush=error)


def fail(who: str, error: object) -> None:
    """Prints an error on standard error: its lines on a terminal, and for programs that read it one line of its parts.

    Args:
        who: The part of the program that begins it.
        error: The error.
    """
    text = str(error) if sys.stderr.isatty() else one_line(error)
    say(f"{who}: {text}", error=True)


def columns(
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[Cell]],
    right: bool = False,
    rule: bool = False,
) -> Table:
    """A table.

    Args:
        title: Above it.
        headings: Of its columns.
        rows: The contents of the rows.
        right: Whether all columns but the first hold numbers.
        rule: Whether there is a line between two rows.
    """
    result = Table(title=printable(title), title_justify="left", show_lines=rule)
    listed = [[_cell(cell) for cell in row] for row in rows]
    for i, heading in enumerate(headings):
        longest = max((len(row[i]) for row in listed), default=0)
        result.add_column(
            printable_lines(heading),
            overflow="fold",
            no_wrap=longest <= _SHORT,
            justify="right" if right and i else "left",
        )
    for row in listed:
        result.add_row(*row)
    return result


def show_rows(rows: Sequence[Mapping[str, Any]], title: str, as_json: bool) -> int:
    """Shows rows that are all alike, as a table or as JSON; returns 0."""
    if as_json:
        print(json.dumps(rows, indent=2))
    else:
        Screen().print(columns(title, list(rows[0]), [list(row.values()) for row in rows]))
    return 0


def narrow(result: Table) -> Table:
    """The same table with a space between columns in place of lines: more of them fit."""
    result.box, result.padding, result.pad_edge = box.SIMPLE_HEAD, (0, 1, 0, 0), False
    result.show_edge = False
    return result


def _cell(cell: Cell) -> str:
    if isinstance(cell, list | tuple):
        return "\n".join(map(printable, cell))
    return printable(cell)


def table(
    out: Console,
    title: str,
    headings: Sequence[str],
    rows: Iterable[Sequence[object]],
    most: int = MOST,
) -> None:
    """Prints a table; nothing where there are no rows.

    Args:
        out: Where to.
        title: Above it.
        headings: Of its columns.
        rows: The contents of the rows.
        most: How many rows are shown.
    """
    listed = list(rows)
    if not listed:
        return
    out.print(columns(title, headings, listed[:most]))
    if len(listed) > most:
        out.print(f"and {len(listed) - most} more")


class Bars:
    """Bars on standard error that show what is going on, and how far it is. Nothing is shown where that is no terminal.

    Args:
        quiet: Whether nothing is shown at all.
        kept: Whether the bars stay when they are done.
    """

    def __init__(self, quiet: bool, kept: bool = True) -> None:
        console = Screen(stderr=True)
        self.shown = not quiet and console.is_terminal
        self._bars = Progress(
            TextColumn("{task.fields[name]}", markup=False),
            BarColumn(24),
            TextColumn("{task.fields[part]}", markup=False),
            TextColumn("{task.description}", markup=False),
            TimeElapsedColumn(),
            console=console,
            transient=not kept,
            disable=not self.shown,
        )

    def __enter__(self) -> Bars:
        self._bars.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._bars.stop()

    def add(self, name: str) -> TaskID:
        """A bar at its beginning.

        Args:
            name: Its purpose.
        """
        return self._bars.add_task("", name=printable(name), part="", total=1.0)

    def show(self, bar: TaskID, part: float, what: str, name: str | None = None) -> None:
        """Moves a bar.

        Args:
            bar: Which one.
            part: How much of the whole is done, from 0 to 1.
            what: The current step.
            name: The new title of the bar, which is drawn at once.
        """
        if not self.shown:
            return
        more: dict[str, Any] = {"name": printable(name), "refresh": True} if name else {}
        self._bars.update(
            bar, completed=part, description=printable(what), part=f"{part:4.0%}", **more
        )


def when(began: str) -> str:
    """A date and time for people."""
    return printable(began[:19].replace("T", " "))


def figure(value: float | None, form: str = ".2g") -> str:
    """A number, of any size in the usual form; "-" for none."""
    return "-" if value is None else format(value, form)
