"""The representation of dtypes in WebGPU memory and in registers: i64 is two words, narrow types share words.

``to_device`` and ``from_device`` turn arrays into the bytes of that memory, and back.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.opdef import Array, TensorType


class Storage(NamedTuple):
    """One dtype on the GPU.

    Attributes:
        word: WGSL type of the array that holds it; narrow types share 32-bit words.
        per_word: Elements in a word.
        register: WGSL type of one value in a register; "wide" stands for two words, which WGSL has no number for.
        load: Four registers from four raw elements (u32), for types that share words.
        store: Four raw elements from four registers.
        round: A value in a register brought to what the type can hold.
    """

    word: str
    per_word: int
    register: str
    load: str = "{}"
    store: str = "{}"
    round: str = "{}"


STORAGE: dict[DType, Storage] = {
    DType.F32: Storage("f32", 1, "f32"),
    DType.I32: Storage("i32", 1, "i32"),
    DType.U32: Storage("u32", 1, "u32"),
    # Low word first, as in (little-endian) host memory.
    DType.I64: Storage("vec2<u32>", 1, "wide"),
    # Copied only: no kernel computes with it.
    DType.F64: Storage("vec2<u32>", 1, "never"),
    DType.BOOL: Storage(
        "u32", 4, "bool", "({} != vec4<u32>(0u))", "select(vec4<u32>(0u), vec4<u32>(1u), {})"
    ),
    DType.I8: Storage(
        "u32", 4, "i32", "from_i8({})", "(bitcast<vec4<u32>>({}) & vec4<u32>(255u))",
        "(({} << vec4<u32>(24u)) >> vec4<u32>(24u))",
    ),
    DType.U8: Storage(
        "u32", 4, "i32", "bitcast<vec4<i32>>({})", "(bitcast<vec4<u32>>({}) & vec4<u32>(255u))",
        "({} & vec4<i32>(255))",
    ),
    DType.F16: Storage("u32", 2, "f32", "from_f16({})", "to_f16({})", "from_f16(to_f16({}))"),
    DType.BF16: Storage("u32", 2, "f32", "from_bf16({})", "to_bf16({})", "from_bf16(to_bf16({}))"),
}  # fmt: skip


def to_device(array: Array) -> Array:
    """An array as the bytes that the device holds."""
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8)


def from_device(raw: Array, type: TensorType) -> Array:
    """The device's bytes as a fresh array of the declared dtype."""
    return raw[: type.nbytes].view(type.dtype.numpy).reshape(type.shape).copy()
