"""Getting a graph back after its device was lost: a new executable with everything the old one was told."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.backends.base import Capabilities, Executable
from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.passes.extent import Extent
from rlx.runtime.build import Lowered, Target, load


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
    _names: tuple[str, ...]
    _target: Target
    _values: dict[str, Array]

    # What CompiledGraph itself has.
    if TYPE_CHECKING:

        def _open(self) -> None: ...

        def _take(self, executable: Executable, missing: set[str]) -> None: ...

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
        self._replace(load(self._lowered, self._target))

    def _replace(self, executable: Executable) -> None:
        """Tells an executable of the same graph all that the old one was told, and takes it."""
        old = self._executable
        for name, value in self._values.items():
            executable.set_param(name, value)
        bound = [self._names.index(name) for name in self._bound]
        for index in bound:
            executable.write_input(index, old.input_views[index])
        executable.set_resident(bound)
        executable.set_feeds(list(self._feeds.items()))
        executable.set_extent(self._extent)
        self._take(executable, set(self._graph.param_names) - set(self._values))
        with contextlib.suppress(RlxError):  # what is lost can't be freed, and need not be
            old.close()

    def _keep(self, name: str, given: Any, value: Array) -> None:
        """Keeps a param's value for ``recover``, apart from an array that its owner may change."""
        if self.capabilities.can_be_lost and self._target.options.keep_params:
            shared = np.asarray(given) is value or np.may_share_memory(value, np.asarray(given))
            self._values[name] = value.copy() if shared and value.flags.writeable else value
