"""Loads and renders the WGSL sources: the one place that knows where shaders are kept."""

from __future__ import annotations

import functools
import io
import math
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from rlx.errors import CompileError, describe


@functools.cache
def shader_place() -> Path:
    """Where the ``.wgsl`` files are: the archive in the installed package, else the folder in the checkout.

    Raises:
        CompileError: Neither is there.
    """
    # Not rlx.__file__: backends stand below the package's surface and don't import it.
    package = Path(__file__).parents[2]
    for path in (package / "_shaders.zip", package.parent / "shaders"):
        if path.exists():
            return path
    raise CompileError(
        describe("the WGSL shaders are missing", where=package, hint="install rlx again")
    )


@functools.cache
def _archive() -> zipfile.ZipFile | None:
    place = shader_place()
    # In memory: an open file's position would be shared with the children of a fork.
    return None if place.is_dir() else zipfile.ZipFile(io.BytesIO(place.read_bytes()))


def shader_files() -> list[str]:
    """All ``.wgsl`` files, as paths below the place."""
    archive = _archive()
    if archive is not None:
        return sorted(archive.namelist())
    place = shader_place()
    return sorted(path.relative_to(place).as_posix() for path in place.rglob("*.wgsl"))


def shader_text(name: str) -> str | None:
    """One of these files; None if there is no such file."""
    archive = _archive()
    try:
        if archive is not None:
            return archive.read(name).decode()
        return (shader_place() / name).read_text(encoding="utf-8")
    except (KeyError, FileNotFoundError):
        return None


def shader_names() -> list[str]:
    """Names of all kernels."""
    return [name.removesuffix(".wgsl") for name in shader_files() if "/" not in name]


def literal(value: float | int, dtype: str = "f32") -> str:
    """A number as WGSL text that means exactly this value of that type.

    Raises:
        CompileError: It is not finite; WGSL has no such literals.
    """
    if dtype != "f32":
        # The least i32 has no literal of its own: its digits without the sign overflow.
        return f"{int(value)}u" if dtype == "u32" else f"i32({int(value)})"
    single = float(np.float32(value))
    if not math.isfinite(single):
        raise CompileError(describe("WGSL has no literal for this number", got=value))
    text = repr(single)
    return text if "." in text or "e" in text else f"{text}.0"


def _cosine(numerator: int, denominator: int) -> str:
    return f"({literal(math.cos(2 * math.pi * (numerator % denominator) / denominator))})"


def _sine(numerator: int, denominator: int) -> str:
    return f"({literal(math.sin(2 * math.pi * (numerator % denominator) / denominator))})"


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(shader_text),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.globals.update(cosine=_cosine, sine=_sine, literal=literal)
    return environment


def header(params: Mapping[str, Any], work: int, fold: int) -> str:
    """The scalar parameters as WGSL constants, and the size of the grid."""
    lines = []
    for name, value in params.items():
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        kind = "f32" if isinstance(value, float) else "u32" if value >= 0 else "i32"
        lines.append(f"const {name.upper()}: {kind} = {literal(value, kind)};")
    lines += [f"const GROUPS: u32 = {work}u;", f"const FOLD: u32 = {fold}u;"]
    return "\n".join(lines) + "\n\n"


def render(name: str, context: Mapping[str, Any]) -> str:
    """One file of the shader directory, rendered.

    Raises:
        CompileError: There is no such file, or it asks for a parameter that it was not given.
    """
    try:
        return _environment().get_template(f"{name}.wgsl").render(context)
    except jinja2.TemplateError as error:
        raise CompileError(
            describe(f"kernel {name!r} can't be rendered", got=f"{type(error).__name__}: {error}")
        ) from error
