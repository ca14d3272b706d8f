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
    spectra,
    windows,
)
from rlx.abi.signature import KernelSignature

_FAMILIES = (
    attention, control, elementwise, movement, products, recurrent, resize, rows, spectra, windows
)  # fmt: skip

# Addresses that the record of a call has place for (call.h).
MOST_INPUTS, MOST_OUTPUTS = 8, 4


def collected(listed: Iterable[KernelSignature]) -> dict[str, KernelSignature]:
    """Signatures by name.

    Raises:
        ValueError: Two have one name, or no call could fulfil one. rlx is then neither built nor imported.
    """
    found: dict[str, KernelSignature] = {}
    for one in listed:
        if one.name in found:
            raise ValueError(f"two kernels are named {one.name}")
        if len(one.reads) > MOST_INPUTS or len(one.writes) + len(one.scratch) > MOST_OUTPUTS:
            raise ValueError(f"{one.name} has more operands than the record of a call")
        names = [
            name for key, each in one.fields.items() for name in getattr(each, "fields", (key,))
        ]
        if len(set(names)) != len(names):
            raise ValueError(f"{one.name} has two fields of one name")
        if "itemsize" in names:
            raise ValueError(
                f"{one.name} has a field itemsize, which formulas read as the bytes of a T"
            )
        if one.parallel is not None and one.parallel.rows and one.parallel.rows not in one.flat:
            raise ValueError(
                f"{one.name} has no field {one.parallel.rows} whose rows threads share"
            )
        found[one.name] = one
    return found


KERNELS = collected(one for family in _FAMILIES for one in family.KERNELS)

# Words of the struct of a kernel whose rows threads share, at most.
MOST_ROW_WORDS = max(
    one.words for one in KERNELS.values() if one.parallel is not None and one.parallel.rows
)
