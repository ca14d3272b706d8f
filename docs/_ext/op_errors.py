"""Lists the errors that building an operation can raise, read off the checks that its record runs."""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from typing import Any

from rlx import errors
from rlx.ir.opdef import OpDef


def reached(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A function of rlx and those of rlx that it calls by name, each once."""
    seen: set[Any] = set()
    waiting = [inspect.unwrap(function)]
    while waiting:
        single = waiting.pop()
        if (
            not inspect.isfunction(single)
            or single in seen
            or not single.__module__.startswith("rlx.")
        ):
            continue
        if single.__module__.startswith(("rlx.ir.graph", "rlx.ops.declare", "rlx.ops.interpret")):
            continue
        seen.add(single)
        yield single
        cells = [cell.cell_contents for cell in single.__closure__ or ()]
        waiting += [single.__globals__.get(name) for name in single.__code__.co_names] + cells


def raised(opdef: OpDef) -> dict[str, list[str]]:
    """Returns the texts of an operation's checks, by the error that they raise."""
    results: dict[str, list[str]] = {}
    first = opdef.expand or next(
        cell.cell_contents
        for name, cell in zip(opdef.infer.__code__.co_freevars, opdef.infer.__closure__ or ())
        if name == "infer"
    )
    for function in reached(first):
        try:
            tree = ast.parse(textwrap.dedent(inspect.getsource(function)))
        except (OSError, SyntaxError):  # a lambda in the middle of a line
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call):
                error = getattr(node.exc.func, "id", "")
                if isinstance(getattr(errors, error, None), type) and node.exc.args:
                    said = message(node.exc)
                    if said and said not in results.setdefault(error, []):
                        results[error].append(said)
    return {error: said for error, said in sorted(results.items()) if said}


def message(error: ast.Call) -> str:
    """The constant part of an error's message, without the name of the operation."""
    text = re.sub(r"^\[[^\]]*\]\s*", "", constant(error.args[0])).replace("'…'", "…").strip()
    if not re.search(r"[a-z]{3}", text) or text.startswith("…"):
        return ""
    wanted = [item.value for item in error.keywords if item.arg == "expected"]
    expected = constant(wanted[0]) if wanted else ""
    if expected.strip("… ") and expected.count("…") < 2:
        return f"{text} (expected: {expected})"
    return text if " " in text else ""


def constant(node: ast.expr) -> str:
    """A piece of text; what is only known as it runs is an ellipsis."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return "".join(map(str, parts))
    return ""
