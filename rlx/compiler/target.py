"""The target of a compile: a device, its backend, and the options."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import field, replace

from rlx import flags
from rlx.backends.base import CompileOptions, DeviceInfo
from rlx.backends.executable import Capabilities
from rlx.backends.plugin_guard import GuardedBackend
from rlx.backends.registry import backend
from rlx.cost.gate import IoFusionGate
from rlx.cost.tuned import stored_variants
from rlx.dataclasses import dataclass
from rlx.device.figures import cost_model
from rlx.device.names import Device, info_of
from rlx.errors import CompileError
from rlx.ir.fragments import fragment_limits, fragment_params
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.variants import Choices


@dataclass(frozen=True)
class Target:
    """The target that a graph is compiled for: a device, its backend, and the options.

    Attributes:
        device: The device as the caller named it.
        info: The device's description.
        backend: The backend that runs graphs on it.
        kernel_set: The set of op-record kernels that it runs; "" for none.
        options: The user's choices, the fusion gate and the precision of "fast" filled in.
        capabilities: The capabilities that its backend states for its executables.
        choices: Known choices among variants of its kernels.
    """

    device: Device
    info: DeviceInfo
    backend: GuardedBackend
    kernel_set: str
    options: CompileOptions
    capabilities: Capabilities = field(default_factory=Capabilities)
    choices: Choices = field(default_factory=Choices)

    @property
    def reads_kernels(self) -> bool:
        """True if its backend runs kernels of the op records; other backends get the graph unchanged."""
        return bool(self.kernel_set)

    @classmethod
    def of(cls, device: Device, options: CompileOptions) -> Target:
        """Returns the target that a device's name stands for; the same one until devices or figures change.

        Raises:
            DeviceUnavailableError: It is not on this machine.
            CompileError: It has no half-precision arithmetic, and that was asked for.
        """
        key = _key(device, options)
        if key is not None and key in _targets:
            return _targets[key]
        target = cls._resolve(device, options)
        key = _key(device, options)  # adapters may have been looked for
        if key is not None:
            if len(_targets) >= _MAX_TARGETS:
                _targets.clear()
            _targets[key] = target
        return target

    @classmethod
    def is_known(cls, device: Device, options: CompileOptions) -> bool:
        """Returns whether a target was found before, so that its device is open."""
        return _key(device, options) in _targets

    @classmethod
    def _resolve(cls, device: Device, options: CompileOptions) -> Target:
        info, runs_on = info_of(device), backend(device.backend)
        kernel_set, able = runs_on.kernel_set, runs_on.capabilities(info)
        f16 = able.f16 and (not kernel_set or KERNEL_SETS[kernel_set].half is not None)
        if options.precision == "fast":
            units = f16 and fragment_params(fragment_limits(info.fragments, info.features))
            rounds = [each for each in ("bf16", "int8") if each in able.precisions]
            fast = rounds[0] if "int8" in rounds else "f16" if units else "f32"
            options = replace(options, precision=fast)
        if options.precision != "f32":
            takes = tuple(dict.fromkeys(("f32", *able.precisions, *(["f16"] if f16 else []))))
            if options.precision not in takes:
                raise _no_precision(device, info, kernel_set, options.precision, takes)
            half = KERNEL_SETS[kernel_set].half if kernel_set else None
            if half is not None:
                kernel_set = half
                if fragment_params(fragment_limits(info.fragments, info.features)):
                    kernel_set = KERNEL_SETS[half].units or half
        if options.io_gate is None and kernel_set:
            # Measured figures of the device, else defaults of its kind. Any positive gain is enough to fuse.
            gate = IoFusionGate.from_cost_model(cost_model(device, info))
            options = replace(options, io_gate=replace(gate, min_gain_ns=0.0))
        choices = Choices()
        if kernel_set and able.kernel_variants:
            choices = Choices.now(stored_variants(device))
        return cls(device, info, runs_on, kernel_set, options, able, choices)


_MAX_TARGETS = 64
# Targets by device, options, and everything else that they depend on.
_targets: dict[Hashable, Target] = {}


def _key(device: Device, options: CompileOptions) -> Hashable | None:
    """Returns the key of a target; None where it is not kept: for a device object of the program."""
    gate = options.io_gate
    if device.handle is not None or not (gate is None or type(gate) is IoFusionGate):
        return None
    return device, options, flags.snapshot(), flags.generation()


# Where precisions are to be had that few devices have.
_HAVE_IT = {
    "f16": "GPUs with shader-f16 have it, through WebGPU or a plug-in",
    "tf32": "devices of plug-ins have it, such as cuda",
    "bf16": "devices of plug-ins have it, such as cuda, and processors with AMX",
    "int8": "the device cpu has it",
}


def _no_precision(
    device: Device, info: DeviceInfo, kernel_set: str, wanted: str, takes: tuple[str, ...]
) -> CompileError:
    """Returns the error that a device lacks the requested precision."""
    if wanted == "f16" and kernel_set:
        return CompileError(
            f"{device} has no half-precision arithmetic",
            got=f"{info.adapter}: {', '.join(sorted(info.features)) or 'no features'}",
            expected="a GPU with shader-f16",
            hint='precision="f32" keeps f16 in memory and computes in f32',
        )
    return CompileError(
        f"{device} does not compute in precision {wanted!r}",
        got=wanted,
        expected=" or ".join(map(repr, takes)),
        hint=_HAVE_IT[wanted],
    )
