"""Functions for XLA in place of references that do not trace or are slow, by family of operations."""

from __future__ import annotations

from rlx_xla.hand import (
    attention,
    control,
    elementwise,
    movement,
    products,
    recurrent,
    rows,
    selection,
    spectra,
    windows,
)
from rlx_xla.references import REBOUND

_FAMILIES = (
    attention,
    control,
    elementwise,
    movement,
    products,
    recurrent,
    rows,
    selection,
    spectra,
    windows,
)
# The functions by operation. Every other operation traces as its reference is written.
BY_HAND = {op: function for family in _FAMILIES for op, function in family.RECORDS.items()}


def replace_references() -> None:
    """Puts these functions in the place of references."""
    for family in _FAMILIES:
        REBOUND.replace(getattr(family, "INSTEAD", {}), family.RECORDS)
