"""What rlx does otherwise than ONNX Runtime, and why; docs/explanation/differences.md says it to users."""

import re
from typing import NamedTuple


class Difference(NamedTuple):
    """A difference that is accepted.

    Attributes:
        outcome: "differ" or "only rlx runs".
        ops: Operators; empty for all.
        says: Found in the text of the outcome.
        why: The reason.
    """

    outcome: str
    ops: tuple[str, ...]
    says: str
    why: str


TABLE: tuple[Difference, ...] = ()


def accepted(case, outcome, text):
    """The row that names an outcome, or None."""
    for row in TABLE:
        named = not row.ops or any(op in row.ops for op in case.ops)
        if row.outcome == outcome and named and re.search(row.says, text):
            return row
    return None
