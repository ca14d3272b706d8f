"""Chooses the device for a graph by estimates: for each device, of the graph as it would run there."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rlx import flags
from rlx.backends.base import CompileOptions, DeviceInfo
from rlx.backends.registry import backend, request, unasked
from rlx.compiler.choice import Choice
from rlx.compiler.compile_cache import lowered_for
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.target import Target
from rlx.cost.background import measure_later, waits
from rlx.cost.calibration import Calibration
from rlx.cost.estimate import GraphCost, Lowering, graph_cost
from rlx.cost.model import BackendCostModel, CalibratedModel, CpuCostModel
from rlx.cost.store import kept_of, stored
from rlx.device.candidates import (
    DeviceCandidate,
    blocker_of,
    contenders,
    none_viable,
    not_viable,
    survey,
    warn_of_unusable,
)
from rlx.device.figures import cost_model
from rlx.device.names import HOST_DEVICE, Device, available_devices, info_of
from rlx.device.policy import CLOSE, DevicePolicy
from rlx.errors import DeviceUnavailableError
from rlx.ir.graph import Graph
from rlx.ir.plan import HOST
from rlx.ir.spans import phase
from rlx.ir.static_sizes import usual
from rlx.version import __version__


def lowering_of(lowered: LoweredModule, target: Target) -> Lowering:
    """Returns the facts about a lowered graph that its cost depends on besides the graph.

    Args:
        lowered: The graph made ready for the target.
        target: The device and its options.
    """
    schedule = lowered.schedule
    if schedule is None:
        return Lowering()
    cuts = [call for call in schedule.calls if call.kernel == HOST]
    hosted = set(lowered.hosted)
    if cuts:
        from rlx.passes.schedule import host_nodes

        hosted.update(host_nodes(lowered.graph, target.kernel_set))
    down = sum(value.type.nbytes for call in cuts for value in call.inputs if value is not None)
    up = sum(value.type.nbytes for call in cuts for value in call.outputs)
    own = {id(node): node.id for node in lowered.graph.nodes}
    dispatches = Counter(own[id(call.node)] for call in schedule.calls if id(call.node) in own)
    host = CpuCostModel() if cuts else None
    return Lowering(dispatches, frozenset(hosted), len(cuts), (down, up), host)


def measured_model(device: Device) -> BackendCostModel:
    """The figures of a device, which are measured now if they never were.

    With ``RLX_CALIBRATION=off`` they are the defaults. A plug-in states its own.

    Raises:
        DeviceError: The device is not here, or does not work.
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    if flags.CALIBRATION.get() == "off" or not backend(device.backend).is_built_in:
        return cost_model(device, info_of(device))
    return CalibratedModel(device, Calibration.load_or_measure(device))


def _unmeasured(devices: Sequence[Device]) -> list[Device]:
    """Returns the devices that have no figures of their own yet."""
    if flags.CALIBRATION.get() == "off":
        return []
    return [
        device
        for device in devices
        if backend(device.backend).is_built_in and stored(device) is None
    ]


class Estimates:
    """Estimates of one graph, each on the graph as it would run; a device's row asks for its own.

    Args:
        graph: A verified graph.
        options: The options of the compile.
        policy: Which devices may be picked; only those are measured.
        measure: Whether devices that were never measured are measured, where there is a choice: "now", "later"
            (in the background, while defaults serve), or "" for not at all.

    Attributes:
        costs: The estimates part by part.
        lowered: The lowered graph for each device.
        unmeasured: Devices whose figures are defaults, since they are measured later.
    """

    def __init__(
        self, graph: Graph, options: CompileOptions, policy: DevicePolicy, measure: str
    ) -> None:
        self._graph, self._options = usual(graph), options
        open_to = [d for d in available_devices() if policy.excludes(d) is None]
        self._measured = open_to if measure == "now" and len(open_to) > 1 else []
        self.unmeasured = _unmeasured(open_to) if measure == "later" and len(open_to) > 1 else []
        self.costs: dict[Device, GraphCost] = {}
        self.lowered: dict[Device, LoweredModule] = {}

    def __call__(self, device: Device, info: DeviceInfo) -> float:
        """Nanoseconds of a run.

        Raises:
            CompileError: The device can't run the graph.
            DeviceError: It does not work.
        """
        model = measured_model(device) if device in self._measured else cost_model(device, info)
        with phase(f"estimate on {device}"):
            target = Target.of(device, self._options)
            lowered = self.lowered[device] = lowered_for(self._graph, target)
            cost = graph_cost(lowered.graph, model, lowering_of(lowered, target))
        self.costs[device] = cost
        return cost.ns

    def by_figures(self, device: Device, figures: Calibration) -> float | None:
        """Nanoseconds by figures of a device that was not asked for; None where no device here is the same GPU."""
        wanted = figures.identity.adapter, figures.identity.api
        for twin, lowered in self.lowered.items():
            info = info_of(twin)
            if (info.adapter, info.api) == wanted:
                lowering = lowering_of(lowered, Target.of(twin, self._options))
                return graph_cost(lowered.graph, CalibratedModel(device, figures), lowering).ns
        return None


def choose(
    graph: Graph, options: CompileOptions | None = None, policy: DevicePolicy | None = None
) -> Choice:
    """Picks the device with the least estimated time among the devices that a policy allows.

    Where there is a choice, devices that were never measured have rlx's default figures, and are measured in a
    background thread, which takes some seconds, once on a machine; see ``RLX_CALIBRATION``. The reason says so. If the
    machine has a GPU but a part of rlx or of wgpu is missing, a ``RuntimeWarning`` says what to do, once in a process.

    Args:
        graph: The graph that is to run; it is verified.
        options: The options of the compile.
        policy: The allowed devices; None takes the environment's policy, ``RLX_DEVICE`` first of all.

    Returns:
        The pick, its reason, and every estimate.

    Raises:
        DeviceParseError: A variable of the environment names what is not a device.
        DeviceUnavailableError: ``RLX_DEVICE`` or the policy names a device that can't run the graph, or
            the policy leaves none.
        InputError: ``RLX_CALIBRATION`` does not parse.
    """
    policy = DevicePolicy.from_env() if policy is None else policy
    wanted = policy.device
    if wanted is None:
        warn_of_unusable(policy)
    measure = "" if wanted is not None else "now" if waits() else "later"
    result = Estimates(graph, options or CompileOptions(), policy, measure)
    rows = survey(graph, policy, result)
    estimates = {
        row.device: row.estimate_ns for row in rows if row.viable and row.estimate_ns is not None
    }
    blocked = {row.device: row.blocker for row in rows if row.available and row.blocker}
    if wanted is not None:
        blocker = blocker_of(graph, wanted, policy)
        if blocker is not None:
            raise not_viable(wanted, policy.device_source, blocker, list(estimates))
        pick, reason = wanted, f"{policy.device_source} says {str(wanted)!r}"
    elif estimates:
        if _wakes_faster(result, min(estimates.values()), policy):
            return choose(graph, options, policy)
        open_to = {row.device for row in contenders(rows)}
        pick = policy.best({key: ns for key, ns in estimates.items() if key in open_to})
        reason = _reason(pick, estimates, rows)
        if result.unmeasured:
            names = ", ".join(map(str, result.unmeasured))
            reason += f"; by default figures of {names}, which are measured in the background"
            measure_later(result.unmeasured)
    elif policy.excludes(HOST_DEVICE):
        raise none_viable(graph, rows)
    else:
        pick, reason = HOST_DEVICE, "no device has every kernel; trying the CPU"
    return Choice(pick, reason, estimates, blocked, result.costs, result.lowered)


def _wakes_faster(estimates: Estimates, least: float, policy: DevicePolicy) -> bool:
    """Has a second way to a GPU listed if its stored figures say that it takes less; so it is started only then."""
    for name in unasked():
        if policy.excludes(Device(name)) is not None:
            continue
        try:
            versions = __version__, backend(name).build_id()
        except DeviceUnavailableError:
            continue  # its package is not here
        for figures in kept_of(name, versions):
            ns = estimates.by_figures(Device(name), figures)
            if ns is not None and ns < least:
                request(name)
                return True
    return False


def _reason(pick: Device, estimates: dict[Device, float], rows: Sequence[DeviceCandidate]) -> str:
    times = [f"{d} {time / 1e3:,.1f} us" for d, time in estimates.items() if d != pick]
    against = f" against {', '.join(times)}" if times else ", the only device here"
    least = "least estimated time per run"
    if estimates[pick] > min(estimates.values()):
        least = "preferred, and within 10 % of the least estimated time per run"
        if estimates[pick] > CLOSE * min(estimates.values()):
            least = "it saves power, at no more than twice the least estimated time per run"
    reason = f"{least}: {estimates[pick] / 1e3:,.1f} us{against}"
    twins = [
        f"{row.device} is the same GPU as {row.same_as}"
        for row in rows
        if row.device in estimates and row.same_as is not None
    ]
    software = [d for d in estimates if info_of(d).software]
    if software and flags.CALIBRATION.get() == "off":
        listed = ", ".join(map(str, software))
        reason += f"; {listed} runs on the CPU in software and is taken as slower until measured"
    return "; ".join([reason, *twins])
