"""Makes a page for each family of operations from the op records, when the site is built.

A family is a file of ``rlx/ops`` or ``rlx/signal`` that registers operations. Signature, meaning, dtypes,
devices, errors and an example all come from the record; nothing about an operation is written down here.
The pages are written to ``docs/reference/ops``, which git ignores.
"""

from __future__ import annotations

import ast
import inspect
import re
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from docstrings import escape_docstring, restore_docstring, to_rst

import rlx
from rlx import errors
from rlx.cli.ops import public_ops, support
from rlx.ir.dtype import DType
from rlx.ir.opdef import NO_F64, OpDef
from rlx.ops.cases import Case, cases
from rlx.ops.record import show_signature

# Heading and meaning of the families, in the order of the index; a family without them fails the build.
TITLES = {
    "elementwise": (
        "Elementwise functions and casts",
        "Each element of the result depends on one element of each operand. Operands are broadcast as "
        "in NumPy. Chains of these run as one pass over memory.",
    ),
    "activations": (
        "Activations with parameters",
        "Elementwise functions that take numbers besides their operand.",
    ),
    "movement": (
        "Shapes, slices and joins",
        "Operations that change the shape or the order of elements and leave the values alone.",
    ),
    "layout": (
        "Splitting, padding and rearranging",
        "Rearrangements that are made of simpler ones.",
    ),
    "gather": ("Reading at indices", "Elements picked at places that integer tensors give."),
    "scatter": (
        "Writing at indices",
        "Updates written at places that integer tensors give. Several updates of one place are "
        "applied in order, so that results do not vary between runs.",
    ),
    "creation": ("Ranges, one-hot and triangles", "Tensors made from positions."),
    "random": (
        "Random numbers and sampling",
        "Random numbers with the same bits on every device, and tokens drawn from logits.",
    ),
    "reduction": (
        "Reductions and running sums",
        "Sums, maxima and other summaries over any axes, and running sums along one.",
    ),
    "softmax": ("Softmax", "Exponentials that add up to one along an axis, and their logarithm."),
    "sorting": (
        "Sorting and top-k",
        "The first entries of an axis in order, with their positions, or all of them.",
    ),
    "normalization": (
        "Normalisation",
        "Values shifted and scaled to mean 0 and variance 1, or to length 1, over some of the axes.",
    ),
    "linalg": (
        "Matrix products",
        "Batched products of matrices, and the product with bias and activation that the compiler "
        "makes of its parts.",
    ),
    "products": (
        "Products by expert, with low-rank updates, and of integers",
        "Products of matrices other than the plain one.",
    ),
    "quantization": (
        "Quantisation to 8 bits",
        "Numbers as 8-bit integers with a scale and a zero point.",
    ),
    "dequant": (
        "Products by packed weights",
        "Weights of 2 to 8 bits in blocks, multiplied without being unpacked in memory first.",
    ),
    "einsum": ("Einstein sums", "Sums of products over named axes."),
    "convolution": (
        "Convolutions",
        "Convolutions over one to three axes, with groups, dilation and any padding.",
    ),
    "transposed": (
        "Transposed convolutions",
        "Every entry of the operand adds a scaled kernel to the result.",
    ),
    "pooling": ("Pooling", "The maximum, mean or norm of sliding windows, or of whole planes."),
    "resize": ("Resizing", "Images and signals of another size, by interpolation."),
    "attention": (
        "Attention",
        "Scaled dot-product attention with every kind of mask, shared heads and both layouts.",
    ),
    "rotary": (
        "Rotary position embedding",
        "Pairs of elements turned by an angle that depends on the position.",
    ),
    "recurrent": (
        "LSTM, GRU and RNN",
        "Recurrent layers, with the meaning that ONNX gives them.",
    ),
    "state_space": ("State-space scan", "The selective scan of state-space models."),
    "control": (
        "Branches and loops",
        "Operations whose operands are run through graphs of their own.",
    ),
    "fft": ("Fourier transform", "The discrete Fourier transform of any length."),
    "real_fft": (
        "Fourier transform of real signals",
        "The half of the spectrum that a real signal has.",
    ),
    "composites": (
        "Short-time Fourier transform",
        "Spectra of frames of a signal, and the signal of such spectra.",
    ),
    "welch": (
        "Strongest bins of Welch's spectrum",
        "Spectra of segments, averaged, and their strongest bins, in one pass.",
    ),
    "mel": ("Log-mel features", "The log-mel spectrogram of a spectrum, and its gradient."),
    "recursive": ("Recursive filters", "Filters whose results depend on earlier results."),
    "peaks": ("Peaks of a signal", "Local maxima with SciPy's conditions."),
    "custom": (
        "Operations of your own",
        "Operations that your program registers: a NumPy function, and C and WGSL where there is more.",
    ),
}
# The error that any operation raises for operands of the wrong dtype; said of each in its own words.
SHARED = errors.DTypeError.__name__
WIDEST = 84


class UnshowableError(Exception):
    """An attribute that has no short text."""


@dataclass(frozen=True)
class Family:
    """The operations of one file.

    Attributes:
        name: The file, without its folder and suffix.
        title: Its heading.
        about: What its operations have in common.
        ops: Its records, in the order of the file.
    """

    name: str
    title: str
    about: str
    ops: tuple[OpDef, ...]


def families() -> list[Family]:
    """Every family, in the order of ``TITLES``.

    Raises:
        KeyError: A family has no title.
    """
    by_module: dict[str, list[OpDef]] = {}
    public = {record.name for record in public_ops()}
    from rlx.ir.opdef import REGISTRY

    for name, record in REGISTRY.items():
        if name in public:
            by_module.setdefault(record.reference.__module__, []).append(record)
    found = {}
    for module, records in by_module.items():
        name = module.rpartition(".")[2]
        found[name] = Family(name, *TITLES[name], tuple(records))
    return [found[name] for name in TITLES if name in found]


# --- examples --------------------------------------------------------------------------------------------


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
            names += [f"{name.rstrip('s')}{at}" for at in range(left)]
        elif name not in attrs and left:
            names.append(name)
    return names


def call(case: Case, names: list[str]) -> str:
    """The builder's call: operands by name, attributes that are not the default."""
    given, attrs = list(names), dict(case.sample.attrs)
    kinds = {text.rstrip("?*"): text[-1] for text in case.opdef.operands}
    parts: list[str] = []
    parameters = case.opdef.signature.parameters
    # Attributes are given by name, but for those that a starred list of operands follows.
    starred = any(one.kind is one.VAR_POSITIONAL for one in parameters.values())
    by_name = False
    for name, parameter in parameters.items():
        if name in kinds and kinds[name] == "*":
            if parameter.kind is parameter.VAR_POSITIONAL:
                parts += given
            else:
                parts.append(f"[{', '.join(given)}]")
            given = []
        elif name in kinds and name not in attrs and given:
            value = given.pop(0)
            parts.append(f"{name}={value}" if by_name else value)
        elif name in attrs and not same(attrs[name], parameter.default):
            by_name = by_name or not starred or parameter.kind is parameter.KEYWORD_ONLY
            value = literal(attrs[name])
            parts.append(f"{name}={value}" if by_name else value)
        else:
            by_name = True  # one that is left out
    return f"g.{case.opdef.name}({', '.join(parts)})"


def same(value: Any, default: Any) -> bool:
    """Whether an attribute is the builder's default."""
    return type(value) is type(default) and not isinstance(value, np.ndarray) and value == default


def snippet(case: Case) -> str:
    """A case as a short program."""
    names = operand_names(case)
    made = call(case, names)
    lines = ["import numpy as np"] if "np." in made else []
    lines += ["import rlx", "", "g = rlx.Graph()"]
    for name, shape, dtype in zip(names, case.sample.shapes, case.dtypes, strict=True):
        kind = "" if dtype is DType.F32 else f', "{dtype}"'
        lines.append(f'{name} = g.input("{name}", {shape}{kind})')
    outputs = case.graph().outputs
    result = "y" if len(outputs) == 1 else ", ".join(f"y{at}" for at in range(len(outputs)))
    types = ", ".join(str(node.type) for node in outputs)
    lines += [f"{result} = {made}", f"g.set_outputs([{result}])  # {types}"]
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
    """Whether the docstring has an example, as a doctest."""
    return ">>> " in opdef.doc


# --- errors ----------------------------------------------------------------------------------------------


def reached(function: Callable[..., Any]) -> Iterator[Callable[..., Any]]:
    """A function of rlx and those of rlx that it calls by name, each once."""
    seen: set[Any] = set()
    waiting = [inspect.unwrap(function)]
    while waiting:
        one = waiting.pop()
        if not inspect.isfunction(one) or one in seen or not one.__module__.startswith("rlx."):
            continue
        if one.__module__.startswith(("rlx.ir.graph", "rlx.ops.record", "rlx.ops.interpret")):
            continue
        seen.add(one)
        yield one
        cells = [cell.cell_contents for cell in one.__closure__ or ()]
        waiting += [one.__globals__.get(name) for name in one.__code__.co_names] + cells


def raised(opdef: OpDef) -> dict[str, list[str]]:
    """What the checks of an operation say, by the error that they raise."""
    found: dict[str, list[str]] = {}
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
                    said = message(node.exc.args[0], opdef.name)
                    if said and said not in found.setdefault(error, []):
                        found[error].append(said)
    return {error: said for error, said in sorted(found.items()) if said}


def message(node: ast.expr, op: str) -> str:
    """The constant part of what an error says, without the name of the operation."""
    said = node.args[0] if isinstance(node, ast.Call) and node.args else node
    text = re.sub(r"^\[[^\]]*\]\s*", "", constant(said)).replace("'…'", "…").strip()
    if not re.search(r"[a-z]{3}", text) or text.startswith("…"):
        return ""
    wanted = [one.value for one in getattr(node, "keywords", ()) if one.arg == "expected"]
    expected = constant(wanted[0]) if wanted else ""
    return f"{text} (expected: {expected})" if expected.strip("… ") else text


def constant(node: ast.expr) -> str:
    """A piece of text; what is only known as it runs is an ellipsis."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
        return "".join(map(str, parts))
    return ""


# --- pages -----------------------------------------------------------------------------------------------


def dtype_lines(opdef: OpDef) -> Iterator[str]:
    """What the main operand may be, on each device."""
    narrow = opdef.accepts - opdef.dtypes
    yield f"``{'``, ``'.join(sorted(map(str, opdef.dtypes)))}``"
    if narrow:
        yield f"computed in a wider type: ``{'``, ``'.join(sorted(map(str, narrow)))}``"


def device_lines(opdef: OpDef, row: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """How each device runs the operation."""
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


def page(family: Family, rows: dict[str, dict[str, Any]], config: Any) -> str:
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


def index(found: list[Family]) -> str:
    """The page that lists the families."""
    title = "Operations"
    count = sum(len(family.ops) for family in found)
    lines = [title, "=" * len(title), ""]
    lines += textwrap.wrap(
        f"The {count} operations that graphs are made of, by family. Each is a method of rlx.Graph "
        "and a function of rlx.ops. These pages are made from the records that the compiler and the "
        "tests use, so they say what is there. ``rlx ops`` prints the same on a terminal.",
        100,
    )
    lines += ["", ".. list-table::", "   :header-rows: 1", "   :widths: 34 66", ""]
    lines += ["   * - family", "     - operations"]
    for family in found:
        names = ", ".join(f":ref:`{one.name} <op-{one.name}>`" for one in family.ops)
        lines += [f"   * - :doc:`{family.name}`", f"     - {names}"]
    lines += ["", ".. toctree::", "   :hidden:", ""]
    lines += [f"   {family.name}" for family in found]
    return "\n".join(lines) + "\n"


def pages(config: Any) -> dict[str, str]:
    """Every page by its name."""
    rows = {str(row["op"]): row for row in support()}
    found = families()
    made = {family.name: page(family, rows, config) for family in found}
    return {"index": index(found), **made}


def write(app: Any) -> None:
    """Writes the pages that changed, and removes those that no family has."""
    folder = Path(app.srcdir) / "reference" / "ops"
    folder.mkdir(parents=True, exist_ok=True)
    made = pages(app.config)
    for name, text in made.items():
        path = folder / f"{name}.rst"
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    for path in folder.glob("*.rst"):
        if path.stem not in made:
            path.unlink()


def setup(app: Any) -> dict[str, bool]:
    """Connects this extension to Sphinx."""
    app.connect("autodoc-process-docstring", escape_docstring, priority=400)
    app.connect("autodoc-process-docstring", restore_docstring, priority=600)
    app.connect("builder-inited", write)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


assert rlx.ops  # the records are there once rlx is imported
