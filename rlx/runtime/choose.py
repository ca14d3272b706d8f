"""Which device a graph should run on: every device's estimate of the graph as it would run there."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from rlx import flags
from rlx.backends.base import CompileOptions
from rlx.cost import (
    BackendCostModel,
    CalibratedModel,
    Calibration,
    CpuCostModel,
    GraphCost,
    Lowering,
    graph_cost,
)
from rlx.device.choose import cost_model
from rlx.device.names import Device, available_devices, info_of
from rlx.errors import CompileError, DeviceError
from rlx.ir.graph import Graph
from rlx.ir.plan import HOST
from rlx.ir.spans import phase
from rlx.passes.schedule import host_nodes
from rlx.runtime.build import Lowered, Target
from rlx.runtime.memo import lowered_for


@dataclass(frozen=True)
class Choice:
    """The device picked for a graph.

    Attributes:
        device: The pick.
        reason: One sentence.
        estimates: Estimated nanoseconds per run of every device that can run the graph.
        blocked: Why the others can't.
        costs: The estimates part by part.
        lowered: What the graph became for each device, for the compile that follows.
    """

    device: Device
    reason: str
    estimates: dict[Device, float]
    blocked: dict[Device, str]
    costs: dict[Device, GraphCost] = field(default_factory=dict, repr=False)
    lowered: dict[Device, Lowered] = field(default_factory=dict, repr=False)


def lowering_of(lowered: Lowered, target: Target, host: BackendCostModel | None = None) -> Lowering:
    """What the cost of a lowered graph depends on besides the graph.

    Args:
        lowered: The graph made ready for the target.
        target: What it is for.
        host: The figures of the CPU for what a GPU leaves to it; None takes what is known.
    """
    schedule = lowered.schedule
    if schedule is None:
        return Lowering()
    cuts = [call for call in schedule.calls if call.kernel == HOST]
    hosted = host_nodes(lowered.graph, target.kernel_set) if cuts else {}
    down = sum(value.type.nbytes for call in cuts for value in call.inputs if value is not None)
    up = sum(value.type.nbytes for call in cuts for value in call.outputs)
    own = {id(node): node.id for node in lowered.graph.nodes}
    dispatches = Counter(own[id(call.node)] for call in schedule.calls if id(call.node) in own)
    host = host or (CpuCostModel() if cuts else None)
    return Lowering(dispatches, frozenset(hosted), len(cuts), (down, up), host)


def cost_on(graph: Graph, target: Target, model: BackendCostModel) -> tuple[GraphCost, Lowered]:
    """The estimate of a run of a graph on a device, after everything that compiling does to it.

    Args:
        graph: A verified graph.
        target: Where it would run.
        model: The device's figures.

    Returns:
        The estimate, and the lowered graph.

    Raises:
        CompileError: The device can't run the graph.
    """
    lowered = lowered_for(graph, target)
    return graph_cost(lowered.graph, model, lowering_of(lowered, target)), lowered


def measured_model(device: Device) -> BackendCostModel:
    """The figures of a device, which are measured now if they never were.

    With ``RLX_CALIBRATION=off`` they are the defaults.

    Raises:
        DeviceError: The device is not here, or does not work.
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    if flags.CALIBRATION.get() == "off":
        return _known_model(device)
    return CalibratedModel(device, Calibration.load_or_measure(device))


def _known_model(device: Device) -> BackendCostModel:
    return cost_model(device, info_of(device))


def choose(graph: Graph, options: CompileOptions | None = None) -> Choice:
    """Picks the device with the least estimated time; ``RLX_DEVICE`` overrides.

    Where there is a choice, devices that were never measured are measured first, which takes about
    two seconds each, once on a machine; see ``RLX_CALIBRATION``.

    Args:
        graph: The graph that is to run; it is verified.
        options: What it is to be compiled with.

    Returns:
        The pick, its reason, and every estimate.

    Raises:
        DeviceParseError: ``RLX_DEVICE`` is not a device.
        DeviceUnavailableError: ``RLX_DEVICE`` names one that is not here.
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    options = options or CompileOptions()
    devices, wanted = available_devices(), flags.DEVICE.get()
    forced = Device.parse(wanted) if wanted else None
    if forced is not None:
        info_of(forced)
    measure = len(devices) > 1 and forced is None
    costs: dict[Device, GraphCost] = {}
    lowered: dict[Device, Lowered] = {}
    blocked: dict[Device, str] = {}
    for device in devices:
        try:
            known = measured_model if measure else _known_model
            model = known(device)
            with phase(f"estimate on {device}"):
                target = Target.of(device, options)
                costs[device], lowered[device] = cost_on(graph, target, model)
        except (CompileError, DeviceError) as error:
            blocked[device] = str(error)
    estimates = {device: cost.ns for device, cost in costs.items()}
    if forced is not None:
        reason = f"RLX_DEVICE is set to {wanted!r}"
        return Choice(forced, reason, estimates, blocked, costs, lowered)
    if not estimates:
        return Choice(Device("cpu"), "no device has every kernel; trying the CPU", {}, blocked)
    pick = min(estimates, key=lambda d: estimates[d])
    others = [f"{d} {estimates[d] / 1e3:,.1f} us" for d in estimates if d != pick]
    against = f" against {', '.join(others)}" if others else ", the only device here"
    reason = f"least estimated time per run: {estimates[pick] / 1e3:,.1f} us{against}"
    software = [d for d in estimates if d.backend != "cpu" and info_of(d).software]
    if software and flags.CALIBRATION.get() == "off":
        listed = ", ".join(map(str, software))
        reason += f"; {listed} runs on the CPU in software and is taken as slower until measured"
    return Choice(pick, reason, estimates, blocked, costs, lowered)
