"""Backends, their devices and the options of a compile."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Protocol

from rlx.backends.executable import Capabilities, Executable
from rlx.cost.gate import IoFusionGate
from rlx.cost.model import BackendCostModel
from rlx.dataclasses import dataclass
from rlx.errors import CompileError, InputError
from rlx.ir.fragments import Fragment
from rlx.ir.graph import Graph, Node
from rlx.ir.plan import MemoryPlan, Schedule


@dataclass(frozen=True)
class DeviceInfo:
    """One device that a backend found.

    Attributes:
        backend: Name of the backend.
        index: Number among the backend's devices.
        adapter: The hardware's name.
        api: Vulkan, Metal, D3D12, OpenGL, or native.
        driver: Driver name and version.
        software: A GPU API run by the CPU: right results, no speed.
        limits: The limits that kernels ask for.
        features: Optional features present.
        hardware: An identifier of the physical device, the same through all backends and APIs;
            empty for the adapter's name.
        vendor_id: PCI vendor of a GPU; None where nothing tells.
        device_id: PCI device of a GPU; None where nothing tells.
        kind: "cpu", or of a GPU "integrated" (it shares the processor's memory), "discrete", "virtual"
            or "software"; empty where nothing tells.
        handle: The object of the program that is the device, such as a ``wgpu.GPUDevice`` that the program
            shares with rlx; None for a device that rlx opens itself.
        fragments: The matrices that its matrix units multiply; empty if it has none, or they can't be used.
    """

    backend: str
    index: int
    adapter: str
    api: str = "native"
    driver: str = ""
    software: bool = False
    limits: Mapping[str, int] = field(default_factory=dict)
    features: frozenset[str] = frozenset()
    hardware: str = ""
    vendor_id: int | None = None
    device_id: int | None = None
    kind: str = ""
    handle: Any = field(default=None, repr=False)
    fragments: tuple[Fragment, ...] = ()


@dataclass(frozen=True)
class CompileOptions:
    """Choices for one compile.

    Attributes:
        fuse: Join operations into fewer kernels.
        fold: Compute constant parts of the graph once, now.
        dce: Drop what no output needs.
        cse: Compute equal nodes once.
        io_gate: An ``rlx.IoFusionGate`` that decides which fusions pay; None asks that they gain
            anything, by the figures measured on the device or the defaults of its kind.
        hoist: Compute what depends on params alone when they are set, not in every run.
        precision: "f32" computes f16 values in f32, "f16" in half precision, and rounds operands of
            f32 products where matrix units make them; "tf32" and "bf16" round the operands of f32 products to 10
            and to 7 bits behind the point, on devices that have such units; "int8" rounds what meets block-quantised
            weights to 8 bits, on the CPU; "fast" takes the fastest of these that a device has; see ``Session``.
        threads: At most this many CPU threads, the caller's included, 1 to 1024; None takes ``RLX_THREADS``,
            else the cores that the process may use. Results do not depend on it.
        memory_limit: Refuse a graph whose arena and params are larger than this, in bytes. A backend that plans its
            memory itself is asked when it has loaded the graph.
        profile: Keep the time of every kernel of every run for ``cg.profile()``. Runs then take the
            slower, timed way all the time; a device that can't time kernels is refused.
        arena_alignment: Offsets in the arena are multiples of this power of two.
        allow_host_fallback: Whether ops without a kernel on the device may run on the CPU inside the
            compiled graph; False makes them an ``UnsupportedOpError``.
        reuse_memory: False gives each value memory of its own, to tell faults apart.
        keep_params: Whether values of params stay in host memory as well where a device may be lost, for
            ``CompiledGraph.recover``. Read-only arrays are kept without a copy.
        denormals: "flush" lets arithmetic in f32 on the CPU give 0 in place of subnormal numbers (below
            1.2e-38), which take some processors fifty times as long and more; "keep" computes them. Graphs with
            anything in f64 keep them. See ``docs/explanation/numerics.md``.
        max_iterations: Trips that the loops of a run make at most, all of them together; a run that makes
            more is an ``InputError``. None sets no bound: a loop of a model that one does not trust may
            then never end, though signals (Ctrl-C) end it.
    """

    fuse: bool = True
    fold: bool = True
    dce: bool = True
    cse: bool = True
    io_gate: IoFusionGate | None = None
    hoist: bool = True
    precision: str = "f32"
    threads: int | None = None
    memory_limit: int | None = None
    profile: bool = False
    arena_alignment: int = 256
    allow_host_fallback: bool = True
    reuse_memory: bool = True
    keep_params: bool = True
    denormals: str = "flush"
    max_iterations: int | None = None


class KernelLimitError(CompileError):
    """A device's kernels can't do some nodes at their sizes; ``Backend.lower`` raises it.

    The compile moves the nodes to the host and lowers again.

    Attributes:
        reasons: The exceeded limits, by node.
    """

    def __init__(self, message: str, reasons: Mapping[Node, str]) -> None:
        super().__init__(message)
        self.reasons = dict(reasons)


class Program(Protocol):
    """A graph prepared for a kind of device, before it takes any of the device's memory.

    Its type is the backend's own. It is never changed. Executables on several devices of the same kind may be loaded
    from one program, at the same time.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that it holds besides the schedule: texts of kernels, for instance."""

    def pack(self) -> Any:
        """Returns the backend's decisions as JSON values, for ``Backend.unpack``; None where there are none.

        Anybody may have written the file that gives them back. They must hold no code and no address.
        """

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """Takes the memory of a device, and makes everything that runs need."""


class Backend(ABC):
    """A way of running graphs: the base class of every backend, built in or of a plug-in.

    A subclass sets ``name``, finds devices, and has ``lower`` or ``load``. The other methods have defaults;
    ``docs/guides/plugins.md`` explains each.

    Attributes:
        name: A lower-case word, which devices are named by.
        kernel_set: The kernels of the op records that it runs ("cpu", "webgpu"), or "" for a backend that takes graphs
            whole.
    """

    name: str
    kernel_set: str = ""

    @abstractmethod
    def devices(self) -> list[DeviceInfo]:
        """Returns the devices present; none where there is none. Never raises."""

    @abstractmethod
    def absent(self) -> str:
        """Returns the reason why there is no device, with the package to install."""

    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Makes a program, which later loads of the same graph share. The default keeps the arguments of ``load``.

        Args:
            info: The device.
            graph: The graph after the passes.
            schedule: Its kernel calls; None for a backend without kernel set.
            plan: The places of its values; None likewise.
            options: The user's options.

        Raises:
            KernelLimitError: Nodes are too large for its kernels.
        """
        return WholeGraph(self, graph, schedule, plan)

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Executable:
        """Loads a graph on a device. The default loads the program that ``lower`` makes."""
        return self.lower(info, graph, schedule, plan, options).load(info, options)

    def unpack(
        self,
        data: Any,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Makes the program that ``lower`` made from the values that it packed.

        Args:
            data: The packed values. Anybody may have written them, so they are checked.
            info: See ``lower``; so are the others.
            graph: See ``lower``.
            schedule: See ``lower``.
            plan: See ``lower``.
            options: See ``lower``.

        Raises:
            RlxError: They are not what this backend packs.
        """
        raise InputError(f"a plan has decisions of {self.name!r}, which makes none")

    def capabilities(self, info: DeviceInfo) -> Capabilities | None:
        """Returns the abilities of executables on a device; None where they are not known before one is loaded."""
        return None

    def cost_model(self, info: DeviceInfo) -> BackendCostModel | None:
        """Returns the figures of a device; None for those of a GPU that is not calibrated."""
        return None

    def refuses(self, info: DeviceInfo, graph: Graph) -> str | None:
        """Returns why a device can't run a graph; None where it can."""
        return None

    def unsupported(self, info: DeviceInfo, node: Node) -> str | None:
        """Returns why a device can't run a node, of a backend without kernel set; None where it can.

        rlx runs such nodes on the host, and loads the parts of the graph between them.
        """
        return None

    def unusable(self) -> str | None:
        """Returns why devices that are there can't be used by this installation; None where nothing is wrong."""
        return None

    def adopted(self, handle: object) -> DeviceInfo | None:
        """Returns a device object of the program as a device; None where the object is none of this backend's.

        Raises:
            DeviceUnavailableError: The device can't be shared.
        """
        return None

    def open_ahead(self, info: DeviceInfo) -> None:
        """Begins to open a device in a thread of its own. Errors are for ``load`` to raise."""
        return

    def refresh(self) -> None:
        """Looks for devices again."""
        return

    def build_id(self) -> str:
        """Returns the versions of everything besides rlx that programs depend on."""
        return ""

    def path(self, info: DeviceInfo) -> str:
        """Returns how kernels are made and called, where that can be chosen: an instruction set, switches.

        Figures that are measured on a device belong to one path.
        """
        return ""


@dataclass(frozen=True)
class WholeGraph:
    """The program of a backend that has none of its own: the arguments of its ``load``."""

    backend: Backend
    graph: Graph
    schedule: Schedule | None
    plan: MemoryPlan | None
    nbytes: int = 0

    def pack(self) -> None:
        """Returns None: nothing is decided before the load."""

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """Calls the backend's own ``load``."""
        return self.backend.load(info, self.graph, self.schedule, self.plan, options)
