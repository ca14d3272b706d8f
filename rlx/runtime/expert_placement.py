"""Experts of a mixture on the device and on the host: their weights, and counts of their use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from rlx.compiler.precomputed_params import ReadParam
from rlx.dataclasses import dataclass
from rlx.ir.opdef import Array
from rlx.passes.dynamic_batch import DynamicRows, scaled
from rlx.passes.moe_placement import ExpertSplit, Layer


@dataclass(frozen=True)
class MoeResidencyStats:
    """Counts of tokens by the place of their experts, since the last call that took the counts.

    Attributes:
        runs: Runs that were counted.
        resident_tokens: Per layer, choices of an expert whose weights are on the device.
        host_tokens: Per layer, choices of another expert.
        tokens_per_expert: Per layer an i64 array ``[experts]``: how often each was chosen.
    """

    runs: int
    resident_tokens: tuple[int, ...]
    host_tokens: tuple[int, ...]
    tokens_per_expert: tuple[Array, ...]

    @property
    def hit_rate(self) -> float:
        """Part of all choices that fell on resident experts; 1 when there were none."""
        here, there = sum(self.resident_tokens), sum(self.host_tokens)
        return here / (here + there) if here + there else 1.0


@dataclass
class ExpertPlacement:
    """Places the experts of a graph, and counts their use.

    Attributes:
        layers: The mixtures of the graph.
        masks: Per layer, a bool per expert: whether it is resident; None when nothing was placed.
        capture: Whether the routers' choices are kept.
        counts: Per layer, how often each expert was chosen.
        runs: Runs that were counted.
        last: The choices of the last run.
    """

    layers: list[Layer]
    masks: list[Array] | None = None
    capture: bool = False
    counts: list[Array] = field(default_factory=list)
    runs: int = 0
    last: list[Array] | None = None

    def reset(self) -> None:
        """Counts from zero."""
        self.runs, self.counts = 0, [np.zeros(layer.experts, np.int64) for layer in self.layers]

    def take_stats(self) -> MoeResidencyStats | None:
        """Returns the counts, and counts from zero; None when nothing was placed."""
        if self.masks is None:
            return None
        pairs = list(zip(self.counts, self.masks, strict=True))
        stats = MoeResidencyStats(
            self.runs,
            tuple(int(count[mask].sum()) for count, mask in pairs),
            tuple(int(count[~mask].sum()) for count, mask in pairs),
            tuple(self.counts),
        )
        self.reset()
        return stats

    def count(self, chosen: Sequence[Array], extent: DynamicRows | None, first: int) -> None:
        """Counts the choices of one run.

        Args:
            chosen: Per layer, the experts.
            extent: The rows that were computed; others are not counted.
            first: Position of the first layer's choices among the outputs.
        """
        self.runs += 1
        if extent is not None:
            chosen = [
                rows[: scaled(rows.shape[0], extent)] if i in extent.outputs else rows
                for i, rows in enumerate(chosen, first)
            ]
        for count, layer, rows in zip(self.counts, self.layers, chosen, strict=True):
            experts = np.clip(rows.reshape(-1), 0, layer.experts - 1)
            count += np.bincount(experts, minlength=layer.experts)
        if self.capture:
            self.last = [rows.copy() for rows in chosen]


class SplitParams:
    """Splits weights of experts between the device and the host; see ``ParamTransform``.

    Args:
        splits: By name of a param, its two parts.
    """

    nbytes = 0

    def __init__(self, splits: Mapping[str, ExpertSplit]) -> None:
        self._splits = splits

    def apply(self, values: Mapping[str, Array]) -> dict[str, Array]:
        """See ``ParamTransform``."""
        return {
            part: array if mask is None else np.ascontiguousarray(array[mask])
            for name, array in values.items()
            for part, mask in self._parts(name)
        }

    def read(self, name: str, read: ReadParam) -> Array:
        """Joins the parts of a weight."""
        parts = [(read(part), mask) for part, mask in self._parts(name)]
        first, mask = parts[0]
        if mask is None:
            return first
        whole = np.empty((mask.size, *first.shape[1:]), first.dtype)
        for array, mask in parts:
            whole[mask] = array
        return whole

    def _parts(self, name: str) -> list[tuple[str, Array | None]]:
        if name not in self._splits:
            return [(name, None)]
        split = self._splits[name]
        pairs = ((split.resident, split.mask), (split.host, ~split.mask))
        return [(part, mask) for part, mask in pairs if part]
