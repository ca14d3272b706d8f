"""Numbers and arrays as operands: the dtype that they take on beside a node."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import DTypeError, caller
from rlx.ir.dtype import DType
from rlx.ir.extended import plain
from rlx.ir.opdef import Array


def held_as(value: Any, like: DType, where: str) -> Array:
    """A number or an array as an array of a dtype; bf16 is held as f32.

    Raises:
        DTypeError: The value can't be held by ``like`` without loss of kind.
    """
    array = plain(np.asarray(value))
    wanted = np.dtype(np.float32) if like is DType.BF16 else like.numpy
    ok = np.can_cast(array.dtype, wanted, "same_kind") or (
        array.dtype.kind in "iu" and like.is_float
    )
    if isinstance(value, (bool, int, float)) and not ok:
        ok = array.dtype.kind in "iub" and wanted.kind in "iu"
    with np.errstate(over="ignore"):
        converted = array.astype(wanted) if ok else array
    exact = array.dtype.kind != "i" or wanted.kind not in "iu" or np.all(converted == array)
    if not ok or not exact:
        raise DTypeError(
            f"[{where}] operand can't become {like}",
            where=caller(),
            got=f"{value!r:.60} of dtype {array.dtype}",
            expected=f"a value that {like} can hold",
            hint="make it with g.constant and add g.cast",
        )
    return converted
