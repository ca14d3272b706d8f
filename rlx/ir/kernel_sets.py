"""The sets of kernels that op records have, and what each can do. Passes ask these, and know no device."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from rlx.dataclasses import dataclass


@dataclass(frozen=True)
class KernelSet:
    """Kernels of the op records, and how they are called.

    Attributes:
        name: Its name in ``Backend.kernel_set``.
        records: The field of an op's record with its kernels: "cpu" or "webgpu".
        on_host: Whether it runs on the host. Elsewhere a node without a kernel may run on the host instead.
        signatures: Whether kernels have C signatures (``rlx/abi``): calls hold the scratch memory that these
            ask for. Elsewhere calls hold parameters of WGSL templates.
        every_dtype: Whether there are kernels for all dtypes of a record, f64 and bool among them. Elsewhere
            f64 runs on the host, and bool, whose elements share words, is computed in i32.
        jumps: Whether a schedule may jump. Elsewhere loops are written out, and both branches computed.
        computes_f16: Whether kernels that can do so compute f16 in half precision.
        half: Name of the set that does so, for devices with such arithmetic; None where there is none.
        units: Name of the set for devices whose matrix units multiply halves as well; None where there is none.
        on_units: Whether its kernels multiply halves on matrix units.
        fuses: Fusions that are worth having for some sets alone, by name; ``rlx/passes/patterns`` asks.
    """

    name: str
    records: str
    on_host: bool = False
    signatures: bool = False
    every_dtype: bool = False
    jumps: bool = False
    computes_f16: bool = False
    half: str | None = None
    units: str | None = None
    on_units: bool = False
    fuses: frozenset[str] = frozenset()


# A dispatch costs microseconds and a pass over memory of its own, a call of a C kernel next to nothing.
_ON_GPU = frozenset(
    "joined_products left_transposed scaled_integers frame_peaks packed_products half_weights narrow_attention".split()
)
# Matrix units read the weights of convolutions by taps ("turned_weights").
# The C kernels apply what follows before they store, widen weights of 8 bits in registers, and square what they
# add up.
_ON_CPU = frozenset(
    "convolution_epilogue half_weights narrow_attention coarse_weights sums_of_squares".split()
)

KERNEL_SETS: Mapping[str, KernelSet] = MappingProxyType(
    {
        item.name: item
        for item in (
            KernelSet(
                "cpu",
                "cpu",
                on_host=True,
                signatures=True,
                every_dtype=True,
                jumps=True,
                fuses=_ON_CPU,
            ),
            KernelSet("webgpu", "webgpu", half="webgpu-f16", fuses=_ON_GPU),
            KernelSet(
                "webgpu-f16", "webgpu", computes_f16=True, units="webgpu-units", fuses=_ON_GPU
            ),
            KernelSet(
                "webgpu-units",
                "webgpu",
                computes_f16=True,
                on_units=True,
                fuses=_ON_GPU | {"turned_weights"},
            ),
        )
    }
)
# The kernels that run what others leave to the host.
HOST_KERNELS = "cpu"
