"""Sizes that are known only when a graph runs."""

from rlx.sizes.dim import LARGEST, Dim, dims_of
from rlx.sizes.expressions import (
    Size,
    SizeExpr,
    bound,
    ceil_divide,
    flag,
    hinted,
    largest,
    pinned,
    positive,
    smallest,
    starts,
    value_of,
)
from rlx.sizes.guards import (
    Assumptions,
    Guard,
    assuming_nothing,
    current,
    deciding,
    divides,
    general,
    inferring,
    is_steady,
    may_exceed,
    preferring,
    surely,
)
from rlx.sizes.ratio import Ratio, spelling

__all__ = [
    "LARGEST", "Assumptions", "Dim", "Guard", "Ratio", "Size", "SizeExpr", "assuming_nothing", "bound", "ceil_divide", "current",
    "deciding", "dims_of", "divides", "flag", "general", "hinted", "inferring", "is_steady", "may_exceed", "largest", "pinned", "positive", "preferring", "smallest",
    "spelling", "starts", "surely", "value_of",
]  # fmt: skip
