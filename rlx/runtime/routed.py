"""An executable that counts the experts that its routers choose."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any

import numpy as np

from rlx.backends.base import Capabilities, Executable, GpuBuffer, run_fresh, set_params
from rlx.dataclasses import dataclass
from rlx.ir.opdef import Array
from rlx.passes.extent import Extent, scaled
from rlx.passes.place_experts import Layer, Split


@dataclass(frozen=True)
class MoeResidencyStats:
    """Where the tokens of a mixture of experts went since the last time this was asked.

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
class Placement:
    """Where a graph's experts are placed, and counts of their use.

    Attributes:
        layers: The mixtures of the graph.
        masks: Per layer, a bool per expert: whether it is resident; None when nothing was placed.
        capture: Whether the router's choices are kept.
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

    def saw(self, chosen: Sequence[Array]) -> None:
        """Counts the choices of one run."""
        self.runs += 1
        for count, layer, one in zip(self.counts, self.layers, chosen, strict=True):
            kept = np.clip(one.reshape(-1), 0, layer.experts - 1)
            count += np.bincount(kept, minlength=layer.experts)
        if self.capture:
            self.last = [one.copy() for one in chosen]


class Routed:
    """An executable whose last outputs are router choices: they are counted and hidden from callers.

    Args:
        inner: The executable of the graph with those outputs.
        shown: How many outputs the caller knows of.
        splits: Where the parts of the caller's params are.
        placement: What counts.
    """

    def __init__(
        self, inner: Executable, shown: int, splits: dict[str, Split], placement: Placement
    ) -> None:
        self._inner, self._shown, self._splits = inner, shown, splits
        self._placement = placement
        self._extent: Extent | None = None
        self.capabilities: Capabilities = inner.capabilities
        self.input_views = inner.input_views
        self.output_views = inner.output_views[:shown]
        self.output_slots = inner.output_slots[:shown]
        self.arena_ptr = inner.arena_ptr
        self._hidden = list(range(shown, len(inner.output_views)))

    # No compiled ways around this class: runs are counted in Python, so they are guarded there.
    owned_by = None
    run_named = None

    def __getattr__(self, name: str) -> Any:
        # Everything that concerns neither outputs nor params is the inner executable's.
        return getattr(self._inner, name)

    def run_slots(self, *arrays: Any) -> tuple[Array, ...]:
        """A run whose choices are counted."""
        self._saw(self._inner.run_slots(*arrays)[self._shown :])
        return self.output_views

    def _saw(self, chosen: Sequence[Array]) -> None:
        extent = self._extent
        if extent is not None:
            chosen = [
                one[: scaled(one.shape[0], extent)] if at in extent.outputs else one
                for at, one in enumerate(chosen, self._shown)
            ]
        self._placement.saw(chosen)

    def set_extent(self, extent: Extent | None) -> None:
        """Rows past the extent are not counted."""
        self._extent = extent
        self._inner.set_extent(extent)

    def run_outputs(self, indices: Sequence[int]) -> list[Array]:
        """Reads the chosen outputs; the routers' choices are read and counted as well."""
        found = self._inner.run_outputs([*indices, *self._hidden])
        self._saw(found[len(indices) :])
        return list(found[: len(indices)])

    def submit(self) -> None:
        """Runs to the end: a run has to be over before its choices are counted."""
        self.run_slots()

    @property
    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Where inputs and outputs stand on the device."""
        inputs, outputs = self._inner.gpu_buffers  # type: ignore[attr-defined]
        return inputs, outputs[: self._shown]

    def run_on_device(self, given: Sequence[tuple[int, Array]]) -> None:
        """A run that leaves its results on the device; the routers' choices are brought back and counted."""
        self._saw(self._inner.run_on_device(given, self._hidden))  # type: ignore[attr-defined]

    def run_fresh(self, given: Sequence[tuple[int, Array]]) -> list[Array]:
        """A run whose choices are counted, with outputs in arrays of their own."""
        found = run_fresh(self._inner, given)
        self._saw(found[self._shown :])
        return found[: self._shown]

    def run_many(self, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """Every set's outputs; its choices are counted."""
        found = self._inner.run_many(sets)
        for one in found:
            self._saw(one[self._shown :])
        return [one[: self._shown] for one in found]

    def set_param(self, name: str, array: Array) -> None:
        """Splits a weight between device and host, and sets both parts."""
        self.set_params({name: array})

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Parts several weights, which every run sees all or none of."""
        set_params(
            self._inner,
            {
                part: array if mask is None else np.ascontiguousarray(array[mask])
                for name, array in values.items()
                for part, mask in self._parts(name)
            },
        )

    def read_param(self, name: str) -> Array:
        """Puts the parts of a weight together again."""
        parts = [(self._inner.read_param(part), mask) for part, mask in self._parts(name)]
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

    def clone(self) -> Routed:
        """The same on an arena of its own, counted together with this one."""
        return Routed(self._inner.clone(), self._shown, self._splits, self._placement)
