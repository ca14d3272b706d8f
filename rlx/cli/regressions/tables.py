"""Tables on the console, of texts that come from files."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from rich.console import Console
from rich.table import Table

from rlx.cli.regressions import plain

MOST = 30
"""Rows of a table; the files of ``--json`` and ``--html`` have all."""

# Columns of characters in a file or a pipe.
_WIDE = 200
# A column of texts up to this length is not made narrower.
_SHORT = 14


def console() -> Console:
    """A console that takes texts as they are; wide where no terminal says how wide it is."""
    found = Console(highlight=False, markup=False, emoji=False)
    if not found.is_terminal:
        found.width = max(found.width, _WIDE)
    return found


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
        rows: What stands in them.
        most: How many rows are shown.
    """
    listed = list(rows)
    if not listed:
        return
    made = Table(title=plain(title), title_justify="left")
    cells = [[plain(cell) for cell in row] for row in listed[:most]]
    for at, heading in enumerate(headings):
        short = max(len(row[at]) for row in cells) <= _SHORT
        made.add_column(heading, overflow="fold", no_wrap=short)
    for row in cells:
        made.add_row(*row)
    out.print(made)
    if len(listed) > most:
        out.print(f"and {len(listed) - most} more")


def when(began: str) -> str:
    """A date and time for people."""
    return plain(began[:19].replace("T", " "))


def figure(value: float | None) -> str:
    """A number of any size; "-" for none."""
    return "-" if value is None else f"{value:.2g}"
