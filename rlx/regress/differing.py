"""The schedules and WGSL modules of two recordings that differ, line by line."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator

from rlx.dataclasses import dataclass
from rlx.regress.compare import CaseResult, Comparison
from rlx.regress.recording import Recording

# Comparing takes the square of the lines at worst; longer texts are not compared.
_MAX_LINES = 3000
_MAX_SHOWN = 300
_MAX_TEXTS = 40


@dataclass(frozen=True)
class TextDiff:
    """A text that differs.

    Attributes:
        title: Its title and its kernel.
        cases: The cases that it belongs to.
        lines: Of a unified diff: the class of each ("add", "del", "at" or "") and its text.
    """

    title: str
    cases: tuple[str, ...]
    lines: tuple[tuple[str, str], ...]


_CLASSES = {"+": "add", "-": "del", "@": "at"}


def text_diffs(comparison: Comparison) -> list[TextDiff]:
    """Returns the texts that differ, each once, flagged cases first."""
    flagged = sorted(comparison.cases, key=lambda item: not item.flagged)
    results: dict[tuple[str, str], tuple[str, list[str]]] = {}
    for case in flagged:
        for title, first, other in _pairs(case):
            results.setdefault((first, other), (title, []))[1].append(case.name)
    chosen = list(results.items())[:_MAX_TEXTS]
    return [
        TextDiff(
            title,
            tuple(dict.fromkeys(cases)),
            tuple(_lines(comparison.base, comparison.new, first, other)),
        )
        for (first, other), (title, cases) in chosen
    ]


def _pairs(case: CaseResult) -> Iterator[tuple[str, str, str]]:
    """Digests of texts that differ, with their titles."""
    was, now = case.base.case, case.new.case
    if was is None or now is None or case.pair.base.api != case.pair.new.api:
        return
    if was.schedule != now.schedule:
        yield "schedule", was.schedule, now.schedule
    names = dict.fromkeys(kernel.name for kernel in (*was.kernels, *now.kernels))
    for name in names:
        first, other = (
            list(dict.fromkeys(k.text for k in side.kernels if k.name == name and k.text))
            for side in (was, now)
        )
        gone = [text for text in first if text not in other]
        come = [text for text in other if text not in first]
        for before, after in zip(gone, come, strict=False):
            yield f"WGSL of {name}", before, after


def _lines(base: Recording, new: Recording, first: str, other: str) -> Iterable[tuple[str, str]]:
    was, now = base.text(first), new.text(other)
    if was is None or now is None:
        return [("at", "the recordings do not hold the texts")]
    before, after = was.splitlines(), now.splitlines()
    if max(len(before), len(after)) > _MAX_LINES:
        return [("at", f"too long to compare: {len(before)} lines before, {len(after)} now")]
    lines = list(difflib.unified_diff(before, after, "before", "now", n=2, lineterm=""))[2:]
    shown = [(_CLASSES.get(text[:1], ""), text) for text in lines[:_MAX_SHOWN]]
    rest = len(lines) - len(shown)
    return [*shown, ("at", f"... and {rest} more lines")] if rest else shown
