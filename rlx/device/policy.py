"""DevicePolicy: which devices are allowed, which are preferred, and how one is picked."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Literal

from rlx import flags
from rlx.dataclasses import dataclass
from rlx.device.names import Device, info_of, infos
from rlx.errors import DeviceError, DeviceParseError, InputError, did_you_mean

Devices = Iterable[Device | str] | str
# ``prefer`` decides among devices whose time is at most this factor above the least.
CLOSE = 1.1
# A GPU inside the processor is taken to save power if its time is at most so many times the least.
THRIFTY = 2.0
POWERS = ("auto", "low", "high")


@dataclass(frozen=True)
class Benchmark:
    """Picks by running the graph on every device that may be picked.

    Attributes:
        runs: Timed runs on each device, after one warm-up run.

    Raises:
        InputError: ``runs`` is not a whole number >= 1.

    Example:
        >>> Benchmark(5)
        Benchmark(runs=5)
    """

    runs: int = 10

    def __post_init__(self) -> None:
        if not isinstance(self.runs, int) or isinstance(self.runs, bool) or self.runs < 1:
            got, expected = repr(self.runs), "a whole number >= 1"
            raise InputError("[Benchmark] runs", got=got, expected=expected)


@dataclass(frozen=True, eq=False)
class DevicePolicy:
    """A rule for automatic picks of a device: allowed devices, preferred devices, and the criterion.

    A device is given as a ``rlx.Device`` or by name. A name without a number ("webgpu", "vulkan") means
    every device of that name, one with a number ("webgpu:0") just that.

    Attributes:
        allow: The only devices that may be used; None for all, empty for none.
        deny: Devices that may not be used, even if ``allow`` lists them.
        prefer: In this order, before others within 10 % of the fastest.
        pick: "cost" goes by the cost model's estimates, ``rlx.Benchmark(runs)`` by measurement.
        device: The default device of calls that name none; it has to be viable. None makes the pick.
        chain: The result of ``rlx.GraphDevices.chain`` for calls that name no device; empty for
            all viable devices, fastest first.
        device_source: The name of ``device`` in messages.
        power: "low" takes a GPU inside the processor where its estimate is at most twice the least, "high"
            does not look at power, "auto" is "low" while the machine runs on its battery (which
            takes the package psutil to know) and "high" else.

    Raises:
        DeviceParseError: A text is not a device.
        InputError: ``pick`` or ``power`` is none of its values, or a list is not one.

    Example:
        >>> policy = DevicePolicy(deny="webgpu", prefer=["cpu"])
        >>> policy.excludes(Device.parse("webgpu:1"))
        'the policy denies webgpu'
    """

    allow: tuple[Device, ...] | None
    deny: tuple[Device, ...]
    prefer: tuple[Device, ...]
    pick: Literal["cost"] | Benchmark
    device: Device | None
    chain: tuple[Device, ...]
    device_source: str
    power: str

    def __init__(
        self,
        allow: Devices | None = None,
        deny: Devices = (),
        prefer: Devices = (),
        pick: Literal["cost"] | Benchmark = "cost",
        device: Device | str | None = None,
        chain: Devices = (),
        device_source: str = "DevicePolicy.device",
        power: str = "auto",
    ) -> None:
        if power not in POWERS:
            hint = did_you_mean(power, POWERS)
            raise InputError("[DevicePolicy] power", got=repr(power), hint=hint)
        if pick != "cost" and not isinstance(pick, Benchmark):
            raise InputError(
                "[DevicePolicy] pick", got=repr(pick), expected='"cost" or rlx.Benchmark(runs)'
            )
        results = {
            "allow": None if allow is None else device_tuple(allow, "DevicePolicy.allow"),
            "deny": device_tuple(deny, "DevicePolicy.deny"),
            "prefer": device_tuple(prefer, "DevicePolicy.prefer"),
            "pick": pick,
            "device": None if device is None else parse(device, device_source),
            "chain": device_tuple(chain, "DevicePolicy.chain"),
            "device_source": device_source,
            "power": power,
        }
        for name, value in results.items():
            object.__setattr__(self, name, value)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DevicePolicy) and self._key() == other._key()

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[object, ...]:
        """Returns the comparison key; equal devices mean something else with a number and without."""
        lists = (self.allow, self.deny, self.prefer, self.chain)
        named = (None if item is None else tuple((d, d.numbered) for d in item) for item in lists)
        return (*named, self.pick, self.device, self.power)

    @classmethod
    def from_env(cls, prefix: str = "RLX_") -> DevicePolicy:
        """The policy that the environment asks for.

        Reads ``RLX_DEVICES`` (allow), ``RLX_DENY_DEVICES``, ``RLX_PREFER_DEVICES``, ``RLX_DEVICE`` and ``RLX_DEVICE_CHAIN``,
        devices separated by commas, ``RLX_BENCHMARK_PICK``, a number of runs, and ``RLX_POWER``. An unset or empty variable
        says nothing.

        Args:
            prefix: A prefix in place of ``RLX_``, for programs with variables of their own.

        Raises:
            DeviceParseError: A variable names what is not a device; the message has the variable and
                the bad token.
            InputError: ``RLX_BENCHMARK_PICK`` is not a number, a list has no entry, or ``prefix`` is no
                beginning of a variable's name.

        Example:
            >>> import os
            >>> os.environ["MYAPP_DENY_DEVICES"] = "webgpu"
            >>> DevicePolicy.from_env("MYAPP_").deny
            (rlx.Device('webgpu'),)
        """
        if not isinstance(prefix, str) or not re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*|", prefix):
            raise InputError(
                "[DevicePolicy.from_env] prefix",
                got=repr(prefix),
                expected='letters, digits and _, as in "RLX_"',
            )
        lists = {
            "allow": flags.DEVICES,
            "deny": flags.DENY_DEVICES,
            "prefer": flags.PREFER_DEVICES,
            "chain": flags.DEVICE_CHAIN,
        }
        results = {name: from_flag(flag.under(prefix)) for name, flag in lists.items()}
        runs = flags.BENCHMARK_PICK.under(prefix).get()
        flag = flags.DEVICE.under(prefix)
        device = flag.get() or None
        return cls(
            allow=results["allow"],
            deny=results["deny"] or (),
            prefer=results["prefer"] or (),
            pick=Benchmark(runs) if runs else "cost",
            device=device,
            chain=results["chain"] or (),
            device_source=_variable(flag),
            power=flags.POWER.under(prefix).get(),
        )

    def excludes(self, device: Device) -> str | None:
        """Why a device may not be picked; None when it may."""
        denied = [item for item in self.deny if means(item, device)]
        if denied:
            return f"the policy denies {denied[0]}"
        if self.allow is not None and not any(means(item, device) for item in self.allow):
            allowed = ", ".join(map(str, self.allow)) or "no device"
            return f"the policy allows only {allowed}"
        return None

    def best(self, times: Mapping[Device, float]) -> Device:
        """The device to take, by the time of a run on each.

        Args:
            times: Nanoseconds; at least one device.

        Returns:
            The first of ``prefer`` that is within 10 % of the fastest; to save power the fastest GPU
            inside the processor that takes at most twice as long; else the fastest.
        """
        least = min(times.values())
        close = {device for device, time in times.items() if time <= least * CLOSE}
        for liked in self.prefer:
            results = [device for device in times if device in close and means(liked, device)]
            if results:
                return min(results, key=lambda device: times[device])
        thrifty = {device: time for device, time in times.items() if time <= least * THRIFTY}
        if len(thrifty) > 1 and self.saves_power:
            thrifty = {d: time for d, time in thrifty.items() if _is_integrated(d)} or thrifty
            return min(thrifty, key=lambda device: thrifty[device])
        return min(times, key=lambda device: times[device])

    @property
    def saves_power(self) -> bool:
        """True if power counts now."""
        return self.power == "low" or (self.power == "auto" and on_battery())


def _is_integrated(device: Device) -> bool:
    try:
        return info_of(device).kind == "integrated"
    except DeviceError:  # it is gone meanwhile
        return False


def on_battery() -> bool:
    """Returns whether the machine runs on its battery; False if unknown."""
    try:
        import psutil

        battery = psutil.sensors_battery()
    except Exception:  # psutil is optional, and what a machine's firmware says can't be foreseen
        return False
    return battery is not None and battery.power_plugged is False


def means(name: Device, device: Device) -> bool:
    """Returns whether a device of a policy matches a device of this machine."""
    if name.backend != device.backend:
        return False
    if name.index or name.numbered:
        return canonical(name) == canonical(device)
    return not name.api or canonical(device) in _canonical_all(name)


def canonical(device: Device) -> Device:
    """The device under its backend's own number: "vulkan" may be "webgpu:1".

    A device that is not on this machine is returned unchanged.
    """
    result = _canonical_all(device)
    return result[device.index] if device.index < len(result) else device


def _canonical_all(device: Device) -> list[Device]:
    """Every device of the machine that a name may mean, under its backend's own number."""
    try:
        every, result = infos(Device(device.backend)), infos(device)
    except DeviceError:
        return []
    return [Device(device.backend, every.index(info), numbered=True) for info in result]


def device_tuple(value: Device | Devices, where: str) -> tuple[Device, ...]:
    """Devices from a list, or from names with commas; each once.

    Args:
        value: The devices.
        where: Its name in messages.

    Raises:
        DeviceParseError: A text is not a device.
        InputError: It is not a list.
    """
    if isinstance(value, Device):
        value = (value,)
    if isinstance(value, str):
        value = [part for part in value.split(",") if part.strip()]
    try:
        listed = list(value)
    except TypeError:
        raise InputError(f"[{where}] is not a list of devices", got=repr(value)) from None
    result = (parse(item, where) for item in listed)
    return tuple({(str(item), item.numbered): item for item in result}.values())


def parse(value: Device | str, where: str) -> Device:
    """``Device.parse`` with messages that say where the text stood.

    Raises:
        DeviceParseError: The text is not a device.
        InputError: It is no text.
    """
    if not isinstance(value, Device | str):
        raise InputError(
            f"[{where}] is not a device", got=repr(value), expected="a rlx.Device or str"
        )
    try:
        return Device.parse(value)
    except DeviceParseError as error:
        text = str(error).splitlines()
        raise DeviceParseError("\n".join([f"[{where}] {text[0]}", *text[1:]])) from None


def _variable(flag: flags.Flag[str]) -> str:
    return f"environment variable {flag.name}"


def from_flag(flag: flags.Flag[str]) -> tuple[Device, ...] | None:
    """The devices that an environment variable names; None where it is unset or empty.

    Raises:
        DeviceParseError: One is not a device.
        InputError: There is none in it.
    """
    text = flag.get()
    if not text:
        return None
    result = device_tuple(text, _variable(flag))
    if not result:
        raise InputError(
            f"{_variable(flag)} names no device",
            got=repr(text),
            expected="devices with commas",
            hint=flag.doc,
        )
    return result
