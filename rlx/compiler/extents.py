"""A lowered graph on fewer rows: worked out once for each number of rows."""

from __future__ import annotations

from rlx.compiler.lowered import Lowered
from rlx.compiler.target import Target
from rlx.lru import Lru
from rlx.passes.extent import Extent

# Numbers of rows that are remembered.
MOST_EXTENTS = 32


class Extents:
    """What runs of a graph do on fewer rows; clones share it.

    Args:
        lowered: The graph.
        target: What it is for.
    """

    def __init__(self, lowered: Lowered, target: Target) -> None:
        self._lowered, self._target = lowered, target
        self._known: Lru[tuple[int, int], Extent] = Lru(MOST_EXTENTS)

    def of(self, actual: int, upper: int) -> Extent:
        """What runs do on ``actual`` of ``upper`` rows."""
        found = self._known.get((actual, upper))
        if found is None:
            from rlx.compiler.lowering import fewer_rows

            found = fewer_rows(self._lowered, self._target, actual, upper)
            self._known.put((actual, upper), found)
        return found
