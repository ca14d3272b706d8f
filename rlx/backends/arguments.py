"""Arguments of a run: anything that holds an array, converted to arrays of the declared shape and dtype."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.errors import InputError, RlxError
from rlx.ir.casting import check_array, converted
from rlx.ir.extended import bits, name_of, plain
from rlx.ir.opdef import Array


def check_slots(arrays: Sequence[Any], expected: int) -> None:
    """Refuses a wrong number of positional inputs.

    Raises:
        InputError: There are more or fewer than the graph has inputs.
    """
    if len(arrays) != expected:
        raise InputError(
            "run_slots takes every input in declaration order, or none",
            got=f"{len(arrays)} arrays",
            expected=f"{expected}, or 0 to run on input_views",
        )


def as_array(value: Any) -> Array:
    """Returns anything that holds an array as an array, without a copy: ``__array__``, the buffer protocol, or DLPack.

    Numbers of ml_dtypes, which NumPy lacks, are copied to a dtype that holds them.
    """
    result = _as_array(value)
    return plain(result) if result.dtype.isbuiltin == 2 else result


def _as_array(value: Any) -> Array:
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
        raise InputError(
            "this can't be converted to an array", got=f"{type(value).__name__}: {error}"
        ) from error


def check_args(arrays: Sequence[Any], views: Sequence[Array]) -> list[Array]:
    """Returns positional arguments of a run as arrays of the shapes and dtypes of views, in C order.

    Args:
        arrays: The arguments.
        views: Arrays of the shapes and dtypes of the inputs.

    Raises:
        InputError: A wrong count, shape or dtype.
    """
    check_slots(arrays, len(views))
    pairs = list(zip(arrays, views, strict=True))
    converted = [as_input(value, view, i) for i, (value, view) in enumerate(pairs)]
    # Converting an argument may run the caller's code, which can change an earlier array: all are checked again.
    return [
        contiguous(array, view, i)
        for i, (array, view) in enumerate(zip(converted, views, strict=True))
    ]


def copy_if_overlapping(value: Array, views: Sequence[Array]) -> Array:
    """Returns an array, or a copy if it may share memory with a view; most arrays have memory of their own."""
    import numpy as np

    for view in views:
        if value is view or (value.base is not None and np.may_share_memory(value, view)):
            return value.copy()
    return value


def as_input(value: Any, view: Array, position: int) -> Array:
    """Returns an argument of ``run_slots`` as an array of the shape and dtype of its slot, in any strides.

    Raises:
        InputError: Wrong shape or dtype, or a value is out of range.
    """
    if view.dtype == "u2" and name_of(getattr(value, "dtype", None)) == "bfloat16":
        value = bits(_as_array(value))
    array, where = as_array(value), f"input {position}"
    check_array(array, view.shape, str(view.dtype), where)
    return converted(array, view.dtype, where)


def contiguous(array: Array, view: Array, position: int) -> Array:
    """Returns a result of ``as_input`` in C order and aligned.

    Raises:
        InputError: It has changed and does not fit any more.
    """
    import numpy as np

    return np.require(as_input(array, view, position), None, ["C", "A"])
