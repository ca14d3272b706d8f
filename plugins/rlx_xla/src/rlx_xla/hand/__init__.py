"""What is written by hand for XLA, by family of operations: where the reference does not trace, or is slow."""

from __future__ import annotations

from rlx_xla.hand import (
    attention,
    control,
    elementwise,
    movement,
    products,
    recurrent,
    rows,
    spectra,
    windows,
)
from rlx_xla.references import REBOUND

_FAMILIES = (attention, control, elementwise, movement, products, recurrent, rows, spectra, windows)
# What is written by hand, by operation; every other one traces as its reference is written.
BY_HAND = {op: function for family in _FAMILIES for op, function in family.RECORDS.items()}


def replace_references() -> None:
    """Has graphs traced by these functions."""
    for family in _FAMILIES:
        REBOUND.replace(getattr(family, "INSTEAD", {}), family.RECORDS)
