"""Decides whether a fusion pays: takes two I/O profiles and a device's figures, returns nanoseconds and a verdict."""

from __future__ import annotations

import math
from dataclasses import fields
from numbers import Real

from rlx.cost.io_profile import GraphIoProfile
from rlx.cost.model import BackendCostModel, DetailedCostModel
from rlx.dataclasses import dataclass
from rlx.errors import InputError


@dataclass(frozen=True)
class FusionBenefit:
    """The savings of a fusion; a negative number is an increase.

    Attributes:
        launches_saved: Kernel launches.
        sync_points_saved: Waits for the host.
        host_readback_bytes_saved: Bytes of outputs.
        device_traffic_bytes_saved: Bytes that kernels read and write.

    Example:
        >>> benefit = FusionBenefit(1, 0, 0, 1000)
        >>> benefit.score_ns(500.0, 5000.0, 100.0, 100.0, unified_memory=True)
        510.0
    """

    launches_saved: int = 0
    sync_points_saved: int = 0
    host_readback_bytes_saved: int = 0
    device_traffic_bytes_saved: int = 0

    def score_ns(
        self,
        dispatch_ns: float,
        roundtrip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
    ) -> float:
        """Nanoseconds saved per run.

        Args:
            dispatch_ns: One kernel launch.
            roundtrip_ns: One wait for the host.
            memory_bw: Device memory, bytes per ns; below 1 counts as 1.
            host_readback_bw: Device to host, bytes per ns; below 1 counts as 1.
            unified_memory: Host and device share memory. A byte read back then weighs 1 ns: what is
                read there stalls the queue.
        """
        readback_bw = 0.0 if unified_memory else host_readback_bw
        return (
            self.launches_saved * dispatch_ns
            + self.sync_points_saved * roundtrip_ns
            + self.device_traffic_bytes_saved / max(memory_bw, 1.0)
            + self.host_readback_bytes_saved / max(readback_bw, 1.0)
        )

    def should_fuse(
        self,
        dispatch_ns: float,
        roundtrip_ns: float,
        memory_bw: float,
        host_readback_bw: float,
        unified_memory: bool,
        min_gain_ns: float = 0.0,
    ) -> bool:
        """Returns whether ``score_ns`` of the same figures is at least ``min_gain_ns``."""
        figures = dispatch_ns, roundtrip_ns, memory_bw, host_readback_bw, unified_memory
        return self.score_ns(*figures) >= min_gain_ns


def fusion_benefit(before: GraphIoProfile, after: GraphIoProfile) -> FusionBenefit:
    """Returns the savings of the second profile over the first, field by field.

    Args:
        before: The graph without the fusion.
        after: The graph with it.

    Example:
        >>> fusion_benefit(GraphIoProfile(2, 1, 8192, 16384), GraphIoProfile(1, 1, 512, 16384))
        FusionBenefit(launches_saved=1, sync_points_saved=0, host_readback_bytes_saved=7680, device_traffic_bytes_saved=0)
    """
    return FusionBenefit(
        before.kernel_launches - after.kernel_launches,
        before.sync_points - after.sync_points,
        before.host_output_bytes - after.host_output_bytes,
        before.device_traffic_bytes - after.device_traffic_bytes,
    )


@dataclass(frozen=True)
class IoFusionGate:
    """Takes a fusion when it saves enough time on a device.

    Attributes:
        dispatch_ns: One kernel launch.
        roundtrip_ns: One wait for the host.
        memory_bw: Device memory, bytes per ns.
        host_readback_bw: Device to host, bytes per ns.
        unified_memory: Host and device share memory.
        host_thunk_penalty_ns: Taken off for every sync point that a fusion adds.
        min_gain_ns: The least gain that is worth a fusion; ``math.inf`` refuses all, ``-math.inf``
            takes all.

    Raises:
        InputError: A figure is not a number of the range that it can have.

    Example:
        >>> dense = GraphIoProfile(3, 0, 33554432, 184549376)
        >>> fused = GraphIoProfile(4, 1, 1048576, 219152384)
        >>> IoFusionGate.metal().should_fuse(dense, fused)
        True
        >>> IoFusionGate.webgpu().should_fuse(dense, fused)
        False
    """

    dispatch_ns: float
    roundtrip_ns: float
    memory_bw: float
    host_readback_bw: float
    unified_memory: bool
    host_thunk_penalty_ns: float
    min_gain_ns: float

    def __post_init__(self) -> None:
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name != "unified_memory" and not _in_range(field.name, value):
                raise InputError(
                    f"[IoFusionGate] {field.name}",
                    got=repr(value),
                    expected="a number" if field.name == "min_gain_ns" else "a number >= 0",
                )

    def score_ns(self, benefit: FusionBenefit) -> float:
        """Nanoseconds that a benefit is worth here, the penalty for added sync points taken off."""
        added = max(-benefit.sync_points_saved, 0)
        figures = self.dispatch_ns, self.roundtrip_ns, self.memory_bw, self.host_readback_bw
        plain = benefit.score_ns(*figures, self.unified_memory)
        return plain - added * self.host_thunk_penalty_ns

    def should_fuse(self, before: GraphIoProfile, after: GraphIoProfile) -> bool:
        """Returns whether going from one profile to the other gains at least ``min_gain_ns``."""
        return self.score_ns(fusion_benefit(before, after)) >= self.min_gain_ns

    @classmethod
    def metal(cls) -> IoFusionGate:
        """The defaults of a GPU that shares memory with the host."""
        return cls(500.0, 5_000.0, 200.0, 200.0, True, 2e6, 1e3)

    @classmethod
    def webgpu(cls) -> IoFusionGate:
        """The defaults of a GPU with memory of its own."""
        return cls(3_000.0, 30_000.0, 100.0, 40.0, False, 25e6, 10e3)

    @classmethod
    def cpu(cls) -> IoFusionGate:
        """The defaults of the CPU."""
        return cls(50.0, 0.0, 50.0, 50.0, True, 0.0, 0.0)

    @classmethod
    def defaults_for(cls, device: object, unified_memory: bool = False) -> IoFusionGate:
        """The defaults of a device that is not calibrated.

        Args:
            device: A device or its name.
            unified_memory: It shares memory with the host, which makes a GPU count as "metal".
        """
        name = str(device).partition(":")[0].lower()
        if name == "cpu":
            return cls.cpu()
        return cls.metal() if unified_memory or name in ("metal", "mtl") else cls.webgpu()

    @classmethod
    def from_cost_model(cls, model: BackendCostModel) -> IoFusionGate:
        """The gate of a device whose figures are known.

        The least gain, which no cost model holds, is the default of the device's kind; so is the
        penalty unless the model knows what a part on the host costs.

        Args:
            model: The device's figures.
        """
        kind = cls.defaults_for(model.device, model.unified_memory)
        return cls(
            dispatch_ns=model.dispatch_overhead_ns(),
            roundtrip_ns=model.roundtrip_overhead_ns(),
            memory_bw=model.memory_bw(),
            host_readback_bw=model.host_readback_bw(),
            unified_memory=model.unified_memory,
            host_thunk_penalty_ns=(
                model.host_thunk_ns()
                if isinstance(model, DetailedCostModel)
                else kind.host_thunk_penalty_ns
            ),
            min_gain_ns=kind.min_gain_ns,
        )


def _in_range(name: str, value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, Real):
        return False
    try:
        number = float(value)
    except OverflowError:
        return False
    return not math.isnan(number) and (name == "min_gain_ns" or number >= 0.0)
