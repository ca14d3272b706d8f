"""Which device a graph should run on, and why: the cost model's estimates, compared."""

from __future__ import annotations

from dataclasses import dataclass

from rlx import flags
from rlx.backends.base import DeviceInfo, backend
from rlx.cost import BackendCostModel, CpuCostModel, WebGpuCostModel, estimate_graph_cost
from rlx.device.names import Device, available_devices, info_of
from rlx.errors import CompileError
from rlx.ir.graph import Graph
from rlx.passes.schedule import check_supported, host_nodes


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


def cost_model(device: Device, info: DeviceInfo) -> BackendCostModel:
    """The cost model of a device; plug-in backends count as GPUs."""
    if device.backend == "cpu":
        return CpuCostModel()
    return WebGpuCostModel(device, software=info.software)


def choose(graph: Graph) -> Choice:
    """Picks the device with the least estimated time; ``RLX_DEVICE`` overrides.

    Args:
        graph: The graph that is to run.

    Returns:
        The pick, its reason, and every estimate.

    Raises:
        DeviceParseError: ``RLX_DEVICE`` is not a device.
        DeviceUnavailableError: ``RLX_DEVICE`` names one that is not here.
    """
    estimates: dict[Device, float] = {}
    blocked: dict[Device, str] = {}
    for device in available_devices():
        info = info_of(device)
        kernel_set = backend(device.backend).kernel_set
        model = cost_model(device, info)
        try:
            cuts = 0
            if kernel_set:
                check_supported(graph, kernel_set, str(device), allow_host=True)
                cuts = len(host_nodes(graph, kernel_set))
            # A node that runs on the host cuts the schedule: one more round trip.
            cost = estimate_graph_cost(graph, model) + cuts * model.roundtrip_overhead_ns()
            estimates[device] = cost
        except CompileError as error:
            blocked[device] = str(error)
    wanted = flags.DEVICE.get()
    if wanted:
        device = Device.parse(wanted)
        info_of(device)
        return Choice(device, f"RLX_DEVICE is set to {wanted!r}", estimates, blocked)
    if not estimates:
        return Choice(Device("cpu"), "no device has every kernel; trying the CPU", {}, blocked)
    pick = min(estimates, key=lambda d: estimates[d])
    others = [f"{d} {estimates[d] / 1e3:,.1f} us" for d in estimates if d != pick]
    against = f" against {', '.join(others)}" if others else ", the only device here"
    reason = f"least estimated time per run: {estimates[pick] / 1e3:,.1f} us{against}"
    software = [d for d in estimates if d.backend != "cpu" and info_of(d).software]
    if software:
        listed = ", ".join(map(str, software))
        reason += f"; {listed} runs on the CPU in software and is taken as slower until measured"
    return Choice(pick, reason, estimates, blocked)
