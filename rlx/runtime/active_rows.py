"""The active extent: runs on fewer rows than a graph was compiled for."""

from __future__ import annotations

import operator
from typing import Any

from rlx.errors import InputError, describe
from rlx.runtime.loaded import Part
from rlx.runtime.owning import owned


class ActiveRows(Part):
    """The part of ``CompiledGraph`` that sets the active extent."""

    __slots__ = ()

    @owned
    def set_active_extent(self, extent: tuple[int, int] | None) -> None:
        """Makes later runs compute fewer rows than the graph was compiled for.

        Each input whose leading axis is ``upper`` counts as ``actual`` rows, and so does all that is
        computed from them row by row; arrays keep their shapes. The caller promises that rows are
        independent. Rows past ``actual`` of inputs are not read where that saves something, and those
        of outputs are unspecified. Nothing is compiled on a GPU: it dispatches fewer workgroups. Where
        an op allows no other number of rows the whole is computed; ``as_text("schedule")`` says so.

        Args:
            extent: ``(actual, upper)``; None computes everything again.

        Raises:
            InputError: It is no pair of whole numbers, ``actual`` is not in 0 to ``upper``, or no
                input has ``upper`` rows.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (8, 2)) * 2.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> cg.set_active_extent((3, 8))
            >>> cg.run({"x": np.ones((8, 2), np.float32)})[0][:3].tolist()
            [[2.0, 2.0], [2.0, 2.0], [2.0, 2.0]]
        """
        loaded = self._loaded
        loaded.open()
        found = None
        if extent is not None:
            actual, upper = _rows(extent)
            leading = {loaded.graph.named(name).shape[:1] for name in loaded.names}
            if not 0 <= actual <= upper or (upper,) not in leading:
                sizes = sorted(shape[0] for shape in leading if shape)
                raise InputError(
                    describe(
                        "no such extent",
                        got=f"{actual} of {upper} rows",
                        expected=f"0 to upper, and an upper of {sizes or 'no input with rows'}",
                        hint="upper is the leading axis of the inputs that hold rows",
                    )
                )
            if actual < upper:
                found = loaded.extents.of(actual, upper)
        loaded.executable.set_extent(found)
        loaded.extent = found


def _rows(extent: Any) -> tuple[int, int]:
    try:
        actual, upper = (operator.index(count) for count in extent)
    except (TypeError, ValueError):
        text = describe("not an extent", got=repr(extent), expected="(actual, upper) or None")
        raise InputError(text) from None
    return actual, upper
