"""Memory of the CPU: aligned bytes, and arrays in them."""

from __future__ import annotations

import numpy as np

from rlx.errors import DeviceMemoryError, describe
from rlx.ir.opdef import Array, TensorType

_ALIGNMENT = 256


def aligned(nbytes: int) -> Array:
    """Zeroed bytes whose address is a multiple of 256.

    Raises:
        DeviceMemoryError: There are not as many.
    """
    try:
        block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError) as error:
        raise DeviceMemoryError(
            describe("the CPU has no room for a graph", got=f"{nbytes} bytes", hint=str(error))
        ) from None
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def view_of(memory: Array, offset: int, type: TensorType) -> Array:
    """The value that stands at an offset of some memory."""
    part: Array = memory[offset : offset + type.nbytes].view(type.dtype.numpy)
    return part.reshape(type.shape)
