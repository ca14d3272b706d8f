"""Writers of small safetensors and GGUF files, byte by byte, so that tests can make wrong ones too."""

import json
import struct

import numpy as np

from rlx.importers.gguf import TYPES
from rlx.ops.block_formats import FORMATS

NUMBERS = {name: number for number, name in TYPES.items()}
SAFE_TYPES = {"f8": "F64", "f4": "F32", "f2": "F16", "i8": "I64", "i4": "I32", "i2": "I16",
              "i1": "I8", "u8": "U64", "u4": "U32", "u2": "U16", "u1": "U8", "b1": "BOOL"}  # fmt: skip


def safetensors(tensors, metadata=None, bf16=(), **changes):
    """A safetensors file as bytes.

    Args:
        tensors: Arrays by name.
        metadata: Texts by key.
        bf16: Names of arrays of uint16 that hold bf16.
        changes: Entries that replace those of the header, by name.
    """
    header, body = ({"__metadata__": metadata} if metadata else {}), b""
    for name, array in tensors.items():
        first, body = len(body), body + array.tobytes()
        kind = "BF16" if name in bf16 else SAFE_TYPES[array.dtype.str[1:]]
        header[name] = {
            "dtype": kind,
            "shape": list(array.shape),
            "data_offsets": [first, len(body)],
        }
    return safetensors_raw(json.dumps({**header, **changes}), body)


def safetensors_raw(header, body=b""):
    """A safetensors file of any header; 8 bytes are its alignment, as other writers have it."""
    text = header.encode() if isinstance(header, str) else header
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + body


def text(value):
    """A text of a GGUF file."""
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def value(result):
    """A value of a GGUF file with its type: a bool, int, float, text, array or list."""
    kinds = {"u1": 0, "i1": 1, "u2": 2, "i2": 3, "u4": 4, "i4": 5, "f4": 6, "b1": 7, "u8": 10,
             "i8": 11, "f8": 12}  # fmt: skip
    if isinstance(result, str):
        return struct.pack("<I", 8) + text(result)
    if isinstance(result, np.ndarray):
        kind = kinds[result.dtype.str[1:]]
        return struct.pack("<IIQ", 9, kind, result.size) + result.tobytes()
    if isinstance(result, list):
        inner = [value(item) for item in result]
        kind = inner[0][:4] if inner else struct.pack("<I", 8)
        return struct.pack("<I", 9) + kind + struct.pack("<Q", len(inner)) + b"".join(
            item[4:] for item in inner
        )  # fmt: skip
    if isinstance(result, np.generic):
        return struct.pack("<I", kinds[result.dtype.str[1:]]) + result.tobytes()
    scalar = np.bool_ if isinstance(result, bool) else np.uint32
    return value((np.float32 if isinstance(result, float) else scalar)(result))


def gguf(metadata, tensors, version=3, alignment=None):
    """A GGUF file as bytes.

    Args:
        metadata: Values by key; Python's ints become u32, floats f32.
        tensors: ``(type, shape, bytes)`` by name, the shape as NumPy has it; or arrays.
        version: 2 or 3.
        alignment: Stated in the file where given.
    """
    metadata = metadata | ({"general.alignment": alignment} if alignment else {})
    step = alignment or 32
    keys = b"".join(text(key) + value(item) for key, item in metadata.items())
    entries, body = b"", b""
    for name, tensor in tensors.items():
        kind, shape, raw = plain(tensor) if isinstance(tensor, np.ndarray) else tensor
        sizes = struct.pack(f"<{len(shape)}Q", *shape[::-1])
        entries += text(name) + struct.pack("<I", len(shape)) + sizes
        entries += struct.pack("<IQ", NUMBERS.get(kind, kind), len(body))
        body += bytes(raw) + bytes(-len(bytes(raw)) % step)
    front = struct.pack("<4sIQQ", b"GGUF", version, len(tensors), len(metadata)) + keys + entries
    return front + bytes(-len(front) % step) + body


def plain(array):
    """An array as a tensor of a GGUF file."""
    kinds = {"f4": "F32", "f2": "F16", "f8": "F64", "i1": "I8", "i4": "I32", "i8": "I64"}
    return kinds[array.dtype.str[1:]], array.shape, array.tobytes()


def blocks(packed, kind):
    """Packed rows as a tensor of a GGUF file."""
    form = FORMATS[kind]
    weights = packed.shape[-1] // form.nbytes * form.weights
    return kind, (*packed.shape[:-1], weights), packed.tobytes()
