"""The experts of mixtures: places, captures and counts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from rlx.ir.opdef import Array
from rlx.runtime.exclusive import exclusive
from rlx.runtime.state import RuntimeState

if TYPE_CHECKING:
    from rlx.runtime.expert_placement import MoeResidencyStats


class MoeMethods:
    """The methods of ``CompiledGraph`` that place and count the experts of mixtures.

    A mixture is found by its ``grouped_matmul`` nodes: those that use the same choice of experts are one
    layer. Changing what is placed or watched compiles the graph again, with all its settings.
    """

    __slots__ = ()
    _state: RuntimeState

    @exclusive
    def set_moe_resident_experts(self, mask: Any) -> None:
        """Chooses, for all layers alike, the experts whose weights are on the device.

        See ``set_moe_resident_experts_per_layer``.

        Args:
            mask: A bool per expert; None brings all to the device.
        """
        from rlx.runtime import expert_changes

        expert_changes.set_same_experts(self._state, mask)

    @exclusive
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
        from rlx.runtime import expert_changes

        expert_changes.set_experts(self._state, masks)

    @exclusive
    def enable_moe_topk_capture(self, num_experts: int) -> bool:
        """Keeps the experts that the routers choose, for ``take_moe_topk_capture``.

        Args:
            num_experts: How many experts the layers have.

        Returns:
            Whether the graph has layers with so many experts; without, nothing changes.
        """
        from rlx.runtime import expert_changes

        return expert_changes.capture(self._state, num_experts)

    @exclusive
    def take_moe_topk_capture(self) -> list[Array] | None:
        """The experts chosen in the last run: per layer i32, in the shape that the graph has them.

        Returns:
            None when nothing was captured since it was last taken.
        """
        self._state.check_open()
        placement = self._state.placement
        if placement is None:
            return None
        chosen, placement.last = placement.last, None
        return chosen

    @exclusive
    def take_moe_residency_stats(self) -> MoeResidencyStats | None:
        """Returns where tokens were computed since the last call, or since experts were placed.

        Returns:
            None when no experts were placed.
        """
        self._state.check_open()
        placement = self._state.placement
        return None if placement is None else placement.take_stats()
