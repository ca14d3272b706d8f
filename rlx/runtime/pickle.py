"""Pickles a ``CompiledGraph`` by content, for other processes: it is compiled again where it is read."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx.backends.base import CompileOptions
from rlx.device.names import Device
from rlx.ir.opdef import Array
from rlx.ir.serialize import parted
from rlx.runtime.state import RuntimeState


class PickledGraph(NamedTuple):
    """The content of a compiled graph, and its settings.

    Attributes:
        graph: The graph without values of params; see ``rlx.ir.serialize.parted``.
        arrays: The arrays that it names.
        device: Where it runs.
        options: How it was compiled.
        params: The values that params have now.
        handles: Inputs that are handles: the kind, and the value.
        feeds: The output that a handle takes after each run.
        extent: The active extent.
        masks: Experts on the device, by layer.
        capture: The number of experts of the routers that are watched.
    """

    graph: dict[str, Any]
    arrays: list[Array]
    device: Device
    options: CompileOptions
    params: dict[str, Array]
    handles: dict[str, tuple[str, Array]]
    feeds: dict[str, int]
    extent: tuple[int, int] | None
    masks: list[Array] | None
    capture: int | None


def pickled(state: RuntimeState) -> PickledGraph:
    """Returns everything that another process needs to make the same graph.

    Raises:
        ClosedError: It is closed.
    """
    state.check_open()
    placement, extent = state.placement, state.binding.extent
    # Params have the values that were set last, which need not be those that are attached to the graph.
    graph, arrays = parted(state.graph, values=False)
    names = [name for name in state.graph.param_names if name not in state.missing]
    capture = placement is not None and placement.capture
    return PickledGraph(
        graph,
        arrays,
        state.target.device,
        state.target.options,
        {name: state.read_param(name) for name in names},
        {
            name: (kind, state.executable.read_input(state.input(name)))
            for name, kind in state.handles.items()
        },
        {state.names[i]: output for i, output in state.binding.feeds},
        None if extent is None else (extent.actual, extent.upper),
        None if placement is None else placement.masks,
        placement.layers[0].experts if placement is not None and capture else None,
    )
