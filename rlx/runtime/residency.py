"""Placing, watching and counting the experts of a mixture, on any device."""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from rlx.backends.base import Executable
from rlx.errors import InputError, describe
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.opdef import Array
from rlx.ir.verify import verify
from rlx.passes.place_experts import Layer, Split, place_experts, with_routing
from rlx.runtime.loaded import Loaded, Part
from rlx.runtime.owning import owned
from rlx.runtime.recovery import Recovery
from rlx.runtime.routed import MoeResidencyStats, Placement, Routed


class Experts(Part):
    """The part of ``CompiledGraph`` that deals with mixtures of experts.

    A mixture is found by its ``grouped_matmul`` nodes: those that use the same choice of experts are one
    layer. Changing what is placed or watched compiles the graph again, with all that it was told.

    Args:
        loaded: The graph.
        recovery: Replaces its executable.
    """

    __slots__ = ("_recovery",)

    def __init__(self, loaded: Loaded, recovery: Recovery) -> None:
        super().__init__(loaded)
        self._recovery = recovery

    @owned
    def set_moe_resident_experts(self, mask: Any) -> None:
        """Chooses, for all layers alike, the experts whose weights are on the device.

        See ``set_moe_resident_experts_per_layer``.

        Args:
            mask: A bool per expert; None brings all to the device.
        """
        layers = self._layers()
        self._place_masks(None if mask is None else [mask] * len(layers))

    @owned
    def set_moe_resident_experts_per_layer(self, masks: Any) -> None:
        """Chooses the experts whose weights are on the device; the others are computed on the host.

        On a GPU the weights of the others take no device memory: rows that choose them are brought to
        the host, multiplied there, and brought back. On the CPU all weights are where they were, and
        tokens are only counted. Outputs do not change.

        Args:
            masks: For each layer, in the order of the graph, a bool per expert; None brings all to the
                device and ends the counting.

        Raises:
            InputError: The graph has no mixture of experts, or a mask has not one bool per expert.
            GraphError: The weights of a layer are computed, or shared with something else.
        """
        self._place_masks(masks)

    def _place_masks(self, masks: Any) -> None:
        layers = self._layers()
        held = None if masks is None else [np.asarray(mask) for mask in masks]
        if held is not None:
            got = [(mask.dtype.kind, mask.shape) for mask in held]
            if got != [("b", (layer.experts,)) for layer in layers]:
                raise InputError(
                    describe(
                        "the masks do not fit the layers",
                        got=", ".join(f"{mask.dtype}{list(mask.shape)}" for mask in held),
                        expected=", ".join(f"bool[{layer.experts}]" for layer in layers),
                    )
                )
        self._place(held, self._loaded.placement.capture)

    @owned
    def enable_moe_topk_capture(self, num_experts: int) -> bool:
        """Keeps the experts that the routers choose, for ``take_moe_topk_capture``.

        Args:
            num_experts: How many experts the layers have.

        Returns:
            Whether the graph has layers with so many experts; without, nothing changes.
        """
        self._loaded.open()
        if num_experts not in {layer.experts for layer in self._loaded.placement.layers}:
            return False
        if not self._loaded.placement.capture:
            self._place(self._loaded.placement.masks, True)
        return True

    @owned
    def take_moe_topk_capture(self) -> list[Array] | None:
        """The experts chosen in the last run: per layer i32, in the shape that the graph has them.

        Returns:
            None when nothing was captured since it was last taken.
        """
        self._loaded.open()
        found, self._loaded.placement.last = self._loaded.placement.last, None
        return found

    @owned
    def take_moe_residency_stats(self) -> MoeResidencyStats | None:
        """Where the tokens went since this was last asked, or since experts were placed.

        Returns:
            None when no experts were placed.
        """
        self._loaded.open()
        placement = self._loaded.placement
        if placement.masks is None:
            return None
        pairs = list(zip(placement.counts, placement.masks, strict=True))
        found = MoeResidencyStats(
            placement.runs,
            tuple(int(count[mask].sum()) for count, mask in pairs),
            tuple(int(count[~mask].sum()) for count, mask in pairs),
            tuple(placement.counts),
        )
        placement.reset()
        return found

    # -----------------------------------------------------------------------------------------------

    def _layers(self) -> list[Layer]:
        self._loaded.open()
        if not self._loaded.placement.layers:
            raise InputError(
                describe(
                    f"graph {self._loaded.graph.name!r} has no mixture of experts",
                    hint="its layers are made of g.grouped_matmul(x, w, idx)",
                )
            )
        return self._loaded.placement.layers

    def _place(self, masks: list[Array] | None, capture: bool) -> None:
        old = self._loaded.placement
        placement = Placement(old.layers, masks, capture)
        placement.reset()
        if masks is not None and masks is old.masks:
            placement.counts, placement.runs = old.counts, old.runs
        graph = self._loaded.graph
        splits: dict[str, Split] = {}
        shown = len(graph.outputs)
        if masks is not None or capture:
            graph = with_routing(graph)
        kernels = self._loaded.target.kernel_set
        if masks is not None and kernels and not KERNEL_SETS[kernels].on_host:
            graph, splits = place_experts(graph, masks)
        verify(graph)

        def watched(executable: Executable) -> Executable:
            if masks is None and not capture:
                return executable
            return cast(Executable, Routed(executable, shown, splits, placement))

        self._recovery.rebuild(graph, watched, placement)
