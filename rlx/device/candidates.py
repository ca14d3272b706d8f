"""Reports for every device of this machine whether it can run a graph: ``rlx.GraphDevices.report()``."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from rlx.backends.base import DeviceInfo
from rlx.backends.executable import Capabilities
from rlx.backends.registry import (
    absent,
    backend,
    backend_names,
    devices_of,
    how_to_install,
    is_second_way,
    listed_backends,
)
from rlx.cost.store import stored
from rlx.dataclasses import dataclass
from rlx.device.names import HOST_DEVICE, PLUGIN_DEVICES, Device, info_of
from rlx.device.policy import DevicePolicy
from rlx.errors import CompileError, DeviceError, DeviceUnavailableError, one_line, users_level
from rlx.ir.graph import Graph
from rlx.ir.static_sizes import usual
from rlx.passes.schedule import check_supported


@dataclass(frozen=True)
class DeviceCandidate:
    """One device, and whether it would run a graph.

    Attributes:
        device: The device.
        label: Its display name: the hardware, its API, whether it is software, and another device that is the same
            hardware.
        available: It is on this machine.
        registered: A backend for it is built in, installed or registered.
        supports_graph: It can run the graph, parts of it on the host if need be.
        recommended: True for the device to use.
        estimate_ns: Estimated nanoseconds of a run; None where it can't run.
        blocker: Why it can't be taken; None when it can.
        capabilities: The capabilities of its executables; None if they are not known beforehand.
        same_as: A device listed before that is the same hardware through another API or backend.
    """

    device: Device
    label: str
    available: bool
    registered: bool
    supports_graph: bool
    recommended: bool
    estimate_ns: float | None
    blocker: str | None
    capabilities: Capabilities | None
    same_as: Device | None = None

    @property
    def viable(self) -> bool:
        """True if the device may be used."""
        return self.blocker is None


# Backends that were asked whether this installation can use their devices.
_asked: set[str] = set()


# Nanoseconds of a run of the graph on a device; raises a ``CompileError`` where it can't run.
Estimate = Callable[[Device, DeviceInfo], float]


def survey(graph: Graph, policy: DevicePolicy, estimate: Estimate) -> list[DeviceCandidate]:
    """One row for every device: those of this machine, and those that something is missing for.

    Args:
        graph: A verified graph.
        policy: The allowed and the preferred devices.
        estimate: Asked about every device that has what the graph needs.
    """
    graph = usual(graph)
    rows: list[DeviceCandidate] = []
    hardware: dict[tuple[str, int], Device] = {}
    for name in listed_backends():
        try:
            result, missing = devices_of(name), ""
        except DeviceUnavailableError as error:
            result, missing = [], str(error)
        if not result:
            rows.append(_missing(name, missing or absent(name)))
        for i, info in enumerate(result):
            device = Device(name, i, numbered=True)
            twin = _twin(hardware, device, info, result[:i])
            rows.append(_row(graph, device, info, twin, policy, estimate))
    for name in PLUGIN_DEVICES:
        if name not in backend_names():
            reason = f"no backend for it is installed; {how_to_install(name)}"
            rows.append(_missing(name, reason, registered=False))
    times = {row.device: row.estimate_ns for row in contenders(rows)}
    known = {device: time for device, time in times.items() if time is not None}
    best = policy.best(known) if known else None
    return [replace(row, recommended=row.device == best) for row in rows]


def contenders(rows: Sequence[DeviceCandidate]) -> list[DeviceCandidate]:
    """The rows that may be picked: a second way to a GPU only where it was measured, or the first can't be taken."""
    viable = {row.device for row in rows if row.viable}
    return [row for row in rows if row.viable and (row.same_as not in viable or _measured(row))]


def _measured(row: DeviceCandidate) -> bool:
    return not is_second_way(row.device.backend) or stored(row.device) is not None


def warn_of_unusable(policy: DevicePolicy) -> None:
    """Issues a ``RuntimeWarning`` if a device is there that this installation can't use: once per process and backend.

    A machine without such a device is none, and neither is a backend that the policy leaves out.
    """
    for name in listed_backends():
        if name in _asked or policy.excludes(Device(name)):
            continue
        _asked.add(name)
        reason = _unusable(name)
        if reason is not None:
            text = f"a device for {name!r} is here, and 'auto' can't choose it: {one_line(reason)}"
            warnings.warn(text, RuntimeWarning, stacklevel=users_level())


def _unusable(name: str) -> str | None:
    """Returns why devices of a backend can't be used; None also for a backend that does not load."""
    try:
        return backend(name).unusable()
    except DeviceUnavailableError:
        return None


def blocker_of(graph: Graph, device: Device, policy: DevicePolicy) -> str | None:
    """Why a graph can't run on a device, by whatever name; None when it can.

    Args:
        graph: A verified graph.
        device: The device; its name may be an API's, or unknown.
        policy: The policy that limits the pick.
    """
    try:
        info = info_of(device)
    except DeviceError as error:
        return one_line(error)
    return policy.excludes(device) or unsupported(graph, device, info)


def unsupported(graph: Graph, device: Device, info: DeviceInfo) -> str | None:
    """Names the part of a graph that a device can't run; None if it runs the whole graph."""
    runs_on = backend(device.backend)
    reason = runs_on.refusal(info, graph)
    if reason is not None:
        return one_line(reason)
    kernel_set = runs_on.kernel_set
    if kernel_set:
        try:
            check_supported(graph, kernel_set, str(device), allow_host=True)
        except CompileError as error:
            return one_line(error)
    return _too_large(graph, info)


def label_of(info: DeviceInfo, same_as: Device | None = None) -> str:
    """The hardware, its API, whether it is software, and what else it is."""
    notes = [info.api] if info.api not in ("", "native") else []
    notes += ["software"] if info.software else []
    notes += [f"same GPU as {same_as}"] if same_as is not None else []
    return f"{info.adapter} ({', '.join(notes)})" if notes else info.adapter


def none_viable(graph: Graph, rows: Sequence[DeviceCandidate]) -> DeviceUnavailableError:
    """The error that says why no device can take a graph."""
    reasons = "; ".join(f"{row.device}: {row.blocker}" for row in rows if row.available)
    return DeviceUnavailableError(
        f"no device can run graph {graph.name!r}",
        got=reasons or "no device",
        hint="rlx.GraphDevices(graph).report() lists every device with the reason",
    )


def none_of_chain(graph: Graph, blockers: Mapping[Device, str]) -> DeviceUnavailableError:
    """The error that says of each device of a chain why it can't take a graph."""
    reasons = "; ".join(f"{key}: {why.splitlines()[0]}" for key, why in blockers.items())
    return DeviceUnavailableError(
        f"no device of the chain can run graph {graph.name!r}",
        got=reasons or "an empty chain",
        hint="add 'cpu' to the chain",
    )


def not_viable(device: Device, source: str, blocker: str, viable: Sequence[Device]) -> DeviceError:
    """The error that says why the device that was asked for can't be taken, and which could."""
    return DeviceUnavailableError(
        f"device {str(device)!r} can't run this graph",
        where=source,
        got=blocker,
        expected=f"one of {', '.join(map(str, viable)) or '(none)'}",
    )


def _row(
    graph: Graph,
    device: Device,
    info: DeviceInfo,
    same_as: Device | None,
    policy: DevicePolicy,
    estimate: Estimate,
) -> DeviceCandidate:
    reason, result, capabilities = unsupported(graph, device, info), None, None
    try:
        capabilities = backend(info.backend).known_capabilities(info)
        if reason is None:
            result = estimate(device, info)
            # Figures of a plug-in may be NaN: such a device is never picked.
            result = math.inf if math.isnan(result) else result
    except Exception as error:
        if backend(info.backend).is_built_in and not isinstance(error, CompileError | DeviceError):
            raise
        reason = reason or one_line(error)
    return DeviceCandidate(
        device=device,
        label=label_of(info, same_as),
        available=True,
        registered=True,
        supports_graph=reason is None,
        recommended=False,
        estimate_ns=result,
        blocker=policy.excludes(device) or reason,
        capabilities=capabilities,
        same_as=same_as,
    )


def separate_devices() -> list[Device]:
    """One device for each processor of this machine that can work beside the others: the CPU, and each GPU once.

    GPUs that the CPU imitates, and backends for tests, are left out.
    """
    hardware: dict[tuple[str, int], Device] = {}
    separate = [HOST_DEVICE]
    for name in listed_backends():
        try:
            result = devices_of(name)
        except DeviceUnavailableError:
            continue
        for i, info in enumerate(result):
            device = Device(name, i, numbered=True)
            twin = _twin(hardware, device, info, result[:i])
            if twin is None and info.kind not in ("cpu", "software") and not info.software:
                separate.append(device)
    return separate


def _missing(name: str, reason: str, registered: bool = True) -> DeviceCandidate:
    return DeviceCandidate(
        device=Device(name),
        label=name,
        available=False,
        registered=registered,
        supports_graph=False,
        recommended=False,
        estimate_ns=None,
        blocker=one_line(reason),
        capabilities=None,
    )


def _twin(
    seen: dict[tuple[str, int], Device],
    device: Device,
    info: DeviceInfo,
    before: Sequence[DeviceInfo],
) -> Device | None:
    """The device listed before that is the same hardware.

    A machine may have two equal GPUs: the second of that name is the second everywhere.
    """
    name = _hardware(info)
    number = sum(1 for item in before if _hardware(item) == name and item.api == info.api)
    first = seen.setdefault((name, number), device)
    return None if first == device else first


def _hardware(info: DeviceInfo) -> str:
    return (info.hardware or info.adapter).strip().lower()


def _too_large(graph: Graph, info: DeviceInfo) -> str | None:
    """The value that no buffer of the device can hold; those inside are the compiler's matter."""
    limits = [
        info.limits.get(f"max-{name}") for name in ("buffer-size", "storage-buffer-binding-size")
    ]
    maximum = min((limit for limit in limits if limit is not None), default=None)
    leaves = [node for node in graph.nodes if node.op in ("input", "param", "constant")]
    # Devices with such limits store elements in at most 4 bytes.
    sizes = {
        node.name: node.type.size * min(node.dtype.itemsize, 4)
        for node in (*leaves, *graph.outputs)
    }
    largest = max(sizes, key=lambda name: sizes[name], default=None)
    if maximum is None or largest is None or sizes[largest] <= maximum:
        return None
    return f"{largest} has {sizes[largest]} bytes, a buffer at most {maximum}"
