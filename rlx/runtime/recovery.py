"""Getting a graph back after its device was lost: a new executable with everything the old one was told."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx._ext.owner import Owner
from rlx.backends.base import Capabilities, Executable, set_params
from rlx.backends.recorder import Recorder
from rlx.compiler.build import Lowered, fewer_rows, loaded, lower
from rlx.compiler.target import Target
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.passes.extent import Extent
from rlx.runtime.owning import owned
from rlx.runtime.residency import Placement
from rlx.runtime.watched import WatchedExecutable


class Recovery:
    """The part of ``CompiledGraph`` that replaces its executable."""

    __slots__ = ()

    capabilities: Capabilities
    _bound: dict[str, str]
    _executable: Executable
    _extent: Extent | None
    _feeds: dict[int, int]
    _graph: Graph
    _lowered: Lowered
    _missing: set[str]
    _names: tuple[str, ...]
    _owner: Owner
    _target: Target
    _values: dict[str, Array]
    _wrap: Callable[[Executable], Executable]

    # What CompiledGraph itself has.
    if TYPE_CHECKING:

        def _open(self) -> None: ...

        def _exchange(
            self,
            lowered: Lowered,
            wrap: Callable[[Executable], Executable],
            extent: Extent | None,
            placement: Placement,
        ) -> None: ...

        def _unwatch(self) -> None: ...

        def _watch(self, recorder: Recorder, moved: Mapping[str, int] | None = None) -> None: ...

        def _take(self, executable: Executable, missing: set[str]) -> None: ...

    @owned
    def recover(self) -> None:
        """Takes the device anew after ``DeviceLostError``, and uploads everything again.

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
        self._open()
        if not self.capabilities.can_be_lost:
            return
        self._executable.abandon()
        executable = self._wrap(loaded(self._lowered, self._target)[1])
        self._replace(executable, self._values, self._extent)

    def _rebuild(
        self, graph: Graph, wrap: Callable[[Executable], Executable], placement: Placement
    ) -> None:
        """Compiles another graph with the same inputs, outputs and params in this one's place."""
        held = set(self._graph.param_names) - self._missing
        values = {name: self._executable.read_param(name) for name in held}
        handles = {
            name: self._executable.read_input(self._names.index(name)) for name in self._bound
        }
        lowered, made = loaded(lower(graph, self._target), self._target)
        executable = wrap(made)
        extent = self._extent
        if extent is not None:
            extent = fewer_rows(lowered, self._target, extent.actual, extent.upper)
        self._replace(executable, values, extent, handles)
        self._exchange(lowered, wrap, extent, placement)

    def _replace(
        self,
        executable: Executable,
        values: Mapping[str, Array],
        extent: Extent | None,
        handles: Mapping[str, Array] | None = None,
    ) -> None:
        """Tells an executable of the same graph all that the old one was told, and takes it.

        It is closed again when that fails, and the old one stays.
        """
        watched = self._executable
        again = (
            (watched.recorder, watched.moved()) if isinstance(watched, WatchedExecutable) else None
        )
        with contextlib.suppress(RlxError):  # what is lost may fail again
            self._unwatch()
        old = self._executable
        bound = {name: self._names.index(name) for name in self._bound}
        try:
            set_params(executable, values)
            for name, index in bound.items():
                held = old.input_views[index] if handles is None else handles[name]
                executable.write_input(index, held)
            executable.set_resident(list(bound.values()))
            executable.set_feeds(list(self._feeds.items()))
            executable.set_extent(extent)
        except BaseException:
            executable.close()
            raise
        self._take(executable, set(self._graph.param_names) - set(values))
        if again is not None:
            self._watch(*again)
        with contextlib.suppress(RlxError):  # what is lost can't be freed, and need not be
            old.close()

    def _keep(self, name: str, given: Any, value: Array) -> None:
        """Keeps a param's value for ``recover``, apart from an array that its owner may change."""
        if self.capabilities.can_be_lost and self._target.options.keep_params:
            shared = np.asarray(given) is value or np.may_share_memory(value, np.asarray(given))
            self._values[name] = value.copy() if shared and value.flags.writeable else value
