"""Turns a program of elementwise steps into WGSL: one pass, four consecutive elements a time."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from rlx.backends.webgpu.wgsl import TYPES, literal, render
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape, broadcast_strides, collapse, size
from rlx.ops.elementwise import ROWS

WORKGROUP = 64
# Where the table's expression would lose a NaN. WGSL's max and min may return either operand then,
# and naga compiles != to a comparison that is false for NaN, so "not equal" is written !(x == y).
_KEEPS_NAN = {
    "ne": "!(x == y)",
    "relu": "select(x, V(0), x < V(0))",
    "maximum": "select(y, x, (x > y) | !(x == x))",
    "minimum": "select(y, x, (x < y) | !(x == x))",
}
_MATH = re.compile(r"\b(erf|safe_tanh|sigmoid|power)\(")


@dataclass(frozen=True)
class _Operand:
    """How one operand is read: the element type of its binding, and the four values."""

    type: str
    value: str


def vector(dtype: DType) -> str:
    """The type of four values in registers."""
    return f"vec4<{'bool' if dtype is DType.BOOL else TYPES[str(dtype)]}>"


def groups(shape: Shape) -> int:
    """Workgroups that make a result of this shape."""
    return math.ceil(size(shape) / (4 * WORKGROUP))


def _element(name: str, index: str, dtype: DType) -> str:
    if dtype is DType.BOOL:
        return f"((({name}[({index}) >> 2u] >> ((({index}) & 3u) * 8u)) & 255u) != 0u)"
    return f"{name}[{index}]"


def _index(dims: Shape, steps: tuple[int, ...], element: str, kind: str) -> str:
    """The operand's index of result element ``element``; the arithmetic has constants only."""
    terms, below = [], 1
    number = "{}u" if kind == "u32" else "vec4<u32>({}u)"
    for at in reversed(range(len(dims))):
        if steps[at]:
            place = element if below == 1 else f"({element} / {number.format(below)})"
            # The outermost quotient is below its dimension already.
            if at:
                place = f"({place} % {number.format(dims[at])})"
            terms.append(place if steps[at] == 1 else f"{place} * {number.format(steps[at])}")
        below *= dims[at]
    return " + ".join(terms) or number.format(0)


def _operand(name: str, shape: Shape, dtype: DType, result: Shape) -> _Operand:
    vec, scalar = vector(dtype), TYPES[str(dtype)]
    dims, (steps,) = collapse(result, broadcast_strides(shape, result))
    if size(shape) == 1:
        return _Operand(scalar, f"{vec}({_element(name, '0u', dtype)})")
    contiguous = size(shape) == size(result)
    aligned = dims[-1] % 4 == 0 and all(step % 4 == 0 for step in steps[:-1])
    if contiguous or (steps[-1] == 1 and aligned):
        # Four neighbours of the result are four neighbours of the operand, at a multiple of 4.
        at = "i" if contiguous else f"({_index(dims, steps, 'first', 'u32')}) >> 2u"
        if dtype is not DType.BOOL:
            return _Operand(vec, f"{name}[{at}]")
        word = f"{name}[{at}]"
        bytes4 = f"(vec4<u32>({word}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)"
        return _Operand("u32", f"(({bytes4}) != vec4<u32>(0u))")
    if steps[-1] == 0 and dims[-1] % 4 == 0:
        one = _index(dims, steps, "first", "u32")
        return _Operand(scalar, f"{vec}({_element(name, one, dtype)})")
    lanes = ", ".join(_element(name, f"at_{name}.{lane}", dtype) for lane in "xyzw")
    return _Operand(scalar, f"{vec}({lanes})")


def _needs_index(operand: _Operand, name: str) -> bool:
    return f"at_{name}." in operand.value


def _literal(value: Any, dtype: DType) -> str:
    vec = vector(dtype)
    if dtype is DType.BOOL:
        return f"{vec}({'true' if value else 'false'})"
    if dtype is DType.F32 and not math.isfinite(np.float32(value)):
        # WGSL forbids constants that are not finite; `i & 0u` makes the bits a run-time value.
        bits = int(np.float32(value).view(np.uint32))
        return f"{vec}(bitcast<f32>({bits}u | (i & 0u)))"
    return f"{vec}({literal(value, str(dtype))})"


def _step(name: str, args: list[str], kinds: list[DType], dtype: DType, value: Any) -> str:
    if name == "literal":
        return _literal(value, dtype)
    if name == "where":
        return f"select({args[2]}, {args[1]}, {args[0]})"
    if name == "cast":
        if dtype is DType.BOOL and kinds[0] is not DType.BOOL:
            return f"!({args[0]} == {vector(kinds[0])}(0))"
        return f"{vector(dtype)}({args[0]})"
    if name == "neg" and dtype is DType.U32:
        return f"vec4<u32>(0u) - {args[0]}"  # WGSL has no unary minus for u32
    if name == "div" and dtype is not DType.F32:
        # WGSL gives x for x / 0; the record says 0.
        zero = f"{vector(dtype)}(0)"
        return f"select({args[0]} / {args[1]}, {zero}, {args[1]} == {zero})"
    names = {"x": args[0], "y": args[-1], "V": vector(kinds[0])}
    text = _KEEPS_NAN.get(name, ROWS[name].wgsl)
    return re.sub(r"\b[xyV]\b", lambda match: names[match[0]], text)


def region_source(
    params: Mapping[str, Any], dtypes: list[DType], result: DType, access: list[str]
) -> str:
    """The kernel of one region.

    Args:
        params: ``program``, ``shapes`` of the operands and ``shape`` of the result.
        dtypes: dtype of each operand.
        result: dtype of the result.
        access: Access mode of each binding, the result's last.

    Returns:
        WGSL after the header. Slots are padded, so a last vector that sticks out of the result
        stays inside its slot.
    """
    shape: Shape = params["shape"]
    count = size(shape)
    lines, bindings = [], []
    names, kinds = [], list(dtypes)
    for at, (operand_shape, dtype) in enumerate(zip(params["shapes"], dtypes, strict=True)):
        operand = _operand(f"x{at}", operand_shape, dtype, shape)
        bindings.append(_binding(at, access[at], f"x{at}", operand.type))
        if _needs_index(operand, f"x{at}"):
            dims, (steps,) = collapse(shape, broadcast_strides(operand_shape, shape))
            lines.append(f"let at_x{at} = {_index(dims, steps, 'element', 'vec4')};")
        lines.append(f"let v{at} = {operand.value};")
        names.append(f"v{at}")
    out = "u32" if result is DType.BOOL else vector(result)
    bindings.append(_binding(len(dtypes), access[-1], "out", out))
    for step, operands, dtype, value in params["program"]:
        name = f"v{len(names)}"
        text = _step(step, [names[i] for i in operands], [kinds[i] for i in operands], dtype, value)
        lines.append(f"let {name}: {vector(dtype)} = {text};")
        names.append(name)
        kinds.append(dtype)
    if result is DType.BOOL:
        lines.append(
            f"out[i] = dot(select(vec4<u32>(0u), vec4<u32>(1u, 256u, 65536u, 16777216u), "
            f"{names[-1]}), vec4<u32>(1u));"
        )
    else:
        lines.append(f"out[i] = {names[-1]};")
    body = "\n".join(f"    {line}" for line in lines)
    lib = render("lib/math", {}) if _MATH.search(body) else ""
    return f"""// Elementwise: {" ".join(step[0] for step in params["program"])}.
{"".join(bindings)}
{lib}
@compute @workgroup_size({WORKGROUP})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
    let i = (wid.x + wid.y * FOLD) * {WORKGROUP}u + lane;
    if (i >= {math.ceil(count / 4)}u) {{ return; }}
    let first = i * 4u;
    let element = min(vec4<u32>(first) + vec4<u32>(0u, 1u, 2u, 3u), vec4<u32>({count - 1}u));
{body}
}}
"""


def _binding(number: int, access: str, name: str, type: str) -> str:
    return f"@group(0) @binding({number}) var<storage, {access}> {name}: array<{type}>;\n"
