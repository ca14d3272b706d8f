"""Calls into backends, which may be plug-ins: any error in one becomes a message that names it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from rlx.backends.base import (
    Backend,
    Capabilities,
    CompileOptions,
    DeviceInfo,
    Executable,
    Program,
)
from rlx.backends.registered import backend, plugin_error, request
from rlx.cost.model import BackendCostModel
from rlx.dataclasses import dataclass
from rlx.errors import CompileError, DeviceUnavailableError, InputError, RlxError, describe
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ops.leaves import LEAVES


def is_built_in(name: str) -> bool:
    """Whether the backend of that name is rlx's own.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    return type(backend(name)).__module__.startswith("rlx.")


def devices_of(name: str) -> list[DeviceInfo]:
    """The devices of a backend; empty when it works and there is none.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    one = backend(name)
    request(name)
    try:
        found = list(one.devices())
    except Exception as error:  # Whatever a plug-in does wrong stays its own matter.
        raise plugin_error(name, "devices()", error) from error
    for info in found:
        if not isinstance(info, DeviceInfo) or info.backend != name:
            raise plugin_error(name, "devices()", f"gave {info!r}, no rlx.DeviceInfo of {name!r}")
    return found


def refresh(name: str) -> None:
    """Lets a backend look for its devices again, where they may come and go.

    Raises:
        DeviceUnavailableError: There is no such backend, or it does not work.
    """
    try:
        look = getattr(backend(name), "refresh", None)
        if look is not None:
            look()
    except RlxError:
        raise
    except Exception as error:
        raise plugin_error(name, "refresh()", error) from error


def open_ahead(info: DeviceInfo) -> None:
    """Lets a backend begin to open a device, in a thread of its own, while a graph is built and goes through passes.

    Raises:
        DeviceUnavailableError: The backend does not work.
    """
    begin = getattr(backend(info.backend), "open_ahead", None)
    if begin is None:
        return
    try:
        begin(info)
    except RlxError:
        raise
    except Exception as error:
        raise plugin_error(info.backend, "open_ahead()", error) from error


# Backends that run on a device object of another library that the program hands over.
_ADOPTING = ("webgpu", "dawn")


def adopted(handle: object) -> DeviceInfo | None:
    """An object of the program as a device; None where it stands for none.

    Raises:
        DeviceUnavailableError: It is one that can't be shared.
    """
    for name in _ADOPTING:
        adopt = getattr(backend(name), "adopted", None)
        found: DeviceInfo | None = None if adopt is None else adopt(handle)
        if found is not None:
            return found
    return None


def absent(name: str) -> str:
    """Why a backend has no devices, and what to install."""
    try:
        devices_of(name)
        return str(backend(name).absent())
    except Exception as error:
        return (
            str(error)
            if isinstance(error, RlxError)
            else str(plugin_error(name, "absent()", error))
        )


def unusable(name: str) -> str | None:
    """Why devices that are there can't be used, as a backend says; None where nothing is wrong or it does not say."""
    try:
        asks = getattr(backend(name), "unusable", None)
        found = None if asks is None else asks()
    except Exception:  # a plug-in that does not work is reported where its devices are listed
        return None
    return None if found is None else str(found)


def refusal(info: DeviceInfo, graph: Graph) -> str | None:
    """Why a device's backend itself refuses a graph; None when it does not, or is not asked."""
    try:
        found = _asked(info, "refuses", graph)
    except DeviceUnavailableError as error:
        return str(error)
    return None if found is None else str(found)


def unsupported_by(info: DeviceInfo, graph: Graph) -> dict[Node, str]:
    """The nodes that a device's backend can't run, each with its reason; those that hold one in a subgraph as well.

    Raises:
        DeviceUnavailableError: The backend's ``unsupported`` does not work.
    """
    if getattr(backend(info.backend), "unsupported", None) is None:
        return {}
    found: dict[Node, str] = {}
    for node in graph.nodes:
        if node.op in LEAVES or node.op == PART:
            continue
        reason = _asked(info, "unsupported", node)
        inner = dict.fromkeys(one for one in node.attrs.values() if isinstance(one, Graph))
        inside = [why for one in inner for why in unsupported_by(info, one).values()]
        if reason is not None:
            found[node] = str(reason)
        elif inside:
            found[node] = f"in its subgraph: {inside[0]}"
    return found


def figures_of(info: DeviceInfo) -> BackendCostModel | None:
    """A device's figures as its backend states them; None when it states none.

    Raises:
        DeviceUnavailableError: The backend's ``cost_model`` does not work.
    """
    found: BackendCostModel | None = _asked(info, "cost_model")
    return found


def capabilities_of(info: DeviceInfo) -> Capabilities | None:
    """What executables for a device can do, where its backend says so beforehand.

    Raises:
        DeviceUnavailableError: The backend's ``capabilities`` does not work.
    """
    found: Capabilities | None = _asked(info, "capabilities")
    return found


# What the protocol asks of every executable.
_MEMBERS = sorted(
    {*Executable.__annotations__, *(name for name in vars(Executable) if not name.startswith("_"))}
)


@dataclass(frozen=True)
class WholeGraph:
    """The program of a backend that has none of its own: what its ``load`` is given."""

    backend: Backend
    graph: Graph
    schedule: Schedule | None
    plan: MemoryPlan | None
    nbytes: int = 0

    def pack(self) -> None:
        """It decides nothing before it loads."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """The backend's own ``load``."""
        return self.backend.load(info, self.graph, self.schedule, self.plan, options)


def program_of(
    info: DeviceInfo,
    graph: Graph,
    schedule: Schedule | None,
    plan: MemoryPlan | None,
    options: CompileOptions,
) -> Program:
    """What a device's backend makes of a graph; see ``Backend.lower``.

    Raises:
        KernelLimitError: Nodes are too large for its kernels.
        CompileError: It can't, or it is a plug-in that does not work.
    """
    runs_on = backend(info.backend)
    lower = getattr(runs_on, "lower", None)
    if lower is None:
        return WholeGraph(runs_on, graph, schedule, plan)
    with _own_fault(info.backend, graph, "lower"):
        found: Program = lower(info, graph, schedule, plan, options)
    return found


def unpacked(
    data: Any,
    info: DeviceInfo,
    graph: Graph,
    schedule: Schedule | None,
    plan: MemoryPlan | None,
    options: CompileOptions,
) -> Program:
    """The program that ``program_of`` made, by what it packed, which may come from anybody.

    Raises:
        RlxError: The data is not what its backend packs, or see ``program_of``.
    """
    unpack = getattr(backend(info.backend), "unpack", None)
    if unpack is None:
        raise InputError(describe(f"a plan with decisions of {info.backend!r}, which makes none"))
    with _own_fault(info.backend, graph, "unpack"):
        found: Program = unpack(data, info, graph, schedule, plan, options)
    return found


def executable_of(
    program: Program, info: DeviceInfo, graph: Graph, options: CompileOptions
) -> Executable:
    """Loads a program.

    Raises:
        DeviceMemoryError: The device has no room.
        CompileError: It does not load, or belongs to a plug-in that does not work.
    """
    with _own_fault(info.backend, graph, "load"):
        found = program.load(info, options)
    lacking = [name for name in _MEMBERS if not hasattr(found, name)]
    if lacking:
        what = f"the executable of the plug-in for {info.backend!r} lacks {', '.join(lacking)}"
        hint = "docs/guides/plugins.md lists the members; rlx.backends.base.HostMemory has some"
        raise CompileError(describe(what, got=type(found).__name__, hint=hint))
    return found


def build_id_of(name: str) -> str:
    """The versions of what a backend's programs depend on besides rlx itself.

    Raises:
        DeviceUnavailableError: Its ``build_id`` does not work.
    """
    asks = getattr(backend(name), "build_id", None)
    try:
        return "" if asks is None else str(asks())
    except Exception as error:
        raise plugin_error(name, "build_id()", error) from error


@contextmanager
def _own_fault(name: str, graph: Graph, doing: str) -> Iterator[None]:
    """Turns whatever a plug-in raises into an error that names it; errors of rlx stay as they are."""
    try:
        yield
    except Exception as error:
        if isinstance(error, RlxError) or is_built_in(name):
            raise
        raise CompileError(
            describe(
                f"the plug-in for {name!r} could not {doing} graph {graph.name!r}",
                got=f"{type(error).__name__}: {error}",
                hint="compile for another device, or report it to the plug-in's authors",
            )
        ) from error


def abilities(info: DeviceInfo) -> Capabilities:
    """``capabilities_of``, or the defaults for a backend that does not say.

    Raises:
        DeviceUnavailableError: See ``capabilities_of``.
    """
    return capabilities_of(info) or Capabilities()


def path_of(info: DeviceInfo) -> str:
    """How a device's kernels are made and called; "" where that can't be chosen.

    Raises:
        DeviceUnavailableError: The backend's ``path`` does not work, or what was chosen is not here.
    """
    found = _asked(info, "path")
    return "" if found is None else str(found)


def _asked(info: DeviceInfo, method: str, *args: Any) -> Any:
    """The answer of a method that a backend may lack."""
    asks = getattr(backend(info.backend), method, None)
    try:
        return None if asks is None else asks(info, *args)
    except Exception as error:
        if is_built_in(info.backend):
            raise
        raise plugin_error(info.backend, f"{method}()", error) from error
