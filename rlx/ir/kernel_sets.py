"""The sets of kernels that op records have, and what each can do. Passes ask these, and know no device."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True)
class KernelSet:
    """Kernels of the op records, and how they are called.

    Attributes:
        name: What backends call it in ``Backend.kernel_set``.
        records: The field of an op's record with its kernels: "cpu" or "webgpu".
        on_host: Whether it runs on the host. Elsewhere a node without a kernel may run on the host instead.
        f64: Whether its kernels compute in f64, and store bool in a byte.
        jumps: Whether a schedule may jump. Elsewhere loops are written out, and both branches computed.
        computes_f16: Whether kernels that can do so compute f16 in half precision.
        half: Name of the set that does so, for devices with such arithmetic; None where there is none.
    """

    name: str
    records: str
    on_host: bool = False
    f64: bool = False
    jumps: bool = False
    computes_f16: bool = False
    half: str | None = None


KERNEL_SETS: Mapping[str, KernelSet] = MappingProxyType(
    {
        one.name: one
        for one in (
            KernelSet("cpu", "cpu", on_host=True, f64=True, jumps=True),
            KernelSet("webgpu", "webgpu", half="webgpu-f16"),
            KernelSet("webgpu-f16", "webgpu", computes_f16=True),
        )
    }
)
# The kernels that run what others leave to the host.
HOST_KERNELS = "cpu"
