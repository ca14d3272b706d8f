"""Replaces the executable of a graph, after a lost device or for other experts, and restores its settings."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from typing import TYPE_CHECKING

from rlx.compiler.loading import LoadedGraph, load
from rlx.compiler.precomputed_params import ParamTransform
from rlx.compiler.resizable import Resizable
from rlx.errors import CompileError, RlxError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime.exclusive import exclusive
from rlx.runtime.io_binding import extent_of
from rlx.runtime.run import choose_calls
from rlx.runtime.state import RuntimeState, resizable

if TYPE_CHECKING:
    from rlx.passes.dynamic_batch import DynamicRows
    from rlx.runtime.expert_placement import ExpertPlacement


class RecoveryMethods:
    """The method of ``CompiledGraph`` that gets a lost device back."""

    __slots__ = ()
    _state: RuntimeState

    @exclusive
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
        state = self._state
        state.check_open()
        if not state.executable.capabilities.can_be_lost:
            return
        state.executable.discard_device()
        loaded = _loaded_again(state)
        views = state.executable.input_views
        handles = {name: views[state.input(name)] for name in state.handles}
        _replace(state, loaded, state.splits, state.values, handles, state.binding.extent)


def _loaded_again(state: RuntimeState) -> LoadedGraph:
    """Loads a graph on its device once more."""
    if state.sized is None:
        return load(state.lowered, state.target)
    executable = state.sized.renewed()
    assert isinstance(executable, Resizable)
    return LoadedGraph(executable.loaded.lowered, executable, state.precomputed)


def rebuild(
    state: RuntimeState, graph: Graph, split: ParamTransform, placement: ExpertPlacement | None
) -> None:
    """Compiles another graph with the same inputs and params, and the same outputs first, in place of a graph's own.

    Args:
        state: The graph.
        graph: The other graph. Outputs behind those of the first count the experts that a run chooses.
        split: Translates the params of the graph to those of the other one.
        placement: Counts the experts; None where no output is for that.
    """
    from rlx.compiler.lowering import lower

    if state.sized is not None:
        raise CompileError(
            f"graph {state.graph.name!r} has dims",
            expected="a graph of fixed sizes",
            hint="experts are placed in graphs without dims",
        )
    names = set(state.graph.param_names) - state.missing
    values = {name: state.read_param(name) for name in names}
    handles = {name: state.executable.read_input(state.input(name)) for name in state.handles}
    loaded = load(lower(graph, state.target), state.target)
    before = state.lowered, state.extents, state.routers, state.placement
    state.lowered, state.extents = loaded.lowered, {}
    state.routers = tuple(range(len(state.outputs), len(graph.outputs)))
    state.placement = placement
    try:
        extent = state.binding.extent
        if extent is not None:
            extent = extent_of(state, extent.actual, extent.upper)
        _replace(state, loaded, (split,), values, handles, extent)
    except BaseException:
        state.lowered, state.extents, state.routers, state.placement = before
        raise


def _replace(
    state: RuntimeState,
    loaded: LoadedGraph,
    splits: tuple[ParamTransform, ...],
    values: Mapping[str, Array],
    handles: Mapping[str, Array],
    extent: DynamicRows | None,
) -> None:
    """Restores all settings on a new executable of the same graph, and uses it.

    It is closed again when that fails, and the old one stays.
    """
    old, executable, recorder = state.executable, loaded.executable, state.binding.recorder
    binding = state.binding._replace(extent=extent)
    before = state.splits, state.precomputed
    try:
        state.executable, state.splits = executable, splits
        state.sized = resizable(executable)
        state.precomputed = loaded.precomputed
        state.set_params(dict(values))
        for name, array in handles.items():
            executable.write_input(state.input(name), array)
        executable.bind(binding)
    except BaseException:
        state.executable, (state.splits, state.precomputed) = old, before
        executable.close()
        raise
    # The new executable has params of its own: they are no longer shared with clones.
    state.missing = set(state.graph.param_names) - set(values)
    state.values = dict(state.values)
    state.use_binding(binding)
    state.pending.clear()
    choose_calls(state)
    if recorder is not None:
        recorder.begin_counting(executable.moved()._asdict())
    with contextlib.suppress(RlxError):  # what is lost can't be freed, and need not be
        old.close()
