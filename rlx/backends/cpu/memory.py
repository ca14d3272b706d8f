"""Memory of the CPU: aligned bytes, and arrays in them."""

from __future__ import annotations

import mmap

import numpy as np

from rlx.errors import DeviceMemoryError
from rlx.ir.opdef import Array, TensorType

_ALIGNMENT = 256
# Bytes of a huge page, which one entry of the processor's address cache covers. Where the system gives them to who asks,
# memory from half of that on asks: with pages of 4 KiB the speed of a kernel depends on where they happen to lie.
_HUGE = 1 << 21
_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)


def aligned(nbytes: int) -> Array:
    """Zeroed bytes whose address is a multiple of 256, in huge pages where they fill at least half of one.

    Raises:
        DeviceMemoryError: There are not as many.
    """
    try:
        if _ADVICE is not None and nbytes >= _HUGE // 2:
            return _huge(nbytes, _ADVICE)
        block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError, OSError, OverflowError) as error:
        raise DeviceMemoryError(
            "the CPU has no room for a graph", got=f"{nbytes} bytes", hint=str(error)
        ) from None
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def _huge(nbytes: int, advice: int) -> Array:
    # A huge page that would be filled by less than half stays small pages.
    pages = (nbytes + _HUGE // 2) // _HUGE
    # Private: what a forked process writes is its own.
    region = mmap.mmap(-1, (pages + 1) * _HUGE + nbytes % _HUGE, flags=mmap.MAP_PRIVATE)
    block: Array = np.frombuffer(region, np.uint8)
    start = -block.ctypes.data % _HUGE
    region.madvise(advice, start, pages * _HUGE)
    return block[start : start + nbytes]


def view_of(memory: Array, offset: int, type: TensorType) -> Array:
    """Returns a view of the value at an offset of some memory."""
    part: Array = memory[offset : offset + type.nbytes].view(type.dtype.numpy)
    return part.reshape(type.shape)
