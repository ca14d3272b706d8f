"""Calls into backends, which may be plug-ins: an error in a plug-in becomes a message that names it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rlx.backends.base import Backend, CompileOptions, DeviceInfo, Program
from rlx.backends.executable import Capabilities, Executable
from rlx.cost.model import BackendCostModel
from rlx.errors import CompileError, DeviceUnavailableError, RlxError
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ir.rewrite import subgraphs
from rlx.ops.placeholders import LEAVES

R = TypeVar("R")
# The members that every executable has.
_MEMBERS = sorted(
    {*Executable.__annotations__, *(name for name in vars(Executable) if not name.startswith("_"))}
)


def plugin_error(name: str, where: str, error: object) -> DeviceUnavailableError:
    """Makes the error for a backend that does not work.

    Args:
        name: The backend.
        where: The call that failed.
        error: The exception, or what is wrong with the answer.
    """
    got = f"{type(error).__name__}: {error}" if isinstance(error, BaseException) else error
    hint = "repair or remove the package; everything else works without it"
    return DeviceUnavailableError(
        f"the plug-in for {name!r} does not work", where=where, got=got, hint=hint
    )


class GuardedBackend:
    """A backend whose errors name it, where it is a plug-in.

    Args:
        plain: The backend.

    Attributes:
        plain: The backend.
        name: Its name.
        kernel_set: See ``Backend``.
        is_built_in: Whether it is rlx's own. Errors of those pass unchanged.
    """

    def __init__(self, plain: Backend) -> None:
        self.plain, self.name, self.kernel_set = plain, plain.name, plain.kernel_set
        self.is_built_in = type(plain).__module__.startswith("rlx.")
        self._refuses = type(plain).refuses is not Backend.refuses

    def devices(self) -> list[DeviceInfo]:
        """Returns its devices; see ``Backend``.

        Raises:
            DeviceUnavailableError: It does not work.
        """
        try:
            infos = list(self.plain.devices())
        except Exception as error:
            raise plugin_error(self.name, "devices()", error) from error
        for info in infos:
            if not isinstance(info, DeviceInfo) or info.backend != self.name:
                text = f"gave {info!r}, no rlx.DeviceInfo of {self.name!r}"
                raise plugin_error(self.name, "devices()", text)
        return infos

    def refresh(self) -> None:
        """Looks for devices again; raises as ``devices``."""
        self._call("refresh", self.plain.refresh)

    def open_ahead(self, info: DeviceInfo) -> None:
        """Begins to open a device; raises as ``devices``."""
        self._call("open_ahead", self.plain.open_ahead, info)

    def unusable(self) -> str | None:
        """Returns why devices can't be used; None also for a plug-in that does not work, which ``devices`` reports."""
        try:
            reason = self.plain.unusable()
        except Exception:
            return None
        return None if reason is None else str(reason)

    def refusal(self, info: DeviceInfo, graph: Graph) -> str | None:
        """Returns why a device refuses a graph; None where it does not."""
        if not self._refuses:
            return None
        try:
            reason = self._ask("refuses", self.plain.refuses, info, graph)
        except DeviceUnavailableError as error:
            return str(error)
        return None if reason is None else str(reason)

    def unsupported(self, info: DeviceInfo, graph: Graph) -> dict[Node, str]:
        """Returns the nodes that a device can't run, with reasons; also those that hold one in a subgraph.

        Raises:
            DeviceUnavailableError: It does not work.
        """
        reasons: dict[Node, str] = {}
        for node in graph.nodes:
            if node.op in LEAVES or node.op == PART:
                continue
            reason = self._ask("unsupported", self.plain.unsupported, info, node)
            graphs = dict.fromkeys(subgraphs(node))
            inside = [why for item in graphs for why in self.unsupported(info, item).values()]
            if reason is not None:
                reasons[node] = str(reason)
            elif inside:
                reasons[node] = f"in its subgraph: {inside[0]}"
        return reasons

    def figures(self, info: DeviceInfo) -> BackendCostModel | None:
        """Returns the figures of a device as the backend states them; raises as ``devices``."""
        return self._ask("cost_model", self.plain.cost_model, info)

    def known_capabilities(self, info: DeviceInfo) -> Capabilities | None:
        """Returns the abilities of executables, where they are known beforehand; raises as ``devices``."""
        return self._ask("capabilities", self.plain.capabilities, info)

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """Returns ``known_capabilities``, or the defaults."""
        return self.known_capabilities(info) or Capabilities()

    def path(self, info: DeviceInfo) -> str:
        """Returns how kernels are made and called; raises as ``devices``."""
        return str(self._ask("path", self.plain.path, info))

    def build_id(self) -> str:
        """Returns the versions that programs depend on; raises as ``devices``."""
        return str(self._ask("build_id", self.plain.build_id))

    def program(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Lowers a graph to a program; see ``Backend.lower``.

        Raises:
            KernelLimitError: Nodes are too large for its kernels.
            CompileError: It can't, or it is a plug-in that does not work.
        """
        with self._own_fault(graph, "lower"):
            return self.plain.lower(info, graph, schedule, plan, options)

    def unpacked(
        self,
        data: Any,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Returns the program of packed decisions, which may come from anybody; see ``Backend.unpack``.

        Raises:
            RlxError: They are not what the backend packs.
        """
        with self._own_fault(graph, "unpack"):
            return self.plain.unpack(data, info, graph, schedule, plan, options)

    def executable(
        self, program: Program, info: DeviceInfo, graph: Graph, options: CompileOptions
    ) -> Executable:
        """Loads a program.

        Raises:
            DeviceMemoryError: The device has no room.
            CompileError: It does not load, or belongs to a plug-in that does not work.
        """
        with self._own_fault(graph, "load"):
            executable = program.load(info, options)
        lacking = [name for name in _MEMBERS if not hasattr(executable, name)]
        if lacking:
            what = f"the executable of the plug-in for {self.name!r} lacks {', '.join(lacking)}"
            hint = "docs/guides/plugins.md lists the members; rlx.plugin.HostExecutable has most of them"
            raise CompileError(what, got=type(executable).__name__, hint=hint)
        return executable

    @contextmanager
    def _own_fault(self, graph: Graph, doing: str) -> Iterator[None]:
        """Turns an exception of a plug-in into an error that names it; errors of rlx pass unchanged."""
        try:
            yield
        except Exception as error:
            if isinstance(error, RlxError) or self.is_built_in:
                raise
            raise CompileError(
                f"the plug-in for {self.name!r} could not {doing} graph {graph.name!r}",
                got=f"{type(error).__name__}: {error}",
                hint="compile for another device, or report it to the plug-in's authors",
            ) from error

    def _ask(self, name: str, method: Callable[..., R], *args: Any) -> R:
        """Calls a method; every exception of a plug-in becomes a ``DeviceUnavailableError``."""
        try:
            return method(*args)
        except Exception as error:
            if self.is_built_in:
                raise
            raise plugin_error(self.name, f"{name}()", error) from error

    def _call(self, name: str, method: Callable[..., None], *args: Any) -> None:
        """Calls a method; exceptions that are no errors of rlx become ``DeviceUnavailableError``."""
        try:
            method(*args)
        except RlxError:
            raise
        except Exception as error:
            raise plugin_error(self.name, f"{name}()", error) from error
