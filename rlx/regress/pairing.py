"""Pairs the devices of two recordings, and lists the differences between the two machines."""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Mapping

from rlx.dataclasses import dataclass
from rlx.errors import InputError, did_you_mean
from rlx.regress.record_schema import DeviceLine, Peaks
from rlx.regress.recording import Recording
from rlx.regress.statistics import FEWEST, Effect, effect

_NATIVE = "native"
# A device is paired by the first of these that finds one partner for it: the same device, the same hardware under
# another name, the same name, the same kind of device.
_KEYS: tuple[Callable[[DeviceLine], Hashable], ...] = (
    lambda d: (d.device, d.adapter, d.api),
    lambda d: (d.adapter, d.api),
    lambda d: d.device,
    lambda d: d.device.split(":")[0],
)


@dataclass(frozen=True)
class Peak:
    """A figure of the machine in two recordings.

    Attributes:
        title: Its title, with the unit.
        hardware: Whether it shows the hardware and its clock alone; a dispatch goes through rlx as well.
        base: The median of the processes before.
        new: The median now.
        slowdown: The time that it stands for, new by base; None with too few processes.
    """

    title: str
    hardware: bool
    base: float
    new: float
    slowdown: Effect | None


# A machine whose peaks differ by less is the same machine.
_LEAST_SHIFT = math.log(1.02)

# Field of ``Peaks``, its title, whether it shows the hardware alone, whether it is a time rather than a rate.
_PEAKS = (
    ("copy_gb_s", "copy, GB/s", True, False),
    ("fma_gflop_s", "multiply-adds, GFLOP/s", True, False),
    ("upload_gb_s", "upload, GB/s", True, False),
    ("dispatch_us", "dispatch, us", False, True),
)


@dataclass(frozen=True)
class DevicePair:
    """A device of each recording.

    Attributes:
        base: The device before.
        new: The device now.
        same_hardware: Whether the same bits are to be expected: one adapter and, on the CPU, one instruction set.
        peaks: The speed of the machine itself.
    """

    base: DeviceLine
    new: DeviceLine
    same_hardware: bool
    peaks: tuple[Peak, ...]

    @property
    def title(self) -> str:
        """Both names, or the name that they share."""
        first, other = self.base.device, self.new.device
        return first if first == other else f"{first} -> {other}"

    @property
    def machine(self) -> str:
        """The time that the hardware's peaks stand for, new by base: the least and the most; "" for none."""
        results = [peak.slowdown.ratio for peak in self.peaks if peak.hardware and peak.slowdown]
        return f"{min(results):.2f} to {max(results):.2f}" if results else ""

    @property
    def slower_by(self) -> float:
        """The logarithm by which the hardware itself is certainly slower; 0 where it is not."""
        return max((shift for shift in self._shifts if shift > 0), default=0.0)

    @property
    def faster_by(self) -> float:
        """The logarithm by which the hardware itself is certainly faster; 0 where it is not."""
        return max((-shift for shift in self._shifts if shift < 0), default=0.0)

    @property
    def _shifts(self) -> list[float]:
        """Logarithms of the times that the hardware's peaks stand for, those that are certainly not 0."""
        result = (peak.slowdown for peak in self.peaks if peak.hardware and peak.slowdown)
        return [
            item.log_ratio
            for item in result
            if (item.low > 0 or item.high < 0) and abs(item.log_ratio) >= _LEAST_SHIFT
        ]


def pairs(base: Recording, new: Recording, wanted: Mapping[str, str]) -> list[DevicePair]:
    """Pairs the devices of two recordings.

    Args:
        base: The recording before.
        new: The recording now.
        wanted: Names of devices of ``base``, each with the device of ``new`` to compare it with; empty for all
            that fit: the same device, else the same adapter, else the same name, else the same kind.

    Raises:
        InputError: A recording has no such device.
    """
    for name, recording in (*((n, base) for n in wanted), *((n, new) for n in wanted.values())):
        if name not in recording.devices:
            hint = did_you_mean(name, recording.devices)
            raise InputError(f"the recording has no device {name!r}", hint=hint)
    results = {first: new.devices[other] for first, other in wanted.items()}
    if not wanted:
        for key in _KEYS:
            for line in base.devices.values():
                taken = {other.device for other in results.values()}
                fit = [
                    d for d in new.devices.values() if d.device not in taken and key(d) == key(line)
                ]
                if line.device not in results and fit:
                    results[line.device] = fit[0]
    return [_pair(base, new, base.devices[first], other) for first, other in results.items()]


def _pair(base: Recording, new: Recording, first: DeviceLine, other: DeviceLine) -> DevicePair:
    # The CPU kernels of each instruction set add up in an order of their own; a software GPU runs on the CPU, too.
    same = (first.adapter, first.api) == (other.adapter, other.api)
    if first.api == _NATIVE or first.software:
        same = same and (base.run.isa, base.run.machine) == (new.run.isa, new.run.machine)
    before = base.peaks.get(first.device, {})
    return DevicePair(first, other, same, _peaks(before, new.peaks.get(other.device, {})))


def _peaks(base: Mapping[int, Peaks], new: Mapping[int, Peaks]) -> tuple[Peak, ...]:
    results = []
    for name, title, hardware, is_time in _PEAKS:
        was, now = (
            [value for line in lines.values() if (value := getattr(line, name))]
            for lines in (base, new)
        )
        if was and now:
            sign = 1.0 if is_time else -1.0
            first, other = ([sign * math.log(value) for value in values] for values in (was, now))
            enough = min(len(was), len(now)) >= FEWEST
            middle, later = (sorted(values)[len(values) // 2] for values in (was, now))
            results.append(
                Peak(title, hardware, middle, later, effect(first, other) if enough else None)
            )
    return tuple(results)


def peak_medians(recording: Recording, device: str) -> list[tuple[str, float]]:
    """Returns the machine's own peaks in one recording: each figure's title, and its median over processes."""
    results = []
    for name, title, _, _ in _PEAKS:
        lines = recording.peaks.get(device, {}).values()
        values = sorted(value for line in lines if (value := getattr(line, name)))
        if values:
            results.append((title, float(values[len(values) // 2])))
    return results


def machine_differences(
    base: Recording, new: Recording, paired: list[DevicePair]
) -> list[tuple[str, str, str]]:
    """Lists the differences between the machines: the name, the value before, the value now."""
    results = [
        (title, str(getattr(base.run, name)), str(getattr(new.run, name)))
        for title, name in (
            ("rlx", "rlx"),
            ("commit", "commit"),
            ("build of rlx", "build"),
            ("system", "system"),
            ("architecture", "machine"),
            ("processor", "cpu"),
            ("instruction set", "isa"),
            ("cores", "cores"),
            ("threads", "threads"),
            ("memory, bytes", "memory"),
        )
    ]
    for name in sorted({*base.run.versions, *new.run.versions}):
        results.append((name, base.run.versions.get(name, "-"), new.run.versions.get(name, "-")))
    for pair in paired:
        for name in ("device", "adapter", "api", "driver", "vendor_id", "device_id"):
            first, other = getattr(pair.base, name), getattr(pair.new, name)
            results.append((f"{pair.title}: {name.replace('_', ' ')}", str(first), str(other)))
        limits = sorted({*pair.base.limits, *pair.new.limits})
        for name in limits:
            was, now = pair.base.limits.get(name, "-"), pair.new.limits.get(name, "-")
            results.append((f"{pair.title}: limit {name}", str(was), str(now)))
        gone = sorted(set(pair.base.features) - set(pair.new.features))
        added = sorted(set(pair.new.features) - set(pair.base.features))
        results.append((f"{pair.title}: features of one only", ", ".join(gone), ", ".join(added)))
    return [(name, was or "-", now or "-") for name, was, now in results if was != now]
