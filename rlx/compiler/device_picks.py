"""Choosing among the devices that can run a graph: hint, then ``RLX_DEVICE``, then the policy's pick."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from typing import Any

from rlx import flags
from rlx.backends.base import CompileOptions
from rlx.compiler.device_choice import Estimates
from rlx.device.candidates import (
    DeviceCandidate,
    blocker_of,
    none_of_chain,
    none_viable,
    not_viable,
    survey,
    warn_of_unusable,
)
from rlx.device.names import Device
from rlx.device.policy import Benchmark, DevicePolicy, device_tuple, from_flag, parse
from rlx.errors import GraphError, InputError
from rlx.ir.graph import Graph

Hint = Device | str | None
Chain = Iterable[Device | str] | str


class DevicePicks(ABC):
    """The part of ``GraphDevices`` that compiles nothing.

    Attributes:
        graph: The graph.
    """

    def __init__(self, graph: Graph, policy: DevicePolicy, options: CompileOptions | None) -> None:
        if not isinstance(graph, Graph):
            raise GraphError("not a graph", got=repr(graph), expected="a rlx.Graph")
        graph.verify()
        self.graph = graph
        self._policy = checked(policy)
        self._options = options or CompileOptions()
        # Reports, keyed by whether devices were measured first.
        self._rows: dict[bool, list[DeviceCandidate]] = {}
        self._measured: dict[Device, float] = {}

    @abstractmethod
    def _measure(self, inputs: Mapping[str, Any] | None, runs: int) -> dict[Device, float]:
        """The median nanoseconds of every device that runs; on made-up values where there are none.

        Raises:
            DeviceFallbackError: None runs.
        """

    # --- what there is -----------------------------------------------------------------------------

    @property
    def policy(self) -> DevicePolicy:
        """The policy: which devices may be used, and how one is picked."""
        return self._policy

    def set_policy(self, policy: DevicePolicy) -> None:
        """Chooses by another policy from now on. What is compiled stays compiled.

        Raises:
            InputError: It is not a policy.
        """
        self._policy = checked(policy)
        self._forget_picks()

    @property
    def devices(self) -> list[Device]:
        """The devices that can run the graph and that the policy lets be used."""
        return [row.device for row in self._survey(measure=False) if row.viable]

    def report(self) -> list[DeviceCandidate]:
        """Returns one row per device. A device that can't be used has a row with the reason.

        The recommended one is the fastest by estimate; a pick by benchmark does not run here. Devices
        whose speed was never measured are measured first; see ``RLX_CALIBRATION``.
        """
        return list(self._survey())

    # --- choosing ----------------------------------------------------------------------------------

    def fastest(self) -> Device:
        """The policy's pick: by estimate, or by benchmark on made-up inputs, once.

        Raises:
            DeviceUnavailableError: No device can run the graph.
            DeviceFallbackError: A benchmark picks, and every device failed.
        """
        return self._fastest(None)

    def resolve(self, hint: Hint = None) -> Device:
        """The device to use.

        Args:
            hint: A device that has to be used; None (or "auto") for ``RLX_DEVICE``, else the pick.

        Raises:
            DeviceParseError: ``hint`` or ``RLX_DEVICE`` is not a device.
            DeviceUnavailableError: That device can't run the graph; the message names those that can.
        """
        return self._resolve(hint, None)

    def resolve_with_inputs(self, hint: Hint, inputs: Mapping[str, Any]) -> Device:
        """``resolve``; a pick by benchmark runs on these inputs instead of made-up ones."""
        return self._resolve(hint, inputs)

    def chain(self, hint: Device | Chain | None = None) -> list[Device]:
        """The devices to try in turn.

        Args:
            hint: The first to try, or all of them: a list, or names with commas.

        Returns:
            Several that ``hint`` names as they are. One is followed by ``RLX_DEVICE_CHAIN``, or where
            that is unset by every device that can run the graph, fastest first. Without a hint
            ``RLX_DEVICE`` comes first.

        Raises:
            DeviceParseError: A text is not a device.
            InputError: ``hint`` is no list of devices.
            DeviceUnavailableError: Nothing is named, and no device can run the graph.
        """
        if hint is not None and hint != "auto":
            named = device_tuple(hint, "hint")
            if len(named) != 1:
                return list(named)
        else:
            wanted, _ = self._wanted()
            named = () if wanted is None else (wanted,)
        rest = self._policy.chain or from_flag(flags.DEVICE_CHAIN) or self._ranked()
        if not named and not rest:
            raise none_viable(self.graph, self._survey())
        return list(dict.fromkeys([*named, *rest]))

    def resolve_chain(self, hint: Device | Chain | None = None) -> Device:
        """The first device of ``chain(hint)`` that can run the graph. Nothing is compiled.

        Args:
            hint: See ``chain``.

        Raises:
            DeviceParseError: A text is not a device.
            InputError: ``hint`` is no list of devices.
            DeviceUnavailableError: None of them can run the graph; the message says why of each.
        """
        blockers = {}
        for device in self.chain(hint):
            blocker = blocker_of(self.graph, device, self._policy)
            if blocker is None:
                return device
            blockers[device] = blocker
        raise none_of_chain(self.graph, blockers)

    # -----------------------------------------------------------------------------------------------

    def _survey(self, measure: bool = True) -> list[DeviceCandidate]:
        """The rows; a device's speed is measured where it counts and never was."""
        measured = measure or True in self._rows
        if measured not in self._rows:
            estimates = Estimates(
                self.graph, self._options, self._policy, "now" if measured else ""
            )
            self._rows[measured] = survey(self.graph, self._policy, estimates)
        return self._rows[measured]

    def _forget_picks(self) -> None:
        self._rows = {}
        self._measured = {}

    def _wanted(self) -> tuple[Device | None, str]:
        """Returns the default device, and the source of that default."""
        if self._policy.device is not None:
            return self._policy.device, self._policy.device_source
        source = f"environment variable {flags.DEVICE.name}"
        text = flags.DEVICE.get()
        return (parse(text, source) if text else None), source

    def _resolve(self, hint: Hint, inputs: Mapping[str, Any] | None) -> Device:
        wanted, source = self._wanted() if hint is None or hint == "auto" else (hint, "hint")
        if wanted is None:
            return self._fastest(inputs)
        device = parse(wanted, source)
        blocker = blocker_of(self.graph, device, self._policy)
        if blocker is not None:
            raise not_viable(device, source, blocker, self.devices)
        return device

    def _ranked(self) -> tuple[Device, ...]:
        """The devices that can be used: the one the policy takes, then the others by their time."""
        times = self._measured or self._estimates()
        if not times:
            return ()
        best = self._policy.best(times)
        return (best, *sorted((d for d in times if d != best), key=lambda d: times[d]))

    def _estimates(self) -> dict[Device, float]:
        rows = (row for row in self._survey() if row.viable)
        return {row.device: row.estimate_ns for row in rows if row.estimate_ns is not None}

    def _fastest(self, inputs: Mapping[str, Any] | None) -> Device:
        warn_of_unusable(self._policy)
        if isinstance(self._policy.pick, Benchmark) and len(self.devices) > 1:
            self._measured = self._measured or self._measure(inputs, self._policy.pick.runs)
        ranked = self._ranked()
        if not ranked:
            raise none_viable(self.graph, self._survey())
        return ranked[0]


def checked(policy: DevicePolicy) -> DevicePolicy:
    """The policy, if it is one.

    Raises:
        InputError: It is not.
    """
    if not isinstance(policy, DevicePolicy):
        raise InputError("not a policy", got=repr(policy), expected="a rlx.DevicePolicy or None")
    return policy
