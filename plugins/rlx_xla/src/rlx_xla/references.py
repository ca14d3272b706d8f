"""The references of all operations, with JAX in place of NumPy."""

from __future__ import annotations

from rlx.plugin import Rebound
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
from rlx_xla.space import Space

_FAMILIES = (attention, control, elementwise, movement, products, recurrent, rows, spectra, windows)
# What is written by hand, by operation; every other one traces as its reference is written.
BY_HAND = {op: function for family in _FAMILIES for op, function in family.RECORDS.items()}
_INSTEAD = {
    name: function
    for family in _FAMILIES
    for name, function in getattr(family, "INSTEAD", {}).items()
}
REBOUND = Rebound(Space(), _INSTEAD, BY_HAND)
