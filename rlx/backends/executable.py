"""The protocol of executables: a graph on a device, with memory and kernels prepared.

An executable binds arrays to inputs and outputs, submits runs, and holds params and handles. Every way of running a
graph is a function of ``rlx.runtime`` over these members. Memory of the host that executables read and write is made here.
"""

from __future__ import annotations

import mmap
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from rlx.cgroups import most_memory
from rlx.dataclasses import dataclass
from rlx.errors import DeviceMemoryError
from rlx.ir.opdef import Array, TensorType
from rlx.resource_limits import during

if TYPE_CHECKING:
    from rlx._ext.locks import ReadWriteLock, TryLock
    from rlx._ext.program import ServedProgram, SizeSteps
    from rlx.backends.recorder import Recorder
    from rlx.passes.dynamic_batch import DynamicRows

_ALIGNMENT = 256
# Bytes of a huge page, which one entry of the processor's address cache covers. Where the system gives them to who asks,
# memory from half of that on asks: with pages of 4 KiB the speed of a kernel depends on where they happen to lie.
_HUGE = 1 << 21
# From so many bytes on memory is a mapping of its own: pages of it that nobody touches take no memory.
_MAPPED = 1 << 18
# The same for memory that shares huge pages with its neighbours.
_FILLED_MAPPED = 1 << 16
_ADVICE: int | None = getattr(mmap, "MADV_HUGEPAGE", None)
RunSlots = Callable[..., tuple[Array, ...]]
RunDict = Callable[[Any], list[Array] | None]


@dataclass(frozen=True)
class Capabilities:
    """The abilities of an executable; a call outside them raises.

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
        extent_programs: An active extent is a program of its own: the compiler schedules the graph with a dim
            for its rows, and ``Executable.bind`` gets that in ``DynamicRows.schedule``.
        sized_programs: One program serves many sizes of a graph with dims: its executable is a ``SizedProgram``.
        kernel_variants: Its kernels have variants that ``rlx bench --tune`` measures, and that compiles
            choose among.
        optional_features: Names of ``DeviceInfo.features`` that kernels use where a device has them.
        gpu_buffers: Inputs and outputs stand in buffers of a GPU that a program may use as well, and a run may
            leave its results there; ``Executable.gpu_buffers`` returns them.
        precisions: Values of ``precision`` that the backend takes besides "f32", and "f16" where ``f16`` says so:
            "tf32", "bf16", "int8".
        prepared_params: rlx computes nodes that depend on params alone when these are set, and the backend gets the
            results as params of the names ``prepared:...``. Backends with a kernel set always have that.
        allocates: A run allocates memory, for its results or for the engine's own records. Executables without it suit
            threads that must never wait for an allocator.
    """

    run_slots: bool = True
    arena_ptr: bool = True
    zero_copy_inputs: bool = False
    f16: bool = False
    device_timestamps: bool = False
    can_be_lost: bool = False
    host_memory: bool = False
    extent_programs: bool = False
    sized_programs: bool = False
    kernel_variants: bool = False
    optional_features: tuple[str, ...] = ()
    gpu_buffers: bool = False
    precisions: tuple[str, ...] = ()
    prepared_params: bool = False
    allocates: bool = False


class GpuBuffer(NamedTuple):
    """A range of a GPU buffer that holds a value.

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


class Source(NamedTuple):
    """An input whose value is an output of another executable, on the same device.

    Attributes:
        input: The input's position. Its argument is no more than an array of its shape.
        executable: The other executable, which ran before.
        output: The position of its output.
    """

    input: int
    executable: GpuExecutable
    output: int


class Binding(NamedTuple):
    """The settings of later runs. A binding is never changed: ``Executable.bind`` replaces it.

    Attributes:
        residents: Positions of the inputs that runs take no argument for.
        feeds: ``(input, output)``: residents that take an output after each run, on the device.
        extent: The rows that runs compute; None for all.
        recorder: Receives the time of every kernel; None records nothing.
        sources: Inputs that runs copy on the device, for executables with ``capabilities.gpu_buffers``.
        left: Positions of the outputs that compiled calls leave on the device, likewise.
    """

    residents: tuple[int, ...] = ()
    feeds: tuple[tuple[int, int], ...] = ()
    extent: DynamicRows | None = None
    recorder: Recorder | None = None
    sources: tuple[Source, ...] = ()
    left: frozenset[int] = frozenset()

    def arguments(self, count: int) -> tuple[int, ...]:
        """Returns the positions of the inputs that take an argument, of so many inputs."""
        return tuple(i for i in range(count) if i not in self.residents)


class Pending(Protocol):
    """A run that was submitted."""

    def wait(self) -> list[Array]:
        """Waits for the run and returns the outputs that were asked for. It may be called again."""


class Done:
    """A run that is over.

    Args:
        outputs: Its outputs.
    """

    __slots__ = ("_outputs",)

    def __init__(self, outputs: list[Array]) -> None:
        self._outputs = outputs

    def wait(self) -> list[Array]:
        """Returns the outputs."""
        return self._outputs


class Executable(Protocol):
    """A graph loaded on a device.

    The caller makes one call at a time. Every member is required; ``HostExecutable`` implements most of them for
    executables that keep inputs and outputs in host memory.

    Attributes:
        capabilities: The abilities of the executable.
    """

    capabilities: Capabilities

    @property
    def input_views(self) -> tuple[Array, ...]:
        """Writable arrays, one per input."""

    @property
    def output_views(self) -> tuple[Array, ...]:
        """Read-only arrays, one per output."""

    @property
    def output_slots(self) -> tuple[tuple[int, int], ...]:
        """Byte offset and element count of each output in the memory at ``arena()``."""

    def bind(self, binding: Binding) -> None:
        """Sets how later runs are made. After an error the old binding stays."""

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Starts a run.

        Args:
            arrays: An array per input that is no resident, of its shape and dtype and in C order. It may change when
                this returns. None takes what the device holds.
            outputs: Positions of the outputs that are brought to the host.
            fresh: Whether ``Pending.wait`` returns arrays of their own. Otherwise it returns views, which the next
                run overwrites.
        """

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict] | None:
        """Returns compiled functions for the two calls that are made most often; None for none.

        Both hold the lock while they run. The first is ``CompiledGraph.run_slots``. The second takes a dict of named
        inputs and returns fresh outputs; it returns None, and runs nothing, where an input needs conversion.

        Args:
            lock: The lock of the graph.
            names: Names of all inputs.
        """

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Uploads weights of the declared shapes and dtypes. Every run, also of clones, sees all of them or none."""

    def read_param(self, name: str) -> Array:
        """Returns a copy of a weight."""

    def write_input(self, index: int, array: Array) -> None:
        """Writes an input's own memory, which runs read where the input is a resident."""

    def read_input(self, index: int) -> Array:
        """Returns a copy of an input's own memory."""

    def read_row(self, output: int, row: int) -> Array:
        """Returns one row of an output of the last run."""

    def arena(self) -> int:
        """Returns the address of the host memory that holds the outputs after every later run; 0 for none."""

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns the GPU buffers of the inputs and of the outputs; empty ones without ``capabilities.gpu_buffers``."""

    def moved(self) -> Moved:
        """Returns the bytes that runs have moved so far."""

    def memory(self) -> dict[str, int]:
        """Returns the bytes of ``arena``, ``params`` and ``staging``, and their ``peak``."""

    def kernels(self) -> str:
        """Returns the kernels as text: names, or WGSL."""

    def clone(self) -> Executable:
        """Returns an independent executable with a default binding that shares the params."""

    def discard_device(self) -> None:
        """Forgets a lost device, so that the next load opens a new one."""

    def close(self) -> None:
        """Frees device memory. Closing twice does nothing."""


class GpuExecutable(Executable, Protocol):
    """An executable with ``Capabilities.gpu_buffers``, whose outputs other executables of the device take."""

    def output_place(self, output: int) -> tuple[int, int]:
        """Returns the handle of the buffer that holds an output of the last run, and its offset there."""

    def start(self, outputs: Sequence[int]) -> Pending:
        """Submits a run whose arguments its compiled calls have placed; see ``rlx._ext.program.SizedRuns.place``."""


class SizedProgram(Executable, Protocol):
    """An executable that serves many sizes of a graph with dims; see ``Capabilities.sized_programs``."""

    @property
    def sizes(self) -> Mapping[str, int]:
        """The sizes that runs without arguments compute for."""

    def program(self, guards: SizeSteps | None) -> ServedProgram | None:
        """Returns the compiled program of its runs, which takes the sizes of its arrays by itself where guards hold.

        None where runs are not compiled. Programs of single sizes on the same device have it, too.
        """

    def fits(self, sizes: Mapping[str, int]) -> bool:
        """Returns whether there is memory for some sizes."""

    def resize(self, sizes: Mapping[str, int]) -> None:
        """Has later runs compute for other sizes, for which there is memory. The values of inputs and outputs are lost."""

    def grown(self, sizes: Mapping[str, int]) -> Executable:
        """Returns an executable with the same params that begins with some sizes, and has memory for more."""


class HostExecutable(ABC):
    """An executable that computes whole runs in host memory; the base class of small backends.

    Args:
        inputs: Type of each input.
        outputs: Type of each output.
        capabilities: The abilities of the executable.

    Attributes:
        binding: The settings of later runs.
    """

    output_slots: tuple[tuple[int, int], ...] = ()

    def __init__(
        self,
        inputs: Sequence[TensorType],
        outputs: Sequence[TensorType],
        capabilities: Capabilities,
    ) -> None:
        self.capabilities = capabilities
        self.binding = Binding()
        self.input_views = tuple(_zeros(type) for type in inputs)
        self._outputs = [_zeros(type) for type in outputs]
        self.output_views = tuple(read_only(array) for array in self._outputs)

    @abstractmethod
    def compute(self, inputs: Sequence[Array], targets: Sequence[Array]) -> None:
        """Computes one run.

        Args:
            inputs: An array per input of the graph.
            targets: An array per output, which is written. With ``binding.extent`` rows past it need not be.
        """

    @abstractmethod
    def clone(self) -> Executable:
        """See ``Executable``."""

    @abstractmethod
    def kernels(self) -> str:
        """See ``Executable``."""

    @abstractmethod
    def set_params(self, values: Mapping[str, Array]) -> None:
        """See ``Executable``."""

    @abstractmethod
    def read_param(self, name: str) -> Array:
        """See ``Executable``."""

    @abstractmethod
    def memory(self) -> dict[str, int]:
        """See ``Executable``."""

    def bind(self, binding: Binding) -> None:
        """See ``Executable``."""
        self.binding = binding

    def submit(
        self, arrays: Sequence[Array | None], outputs: Sequence[int], fresh: bool
    ) -> Pending:
        """Runs to the end."""
        inputs: list[Array] = list(self.input_views)
        for index, array in zip(self.binding.arguments(len(inputs)), arrays, strict=True):
            if array is not None:
                inputs[index] = array
        self.compute(inputs, self._outputs)
        for index, output in self.binding.feeds:
            self.input_views[index][...] = self.output_views[output]
        views = [self.output_views[i] for i in outputs]
        return Done([view.copy() for view in views] if fresh else views)

    def compiled(self, lock: TryLock, names: tuple[str, ...]) -> tuple[RunSlots, RunDict] | None:
        """Returns None: nothing is compiled."""
        return None

    def write_input(self, index: int, array: Array) -> None:
        """Writes the input's view."""
        self.input_views[index][...] = array

    def read_input(self, index: int) -> Array:
        """Copies the input's view."""
        return self.input_views[index].copy()

    def read_row(self, output: int, row: int) -> Array:
        """Copies the row."""
        values: Array = self.output_views[output][row].copy()
        return values

    def arena(self) -> int:
        """Returns 0: each output has memory of its own."""
        return 0

    def gpu_buffers(self) -> tuple[tuple[GpuBuffer, ...], tuple[GpuBuffer, ...]]:
        """Returns none."""
        return (), ()

    def moved(self) -> Moved:
        """Returns zeros: nothing moves."""
        return Moved(0, 0, 0)

    def discard_device(self) -> None:
        """Does nothing: host memory is not lost."""
        return

    def close(self) -> None:
        """Does nothing: Python frees the arrays."""
        return


def _zeros(type: TensorType) -> Array:
    return view_of(aligned(type.nbytes, tight=True), 0, type)


def read_only(array: Array) -> Array:
    """Returns a view of an array that can't be written."""
    view = array.view()
    view.setflags(write=False)
    return view


def aligned(nbytes: int, tight: bool = False, filled: bool = False) -> Array:
    """Zeroed bytes whose address is a multiple of 256, in huge pages that they almost fill.

    A single page may also be half full, unless the memory has to be ``tight``. Memory that will be ``filled`` shares
    huge pages with its neighbours.

    Raises:
        DeviceMemoryError: There are not as many.
    """
    import numpy as np

    most = most_memory()
    if most is not None and nbytes > most:
        raise DeviceMemoryError(
            "the host has no room for a graph", got=f"{nbytes} bytes", expected=f"at most {most}"
        )
    try:
        if _ADVICE is not None and nbytes >= (_FILLED_MAPPED if filled else _MAPPED):
            return _mapped(nbytes, _ADVICE, tight, filled)
        block = np.zeros(nbytes + _ALIGNMENT, np.uint8)
    except (MemoryError, ValueError, OSError, OverflowError) as error:
        raise DeviceMemoryError(
            "the host has no room for a graph", got=f"{nbytes} bytes", hint=str(error)
        ) from None
    start = -block.ctypes.data % _ALIGNMENT
    return block[start : start + nbytes]


def _mapped(nbytes: int, advice: int, tight: bool, filled: bool) -> Array:
    import numpy as np

    # A huge page that would be filled by less than seven eighths stays small pages.
    pages = (nbytes + _HUGE // 8) // _HUGE or int(not tight and nbytes >= _HUGE // 2)
    # Private: what a forked process writes is its own.
    size = (pages + 1) * _HUGE + nbytes % _HUGE if pages else nbytes
    region = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE)
    block: Array = np.frombuffer(region, np.uint8)
    start = -block.ctypes.data % _HUGE if pages else 0
    if pages or filled:
        region.madvise(advice, start, pages * _HUGE or size)
    return block[start : start + nbytes]


def view_of(memory: Array, offset: int, type: TensorType) -> Array:
    """Returns a view of the value at an offset of some memory; NumPy has an empty slice begin where the whole does."""
    part: Array = memory[offset:][: type.nbytes].view(type.dtype.numpy)
    return part.reshape(type.shape)


@dataclass(frozen=True, eq=False)
class ParamSharing:
    """The params of a program that other programs of the same graph may have, too.

    Attributes:
        gate: Keeps changes of params out of runs of several submissions, for all these programs.
        keys: By the name of a param the text that says its value: programs whose params have equal texts share them.
    """

    gate: ReadWriteLock
    keys: Mapping[str, str]


_sharing: ContextVar[ParamSharing | None] = ContextVar("rlx_param_sharing", default=None)


def sharing_now() -> ParamSharing | None:
    """Returns the params that the program that is loaded now shares; None where it has its own alone."""
    return _sharing.get()


def sharing(params: ParamSharing) -> AbstractContextManager[None]:
    """Has programs that are loaded meanwhile share params."""
    return during(_sharing, params)
