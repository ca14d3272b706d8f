"""Writes the C side of the signatures: constants, enumerations, a struct for each kernel, and the list of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx.abi import constants
from rlx.abi.kernels import KERNELS, MAX_INPUTS, MAX_OUTPUTS, MAX_ROW_WORDS
from rlx.abi.signature import Group, ParamField, Signature

_HEAD = """\
/* Generated from rlx/abi by setup.py. */
#ifndef RLX_SIGNATURES_H
#define RLX_SIGNATURES_H

#include <assert.h>
#include <stdint.h>

static_assert(sizeof(void *) == 8, "parameters are words of 64 bits");
"""


def c_header() -> str:
    """The text of ``kernel_signatures.h``."""
    parts = [_HEAD, _constants(), _enums(), *_groups()]
    parts += [_kernel(kernel) for kernel in KERNELS.values()]
    return "\n".join([*parts, _lists(), "#endif\n"])


def _constants() -> str:
    rows = {
        **{name: getattr(constants, name) for name in constants.NAMES},
        "INPUTS": MAX_INPUTS,
        "OUTPUTS": MAX_OUTPUTS,
        "ROW_WORDS": MAX_ROW_WORDS,
    }
    return "".join(f"#define RLX_{name} {value}\n" for name, value in rows.items())


def _fields() -> Iterable[ParamField]:
    for kernel in KERNELS.values():
        yield from kernel.flat.values()


def _enums() -> str:
    results = {field.enum: field.choices for field in _fields() if field.enum}
    lines = []
    for enum, choices in results.items():
        names = ", ".join(f"RLX_{enum}_{name.upper()}" for name in choices)
        lines.append(f"enum {{ {names} }};\n")
    return "".join(lines)


def _groups() -> Iterable[str]:
    results: dict[str, Group] = {}
    for kernel in KERNELS.values():
        for field in kernel.fields.values():
            if isinstance(field, Group):
                results[field.struct] = field
    return (
        f"typedef struct {{\n{_members(value.fields)}}} {name};\n"
        for name, value in results.items()
    )


def _member(name: str, item: ParamField | Group) -> str:
    if isinstance(item, Group):
        return f"{item.struct} {name}"
    kind = "void *" if item.address else "double " if item.real else "int64_t "
    if item.length is None:
        return f"{kind}{name}"
    if item.length:
        return f"{kind}{name}[{item.length}]"
    return f"{kind}const *{name}" if item.address else f"const {kind}*{name}"


def _members(fields: Mapping[str, ParamField] | Mapping[str, ParamField | Group]) -> str:
    return "".join(f"    {_member(name, field)};\n" for name, field in fields.items())


def _kernel(signature: Signature) -> str:
    """Its parameters and operands as structs that ``RLX_ARGUMENTS`` of call.h opens."""
    fields = _members(signature.fields) or "    char none;\n"
    reads = "".join(f"    const void *{name};\n" for name in signature.reads) or "    char none;\n"
    writes = "".join(f"    void *{name};\n" for name in (*signature.writes, *signature.scratch))
    return (
        f"/* {signature.name}: {signature.doc} */\n"
        f"typedef struct {{\n{fields}}} rlx_{signature.name};\n"
        f"typedef struct {{\n{reads}}} rlx_{signature.name}_in;\n"
        f"typedef struct {{\n{writes or '    char none;' + chr(10)}}} rlx_{signature.name}_out;\n"
    )


def _lists() -> str:
    """``RLX_KERNELS(K)``: K(name) of every C function; those for some processors have lists of their own."""
    plain = []
    variants: dict[str, list[str]] = {}
    for kernel in KERNELS.values():
        if not kernel.in_table:
            continue
        names = [f"{kernel.name}_{suffix}" for suffix in kernel.types] or [kernel.name]
        plain += names
        for variant in kernel.variants:
            variants.setdefault(variant, []).extend(f"{name}_{variant}" for name in names)
    lists = {"RLX_KERNELS": plain}
    lists |= {f"RLX_KERNELS_{name.upper()}": rows for name, rows in variants.items()}
    return "".join(
        f"#define {name}(K) \\\n    " + " \\\n    ".join(f"K({row})" for row in rows) + "\n\n"
        for name, rows in lists.items()
    )
