"""Changes of the experts that are placed or counted: the graph is compiled again with other params and outputs."""

from __future__ import annotations

from typing import Any

import numpy as np

from rlx.errors import InputError
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.opdef import Array
from rlx.ir.verify import verify
from rlx.passes.moe_placement import ExpertSplit, Layer, expert_layers, place_experts, with_routing
from rlx.runtime.expert_placement import ExpertPlacement, SplitParams
from rlx.runtime.recovery import rebuild
from rlx.runtime.state import RuntimeState


def set_same_experts(state: RuntimeState, mask: Any) -> None:
    """See ``CompiledGraph.set_moe_resident_experts``."""
    layers = _layers(state)
    set_experts(state, None if mask is None else [mask] * len(layers))


def set_experts(state: RuntimeState, masks: Any) -> None:
    """See ``CompiledGraph.set_moe_resident_experts_per_layer``."""
    layers = _layers(state)
    arrays = None if masks is None else [np.asarray(mask) for mask in masks]
    if arrays is not None:
        got = [(mask.dtype.kind, mask.shape) for mask in arrays]
        if got != [("b", (layer.experts,)) for layer in layers]:
            raise InputError(
                "the masks do not fit the layers",
                got=", ".join(f"{mask.dtype}{list(mask.shape)}" for mask in arrays),
                expected=", ".join(f"bool[{layer.experts}]" for layer in layers),
            )
    _place(state, arrays, state.placement is not None and state.placement.capture)


def capture(state: RuntimeState, experts: int) -> bool:
    """See ``CompiledGraph.enable_moe_topk_capture``."""
    state.check_open()
    placement = state.placement
    if experts not in {layer.experts for layer in expert_layers(state.graph)}:
        return False
    if placement is None or not placement.capture:
        _place(state, None if placement is None else placement.masks, True)
    return True


def _layers(state: RuntimeState) -> list[Layer]:
    state.check_open()
    layers = expert_layers(state.graph)
    if not layers:
        raise InputError(
            f"graph {state.graph.name!r} has no mixture of experts",
            hint="its layers are made of g.grouped_matmul(x, w, idx)",
        )
    return layers


def _place(state: RuntimeState, masks: list[Array] | None, capture: bool) -> None:
    old, graph = state.placement, state.graph
    placement = ExpertPlacement(expert_layers(graph), masks, capture)
    placement.reset()
    if old is not None and masks is not None and masks is old.masks:
        placement.counts, placement.runs = old.counts, old.runs
    counts = masks is not None or capture
    splits: dict[str, ExpertSplit] = {}
    if counts:
        graph = with_routing(graph)
    kernel_set = state.target.kernel_set
    if masks is not None and kernel_set and not KERNEL_SETS[kernel_set].on_host:
        graph, splits = place_experts(graph, masks)
    verify(graph)
    rebuild(state, graph, SplitParams(splits), placement if counts else None)
