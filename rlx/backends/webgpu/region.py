"""Elementwise programs as WGSL: one kernel per region, four elements per invocation."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from rlx.backends.webgpu.wgsl import header, library
from rlx.ir.dtype import DType
from rlx.ir.plan import Call
from rlx.ir.shape import broadcast_strides, collapse, size, strides
from rlx.ops.elementwise import ROWS

SCALAR = {DType.F32: "f32", DType.I32: "i32", DType.U32: "u32", DType.BOOL: "bool"}
WORKGROUP = 256
# Where integers need other words than floats: unsigned ones have no negation, and WGSL's x / 0 is x.
_INTEGER_WGSL = {"neg": "V(0) - x", "div": "select(x / y, V(0), y == V(0))"}


def region_source(call: Call, access: Sequence[str]) -> tuple[str, int]:
    """The kernel of one region.

    Args:
        call: A call of the kernel "elementwise".
        access: "read" or "read_write" of each bound buffer.

    Returns:
        The WGSL text, and the number of workgroups.
    """
    program: Sequence[Any] = call.params["program"]  # type: ignore[assignment]
    shapes: Sequence[Any] = call.params["shapes"]  # type: ignore[assignment]
    shape: Any = call.params["shape"]
    dtypes = [value.type.dtype for value in call.inputs if value is not None]
    result = call.outputs[0].type.dtype
    total = size(shape)
    words = -(-total // 4)
    work = -(-words // WORKGROUP)

    walks = [broadcast_strides(operand, shape) for operand in shapes]
    dims, merged = collapse(shape, strides(shape), *walks)
    declarations, loads = [], []
    for at, (operand, dtype) in enumerate(zip(shapes, dtypes, strict=True)):
        direct = size(operand) == total
        kind = _storage(dtype, direct)
        declarations.append(
            f"@group(0) @binding({at}) var<storage, {access[at]}> in{at}: array<{kind}>;"
        )
        if direct:
            loads.append(f"let v{at} = {_unpack(f'in{at}[i]', dtype)};")
        elif not any(merged[1 + at]):
            loads.append(f"let v{at} = {_vector(dtype)}({_lane(at, '0u', dtype)});")
        else:
            declarations.append(_walk(at, dims, merged[1 + at], total))
            lanes = ", ".join(_lane(at, f"at{at}(i * 4u + {k}u)", dtype) for k in range(4))
            loads.append(f"let v{at} = {_vector(dtype)}({lanes});")

    functions: dict[str, str] = {}
    steps = []
    for op, operands, dtype, literal in program:
        number = len(dtypes)
        steps.append(
            f"let v{number} = "
            + _step(op, operands, [dtypes[o] for o in operands], dtype, literal, functions)
            + ";"
        )
        dtypes.append(dtype)
    count = len(call.inputs)
    out = f"@group(0) @binding({count}) var<storage, {access[count]}> y: array<{_storage(result, True)}>;"
    value = f"v{len(dtypes) - 1}"
    if result is DType.BOOL:
        # Four bytes of a word, 0 or 1 each.
        value = f"dot(select(vec4<u32>(0u), vec4<u32>(1u, 256u, 65536u, 16777216u), {value}), vec4<u32>(1u))"
    body = "\n    ".join([*loads, *steps, f"y[i] = {value};"])
    text = f"""{header({}, work)}{library("math")}
{chr(10).join(declarations)}
{out}

{chr(10).join(functions.values())}

@compute @workgroup_size({WORKGROUP})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let i = group(wid) * {WORKGROUP}u + lane;
    if (i >= {words}u) {{ return; }}
    {body}
}}
"""
    return text, work


def _storage(dtype: DType, whole: bool) -> str:
    """Element type of a buffer: four elements at a time, or one; bools are packed in words."""
    if dtype is DType.BOOL:
        return "u32"
    return f"vec4<{SCALAR[dtype]}>" if whole else SCALAR[dtype]


def _vector(dtype: DType) -> str:
    return f"vec4<{SCALAR[dtype]}>"


def _unpack(word: str, dtype: DType) -> str:
    if dtype is not DType.BOOL:
        return word
    return f"((vec4<u32>({word}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)) != vec4<u32>(0u)"


def _lane(at: int, index: str, dtype: DType) -> str:
    if dtype is not DType.BOOL:
        return f"in{at}[{index}]"
    return f"(((in{at}[({index}) / 4u] >> (8u * (({index}) % 4u))) & 255u) != 0u)"


def _walk(at: int, dims: Sequence[int], steps: Sequence[int], total: int) -> str:
    """A function from the number of a result element to that of an operand's element."""
    lines = [f"fn at{at}(element: u32) -> u32 {{", f"    var rest = min(element, {total - 1}u);"]
    lines.append("    var found = 0u;")
    for dim, step in reversed(list(zip(dims, steps, strict=True))):
        if step:
            lines.append(f"    found += rest % {dim}u * {step}u;")
        lines.append(f"    rest = rest / {dim}u;")
    return "\n".join([*lines, "    return found;", "}"])


def _step(
    op: str,
    operands: Sequence[int],
    types: Sequence[DType],
    dtype: DType,
    literal: Any,
    functions: dict[str, str],
) -> str:
    names = [f"v{o}" for o in operands]
    if op == "literal":
        return f"{_vector(dtype)}({_literal(literal, dtype)})"
    if op == "cast":
        return f"{_vector(dtype)}({names[0]})"
    if op == "where":
        return f"select({names[2]}, {names[1]}, {names[0]})"
    row, source = ROWS[op], types[0]
    name = f"op_{op}_{source}"
    wgsl = row.wgsl if source is DType.F32 else _INTEGER_WGSL.get(op, row.wgsl)
    expression = re.sub(r"\bV\b", _vector(source), wgsl)
    parameters = ", ".join(f"{p}: {_vector(source)}" for p in "xyz"[: row.operands])
    functions[name] = f"fn {name}({parameters}) -> {_vector(dtype)} {{ return {expression}; }}"
    return f"{name}({', '.join(names)})"


def _literal(value: Any, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return "true" if value else "false"
    if dtype is DType.F32:
        return f"{float(value)!r}f" if "e" in repr(float(value)) else f"{float(value)!r}"
    if dtype is DType.U32:
        return f"{int(value)}u"
    # The lowest integer has no literal of its own.
    return f"(-{-int(value) - 1} - 1)" if int(value) < 0 else str(int(value))
