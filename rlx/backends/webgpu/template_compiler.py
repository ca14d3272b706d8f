"""Compiles kernel templates to Python when rlx is built, so that a program neither parses nor carries Jinja.

Installing runs ``write``. A checkout compiles each template when it is first used, so that an edited one is seen.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Any

# The package of the compiled templates, and the module that they take everything from.
PACKAGE = "rlx._templates"
_RUNTIME = "rlx.backends.webgpu.template_runtime"


def module_name(path: str) -> str:
    """The module of a template by its path, ``lib/math.wgsl``."""
    return path.removesuffix(".wgsl").replace("/", "__")


def template_name(path: str) -> str:
    """Returns the name of a file in templates: kernels go by the file alone, libraries by folder and file."""
    return path if path.startswith("lib/") else path.rpartition("/")[2]


def python_of(path: str, text: str, filters: Any, tests: Any) -> str:
    """The Python source of a template.

    Args:
        path: Its path below the shaders.
        text: The template.
        filters: Functions by name that it may use behind ``|``.
        tests: Functions by name that it may use behind ``is``.

    Raises:
        jinja2.TemplateSyntaxError: It is not well formed.
        ValueError: It uses other filters or tests.
    """
    import jinja2

    environment = jinja2.Environment(
        trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True
    )
    environment.filters, environment.tests = dict(filters), dict(tests)
    source = environment.compile(text, name=path, raw=True, defer_init=True)
    for table, name in re.findall(r"environment\.(filters|tests)\['(\w+)'\]", source):
        if name not in getattr(environment, table):
            raise ValueError(f"{path} uses {name!r}, which is not among the {table} of {_RUNTIME}")
    # Jinja's code begins with an import of its runtime, which has these names among others.
    first, _, rest = source.partition("\n")
    assert first.startswith("from jinja2.runtime import"), first
    used = {node.id for node in ast.walk(ast.parse(rest)) if isinstance(node, ast.Name)}
    names = (
        "LoopContext", "Macro", "Namespace", "TemplateRuntimeError", "Undefined", "environment",
        "internalcode", "missing", "str_join",
    )  # fmt: skip
    return f"from {_RUNTIME} import {', '.join(sorted(used.intersection(names)))}\n{rest}"


def write(shaders: Path, package: Path, filters: Any, tests: Any) -> None:
    """Writes the compiled templates of a folder of shaders as a package, which says where each is."""
    package.mkdir(parents=True, exist_ok=True)
    modules = {}
    for file in sorted(shaders.rglob("*.wgsl")):
        path = file.relative_to(shaders).as_posix()
        modules[template_name(path)] = module_name(path)
        text = python_of(path, file.read_text(encoding="utf-8"), filters, tests)
        _write(package / f"{module_name(path)}.py", text)
    header = '"""Kernel templates as Python, written when rlx was built."""\n\n'
    _write(package / "__init__.py", f"{header}MODULES = {modules!r}\n")


def _write(path: Path, text: str) -> None:
    path.write_text(text, encoding="utf-8", newline="\n")
