"""Writes the C side of the signatures: constants, enumerations, a struct for each kernel, and the list of kernels."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rlx.abi import constants
from rlx.abi.kernels import KERNELS, MOST_INPUTS, MOST_OUTPUTS, MOST_ROW_WORDS
from rlx.abi.signature import Group, KernelSignature, ParamField

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
    parts += [_kernel(one) for one in KERNELS.values()]
    return "\n".join([*parts, _lists(), "#endif\n"])


def _constants() -> str:
    rows = {
        **{name: getattr(constants, name) for name in constants.NAMES},
        "INPUTS": MOST_INPUTS,
        "OUTPUTS": MOST_OUTPUTS,
        "ROW_WORDS": MOST_ROW_WORDS,
    }
    return "".join(f"#define RLX_{name} {value}\n" for name, value in rows.items())


def _fields() -> Iterable[ParamField]:
    for kernel in KERNELS.values():
        yield from kernel.flat.values()


def _enums() -> str:
    found = {one.enum: one.choices for one in _fields() if one.enum}
    lines = []
    for enum, choices in found.items():
        names = ", ".join(f"RLX_{enum}_{name.upper()}" for name in choices)
        lines.append(f"enum {{ {names} }};\n")
    return "".join(lines)


def _groups() -> Iterable[str]:
    found: dict[str, Group] = {}
    for kernel in KERNELS.values():
        for one in kernel.fields.values():
            if isinstance(one, Group):
                found[one.struct] = one
    return (f"typedef struct {{\n{_members(one.fields)}}} {name};\n" for name, one in found.items())


def _member(name: str, one: ParamField | Group) -> str:
    if isinstance(one, Group):
        return f"{one.struct} {name}"
    kind = "void *" if one.address else "double " if one.real else "int64_t "
    if one.length is None:
        return f"{kind}{name}"
    if one.length:
        return f"{kind}{name}[{one.length}]"
    return f"{kind}const *{name}" if one.address else f"const {kind}*{name}"


def _members(fields: Mapping[str, ParamField] | Mapping[str, ParamField | Group]) -> str:
    return "".join(f"    {_member(name, one)};\n" for name, one in fields.items())


def _kernel(one: KernelSignature) -> str:
    """Its parameters and operands as structs that ``RLX_ARGUMENTS`` of call.h opens."""
    fields = _members(one.fields) or "    char none;\n"
    reads = "".join(f"    const void *{name};\n" for name in one.reads) or "    char none;\n"
    writes = "".join(f"    void *{name};\n" for name in (*one.writes, *one.scratch))
    return (
        f"/* {one.name}: {one.doc} */\n"
        f"typedef struct {{\n{fields}}} rlx_{one.name};\n"
        f"typedef struct {{\n{reads}}} rlx_{one.name}_in;\n"
        f"typedef struct {{\n{writes or '    char none;' + chr(10)}}} rlx_{one.name}_out;\n"
    )


def _lists() -> str:
    """``RLX_KERNELS(K)``: K(name) of every C function; those for some processors have lists of their own."""
    plain = []
    variants: dict[str, list[str]] = {}
    for one in KERNELS.values():
        if not one.in_table:
            continue
        names = [f"{one.name}_{suffix}" for suffix in one.types] or [one.name]
        plain += names
        for variant in one.variants:
            variants.setdefault(variant, []).extend(f"{name}_{variant}" for name in names)
    lists = {"RLX_KERNELS": plain}
    lists |= {f"RLX_KERNELS_{name.upper()}": rows for name, rows in variants.items()}
    return "".join(
        f"#define {name}(K) \\\n    " + " \\\n    ".join(f"K({row})" for row in rows) + "\n\n"
        for name, rows in lists.items()
    )
