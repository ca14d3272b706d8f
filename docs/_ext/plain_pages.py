"""Makes the pages of docs/reference that docstrings fill readable without Sphinx: plain Markdown in docs/reference/plain.

A directive of a page becomes a heading, a signature and the docstring as it stands in the source. ``script/reference``
writes the pages.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from op_families import families

from rlx.flags import TABLE
from rlx.ops.declare import show_signature

MADE = "<!-- Made by script/reference from the docstrings. Edit those. -->"
_BLOCK = re.compile(r"^```\{([\w-]+)\}[^\n]*\n(.*?)^```\n?", re.MULTILINE | re.DOTALL)
_DIRECTIVE = re.compile(r"^\.\. auto(\w+):: (\S+)\n((?:[ ]+:.*\n)*)", re.MULTILINE)
_OPTION = re.compile(r"^ +:([\w-]+): *(.*)$", re.MULTILINE)
_ROLE = re.compile(r"\{\w+\}`([^`]+)`")
# The place in memory of a default that has no text.
_PLACE = re.compile(r" at 0x[0-9a-f]+")
# A module as a default, which Python shows with the path of its file.
_MODULE = re.compile(r"<module '([\w.]+)' from '[^']*'>")


def plain_pages(folder: Path) -> dict[str, str]:
    """The texts of the pages by their names.

    Args:
        folder: docs/reference.
    """
    results = {}
    for path in sorted(folder.glob("*.md")):
        text = path.read_text(encoding="utf-8")
        if "```{eval-rst}" in text or "```{rlx-flags}" in text:
            results[path.name] = f"{MADE}\n\n{_page(text)}"
    results["operations.md"] = f"{MADE}\n\n{_operations()}"
    listed = "".join(f"- [{name.removesuffix('.md')}]({name})\n" for name in sorted(results))
    results["index.md"] = f"{MADE}\n\n# Reference, as plain text\n\n{listed}"
    return results


def _page(text: str) -> str:
    text = _BLOCK.sub(_block, text)
    # Links of the page lead one folder up from here; operations have a page of their own.
    text = re.sub(r"\]\((?![a-z]+://|#)ops/[^)]*\)", "](operations.md)", text)
    text = re.sub(r"\]\((?![a-z]+://|#|operations\.md)([^)]+)\)", r"](../\1)", text)
    # Code of a page runs in the tests where it stands first.
    return _ROLE.sub(r"`\1`", text).replace("```python\n", "```py\n")


def _block(result: re.Match[str]) -> str:
    kind, body = result[1], result[2]
    if kind == "rlx-flags":
        return _flags()
    if kind != "eval-rst":
        return result[0]
    parts = []
    for what, name, options in _DIRECTIVE.findall(body):
        parts += _documented(what, name, dict(_OPTION.findall(options)))
    return "\n".join(parts)


def _documented(what: str, name: str, options: dict[str, str]) -> Iterator[str]:
    single = _named(name)
    yield _entry(name, single, "###")
    if what not in ("class", "exception") or "members" not in options or "no-members" in options:
        return
    wanted = [text.strip() for text in options["members"].split(",") if text.strip()]
    inherited = "inherited-members" in options
    for member in wanted or _members(single, inherited):
        yield _entry(f"{name.rpartition('.')[2]}.{member}", getattr(single, member, None), "####")


def _named(name: str) -> Any:
    """Returns the object of a dotted name."""
    parts = name.split(".")
    for index in range(len(parts), 0, -1):
        try:
            result = importlib.import_module(".".join(parts[:index]))
        except ImportError:
            continue
        for part in parts[index:]:
            result = getattr(result, part)
        return result
    raise ValueError(f"{name} is nowhere")


def _members(kind: type, inherited: bool) -> list[str]:
    names = dir(kind) if inherited else list(vars(kind))
    return [name for name in names if not name.startswith("_") and _doc(getattr(kind, name, None))]


def _doc(item: Any) -> str:
    return inspect.getdoc(item) or "" if callable(item) or isinstance(item, property) else ""


def _entry(name: str, item: Any, level: str) -> str:
    text = _doc(item)
    body = f"```text\n{text}\n```\n" if text else ""
    return f"{level} `{name}{_signature(item)}`\n\n{body}"


def _signature(item: Any) -> str:
    if not callable(item) or (isinstance(item, type) and issubclass(item, Exception)):
        return ""
    try:
        result = inspect.signature(item)
    except (TypeError, ValueError):
        return ""
    empty = inspect.Parameter.empty
    plain = [parameter.replace(annotation=empty) for parameter in result.parameters.values()]
    shown = [item for item in plain if item.name != "self"]
    return _MODULE.sub(r"\1", _PLACE.sub("", str(inspect.Signature(shown))))


def _operations() -> str:
    lines = ["# Operations", "", "Each is a method of `rlx.Graph` and a function of `rlx.ops`.", ""]
    for family in families():
        lines += [f"## {family.title}", "", family.about, ""]
        for op in family.ops:
            kinds = ", ".join(sorted(map(str, op.accepts)))
            lines += [f"### `{op.name}{show_signature(op)}`", "", f"Takes {kinds}.", ""]
            lines += ["```text", inspect.cleandoc(op.doc), "```", ""]
    return "\n".join(lines)


def _flags() -> str:
    lines = ["| variable | default | what it does |", "|---|---|---|"]
    for flag in sorted(TABLE.values(), key=lambda flag: flag.name):
        default = "" if flag.default in ("", None) else f"`{str(flag.default).lower()}`"
        lines.append(f"| `{flag.name}` | {default} | {flag.doc} |")
    return "\n".join([*lines, ""])
