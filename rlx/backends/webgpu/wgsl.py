"""The one loader of shaders: where they are, and how a kernel's text is made from its file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

import rlx
from rlx.ops.fft import LARGEST_RADIX

# Workgroups per row of a dispatch: WebGPU's limit, and the fold of longer ones.
FOLD = 65535


@cache
def folder() -> Path:
    """The shaders: inside the installed package, or in the checkout it was built from."""
    package = Path(rlx.__file__).parent
    for found in (package / "_shaders", package.parent / "shaders"):
        if (found / "matmul.wgsl").is_file():
            return found
    raise FileNotFoundError(f"no shaders beside {package}: the installation is incomplete")


def shader_names() -> list[str]:
    """Every kernel that has a file."""
    return sorted(path.stem for path in folder().glob("*.wgsl"))


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(folder()),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        autoescape=False,
    )
    environment.globals["roots"] = {r: _roots(r) for r in range(2, LARGEST_RADIX + 1)}
    return environment


def _roots(radix: int) -> list[tuple[float, float]]:
    """exp(-2 pi i k / radix), with the exact ones exact."""
    z = np.exp(-2j * np.pi * np.arange(radix) / radix)
    snapped = np.where(np.abs(z - np.round(z)) < 1e-12, np.round(z), z)
    return [(float(c.real) + 0.0, float(c.imag) + 0.0) for c in snapped]


def header(params: Mapping[str, Any], work: int) -> str:
    """Constants for the numbers among the parameters, and the number of a workgroup."""
    lines = []
    for name, value in params.items():
        if isinstance(value, float):
            lines.append(f"const {name.upper()}: f32 = {value!r};")
        elif isinstance(value, int) and not isinstance(value, bool):
            kind, suffix = ("u32", "u") if value >= 0 else ("i32", "")
            lines.append(f"const {name.upper()}: {kind} = {value}{suffix};")
    lines.append(f"const GROUPS: u32 = {work}u;")
    lines.append(f"fn group(wid: vec3<u32>) -> u32 {{ return wid.x + wid.y * {FOLD}u; }}\n")
    return "\n".join(lines)


def render(
    name: str,
    params: Mapping[str, Any],
    access: Sequence[str],
    types: Sequence[str],
    work: int,
) -> str:
    """The text of a kernel.

    Args:
        name: File in ``shaders/`` without its ending.
        params: Parameters of the call; numbers become constants, all are template variables.
        access: "read" or "read_write" of each bound buffer.
        types: WGSL element type of each.
        work: Workgroups.
    """
    template = _environment().get_template(f"{name}.wgsl")
    body = template.render(**params, access=list(access), type=list(types), work=work)
    return header(params, work) + body


def library(name: str) -> str:
    """The text of a file of ``shaders/lib``."""
    return _environment().get_template(f"lib/{name}.wgsl").render()
