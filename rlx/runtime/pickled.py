"""Pickles a ``CompiledGraph`` by content, for other processes: it is compiled again where it is read."""

from __future__ import annotations

from typing import Any, NamedTuple

from rlx import late
from rlx.backends.base import CompileOptions
from rlx.device.names import Device
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.serialize import joined, parted
from rlx.runtime.loaded import Part
from rlx.runtime.owning import owned


class State(NamedTuple):
    """What a compiled graph is made of, and what it was told.

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


class Pickled(Part):
    """The part of ``CompiledGraph`` that hands it over."""

    __slots__ = ()

    @owned
    def state(self) -> State:
        """What it takes to make the same graph in another process.

        Raises:
            ClosedError: It is closed.
        """
        loaded = self._loaded
        loaded.open()
        executable, placement = loaded.executable, loaded.placement
        # Params have the values that were set last, which need not be those that are attached to the graph.
        graph, arrays = parted(loaded.graph, values=False)
        held = [name for name in loaded.graph.param_names if name not in loaded.missing]
        extent = loaded.extent
        return State(
            graph,
            arrays,
            loaded.target.device,
            loaded.target.options,
            {name: executable.read_param(name) for name in held},
            {
                name: (kind, executable.read_input(loaded.input(name)))
                for name, kind in loaded.bound.items()
            },
            {loaded.names[at]: output for at, output in loaded.feeds.items()},
            None if extent is None else (extent.actual, extent.upper),
            placement.masks,
            placement.layers[0].experts if placement.capture else None,
        )


def restored(*fields: Any) -> Any:
    """Compiles the graph of a ``State``, and tells it what the other one was told.

    Raises:
        DeviceUnavailableError: This machine has no such device.
        RlxError: As ``rlx.compile``.
    """
    state = State(*fields)
    graph = joined(Graph, state.graph, state.arrays)
    made = late.provided("compile")(graph, state.device, state.params, state.options)
    try:
        for name, (kind, array) in state.handles.items():
            bind = made.bind_gpu_handle if kind == "device" else made.bind_handle
            bind(name, array)
        for name, output in state.feeds.items():
            made.set_gpu_handle_feed(name, output)
        if state.masks is not None:
            made.set_moe_resident_experts_per_layer(state.masks)
        if state.capture is not None:
            made.enable_moe_topk_capture(state.capture)
        if state.extent is not None:
            made.set_active_extent(state.extent)
    except BaseException:
        made.close()
        raise
    return made
