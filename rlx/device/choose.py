"""Which device a graph should run on, and why: the cost model's estimates, compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from rlx.device.candidates import DeviceCandidate, blocker_of, none_viable, not_viable, survey
from rlx.device.names import Device, available_devices, info_of
from rlx.device.policy import DevicePolicy
from rlx.ir.graph import Graph


@dataclass(frozen=True)
class DeviceDescription:
    """One device as a table shows it."""

    device: Device
    label: str
    adapter: str
    api: str
    driver: str
    software: bool


@dataclass(frozen=True)
class Choice:
    """The device picked for a graph.

    Attributes:
        device: The pick.
        reason: One sentence.
        estimates: Estimated nanoseconds per run of every device that can run the graph.
        blocked: Why the others can't.
    """

    device: Device
    reason: str
    estimates: dict[Device, float]
    blocked: dict[Device, str]


def describe_devices() -> list[DeviceDescription]:
    """Every device present, as people name it."""
    found = []
    for device in available_devices():
        info = info_of(device)
        label = f"{info.adapter}{' (software)' if info.software else ''}"
        found.append(
            DeviceDescription(device, label, info.adapter, info.api, info.driver, info.software)
        )
    return found


def choose(graph: Graph, policy: DevicePolicy | None = None) -> Choice:
    """Picks the device with the least estimated time, as far as a policy lets it.

    Args:
        graph: The graph that is to run.
        policy: What may be picked; None for what the environment says, ``RLX_DEVICE`` first of all.

    Returns:
        The pick, its reason, and every estimate.

    Raises:
        DeviceParseError: A variable of the environment names what is not a device.
        DeviceUnavailableError: ``RLX_DEVICE`` or the policy names one that can't run the graph, or
            the policy leaves none.
    """
    policy = policy or DevicePolicy.from_env()
    rows = survey(graph, policy)
    estimates = {
        row.device: row.estimate_ns for row in rows if row.viable and row.estimate_ns is not None
    }
    blocked = {row.device: row.blocker for row in rows if row.available and row.blocker}
    wanted = policy.device
    if wanted is not None:
        blocker = blocker_of(graph, wanted, policy)
        if blocker is not None:
            raise not_viable(wanted, policy.device_source, blocker, list(estimates))
        reason = f"{policy.device_source} says {str(wanted)!r}"
        return Choice(wanted, reason, estimates, blocked)
    if not estimates and policy.excludes(Device("cpu")):
        raise none_viable(graph, rows)
    if not estimates:
        return Choice(Device("cpu"), "no device has every kernel; trying the CPU", {}, blocked)
    pick = policy.best(estimates)
    return Choice(pick, _reason(pick, estimates, rows), estimates, blocked)


def _reason(pick: Device, estimates: dict[Device, float], rows: Sequence[DeviceCandidate]) -> str:
    times = [f"{d} {time / 1e3:,.1f} us" for d, time in estimates.items() if d != pick]
    against = f" against {', '.join(times)}" if times else ", the only device here"
    least = "least estimated time per run"
    if estimates[pick] > min(estimates.values()):
        least = "preferred, and within 10 % of the least estimated time per run"
    reason = f"{least}: {estimates[pick] / 1e3:,.1f} us{against}"
    twins = [
        f"{row.device} is the same GPU as {row.same_as}"
        for row in rows
        if row.device in estimates and row.same_as is not None
    ]
    software = [d for d in estimates if d.backend != "cpu" and info_of(d).software]
    if software:
        listed = ", ".join(map(str, software))
        reason += f"; {listed} runs on the CPU in software and is taken as slower until measured"
    return "; ".join([reason, *twins])
