"""What a backend is: the protocol that every way of running a graph fulfils."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple, Protocol

from rlx.backends.arguments import apart
from rlx.cost.gate import IoFusionGate
from rlx.dataclasses import dataclass
from rlx.errors import CompileError
from rlx.ir.fragments import Fragment
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.passes.extent import Extent


@dataclass(frozen=True)
class Capabilities:
    """What an executable can do; a call outside them raises.

    Attributes:
        run_slots: Has preallocated input and output views.
        arena_ptr: The outputs stand at an address of host memory that stays.
        zero_copy_inputs: ``run_slots`` reads arrays of an input's shape and dtype where they are.
        f16: Computes in half precision.
        device_timestamps: Kernels can be timed on the device; ``profile`` needs it, and ``trace``
            shows whole calls only without it.
        can_be_lost: The device may go away under it; ``CompiledGraph.recover`` gets it back.
        host_memory: Runs on the processor, in the memory of the host: nothing is uploaded or read back,
            and kernels run inside the call.
        extent_programs: An active extent is a program of its own: the compiler schedules the graph on
            fewer rows, and ``Executable.set_extent`` gets that in ``Extent.lowered``.
        kernel_variants: Its kernels have variants that ``rlx bench --tune`` measures, and that compiles
            choose among.
        optional_features: Names of ``DeviceInfo.features`` that kernels use where a device has them.
        gpu_buffers: Inputs and outputs stand in buffers of a GPU that a program may use as well, and a run may
            leave its results there: the executable has ``gpu_buffers`` and ``run_on_device``.
        precisions: Values of ``precision`` that a backend without kernels of the op records takes besides "f32":
            "tf32", "bf16", "f16".
        prepared_params: What depends on params alone is computed by rlx when they are set, and the backend gets the
            results as params of the names ``prepared:...``. Backends with a kernel set always have that.
        allocates: A run allocates memory, for its results or for the engine's own records. One that does not is
            fit for threads that must never wait for an allocator.
    """

    run_slots: bool = True
    arena_ptr: bool = True
    zero_copy_inputs: bool = False
    f16: bool = False
    device_timestamps: bool = False
    can_be_lost: bool = False
    host_memory: bool = False
    extent_programs: bool = False
    kernel_variants: bool = False
    optional_features: tuple[str, ...] = ()
    gpu_buffers: bool = False
    precisions: tuple[str, ...] = ()
    prepared_params: bool = False
    allocates: bool = False


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
        hardware: What names the physical device, equal for one that several backends or APIs show;
            empty for the adapter's name.
        vendor_id: PCI vendor of a GPU; None where nothing tells.
        device_id: PCI device of a GPU; None where nothing tells.
        kind: "cpu", or of a GPU "integrated" (it shares the processor's memory), "discrete", "virtual"
            or "software"; empty where nothing tells.
        handle: The object of the program that is the device, such as a ``wgpu.GPUDevice`` that the program
            shares with rlx; None for a device that rlx opens itself.
        fragments: What its matrix units multiply; empty where it has none, or they can't be used.
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
            and to 7 bits behind the point, on devices that have such units; see ``Session``.
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
        reasons: What is too much, by node.
    """

    def __init__(self, message: str, reasons: Mapping[Node, str]) -> None:
        super().__init__(message)
        self.reasons = dict(reasons)


class GpuBuffer(NamedTuple):
    """Where a value stands on a GPU.

    Attributes:
        buffer: The ``wgpu.GPUBuffer``. Other values stand in it as well.
        offset: The value's first byte, a multiple of 256.
        nbytes: Its bytes: the elements one after the other, as in a NumPy array in C order.
    """

    buffer: Any
    offset: int
    nbytes: int


class Moved(NamedTuple):
    """Bytes that runs have moved so far, weights apart.

    Attributes:
        uploaded: From the host.
        read_back: To the host.
        copied: On the device, for feeds. A value that is fed counts twice: a buffer can't be copied
            into itself, so it goes through a second one.
    """

    uploaded: int
    read_back: int
    copied: int


class Executable(Protocol):
    """A graph loaded on a device: everything is allocated and prepared.

    One that can take the time of its kernels has ``device_timestamps`` among its capabilities, and a
    method ``record(recorder: rlx.backends.recorder.Recorder | None)`` from which on later runs tell
    the recorder about each kernel, until it is called with None.

    An executable is called by whoever holds its ``CompiledGraph``, one call at a time. Optional methods
    make it faster and stronger:

    - ``owned_by(owner)`` returns ``run_slots`` as a function that holds a ``rlx._ext.owner.Owner`` while it
      runs, where that is cheaper than ``owner.call(run_slots, ...)``.
    - ``set_params(values)`` sets several params so that a clone's run sees all new values or none.
    - ``fill(given)`` puts ``(position, array)`` pairs into ``input_views``, ``run_fresh(given)`` then runs and
      returns the outputs in arrays of their own, and ``run_named(names, inputs)`` does so for a dict that
      needs no conversion, and gives None for any other. They save copies.
    - ``gpu_buffers`` and ``run_on_device(given, outputs)`` share values with other work on the same GPU: see
      ``CompiledGraph.run_gpu``. One that has them has ``gpu_buffers`` among its capabilities.
    - ``show_inputs()`` and ``show_outputs()`` are called before somebody is told of ``input_views`` or
      ``arena_ptr``: from then on what ``run_fresh`` reads and writes stands there, too.

    Attributes:
        input_views: Writable arrays, one per input: what a run without arguments computes from. A run with
            arguments leaves them as they are.
        output_views: Read-only arrays, one per output, refreshed by each run.
        output_slots: Byte offset and element count of each output in host memory at ``arena_ptr``.
        arena_ptr: Address of that memory.
        capabilities: What it can do.
        bytes_moved: What runs have moved between host and device.
    """

    input_views: tuple[Array, ...]
    output_views: tuple[Array, ...]
    output_slots: tuple[tuple[int, int], ...]
    arena_ptr: int
    capabilities: Capabilities

    @property
    def run_slots(self) -> Callable[..., tuple[Array, ...]]:
        """The hot call; see ``CompiledGraph``."""

    @property
    def bytes_moved(self) -> Moved:
        """Bytes that runs have moved so far."""

    def set_param(self, name: str, array: Array) -> None:
        """Uploads a weight of the declared shape and dtype."""

    def read_param(self, name: str) -> Array:
        """The weight as it is held, as a fresh array."""

    def run_outputs(self, indices: Sequence[int]) -> list[Array]:
        """Runs on ``input_views`` and brings back only these outputs, as views."""

    def read_row(self, output: int, row: int) -> Array:
        """One row of an output of the last run, without reading the rest."""

    def write_input(self, index: int, array: Array) -> None:
        """Puts an array into an input's own memory now."""

    def read_input(self, index: int) -> Array:
        """What stands in an input's own memory."""

    def set_resident(self, indices: Sequence[int]) -> None:
        """Inputs that stay as they are: ``run_slots`` takes no argument for them."""

    def set_feeds(self, pairs: Sequence[tuple[int, int]]) -> None:
        """After each run these inputs take these outputs, on the device: (input, output)."""

    def set_extent(self, extent: Extent | None) -> None:
        """Later runs compute fewer rows, or all again; see ``CompiledGraph.set_active_extent``."""

    def submit(self) -> None:
        """Starts a run on ``input_views`` without waiting for it; they may change at once."""

    def wait(self) -> None:
        """Waits for every run that was started; the outputs are those of the last."""

    def run_many(self, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """One run per set of inputs, one wait at the end; every set's outputs, as fresh arrays."""

    def clone(self) -> Executable:
        """An independent executable that shares the params."""

    def memory(self) -> dict[str, int]:
        """Bytes of arena, params and staging."""

    def kernels(self) -> str:
        """The kernels as text: names, or WGSL."""

    def abandon(self) -> None:
        """Before another is loaded in its place because the device is lost: that one gets a new device."""

    def close(self) -> None:
        """Frees device memory."""


def set_params(executable: Executable, values: Mapping[str, Array]) -> None:
    """Sets several params, at once where the executable can do that, else one after the other."""
    together = getattr(executable, "set_params", None)
    if together is not None:
        together(values)
        return
    for name, array in values.items():
        executable.set_param(name, array)


def fill(executable: Executable, given: Sequence[tuple[int, Array]]) -> None:
    """Puts arrays into input views, by their positions. They may be views of input views."""
    direct = getattr(executable, "fill", None)
    if direct is not None:
        direct(given)
        return
    views = executable.input_views
    for at, array in [(at, apart(array, views)) for at, array in given]:
        views[at][...] = array


def run_fresh(executable: Executable, given: Sequence[tuple[int, Array]]) -> list[Array]:
    """Runs on arrays that ``input_views`` then hold; gives the outputs in arrays of their own."""
    direct = getattr(executable, "run_fresh", None)
    if direct is not None:
        found: list[Array] = direct(given)
        return found
    fill(executable, given)
    return [view.copy() for view in executable.run_slots()]


def show(executable: Executable, what: str) -> None:
    """Tells an executable that somebody will look at its "inputs" or "outputs" between runs."""
    getattr(executable, f"show_{what}", _nothing)()


def _nothing() -> None:
    """What there is to do where runs use no other memory."""


class HostMemory:
    """What an executable can do that keeps inputs and outputs in host memory and runs at once."""

    input_views: tuple[Array, ...]
    output_views: tuple[Array, ...]
    run_slots: Callable[..., tuple[Array, ...]]

    @property
    def bytes_moved(self) -> Moved:
        """Nothing moves."""
        return Moved(0, 0, 0)

    def run_outputs(self, indices: Sequence[int]) -> list[Array]:
        """Runs, and gives views of these outputs."""
        views = self.run_slots()
        return [views[index] for index in indices]

    def read_row(self, output: int, row: int) -> Array:
        """A copy of the row."""
        found: Array = self.output_views[output][row].copy()
        return found

    def write_input(self, index: int, array: Array) -> None:
        """Copies into the input's view."""
        self.input_views[index][...] = array

    def read_input(self, index: int) -> Array:
        """A copy of the input's view."""
        return self.input_views[index].copy()

    def abandon(self) -> None:
        """Host memory is not lost."""

    def submit(self) -> None:
        """Runs; there is nothing to wait for afterwards."""
        self.run_slots()

    def wait(self) -> None:
        """Every run is over already."""

    def run_many(self, sets: Sequence[Sequence[Array]]) -> list[list[Array]]:
        """The runs one after the other."""
        return [[view.copy() for view in self.run_slots(*arrays)] for arrays in sets]


class Program(Protocol):
    """What a backend makes of a graph before it takes any of the device's memory.

    Its type is the backend's own: everything else keeps it, counts its bytes, and hands it back. It is never
    changed. Executables on several devices of the same kind may be loaded from one program, at the same
    time.
    """

    @property
    def nbytes(self) -> int:
        """Bytes of host memory that it holds besides the schedule: texts of kernels, for instance."""

    def pack(self) -> Any:
        """What the backend decided, as JSON values, for ``Backend.unpack``; None where it decides nothing.

        Anybody may have written the file that gives it back. It must hold no code and no address.
        """

    def load(self, info: DeviceInfo, options: CompileOptions) -> Executable:
        """Takes the memory of a device, and makes everything that runs need."""


class Backend(Protocol):
    """A way of running graphs.

    Besides what is listed here a backend may have any of these methods; see ``docs/guides/plugins.md``:

    - ``refuses(info: DeviceInfo, graph: Graph) -> str | None``: why it can't run a graph.
    - ``unsupported(info: DeviceInfo, node: Node) -> str | None``: why it can't run one operation, of a backend
      without kernel set: by op, by dtype, by size. rlx runs those nodes on the host, and gives the backend the
      parts of the graph between them.
    - ``cost_model(info: DeviceInfo) -> BackendCostModel``: the figures of a device. Without it one
      counts as a GPU that is not calibrated.
    - ``capabilities(info: DeviceInfo) -> Capabilities``: what its executables can do.
    - ``lower(info, graph, schedule, plan, options) -> Program``, with the arguments of ``load``: what is
      worth keeping for later loads of the same graph. ``load`` is then ``lower(...).load(info, options)``;
      ``Lowering`` has that. It raises ``KernelLimitError`` where nodes are too large for its kernels.
    - ``unpack(data, info, graph, schedule, plan, options) -> Program``: the program that ``lower`` made, by
      what it packed. It checks the data, which may come from anybody, and raises ``rlx.RlxError``. Only
      backends whose programs pack something need it.
    - ``open_ahead(info: DeviceInfo) -> None``: begins to open a device, in a thread of its own. A ``Session`` for a named
      device calls it when it is made; errors are for ``load`` to raise.
    - ``refresh() -> None``: looks for its devices again, where they may come and go.
    - ``build_id() -> str``: the versions of what its programs depend on besides rlx itself.
    - ``path(info: DeviceInfo) -> str``: how kernels are made and called, where that can be chosen: an
      instruction set, switches. Figures measured on a device belong to one path.
    - ``unusable() -> str | None``: why devices that are there can't be used by this installation, and what to
      do; "auto" warns of it once. None where nothing is wrong.
    """

    name: str
    # Which kernels of the op records it runs ("cpu", "webgpu"), or "" when it reads none.
    kernel_set: str

    def devices(self) -> list[DeviceInfo]:
        """The devices present; empty when there is none. Never raises."""

    def absent(self) -> str:
        """Why ``devices`` is empty, and what to install."""

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Executable:
        """Makes everything that runs need."""


class Lowering(ABC):
    """What a backend has in common with others whose schedules become programs."""

    @abstractmethod
    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Makes the program of a schedule; see ``Backend``."""

    def load(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Executable:
        """Lowers and loads, where nobody keeps the program."""
        return self.lower(info, graph, schedule, plan, options).load(info, options)
