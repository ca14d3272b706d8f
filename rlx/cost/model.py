"""Cost models: the figures of a device, measured or by default."""

from __future__ import annotations

import math
from typing import Any, Protocol, runtime_checkable

from rlx.cost.calibration import Calibration
from rlx.cost.op_classes import KINDS
from rlx.cost.store import stored
from rlx.dataclasses import dataclass
from rlx.errors import DeviceUnavailableError
from rlx.threads import thread_count

# Columns of the products of ``Calibration.narrow_matmul_ns_by_flops``.
NARROW = 8


class BackendCostModel(Protocol):
    """The figures of one device. Bandwidths are bytes per nanosecond, which is GB/s."""

    @property
    def device(self) -> Any:
        """The device that the figures describe."""

    @property
    def unified_memory(self) -> bool:
        """True if host and device share memory."""

    def sgemm_gflops(self, m: int, k: int, n: int) -> float:
        """Speed of a product of that size in GFLOP/s (1e9 flop/s)."""

    def dispatch_overhead_ns(self) -> float:
        """Cost of one kernel call."""

    def roundtrip_overhead_ns(self) -> float:
        """Cost of submitting and waiting once."""

    def memory_bw(self) -> float:
        """Device memory bandwidth."""

    def host_readback_bw(self) -> float:
        """Bandwidth from the device to the host."""

    def host_upload_bw(self) -> float:
        """Bandwidth from the host to the device."""

    def num_threads(self) -> int:
        """Parallel workers."""


@runtime_checkable
class DetailedCostModel(BackendCostModel, Protocol):
    """A model that knows more than peaks: how the time of each kind of work grows with its amount."""

    def kernel_ns(
        self, kind: str, work: float, more_rows: float = 0.0, steps: float = 0.0
    ) -> float:
        """Time of the arithmetic of a kernel, or of its movement, of a kind of ``rlx.cost.op_classes``.

        ``more_rows`` are those beyond the number that it would have with rows of the usual length;
        ``steps`` those that wait for each other, see ``rlx.cost.dependency_chain``.
        """

    def product_ns(self, dtype: str, batch: int, m: int, k: int, n: int) -> float:
        """Time of the arithmetic of products."""

    def copy_ns(self, nbytes: int) -> float:
        """Time of reading and writing so many bytes, both counted."""

    def upload_ns(self, nbytes: int) -> float:
        """Returns the time that inputs add to a run."""

    def readback_ns(self, nbytes: int) -> float:
        """Returns the time that outputs add to a run."""

    def host_thunk_ns(self) -> float:
        """Returns the time that a part on the host adds to a run, besides its work and its bytes."""


@dataclass(frozen=True)
class RooflineModel:
    """Fixed figures, the same at every size.

    Attributes:
        device: The described device.
        gflops: Arithmetic speed in 1e9 flop/s.
        dispatch_ns: One kernel call.
        roundtrip_ns: One submit and wait.
        bandwidth: Memory bandwidth in bytes per ns.
        upload_bandwidth: Host to device.
        readback_bandwidth: Device to host.
        unified_memory: Host and device share memory.
        threads: Parallel workers.
    """

    device: Any
    gflops: float
    dispatch_ns: float
    roundtrip_ns: float
    bandwidth: float
    upload_bandwidth: float
    readback_bandwidth: float
    unified_memory: bool
    threads: int = 1

    def sgemm_gflops(self, m: int, k: int, n: int) -> float:
        """The same at every size."""
        return self.gflops

    def dispatch_overhead_ns(self) -> float:
        """See ``dispatch_ns``."""
        return self.dispatch_ns

    def roundtrip_overhead_ns(self) -> float:
        """See ``roundtrip_ns``."""
        return self.roundtrip_ns

    def memory_bw(self) -> float:
        """See ``bandwidth``."""
        return self.bandwidth

    def host_readback_bw(self) -> float:
        """See ``readback_bandwidth``."""
        return self.readback_bandwidth

    def host_upload_bw(self) -> float:
        """See ``upload_bandwidth``."""
        return self.upload_bandwidth

    def num_threads(self) -> int:
        """See ``threads``."""
        return self.threads


@dataclass(frozen=True)
class CalibratedModel:
    """The figures that were measured on a device.

    Attributes:
        device: The device.
        calibration: The figures.
    """

    device: Any
    calibration: Calibration

    @property
    def unified_memory(self) -> bool:
        """Host and device share memory."""
        return self.calibration.unified_memory

    def sgemm_gflops(self, m: int, k: int, n: int) -> float:
        """Speed of a product in f32: measured at 64, 256 and 1024 cubed and with a single row.

        Between those it is interpolated on log scales: by the operations, and by how much smaller the
        smallest size is than the (geometric) mean of the three.
        """
        return 2.0 * m * k * n / self.product_ns("f32", 1, m, k, n)

    def dispatch_overhead_ns(self) -> float:
        """See ``Calibration.dispatch_ns``."""
        return self.calibration.dispatch_ns

    def roundtrip_overhead_ns(self) -> float:
        """See ``Calibration.roundtrip_ns``."""
        return self.calibration.roundtrip_ns

    def memory_bw(self) -> float:
        """See ``Calibration.copy_gb_per_s``."""
        return self.calibration.copy_gb_per_s

    def host_readback_bw(self) -> float:
        """See ``Calibration.readback_gb_per_s``."""
        return self.calibration.readback_gb_per_s

    def host_upload_bw(self) -> float:
        """See ``Calibration.upload_gb_per_s``."""
        return self.calibration.upload_gb_per_s

    def num_threads(self) -> int:
        """See ``Calibration.threads``."""
        return self.calibration.threads

    def kernel_ns(
        self, kind: str, work: float, more_rows: float = 0.0, steps: float = 0.0
    ) -> float:
        """See ``DetailedCostModel``; a kind that was not measured takes its stand-in's speed."""
        figures = self.calibration
        waiting = steps * figures.serial_ns_by_kind.get(kind, 0.0)
        while kind not in figures.kernel_ns_by_work:
            if not KINDS[kind].stand_in:
                moves = KINDS[kind].moves
                plain = figures.matmul_ns_by_flops["f32"]
                return max(waiting, self.copy_ns(int(work)) if moves else plain.ns(work))
            work *= KINDS[kind].slower
            kind = KINDS[kind].stand_in
        curve = figures.kernel_ns_by_work[kind]
        ns = curve.ns(work)
        row_ns = figures.row_ns_by_kind.get(kind, 0.0)
        if figures.unified_memory and work > 0:
            # Measured where all threads share the rows; fewer threads do less work.
            row_ns *= (ns / work) / (curve.ns(curve.largest) / curve.largest)
        # Longer rows save something, but never the most of it.
        return max(ns + more_rows * row_ns, 0.25 * ns, waiting)

    def product_ns(self, dtype: str, batch: int, m: int, k: int, n: int) -> float:
        """See ``DetailedCostModel``; dtypes that were not measured are computed as f32.

        The CPU computes the products of a batch one after the other, a GPU side by side.
        """
        figures = self.calibration
        apart, together = (batch, 1) if figures.unified_memory else (1, batch)
        # Wider elements are half as many in a register.
        wide = 2.0 if dtype == "f64" and dtype not in figures.matmul_ns_by_flops else 1.0
        # Fewer columns than these are computed as if they were that many.
        n = max(n, NARROW)
        flops = 2.0 * together * m * k * n * wide
        if flops <= 0 or not batch:
            return 1e-9
        curve = figures.matmul_ns_by_flops.get(dtype, figures.matmul_ns_by_flops["f32"])
        square = curve.ns(max(flops, curve.points[0][0]))
        mean = (m * k * n) ** (1 / 3)
        ns = square
        for other, least, narrowest in (
            (figures.thin_matmul_ns_by_flops, m, 1),
            (figures.narrow_matmul_ns_by_flops, n, NARROW),
        ):
            if narrowest <= least < mean:
                slower = (other.get(dtype) or other["f32"]).ns(flops) / square
                ns *= slower ** (1.0 - math.log(least / narrowest) / math.log(mean / narrowest))
        return float(apart * max(ns, k * figures.serial_ns_by_kind.get("product", 0.0)))

    def copy_ns(self, nbytes: int) -> float:
        """See ``Calibration.copy_ns_by_bytes``."""
        return self.calibration.copy_ns_by_bytes.ns(nbytes)

    def upload_ns(self, nbytes: int) -> float:
        """See ``Calibration.upload_ns_by_bytes``; nothing where memory is shared."""
        return 0.0 if self.unified_memory else self.calibration.upload_ns_by_bytes.ns(nbytes)

    def readback_ns(self, nbytes: int) -> float:
        """See ``Calibration.readback_ns_by_bytes``; nothing where memory is shared."""
        return 0.0 if self.unified_memory else self.calibration.readback_ns_by_bytes.ns(nbytes)

    def host_thunk_ns(self) -> float:
        """See ``Calibration.host_thunk_ns``."""
        return self.calibration.host_thunk_ns


def default_model(device: Any, *, software: bool = False) -> RooflineModel:
    """The figures that serve until a device is measured.

    Args:
        device: Their device: "cpu", or else it counts as a GPU.
        software: A GPU API that the CPU runs: taken as slower than the CPU itself.

    Example:
        >>> default_model("cpu").roundtrip_overhead_ns()
        3000.0
    """
    if str(device).partition(":")[0] == "cpu":
        speeds = (200.0, 300.0, 3_000.0, 30.0, 30.0, 30.0)
        return RooflineModel(device, *speeds, unified_memory=True, threads=thread_count())
    if software:
        return RooflineModel(device, 20.0, 20_000.0, 400_000.0, 5.0, 5.0, 5.0, unified_memory=False)
    return RooflineModel(
        device, 2_500.0, 5_000.0, 80_000.0, 120.0, 12.0, 12.0, unified_memory=False
    )


def CpuCostModel() -> BackendCostModel:  # noqa: N802 - named as a type in the public API
    """The CPU's figures: what was measured, else 200 GFLOP/s, 300 ns a call, 3 us a run, 30 GB/s.

    Nothing is measured here: ``rlx.cost.Calibration.load_or_measure("cpu")`` does that, and so does
    the first compile for "auto" on a machine with several devices.

    Example:
        >>> import rlx
        >>> rlx.cost.CpuCostModel().unified_memory
        True
    """
    return WebGpuCostModel("cpu")


def WebGpuCostModel(device: Any, *, software: bool = False) -> BackendCostModel:  # noqa: N802
    """A GPU's figures: what was measured, else 2,500 GFLOP/s, 5 us a dispatch, 80 us a run, 120 GB/s.

    Args:
        device: A device or its name; it need not be here, and has the defaults then.
        software: Whether it is known to be a GPU API that the CPU runs. It is taken as slower than the
            CPU until it is measured.
    """
    try:
        result = stored(device)
    except DeviceUnavailableError:
        result = None
    if result is not None:
        return CalibratedModel(device, result)
    return default_model(device, software=software)
