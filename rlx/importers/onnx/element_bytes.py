"""From the bytes of a tensor to its elements."""

from __future__ import annotations

import math
import sys
from typing import Any

import numpy as np

from rlx.errors import ImportModelError
from rlx.importers.onnx.elements import BOOL, Element

Array = np.ndarray[Any, Any]


def raw_array(view: memoryview, element: Element, shape: tuple[int, ...]) -> Array:
    """The elements of a tensor that holds them as bytes, as ``to_array`` gives them.

    Raises:
        ImportModelError: There are more or fewer bytes than the shape has.
    """
    return shaped(from_bytes(view, element, math.prod(shape), "a weight"), shape)


def shaped(array: Array, shape: tuple[int, ...]) -> Array:
    """Elements in a shape, for reading only."""
    array = array.reshape(shape)
    array.setflags(write=False)
    return array


def from_bytes(view: memoryview, element: Element, count: int, where: str) -> Array:
    """Elements as bytes hold them, in one row; a view of the bytes wherever that can be.

    Raises:
        ImportModelError: There are more or fewer bytes.
    """
    if len(view) != element.nbytes(count):
        raise ImportModelError(
            "the bytes do not fill the shape",
            where=where,
            got=f"{len(view)} bytes",
            expected=f"{element.nbytes(count)} for {count} of {element.name}",
        )
    if element.bits:
        return unpacked(np.frombuffer(view, np.uint8), element, count)
    if element is BOOL:
        flags: Array = np.frombuffer(view, np.uint8) != 0
        return flags
    result = np.frombuffer(view, element.numpy.newbyteorder("<"))
    # A view of the file, also where it is not aligned: weights are copied when they are set, and not before.
    return result if sys.byteorder == "little" else result.astype(element.numpy)


def unpacked(data: Array, element: Element, count: int) -> Array:
    """Elements of which several share a byte, the first in its lowest bits, as a byte each."""
    shifts = np.arange(0, 8, element.bits, dtype=np.uint8)
    flat = (data[:, None] >> shifts).ravel()[:count] & ((1 << element.bits) - 1)
    if element.numpy == np.uint8:
        return np.asarray(flat, np.uint8)
    # The highest of the bits is the sign.
    spare = 8 - element.bits
    return (flat << spare).astype(np.uint8).view(np.int8) >> spare
