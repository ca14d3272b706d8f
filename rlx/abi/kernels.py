"""All kernels by name."""

from __future__ import annotations

from collections.abc import Iterable

from rlx.abi import (
    attention,
    control,
    elementwise,
    movement,
    products,
    recurrent,
    resize,
    rows,
    selection,
    spectra,
    windows,
)
from rlx.abi.signature import Signature

_FAMILIES = (
    attention, control, elementwise, movement, products, recurrent, resize, rows, selection, spectra, windows
)  # fmt: skip

# Addresses that the record of a call has place for (call.h).
MAX_INPUTS, MAX_OUTPUTS = 8, 4


def collected(listed: Iterable[Signature]) -> dict[str, Signature]:
    """Signatures by name.

    Raises:
        ValueError: Two have one name, or no call could fulfil one. rlx is then neither built nor imported.
    """
    results: dict[str, Signature] = {}
    for item in listed:
        if item.name in results:
            raise ValueError(f"two kernels are named {item.name}")
        if len(item.reads) > MAX_INPUTS or len(item.writes) + len(item.scratch) > MAX_OUTPUTS:
            raise ValueError(f"{item.name} has more operands than the record of a call")
        names = [
            name for key, each in item.fields.items() for name in getattr(each, "fields", (key,))
        ]
        if len(set(names)) != len(names):
            raise ValueError(f"{item.name} has two fields of one name")
        if "itemsize" in names:
            raise ValueError(
                f"{item.name} has a field itemsize, which formulas read as the bytes of a T"
            )
        if item.parallel is not None and item.parallel.rows and item.parallel.rows not in item.flat:
            raise ValueError(
                f"{item.name} has no field {item.parallel.rows} whose rows threads share"
            )
        results[item.name] = item
    return results


KERNELS = collected(kernel for family in _FAMILIES for kernel in family.KERNELS)

# Words of the struct of a kernel whose rows threads share, at most.
MAX_ROW_WORDS = max(
    kernel.words
    for kernel in KERNELS.values()
    if kernel.parallel is not None and kernel.parallel.rows
)
