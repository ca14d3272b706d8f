"""ONNX's element types: the code in files, what NumPy holds them in, and the dtype in a graph."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from rlx.ir.dtype import DType


class Element(NamedTuple):
    """An element type of ONNX.

    Attributes:
        code: Its number in TensorProto.DataType.
        name: Its name there, in lower case.
        numpy: The NumPy dtype of its arrays.
        dtype: The dtype of its nodes; None if rlx lacks the type.
        field: Field of TensorProto with one entry per element.
        bits: Bits of an element in a file, where several of them share a byte; 0 otherwise.
        extended: Its name in ml_dtypes, where NumPy lacks it; "" otherwise.
    """

    code: int
    name: str
    numpy: np.dtype[Any]
    dtype: DType | None
    field: str
    bits: int = 0
    extended: str = ""

    def __reduce__(self) -> tuple[Any, ...]:
        # There is one record of each type: code asks which one it is by identity.
        return _known, (self.code,)

    @property
    def limits(self) -> tuple[int, int]:
        """The range of an integer type."""
        info = np.iinfo(self.numpy)
        if not self.bits:
            return int(info.min), int(info.max)
        return (-(1 << self.bits - 1) if info.min else 0), (1 << self.bits - bool(info.min)) - 1

    def nbytes(self, count: int) -> int:
        """Bytes of so many elements in a file."""
        return -(-count * self.bits // 8) if self.bits else count * self.numpy.itemsize


def _known(code: int) -> Element:
    return ELEMENTS[code]


FLOAT = Element(1, "float", np.dtype("f4"), DType.F32, "floats")
UINT8 = Element(2, "uint8", np.dtype("u1"), DType.U8, "int32s")
INT8 = Element(3, "int8", np.dtype("i1"), DType.I8, "int32s")
UINT16 = Element(4, "uint16", np.dtype("u2"), None, "int32s")
INT16 = Element(5, "int16", np.dtype("i2"), None, "int32s")
INT32 = Element(6, "int32", np.dtype("i4"), DType.I32, "int32s")
INT64 = Element(7, "int64", np.dtype("i8"), DType.I64, "int64s")
STRING = Element(8, "string", np.dtype("O"), None, "strings")
BOOL = Element(9, "bool", np.dtype("?"), DType.BOOL, "int32s")
FLOAT16 = Element(10, "float16", np.dtype("f2"), DType.F16, "int32s")
DOUBLE = Element(11, "double", np.dtype("f8"), DType.F64, "doubles")
UINT32 = Element(12, "uint32", np.dtype("u4"), DType.U32, "uint64s")
UINT64 = Element(13, "uint64", np.dtype("u8"), None, "uint64s")
BFLOAT16 = Element(16, "bfloat16", np.dtype("u2"), DType.BF16, "int32s", extended="bfloat16")
# Integers of 4 and 2 bits come as bytes with their value; narrow floats as bytes with their code.
NARROW = tuple(
    Element(code, name, np.dtype(numpy), None, "int32s", bits, extended)
    for code, name, numpy, bits, extended in (
        (17, "float8e4m3fn", "u1", 0, "float8_e4m3fn"), (18, "float8e4m3fnuz", "u1", 0, "float8_e4m3fnuz"),
        (19, "float8e5m2", "u1", 0, "float8_e5m2"), (20, "float8e5m2fnuz", "u1", 0, "float8_e5m2fnuz"),
        (21, "uint4", "u1", 4, "uint4"), (22, "int4", "i1", 4, "int4"),
        (23, "float4e2m1", "u1", 4, "float4_e2m1fn"), (24, "float8e8m0", "u1", 0, "float8_e8m0fnu"),
        (25, "uint2", "u1", 2, "uint2"), (26, "int2", "i1", 2, "int2"),
    )
)  # fmt: skip

ELEMENTS: dict[int, Element] = {
    e.code: e
    for e in (FLOAT, UINT8, INT8, UINT16, INT16, INT32, INT64, STRING, BOOL, FLOAT16, DOUBLE,
              UINT32, UINT64, BFLOAT16, *NARROW)
}  # fmt: skip
BY_DTYPE: dict[DType, Element] = {e.dtype: e for e in ELEMENTS.values() if e.dtype is not None}
# bfloat16 and narrow types stand in the numpy types of others; arrays of them always come with their element.
BY_NUMPY: dict[np.dtype[Any], Element] = {
    e.numpy: e for e in ELEMENTS.values() if e is not BFLOAT16 and e not in NARROW
}
# Types of ONNX that the importer refuses, for messages.
REFUSED: dict[int, str] = {14: "complex64", 15: "complex128"}


def name_of(code: int) -> str:
    """The name of a type, known or not."""
    return ELEMENTS[code].name if code in ELEMENTS else REFUSED.get(code, f"type {code}")
