"""Tensors of a file as NumPy arrays: views of its bytes where they stand there as they are."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import (
    ImportModelError,
    ModelNotFoundError,
    UnsupportedOpError,
    describe,
    unreadable,
)
from rlx.files import open_regular
from rlx.importers.onnx import schema
from rlx.importers.onnx.element_bytes import from_bytes, shaped, unpacked
from rlx.importers.onnx.elements import BOOL, ELEMENTS, STRING, Element, name_of
from rlx.ir.shape import MAX_SIZE

Array = np.ndarray[Any, Any]
EXTERNAL = 1
_NOT_THERE = "no such file"


def element_of(code: int, where: str) -> Element:
    """The element type of a code.

    Raises:
        UnsupportedOpError: rlx has no such type.
        ImportModelError: Nor has ONNX.
    """
    result = ELEMENTS.get(code)
    if result is not None:
        return result
    name = name_of(code)
    if name.startswith("type "):
        raise ImportModelError("no such element type", where=where, got=code)
    raise UnsupportedOpError(
        "rlx has no tensors of this element type",
        where=where,
        got=name,
        expected=", ".join(e.name for e in ELEMENTS.values()),
    )


def to_array(tensor: schema.TensorProto, folder: Path | None) -> tuple[Array, Element]:
    """A tensor's elements; external data may lie in ``folder``, or nowhere.

    Returns:
        A read-only array (bfloat16 as its bits in uint16) and the element type.

    Raises:
        ImportModelError: Sizes do not fit, or the external file is not there or outside ``folder``.
        UnsupportedOpError: rlx has no such type.
    """
    where = f"tensor {tensor.name!r}"
    element = element_of(tensor.element, where)
    shape = tuple(int(d) for d in (() if tensor.dims is None else tensor.dims))
    if any(d < 0 for d in shape):
        raise ImportModelError("a dimension is negative", where=where, got=shape)
    if len(shape) > 32:
        raise ImportModelError("too many dimensions", where=where, got=len(shape))
    if math.prod(dim or 1 for dim in shape) > MAX_SIZE:
        raise ImportModelError("a shape that no array can have", where=where, got=shape)
    count = math.prod(shape)
    if element is STRING:
        result = np.array([bytes(s.view) for s in tensor.strings], object)
    elif tensor.location == EXTERNAL:
        result = _external(tensor, element, count, folder, where)
    elif tensor.raw is not None:
        result = from_bytes(tensor.raw.view, element, count, where)
    else:
        result = _from_field(tensor, element, where)
    if result.size != count:
        raise ImportModelError(
            "the elements do not fill the shape",
            where=where,
            got=f"{result.size} elements",
            expected=f"{count} for {shape}",
        )
    return shaped(result, shape), element


def _from_field(tensor: schema.TensorProto, element: Element, where: str) -> Array:
    data = getattr(tensor, element.field)
    if data is None:
        return np.zeros(0, element.numpy)
    array: Array = np.asarray(data)
    if element.name in ("float16", "bfloat16"):
        if array.size and (array.min() < 0 or array.max() > 0xFFFF):
            raise ImportModelError("bits of a 16-bit float", where=where, expected="0 to 65535")
        return array.astype(np.uint16).view(element.numpy)
    if element.name == "uint64":
        return array.view(np.uint64)
    if element is BOOL:
        flags: Array = array != 0
        return flags
    if element.bits:
        count = math.prod(int(d) for d in (() if tensor.dims is None else tensor.dims))
        return unpacked(array.astype(np.uint8), element, count)
    if element.numpy.kind in "iu":
        result = array.astype(element.numpy)
        if not np.array_equal(result.astype(np.int64), array):
            raise ImportModelError(f"a number that {element.name} can't hold", where=where)
        return result
    return array.astype(element.numpy, copy=False)


def _external(
    tensor: schema.TensorProto, element: Element, count: int, folder: Path | None, where: str
) -> Array:
    """Elements in a file beside the model, mapped into memory."""
    if element is STRING or folder is None:
        raise ImportModelError(
            "external data", where=where, hint="load the model by its path: its folder has the data"
        )
    keys = {entry.key: entry.value for entry in tensor.external}
    path = _inside(folder, keys.get("location", ""), where)
    nbytes = element.nbytes(count)
    try:
        offset = int(keys.get("offset", "0"))
        length = int(keys.get("length", str(nbytes)))
        size = path.stat().st_size
    except (ValueError, OSError) as error:
        raise unreadable("external data can't be read", where, error) from None
    if length != nbytes or offset < 0 or offset + length > size:
        raise ImportModelError(
            "external data does not fit",
            where=where,
            got=f"{length} bytes from {offset} of a file of {size}",
            expected=f"{nbytes} bytes",
        )
    if not count:
        return np.zeros(0, element.numpy)
    try:
        with open_regular(path) as file:
            mapped = np.memmap(file, np.uint8, "r", offset, (length,))
    except (ValueError, OSError) as error:
        raise unreadable("external data can't be read", where, error) from None
    return from_bytes(memoryview(mapped.data), element, count, where)


def _inside(folder: Path, location: str, where: str) -> Path:
    """The path of external data, which links must not lead out of the model's folder.

    Raises:
        ImportModelError: It is not a file below ``folder``.
    """
    problem = None
    root = folder.resolve()
    path = root
    if not location or "\0" in location or "\\" in location or location.startswith("/"):
        problem = "not a relative path"
    else:
        try:
            path = (root / location).resolve()
            if not path.is_relative_to(root):
                problem = "outside the model's folder"
            elif not path.is_file():
                problem = _NOT_THERE
        except (OSError, RuntimeError):
            problem = "not a path"
    if problem:
        kind = ModelNotFoundError if problem == _NOT_THERE else ImportModelError
        raise kind(
            describe(
                f"external data: {problem}",
                where=where,
                got=repr(location),
                expected="a file in the model's folder or below",
            )
        )
    return path
