"""Pickles a ``CompiledGraph`` by content, for other processes: it is compiled again where it is read."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx.backends.base import CompileOptions
from rlx.device.names import Device
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.serialize import joined, parted
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
        {state.names[index]: output for index, output in state.binding.feeds},
        None if extent is None else (extent.actual, extent.upper),
        None if placement is None else placement.masks,
        placement.layers[0].experts if placement is not None and capture else None,
    )


def restored(*fields: Any) -> Any:
    """Compiles a pickled graph and restores its settings.

    Args:
        *fields: Those of ``PickledGraph``.


    Raises:
        DeviceUnavailableError: This machine has no such device.
        RlxError: As ``rlx.compile``.
    """
    from rlx.runtime.session import compile

    state = PickledGraph(*fields)
    graph = joined(Graph, state.graph, state.arrays)
    compiled = compile(graph, state.device, state.params, state.options)
    try:
        for name, (kind, array) in state.handles.items():
            bind = compiled.bind_gpu_handle if kind == "device" else compiled.bind_handle
            bind(name, array)
        for name, output in state.feeds.items():
            compiled.set_gpu_handle_feed(name, output)
        if state.masks is not None:
            compiled.set_moe_resident_experts_per_layer(state.masks)
        if state.capture is not None:
            compiled.enable_moe_topk_capture(state.capture)
        if state.extent is not None:
            compiled.set_active_extent(state.extent)
    except BaseException:
        compiled.close()
        raise
    return compiled
