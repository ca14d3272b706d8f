"""Turns a program of elementwise steps into WGSL: one pass, four consecutive elements a time."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from rlx.backends.webgpu.storage import STORAGE
from rlx.backends.webgpu.wgsl import literal, render
from rlx.dataclasses import dataclass
from rlx.errors import CompileError
from rlx.ir.dtype import DType
from rlx.ir.shape import Shape, broadcast_strides, collapse, same_size, size
from rlx.ops.elementwise.records import ROWS
from rlx.ops.elementwise.table import ROUNDED_ONCE
from rlx.sizes import SizeExpr, divides, preferring

WORKGROUP = 64
# Minimum elements for which a thread computes several vectors. Their reads overlap, and there is still enough
# work for every multiprocessor.
_MANY = 1 << 22
# Vectors per thread, by the largest number of steps and operands: code size and registers grow with both.
_AHEAD = ((12, 4), (32, 2))
_OF_A_VECTOR = re.compile(r"\b(i|first|element|at_x\d+|v\d+|t\d+)\b")
# The register type whose four values are a structure, with functions in place of operators
# (shaders/lib/wide.wgsl).
_WIDE = "wide"
# Every dispatch is flat, so this is 0; a driver's compiler can't know that.
_ZERO = "wid.z"
# Operations whose WGSL ends in a choice among values by their bits. No law of algebra passes through that.
_SEALED = frozenset(
    "literal exp exp2 expm1 log log1p tanh erf sigmoid sin cos asin acos atan sinh cosh asinh acosh atanh atan2 pow "
    "power_half mod fmod maximum minimum relu".split()
)
# Operations that choose or cut what they get, and do not calculate with it.
_CHOOSES = frozenset("where cast maximum minimum relu ceil floor round".split())
# Names in a table expression that stand for something of the operands' type.
_PLACEHOLDER = re.compile(r"\b([xyzVU])\b|\b(\w+)_T\(")


@dataclass(frozen=True)
class _Operand:
    """Reads one operand: the element type of its binding, and its four values."""

    type: str
    value: str


def vector(dtype: DType) -> str:
    """The type of four values in registers."""
    register = STORAGE[dtype].register
    return "Wide" if register == _WIDE else f"vec4<{register}>"


def ahead(params: Mapping[str, Any]) -> int:
    """Vectors of four elements computed by each thread."""
    if _is_small(size(params["shape"])):
        return 1
    length = len(params["program"]) + len(params["shapes"])
    return next((count for limit, count in _AHEAD if length <= limit), 1)


def _is_small(count: Any) -> bool:
    if isinstance(count, int):
        return count < _MANY
    with preferring():
        return bool(count < _MANY)


def groups(params: Mapping[str, Any]) -> int:
    """Workgroups needed for the result of a region."""
    return math.ceil(size(params["shape"]) / (4 * WORKGROUP * ahead(params)))


def _raw(name: str, index: str, dtype: DType) -> str:
    """One element: its value, or its bits where elements share a word."""
    per_word = STORAGE[dtype].per_word
    if per_word == 1:
        return f"{name}[{index}]"
    shift, lane, bits, mask = (2, 3, 8, 255) if per_word == 4 else (1, 1, 16, 65535)
    return f"(({name}[({index}) >> {shift}u] >> ((({index}) & {lane}u) * {bits}u)) & {mask}u)"


def _four(raw: Sequence[str], dtype: DType) -> str:
    """Four registers from four elements, or from one broadcast element."""
    storage = STORAGE[dtype]
    if storage.register == _WIDE:
        return f"wide_{'all' if len(raw) == 1 else 'four'}({', '.join(raw)})"
    if storage.per_word == 1:
        return f"{vector(dtype)}({', '.join(raw)})"
    return storage.load.format(f"vec4<u32>({', '.join(raw)})")


def packed(dtype: DType) -> str:
    """The WGSL type of four consecutive elements in memory."""
    storage = STORAGE[dtype]
    if storage.register == _WIDE:
        return "WidePacked"
    return {1: f"vec4<{storage.word}>", 2: "vec2<u32>", 4: "u32"}[storage.per_word]


def _unpacked(value: str, dtype: DType) -> str:
    """Four registers from four consecutive elements in memory."""
    storage = STORAGE[dtype]
    if storage.register == _WIDE:
        return f"wide_load({value})"
    if storage.per_word == 1:
        return value
    if storage.per_word == 2:
        raw = f"(({value}).xxyy >> vec4<u32>(0u, 16u, 0u, 16u)) & vec4<u32>(65535u)"
    else:
        raw = f"(vec4<u32>({value}) >> vec4<u32>(0u, 8u, 16u, 24u)) & vec4<u32>(255u)"
    return storage.load.format(f"({raw})")


def _packed(value: str, dtype: DType) -> str:
    """Four registers as four consecutive elements in memory."""
    storage = STORAGE[dtype]
    if storage.register == _WIDE:
        return f"wide_store({value})"
    if storage.per_word == 1:
        return value
    raw = storage.store.format(value)
    if storage.per_word == 4:
        return f"dot({raw}, vec4<u32>(1u, 256u, 65536u, 16777216u))"
    return f"pair({raw})"


def _index(dims: Shape, steps: tuple[int, ...], element: str, kind: str) -> str:
    """The operand's index for result element ``element``; strides are constants in the code."""
    terms, below = [], 1
    number = "{}u" if kind == "u32" else "vec4<u32>({}u)"
    for i in reversed(range(len(dims))):
        if steps[i]:
            place = element if below == 1 else f"({element} / {number.format(below)})"
            # The outermost quotient is below its dimension already.
            if i:
                place = f"({place} % {number.format(dims[i])})"
            terms.append(place if steps[i] == 1 else f"{place} * {number.format(steps[i])}")
        below *= dims[i]
    return " + ".join(terms) or number.format(0)


def _operand(name: str, shape: Shape, dtype: DType, result: Shape) -> _Operand:
    scalar = STORAGE[dtype].word
    dims, (steps,) = collapse(result, broadcast_strides(shape, result))
    if same_size(size(shape), 1):
        return _Operand(scalar, _four([_raw(name, "0u", dtype)], dtype))
    contiguous = same_size(size(shape), size(result)) or size(shape) == size(result)
    if contiguous or (
        steps[-1] == 1 and divides(4, dims[-1]) and all(divides(4, step) for step in steps[:-1])
    ):
        # Four consecutive elements of the result read four consecutive, aligned elements of the operand.
        pos = "i" if contiguous else f"({_index(dims, steps, 'first', 'u32')}) >> 2u"
        return _Operand(packed(dtype), _unpacked(f"{name}[{pos}]", dtype))
    if steps[-1] == 0 and divides(4, dims[-1]):
        single = _index(dims, steps, "first", "u32")
        return _Operand(scalar, _four([_raw(name, single, dtype)], dtype))
    lanes = [_raw(name, f"at_{name}.{lane}", dtype) for lane in "xyzw"]
    return _Operand(scalar, _four(lanes, dtype))


def _literal(value: Any, dtype: DType) -> str:
    vec = vector(dtype)
    if dtype is DType.BOOL:
        return f"{vec}({'true' if value else 'false'})"
    if STORAGE[dtype].register == _WIDE and isinstance(value, SizeExpr):
        return f"wide_all(vec2<u32>({value}u, 0u))"
    if STORAGE[dtype].register == _WIDE:
        low, high = (int(value) >> shift & 0xFFFFFFFF for shift in (0, 32))
        return f"wide_all(vec2<u32>({low}u, {high}u))"
    if dtype.is_float and not isinstance(value, SizeExpr) and not math.isfinite(np.float32(value)):
        # WGSL forbids constants that are not finite.
        return f"{vec}(bitcast<f32>({int(np.float32(value).view(np.uint32))}u ^ {_ZERO}))"
    text = f"{vec}({literal(value, STORAGE[dtype].register)})"
    # A driver that sees the 0 may give 0 for x * 0 and 0 / x, and x for x + 0.
    return _opaque(text) if dtype.is_float and value == 0 else text


def _opaque(value: str) -> str:
    """Four floats of which the driver's compiler knows nothing.

    WGSL lets a compiler treat floats as real numbers that are never NaN or infinite: (x + y) - y may become x, and
    x - x may become 0. Results would depend on the operations that share a kernel.
    """
    return f"opaque({value}, {_ZERO})"


def _is_float(dtype: DType) -> bool:
    return STORAGE[dtype].register == "f32"


def _cast(value: str, source: DType, target: DType, last: bool) -> str:
    vec = vector(target)
    args, wanted = STORAGE[source].register, STORAGE[target].register
    if (str(source), str(target)) in ROUNDED_ONCE:
        # Converted through f32 like all other types, but rounded only once, in the last step.
        stored = value if args == _WIDE else f"wide_from_{args}({value})"
        converted = f"wide_to_odd({stored})"
        return converted if last else STORAGE[target].round.format(converted)
    if args == _WIDE:
        converted = value if wanted == _WIDE else f"wide_to_{wanted}({value})"
        return converted if last else STORAGE[target].round.format(converted)
    if wanted == _WIDE:
        return f"wide_from_{args}({value})"
    if target is DType.BOOL:
        return value if source is DType.BOOL else f"!({value} == {vector(source)}(0))"
    converted = value if vec == vector(source) else f"{vec}({value})"
    # The store itself rounds, so no rounding is needed here.
    return converted if last else STORAGE[target].round.format(converted)


def _step(step: Any, args: list[str], kinds: list[DType], last: bool) -> str:
    name, _, dtype, value = step
    if name == "literal":
        return _literal(value, dtype)
    if name == "where":
        if STORAGE[dtype].register == _WIDE:
            return f"wide_where({', '.join(args)})"
        return f"select({args[2]}, {args[1]}, {args[0]})"
    if name == "cast":
        return _cast(args[0], kinds[0], dtype, last)
    register = STORAGE[kinds[0]].register
    if register == _WIDE:
        return f"wide_{name}({', '.join(args)})"
    names = {**dict(zip("xyz", args, strict=False)), "V": vector(kinds[0]), "U": "vec4<u32>"}
    return _PLACEHOLDER.sub(
        lambda match: names[match[1]] if match[1] else f"{match[2]}_{register}(", ROWS[name].wgsl
    )


_PAIR = """
fn pair(h: vec4<u32>) -> vec2<u32> { return h.xz | (h.yw << vec2<u32>(16u)); }
"""


# Where a function definition begins: its attributes, then ``fn name(``.
_DEFINITION = re.compile(r"(?:@\w+(?:\([^)]*\))?\s*)*\bfn\s+(\w+)\s*\(")
_CALL = re.compile(r"\b(\w+)\s*\(")
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.S)


def definitions(text: str) -> dict[str, str]:
    """The functions that a WGSL text defines: each name with its definition, without comments.

    A definition reaches from ``fn`` (or its attributes) to the brace that closes its body, whatever its layout.

    Raises:
        CompileError: A function is defined twice, or its body has no end.
    """
    text = _COMMENT.sub("", text)
    results: dict[str, str] = {}
    for match in _DEFINITION.finditer(text):
        name, depth = match[1], 0
        for brace in re.finditer(r"[{}]", text[match.end() :]):
            depth += 1 if brace[0] == "{" else -1
            if depth == 0:
                break
        else:
            raise CompileError("a WGSL function has no end", where=name)
        if name in results:
            raise CompileError("a WGSL function is defined twice", where=name)
        results[name] = text[match.start() : match.end() + brace.end()]
    return results


@functools.cache
def _functions() -> dict[str, tuple[str, frozenset[str]]]:
    """Text of every library function, and the names of the functions that it calls."""
    names = ("lib/math", "lib/halves", "lib/point", "lib/wide")
    text = "\n".join([*(render(name, {}) for name in names), _PAIR])
    result = definitions(text)
    return {
        name: (source, frozenset(_CALL.findall(source)) & result.keys() - {name})
        for name, source in result.items()
    }


@functools.cache
def _structures() -> dict[str, str]:
    """Text of every structure of the library, by its name."""
    result = re.finditer(r"struct (\w+) {[^}]*}\n", render("lib/wide", {}))
    return {match[1]: match[0] for match in result}


def library(body: str) -> str:
    """The library functions that a kernel's text calls, those that they call, and structures they name."""
    functions = _functions()
    wanted = set(_CALL.findall(body)) & functions.keys()
    while more := {called for name in wanted for called in functions[name][1]} - wanted:
        wanted |= more
    text = "\n".join(source for name, (source, _) in functions.items() if name in wanted)
    named = set(re.findall(r"\bWide\w*", text)) & _structures().keys()
    return "".join(_structures()[name] for name in sorted(named)) + text


def region_source(
    params: Mapping[str, Any], dtypes: Sequence[DType], result: DType, access: Sequence[str]
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
    loads, lines, bindings = list[str](), list[str](), list[str]()
    names, kinds = [], list(dtypes)
    for i, (operand_shape, dtype) in enumerate(zip(params["shapes"], dtypes, strict=True)):
        operand = _operand(f"x{i}", operand_shape, dtype, shape)
        bindings.append(_binding(i, access[i], f"x{i}", operand.type))
        if f"at_x{i}." in operand.value:
            dims, (steps,) = collapse(shape, broadcast_strides(operand_shape, shape))
            loads.append(f"let at_x{i} = {_index(dims, steps, 'element', 'vec4')};")
        loads.append(f"let v{i} = {operand.value};")
        names.append(f"v{i}")
    bindings.append(_binding(len(dtypes), access[-1], "out", packed(result)))
    program = params["program"]
    combined = {operand for step in program if step[0] not in _CHOOSES for operand in step[1]}
    for i, step in enumerate(program):
        last = i == len(program) - 1
        args = [names[o] for o in step[1]]
        for which, operand in enumerate(step[1][1:], 1):
            # Two operands may be one value. A driver's compiler sees that, also where both are loaded from one place.
            same = operand < len(dtypes) or operand in step[1][:which]
            if same and _is_float(kinds[operand]):
                args[which] = _opaque(args[which])
        text = _step(step, args, [kinds[o] for o in step[1]], last)
        if len(dtypes) + i in combined and _is_float(step[2]) and step[0] not in _SEALED:
            text = _opaque(text)
        lines.append(f"let t{i} = {text};")
        names.append(f"t{i}")
        kinds.append(step[2])
    store = f"out[i] = {_packed(names[-1], result)};"
    body = _vectors(loads, lines, store, count, ahead(params))
    return f"""// Elementwise: {" ".join(step[0] for step in params["program"])}.
{"".join(bindings)}
{library(body)}
@compute @workgroup_size({WORKGROUP})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(local_invocation_index) lane: u32) {{
{body}
}}
"""


def _vectors(loads: list[str], steps: list[str], store: str, count: int, each: int) -> str:
    """The body of a thread: reads of all its vectors come first, so that they overlap.

    Args:
        loads: Lines that read the operands of vector ``i``.
        steps: Lines that compute it.
        store: The line that writes it.
        count: Elements of the result.
        each: Vectors of a thread; a workgroup's threads have neighbours at a time.
    """
    vectors = math.ceil(count / 4)
    lines = [f"let i = (wid.x + wid.y * FOLD) * {WORKGROUP * each}u + lane;"]
    # A grid folded into rows may have more workgroups than there is work.
    lines.append(f"if (i >= {vectors}u) {{ return; }}")
    place = ["let first = i * 4u;"]
    if any("element" in line for line in loads):
        offsets = "vec4<u32>(0u, 1u, 2u, 3u)"
        place.append(f"let element = min(vec4<u32>(first) + {offsets}, vec4<u32>({count - 1}u));")
    if each == 1:
        return "\n".join(f"    {line}" for line in [*lines, *place, *loads, *steps, store])
    whole = vectors % (WORKGROUP * each) == 0
    for part in ("loads", "steps"):
        for i in range(each):
            if part == "loads":
                # Past the end the last vector is read again, and nothing is written.
                step = f"i + {i * WORKGROUP}u"
                lines.append(f"let i_{i} = {step if whole else f'min({step}, {vectors - 1}u)'};")
            some = [*place, *loads] if part == "loads" else [*steps, store]
            renamed = [_OF_A_VECTOR.sub(rf"\1_{i}", line) for line in some]
            if part == "steps" and i and not whole:
                renamed[-1] = f"if (i + {i * WORKGROUP}u < {vectors}u) {{ {renamed[-1]} }}"
            lines += renamed
    return "\n".join(f"    {line}" for line in lines)


def _binding(number: int, access: str, name: str, type: str) -> str:
    return f"@group(0) @binding({number}) var<storage, {access}> {name}: array<{type}>;\n"
