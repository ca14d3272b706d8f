"""Makes a page for each family of operations from the op records, when the site is built.

A family is a file of ``rlx/ops`` or ``rlx/signal`` that registers operations. Signature, meaning, dtypes,
devices, errors and an example all come from the record; nothing about an operation is written down here.
The pages are written to ``docs/reference/ops``, which git ignores.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from docstrings import escape_docstring, restore_docstring, to_rst
from op_errors import raised
from op_examples import chosen, own_example
from op_families import OpFamily, families

from rlx.cli.ops import support
from rlx.ir.dtype import DType
from rlx.ir.opdef import NO_F64, OpDef
from rlx.ops.declare import show_signature

# The error that any operation raises for operands of the wrong dtype; said of each in its own words.
SHARED = "DTypeError"


def dtype_lines(opdef: OpDef) -> Iterator[str]:
    """Yields the dtypes of the main operand on each device."""
    narrow = opdef.accepts - opdef.dtypes
    yield f"``{'``, ``'.join(sorted(map(str, opdef.dtypes)))}``"
    if narrow:
        yield f"computed in a wider type: ``{'``, ``'.join(sorted(map(str, narrow)))}``"


def device_lines(opdef: OpDef, row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yields the lines that describe how each device runs the operation."""
    words = {
        "native": "own kernels",
        "view": "a view: no kernel runs",
        "of other ops": "made of other operations",
        "-": "on the CPU, inside the same compiled graph",
    }
    yield "CPU", words[row["cpu"]]
    how, _, host = row["webgpu"].partition("; on the host: ")
    said = words[how]
    if opdef.webgpu is not None and opdef.webgpu_f16:
        said += "; also in half precision, where the adapter has it"
    if opdef.webgpu is not None and opdef.units_f16 is not None:
        said += "; in half precision on matrix units"
    if host and how != "-":
        said += f"; on the CPU where {host}"
    elif host:
        said += f" ({host})"
    if DType.F64 in opdef.accepts and how == "native":
        said += f"; ``f64`` on the CPU ({NO_F64})"
    yield "WebGPU", said


def accuracy(opdef: OpDef) -> str:
    """The largest error in f32 that the tests allow."""
    if opdef.bound is not None:
        return (
            "an error that grows with the logarithm of the length; see :doc:`/explanation/numerics`"
        )
    if DType.F32 not in opdef.accepts:
        return ""
    allowed = f"{opdef.tolerance_for(DType.F32):.1g}"
    return f"in ``f32`` at most {allowed} of the largest value away from the float64 reference"


def error_lines(opdef: OpDef) -> Iterator[str]:
    """The errors that building a node can raise."""
    bound = [text.rstrip("?*") for text in opdef.operands if text.rstrip("?*") not in opdef.free]
    told = raised(opdef)
    if bound:
        differ = (
            ", or operands differ in dtype" if len(bound) > 1 or "*" in str(opdef.operands) else ""
        )
        told.setdefault(SHARED, []).insert(0, f"{bound[0]} has a dtype that is not listed{differ}")
    if "Raises:" in opdef.doc:
        told = {error: said for error, said in told.items() if f"{error}:" not in opdef.doc}
    for error, said in told.items():
        yield f":exc:`~rlx.{error}`: {to_rst('; '.join(said))}."


def section(opdef: OpDef, row: dict[str, Any], config: Any) -> Iterator[str]:
    """One operation as lines of reStructuredText."""
    from sphinx.ext.napoleon import GoogleDocstring

    yield from (f".. _op-{opdef.name}:", "", opdef.name, "-" * len(opdef.name), "")
    yield f".. py:function:: rlx.ops.{opdef.name}{show_signature(opdef)}"
    yield from ("   :no-contents-entry:", "")
    doc = GoogleDocstring(to_rst(opdef.doc), config, what="function", name=opdef.name)
    yield from (f"   {line}".rstrip() for line in str(doc).split("\n"))
    yield ""
    yield f"   As a method of a graph: ``g.{opdef.name}(...)``."
    yield ""
    yield from ("   .. rubric:: Where it runs", "")
    for heading, said in (
        ("dtypes", "; ".join(dtype_lines(opdef))),
        *device_lines(opdef, row),
        ("accuracy", accuracy(opdef)),
    ):
        if said:
            yield f"   - {heading}: {said}"
    yield ""
    lines = list(error_lines(opdef))
    if lines:
        yield "   .. rubric:: Errors"
        yield ""
        yield from (f"   - {line}" for line in lines)
        yield ""
    if not own_example(opdef):
        yield "   .. rubric:: Example"
        yield ""
        yield "   .. code-block:: python"
        yield ""
        yield from (f"      {line}".rstrip() for line in chosen(opdef)[1].split("\n"))
        yield ""


def page(family: OpFamily, rows: dict[str, dict[str, Any]], config: Any) -> str:
    """The page of a family."""
    lines = [family.title, "=" * len(family.title), "", to_rst(family.about), ""]
    if len(family.ops) > 1:
        lines += [".. list-table::", "   :header-rows: 1", "   :widths: 22 78", ""]
        lines += ["   * - operation", "     - meaning"]
        for opdef in family.ops:
            first = to_rst(opdef.doc.split("\n\n")[0].replace("\n", " "))
            lines += [f"   * - :ref:`{opdef.name} <op-{opdef.name}>`", f"     - {first}"]
        lines.append("")
    for opdef in family.ops:
        lines += section(opdef, rows[opdef.name], config)
    return "\n".join(lines).rstrip() + "\n"


def index(results: list[OpFamily]) -> str:
    """The page that lists the families."""
    title = "Operations"
    count = sum(len(family.ops) for family in results)
    lines = [title, "=" * len(title), ""]
    lines += textwrap.wrap(
        f"The {count} operations that graphs are made of, by family. Each is a method of rlx.Graph "
        "and a function of rlx.ops. These pages are made from the records that the compiler and the "
        "tests use, so they say what is there. ``rlx ops`` prints the same on a terminal.",
        100,
    )
    lines += ["", ".. list-table::", "   :header-rows: 1", "   :widths: 34 66", ""]
    lines += ["   * - family", "     - operations"]
    for family in results:
        names = ", ".join(f":ref:`{op.name} <op-{op.name}>`" for op in family.ops)
        lines += [f"   * - :doc:`{family.name}`", f"     - {names}"]
    lines += ["", ".. toctree::", "   :hidden:", ""]
    lines += [f"   {family.name}" for family in results]
    return "\n".join(lines) + "\n"


def pages(config: Any) -> dict[str, str]:
    """Every page by its name."""
    rows = {str(row["op"]): row for row in support()}
    result = families()
    results = {family.name: page(family, rows, config) for family in result}
    return {"index": index(result), **results}


def write(app: Any) -> None:
    """Writes the pages that changed, and removes those that no family has."""
    folder = Path(app.srcdir) / "reference" / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    result = pages(app.config)
    for name, text in result.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.rst"):
        if path.stem not in result:
            path.unlink()


def setup(app: Any) -> dict[str, bool]:
    """Connects this extension to Sphinx."""
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)
    app.connect("autodoc-process-docstring", restore_docstring, priority=600)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
