"""Loads and renders the WGSL sources: the one place that knows where shaders are kept."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib import import_module, resources
from importlib.resources.abc import Traversable
from importlib.util import find_spec
from types import ModuleType
from typing import Any, Literal

import numpy as np

from rlx.backends.webgpu.template_compiler import PACKAGE, python_of
from rlx.backends.webgpu.template_runtime import (
    GLOBALS,
    Template,
    TemplateRuntimeError,
    environment,
)
from rlx.errors import CompileError
from rlx.sizes import Ratio, SizeExpr


@functools.cache
def shader_place() -> Traversable:
    """The folder of the ``.wgsl`` files: in the package, or beside it in a checkout.

    Installing copies ``shaders/`` into the package. A checkout and an editable install read the files where they are edited.

    Raises:
        CompileError: Neither folder is there.
    """
    package = resources.files("rlx")
    for place in (package / "_shaders", package / ".." / "shaders"):
        if (place / "lib" / "math.wgsl").is_file():
            return place
    raise CompileError("the WGSL shaders are missing", where=package, hint="install rlx again")


@functools.cache
def shader_files() -> list[str]:
    """All ``.wgsl`` files, as paths below ``shader_place()``."""
    results: list[str] = []
    folders: list[tuple[str, Traversable]] = [("", shader_place())]
    while folders:
        path, folder = folders.pop()
        for item in folder.iterdir():
            if item.is_dir():
                folders.append((f"{path}{item.name}/", item))
            elif item.name.endswith(".wgsl"):
                results.append(path + item.name)
    return sorted(results)


@functools.cache
def shader_paths() -> dict[str, str]:
    """The file of each kernel by its name. Which family's folder it is in does not matter."""
    kernels = [path for path in shader_files() if not path.startswith("lib/")]
    return {path.rpartition("/")[2].removesuffix(".wgsl"): path for path in kernels}


def shader_text(name: str) -> str | None:
    """The text of a kernel, ``matmul.wgsl``, or of a library, ``lib/math.wgsl``; None if there is no such file."""
    path = shader_paths().get(name.removesuffix(".wgsl"), name)
    try:
        return shader_place().joinpath(*path.split("/")).read_text(encoding="utf-8")
    except (FileNotFoundError, KeyError):
        return None


def literal(value: float | int | SizeExpr | Ratio, dtype: str = "f32") -> str:
    """A number as WGSL text that means exactly this value of that type; a size that is known when the graph runs as it is written.

    Raises:
        CompileError: It is not finite; WGSL has no such literals.
    """
    if isinstance(value, SizeExpr | Ratio):
        return {"u32": f"{value}u", "i32": str(value)}.get(dtype) or str(Ratio(value, 1))
    if dtype != "f32":
        # WGSL has no literal for the smallest i32: its digits without the sign overflow.
        return f"{int(value)}u" if dtype == "u32" else f"i32({int(value)})"
    single = float(np.float32(value))
    if not math.isfinite(single):
        raise CompileError("WGSL has no literal for this number", got=value)
    text = repr(single)
    return text if "." in text or "e" in text else f"{text}.0"


def _of_turn(function: Callable[[float], float], numerator: int, denominator: int) -> str:
    """``math.cos`` or ``math.sin`` of a part of a whole turn."""
    return f"({literal(function(2 * math.pi * (numerator % denominator) / denominator))})"


# Binary operations as kernels of sums, extremes and sorting write them, for types without WGSL operators:
# i64 is two words (shaders/lib/wide_one.wgsl).
_TWO_WORDS = "vec2<u32>"
_SPELLED = {
    "+": "one_add({}, {})",
    "*": "one_mul({}, {})",
    "==": "one_equal({}, {})",
    "<": "one_less({}, {})",
    ">": "one_less({1}, {0})",
    "max": "one_max({}, {})",
    "min": "one_min({}, {})",
}


def _operation(type: str, name: str, a: str, b: str) -> str:
    """``a`` and ``b`` of a WGSL type under an operator or ``max`` or ``min``."""
    if type == _TWO_WORDS:
        return _SPELLED[name].format(a, b)
    return f"{name}({a}, {b})" if name.isalpha() else f"{a} {name} {b}"


def _number(type: str, value: int) -> str:
    """0 or 1 of a WGSL type."""
    return f"{type}({value}u, 0u)" if type == _TWO_WORDS else f"{type}({value})"


def _index(type: str, text: str) -> str:
    """An index, read from an array of i32 or i64, as i32 (shaders/lib/wide_index.wgsl)."""
    return f"index_of({text})" if type == _TWO_WORDS else text


def _bindings(access: Sequence[str], **types: str | Literal[0, False]) -> str:
    """The first bindings of a kernel, in their order: names, and the types of their elements. A false type has none."""
    present = [(name, type) for name, type in types.items() if type]
    return "\n".join(
        f"@group(0) @binding({i}) var<storage, {access[i]}> {name}: array<{type}>;"
        for i, (name, type) in enumerate(present)
    )


# The start of a kernel; ``header`` has its constants. Large numbers of workgroups are folded into two dimensions.
_START = """@compute @workgroup_size({threads})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let {name} = {number};
    if ({name} >= {count}) {{ return; }}"""


def _by_group(threads: object, name: str = "g") -> str:
    """The start of a kernel whose workgroups have a number each; ``lane`` is the thread in a workgroup."""
    number = "wid.x + wid.y * FOLD"
    return _START.format(threads=threads, name=name, number=number, count="GROUPS")


def _by_element(threads: object, name: str, count: str) -> str:
    """The start of a kernel whose threads have a number each, below ``count``."""
    number = f"(wid.x + wid.y * FOLD) * {threads}u + lane"
    return _START.format(threads=threads, name=name, number=number, count=count)


GLOBALS.update(
    cosine=partial(_of_turn, math.cos), sine=partial(_of_turn, math.sin), literal=literal,
    operation=_operation, number=_number, index=_index, two_words=_TWO_WORDS,
    bindings=_bindings, by_group=_by_group, by_element=_by_element,
)  # fmt: skip


@functools.cache
def _modules() -> Mapping[str, str] | None:
    """The modules of compiled templates; None in a checkout, where templates are compiled when they are used."""
    try:
        results: Mapping[str, str] = import_module(PACKAGE).MODULES
    except ModuleNotFoundError:
        return None
    return results


def can_render() -> bool:
    """Returns whether compiled templates are installed, or can be compiled here."""
    return _modules() is not None or find_spec("jinja2") is not None


@functools.cache
def _template(name: str) -> Template:
    """A template by the name of its file.

    Raises:
        TemplateRuntimeError: There is no such file.
    """
    modules = _modules()
    if modules is not None and name in modules:
        return Template(import_module(f"{PACKAGE}.{modules[name]}"))
    text = shader_text(name) if modules is None else None
    if text is None:
        raise TemplateRuntimeError(f"there is no {name}")
    module = ModuleType(name)
    source = python_of(name, text, environment.filters, environment.tests)
    exec(compile(source, name, "exec"), vars(module))
    return Template(module)


environment.find = _template


def header(params: Mapping[str, Any], work: int, fold: int) -> str:
    """The scalar parameters as WGSL constants, and the size of the grid."""
    lines = []
    for name, value in params.items():
        if isinstance(value, bool) or not isinstance(value, int | float | SizeExpr | Ratio):
            continue
        kind = "f32" if isinstance(value, float | Ratio) else "u32" if value >= 0 else "i32"
        lines.append(f"const {name.upper()}: {kind} = {literal(value, kind)};")
    lines += [f"const GROUPS: u32 = {work}u;", f"const FOLD: u32 = {fold}u;"]
    return "\n".join(lines) + "\n\n"


def render(name: str, context: Mapping[str, Any]) -> str:
    """One file of the shader directory, rendered.

    Raises:
        CompileError: There is no such file, or it asks for a parameter that it was not given.
    """
    try:
        return _template(f"{name}.wgsl").render(context)
    except TemplateRuntimeError as error:
        raise CompileError(
            f"kernel {name!r} can't be rendered", got=f"{type(error).__name__}: {error}"
        ) from error
