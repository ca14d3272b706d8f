"""Replaces the executable of a graph, after a lost device or for other experts, and restores its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from rlx.backends.base import Executable, set_params
from rlx.compiler.extents import Extents
from rlx.compiler.loading import loaded as load
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.passes.extent import Extent
from rlx.runtime.loaded import Loaded, Part, Wrap
from rlx.runtime.observed import Observed
from rlx.runtime.owning import owned
from rlx.runtime.routed import Placement


class Recovery(Part):
    """The part of ``CompiledGraph`` that replaces its executable.

    Args:
        loaded: The graph.
        observed: Watches runs, also those of the next executable.
    """

    __slots__ = ("_observed",)

    def __init__(self, loaded: Loaded, observed: Observed) -> None:
        super().__init__(loaded)
        self._observed = observed

    @owned
    def recover(self) -> None:
        """Opens the device again after ``DeviceLostError``, and uploads everything again.

        Params have the values that they had; with ``CompileOptions(keep_params=False)`` they have to be
        set again. Handles hold what they were last bound to, since what a device computed is lost with
        it. Feeds and the active extent stay. ``input_views`` and the bound ``run_slots`` are new ones.
        Clones recover each on their own, and share params no longer. Where nothing can be lost (the CPU)
        nothing is done.

        Raises:
            DeviceUnavailableError: The device is not there any more.
            DeviceMemoryError: It has no room.

        Example:
            >>> import numpy as np, rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.input("x", (2,)) + 1.0])
            >>> cg = rlx.compile(g, device="cpu")
            >>> x = np.zeros(2, np.float32)
            >>> try:
            ...     y = cg.run_slots(x)
            ... except rlx.DeviceLostError:
            ...     cg.recover()
            ...     y = cg.run_slots(x)
        """
        loaded = self._loaded
        loaded.open()
        if not loaded.capabilities.can_be_lost:
            return
        loaded.executable.abandon()
        executable = loaded.wrap(load(loaded.lowered, loaded.target)[1])
        self._replace(executable, loaded.values, loaded.extent)

    def rebuild(self, graph: Graph, wrap: Wrap, placement: Placement) -> None:
        """Compiles another graph with the same inputs, outputs and params in this one's place.

        Args:
            graph: The graph.
            wrap: Hides what the caller of runs does not know of.
            placement: Where its experts are.
        """
        loaded = self._loaded
        executable = loaded.executable
        held = set(loaded.graph.param_names) - loaded.missing
        values = {name: executable.read_param(name) for name in held}
        handles = {name: executable.read_input(loaded.input(name)) for name in loaded.bound}
        from rlx.compiler.lowering import lower

        lowered, made = load(lower(graph, loaded.target), loaded.target)
        extents, extent = Extents(lowered, loaded.target), loaded.extent
        if extent is not None:
            extent = extents.of(extent.actual, extent.upper)
        self._replace(wrap(made), values, extent, handles)
        loaded.lowered, loaded.extents, loaded.extent = lowered, extents, extent
        loaded.wrap, loaded.placement = wrap, placement

    def _replace(
        self,
        executable: Executable,
        values: Mapping[str, Array],
        extent: Extent | None,
        handles: Mapping[str, Array] | None = None,
    ) -> None:
        """Restores all settings on a new executable of the same graph, and uses it.

        It is closed again when that fails, and the old one stays.
        """
        loaded = self._loaded
        again = self._observed.suspend()
        old = loaded.executable
        bound = {name: loaded.input(name) for name in loaded.bound}
        try:
            set_params(executable, values)
            for name, index in bound.items():
                held = old.input_views[index] if handles is None else handles[name]
                executable.write_input(index, held)
            executable.set_resident(list(bound.values()))
            executable.set_feeds(list(loaded.feeds.items()))
            executable.set_extent(extent)
        except BaseException:
            executable.close()
            raise
        # The new executable has params of its own: they are no longer shared with clones.
        loaded.missing = set(loaded.graph.param_names) - set(values)
        loaded.values = dict(loaded.values)
        loaded.use(executable)
        self._observed.resume(again)
        with contextlib.suppress(RlxError):  # what is lost can't be freed, and need not be
            old.close()
