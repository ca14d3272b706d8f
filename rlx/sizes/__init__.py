"""Sizes that are known only when a graph runs."""

from rlx.sizes.dim import Dim, dims_of
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
from rlx.sizes.guards import Assumptions, Guard, current, deciding, inferring, surely
from rlx.sizes.ratio import Ratio, spelling

__all__ = [
    "Assumptions", "Dim", "Guard", "Ratio", "Size", "SizeExpr", "bound", "ceil_divide", "current",
    "deciding", "dims_of", "flag", "hinted", "inferring", "largest", "pinned", "positive", "smallest", "spelling", "starts",
    "surely", "value_of",
]  # fmt: skip
