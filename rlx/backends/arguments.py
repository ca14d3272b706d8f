"""The arguments of ``run_slots``: anything that holds an array, as arrays that fit their slots."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import InputError, RlxError, describe
from rlx.ir.opdef import Array


def check_slots(arrays: Sequence[Any], expected: int) -> None:
    """Refuses a wrong number of positional inputs.

    Raises:
        InputError: There are more or fewer than the graph has inputs.
    """
    if len(arrays) != expected:
        raise InputError(
            describe(
                "run_slots takes every input in declaration order, or none",
                got=f"{len(arrays)} arrays",
                expected=f"{expected}, or 0 to run on input_views",
            )
        )


def as_array(value: Any) -> Array:
    """Anything that holds an array, without a copy: ``__array__``, the buffer protocol, or DLPack."""
    import numpy as np

    if isinstance(value, np.ndarray):
        return value if type(value) is np.ndarray else value.view(np.ndarray)
    try:
        if hasattr(value, "__dlpack__") and not hasattr(value, "__array__"):
            return np.from_dlpack(value)
        return np.asarray(value)
    except (ValueError, TypeError, OverflowError, BufferError) as error:
        if isinstance(error, RlxError):
            raise
        text = describe("this makes no array", got=f"{type(value).__name__}: {error}")
        raise InputError(text) from error


def taken(arrays: Sequence[Any], views: Sequence[Array], memory: Sequence[Array]) -> list[Array]:
    """The arguments of a run as arrays that fit their slots and may be copied there in any order.

    Args:
        arrays: The arguments.
        views: The slots.
        memory: What the slots are in: an argument in it would be overwritten before it is read.

    Raises:
        InputError: Wrong shape or dtype; nothing has been written.
    """
    import numpy as np

    check_slots(arrays, len(views))
    found = [as_input(a, view, at) for at, (a, view) in enumerate(zip(arrays, views, strict=True))]
    # Check again: converting an argument may run the caller's code, which can change an earlier array.
    for at, (array, view) in enumerate(zip(found, views, strict=True)):
        as_input(array, view, at)
    return [
        array.copy() if any(np.may_share_memory(array, held) for held in memory) else array
        for array in found
    ]


def as_input(value: Any, view: Array, position: int) -> Array:
    """An argument of ``run_slots`` as an array that fits its slot.

    Raises:
        InputError: Wrong shape or dtype.
    """
    import numpy as np

    array = as_array(value)
    if array.shape != view.shape or not np.can_cast(array.dtype, view.dtype, "same_kind"):
        raise InputError(
            describe(
                f"input {position} does not fit its slot",
                got=f"{array.dtype}{list(array.shape)}",
                expected=f"{view.dtype}{list(view.shape)}",
            )
        )
    return array
