"""An example for an operation whose docstring has none: one of its samples as a short program."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.opdef import OpDef
from rlx.ops.conformance_cases import Case, cases

# Lines of an example that are longer would have to be scrolled.
WIDEST = 84


class UnshowableError(Exception):
    """An attribute that has no short text."""


def literal(value: Any) -> str:
    """A value as Python text.

    Raises:
        UnshowableError: It has no short one.
    """
    match value:
        case None | bool() | int():
            return repr(value)
        case float():
            return repr(value) if len(repr(value)) < 8 else f"{value:.4g}"
        case DType() | str():
            return f'"{value}"'
        case np.generic():
            return literal(value.item())
        case tuple():
            inner = ", ".join(map(literal, value))
            return f"({inner},)" if len(value) == 1 else f"({inner})"
        case list():
            return f"[{', '.join(map(literal, value))}]"
        case dict():
            return "{" + ", ".join(f"{literal(k)}: {literal(v)}" for k, v in value.items()) + "}"
        case np.ndarray() if value.size <= 24:
            return f'np.array({literal(value.tolist())}, "{value.dtype.name}")'
    raise UnshowableError(type(value).__name__)


def operand_names(case: Case) -> list[str]:
    """A name for each operand of a case."""
    attrs = case.sample.attrs
    names: list[str] = []
    for text in case.opdef.operands:
        name, left = text.rstrip("?*"), len(case.sample.shapes) - len(names)
        if text.endswith("*"):
            names += [f"{name.rstrip('s')}{index}" for index in range(left)]
        elif name not in attrs and left:
            names.append(name)
    return names


def call(case: Case, names: list[str]) -> str:
    """The builder's call: operands by name, attributes that are not the default."""
    arguments, attrs = list(names), dict(case.sample.attrs)
    kinds = {text.rstrip("?*"): text[-1] for text in case.opdef.operands}
    parts: list[str] = []
    parameters = case.opdef.signature.parameters
    # Attributes are given by name, but for those that a starred list of operands follows.
    starred = any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters.values())
    by_name = False
    for name, parameter in parameters.items():
        if name in kinds and kinds[name] == "*":
            if parameter.kind is parameter.VAR_POSITIONAL:
                parts += arguments
            else:
                parts.append(f"[{', '.join(arguments)}]")
            arguments = []
        elif name in kinds and name not in attrs and arguments:
            value = arguments.pop(0)
            parts.append(f"{name}={value}" if by_name else value)
        elif name in attrs and not same(attrs[name], parameter.default):
            by_name = by_name or not starred or parameter.kind is parameter.KEYWORD_ONLY
            value = literal(attrs[name])
            parts.append(f"{name}={value}" if by_name else value)
        else:
            by_name = True  # one that is left out
    return f"g.{case.opdef.name}({', '.join(parts)})"


def same(value: Any, default: Any) -> bool:
    """Returns whether an attribute is the builder's default."""
    return type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def snippet(case: Case) -> str:
    """A case as a short program."""
    names = operand_names(case)
    output = call(case, names)
    lines = ["import numpy as np"] if "np." in output else []
    lines += ["import rlx", "", "g = rlx.Graph()"]
    for name, shape, dtype in zip(names, case.sample.shapes, case.dtypes, strict=True):
        kind = "" if dtype is DType.F32 else f', "{dtype}"'
        lines.append(f'{name} = g.input("{name}", {shape}{kind})')
    outputs = case.graph().outputs
    result = "y" if len(outputs) == 1 else ", ".join(f"y{index}" for index in range(len(outputs)))
    types = ", ".join(str(node.type) for node in outputs)
    lines += [f"{result} = {output}", f"g.set_outputs([{result}])  # {types}"]
    return "\n".join(lines)


def chosen(opdef: OpDef) -> tuple[Case, str]:
    """The first case that makes a good example, and its text.

    Raises:
        UnshowableError: The record has no case that can be written down.
    """
    best: tuple[tuple[int, int], Case, str] | None = None
    for case in cases(only=opdef.name):
        try:
            text = snippet(case)
        except UnshowableError:
            continue
        sizes = [int(np.prod(shape)) for shape in case.sample.shapes]
        faults = 8 * (0 in sizes) + 4 * any(size == 1 for size in sizes)
        faults += 2 * (DType.F32 in opdef.accepts and DType.F32 not in case.dtypes[:1])
        faults += 2 * (case.sample.attrs.get("dtype") in case.dtypes[:1])
        faults += max(map(len, text.split("\n"))) > WIDEST
        if best is None or (faults, case.number) < best[0]:
            best = (faults, case.number), case, text
    if best is None:
        raise UnshowableError(opdef.name)
    return best[1], best[2]


def own_example(opdef: OpDef) -> bool:
    """Returns whether the docstring has an example, as a doctest."""
    return ">>> " in opdef.doc
