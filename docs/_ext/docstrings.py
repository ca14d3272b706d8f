"""Makes the docstrings of rlx safe to read as reStructuredText.

They are Google style and hold formulas such as ``|z|`` or ``a * b``, which reStructuredText would take for
markup. What stands in double backticks and doctests is left alone.
"""

from __future__ import annotations

import re
from typing import Any

_CODE = re.compile(r"``.+?``", re.DOTALL)
_MARKUP = re.compile(r"[*|]|(?<=\w)_(?!\w)|(?<![`\w])`(?=[^`])|(?<=[^`])`(?!`)")

_SECTION = re.compile(r"^(Args|Returns|Raises|Example|Attributes):$", re.MULTILINE)


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda result: "\\" + result.group(), text)


def _line(line: str) -> str:
    if line.lstrip().startswith(">>> ") or line.lstrip().startswith("... "):
        return line
    position, result = 0, []
    for match in _CODE.finditer(line):
        result += [_escaped(line[position : match.start()]), match.group()]
        position = match.end()
    result.append(_escaped(line[position:]))
    text = "".join(result)
    return text[:-2] + "::" if text.endswith("\\::") else text


def to_rst(text: str) -> str:
    """A docstring with nothing that reads as markup but literals, lists and sections."""
    return "\n".join(map(_line, text.split("\n")))


# Docstrings of attributes, kept from napoleon, which reads "Bytes: of what" as a type and a meaning.
_KEPT: dict[str, list[str]] = {}
_ATTRIBUTES = ("attribute", "property", "data")


def escape_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Does so to the docstrings that autodoc reads, before napoleon sees them."""
    lines[:] = [_line(line) for line in lines]
    if what in _ATTRIBUTES and not _SECTION.search("\n".join(lines)):
        _KEPT[name], lines[:] = list(lines), [""]


def restore_docstring(
    app: Any, what: str, name: str, obj: Any, options: Any, lines: list[str]
) -> None:
    """Puts those of attributes back."""
    if name in _KEPT:
        lines[:] = _KEPT.pop(name)
