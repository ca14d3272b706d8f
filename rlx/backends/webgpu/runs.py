"""The dispatches of an executable in batches, prepared runs of these, and runs that were submitted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar
from weakref import WeakSet

from rlx._ext.locks import ReadWriteLock
from rlx._ext.webgpu_hot import TOGETHER, HostViews, Runner
from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.dispatch import Dispatch, padded, shrunk
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.host_step import HostStep, Pause
from rlx.backends.webgpu.staging import StagingBlock, StagingRing
from rlx.backends.webgpu.storage import from_device
from rlx.backends.webgpu.submission import (
    Batch,
    BoundSizes,
    Grids,
    PythonRunner,
    Submission,
    SubmissionRunner,
)
from rlx.backends.webgpu.submission_builder import RunnerFactory
from rlx.backends.webgpu.weight_buffers import ConstantBuffers, check_limit
from rlx.ir.opdef import Array, TensorType
from rlx.ir.plan import KernelCall, MemoryPlan, Value
from rlx.ir.spans import phase
from rlx.passes.dynamic_batch import DynamicRows

# Dispatches of one submission.
_MAX_DISPATCHES = 4096
# Numbers of rows whose batches are kept.
_MAX_EXTENTS = 64


class Batches:
    """The batches of dispatches that a run submits, with a host step between each two.

    Args:
        gpu: The device.
        work: Dispatches, and calls on the host, in order.
        fixed: Params and constants, and the programs of the host.
        plan: Where other values live.
        arena: The buffer that they live in.
        states: The buffers of states, by the ids of their values.
        views: The host's views, which know the sizes of now.
        sizes: What depends on sizes; None without dims.

    Attributes:
        host_steps: The steps on the host after each batch but the last.
        bound: Pipeline and bind group of each dispatch, by its id.
        grids: For each batch the registers of its workgroups; empty without dims.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        work: Sequence[Dispatch | KernelCall],
        fixed: ConstantBuffers,
        plan: MemoryPlan,
        arena: Any,
        states: Mapping[int, Any],
        views: HostViews,
        sizes: BoundSizes | None = None,
    ) -> None:
        self._views, self._sizes, self._version = views, sizes, 0
        self._buffers = {**fixed.buffers, **states}
        self._gpu, self._fixed, self._plan, self._arena = gpu, fixed, plan, arena
        self._parts: list[list[Dispatch]] = [[]]
        self.host_steps: list[Any] = []
        for item in work:
            if isinstance(item, KernelCall):
                self.host_steps.append(HostStep(gpu, item, fixed.program(item), self._place))
                self._parts.append([])
                continue
            if len(self._parts[-1]) >= _MAX_DISPATCHES:
                self.host_steps.append(Pause())
                self._parts.append([])
            self._parts[-1].append(item)
        dispatches = {id(item): item for item in work if isinstance(item, Dispatch)}
        groups = {
            key: gpu.bind(dispatch, self._resources(dispatch))
            for key, dispatch in dispatches.items()
        }
        with phase("pipelines"):
            pipelines = gpu.pipelines(dispatches.values())
        self.bound = {
            dispatch: (pipeline, groups[dispatch])
            for dispatch, pipeline in zip(dispatches, pipelines, strict=True)
        }
        self._fewer: dict[tuple[int, int], list[Batch]] = {}
        self.grids: list[Grids] = [
            () if sizes is None else [sizes.grids[id(item)] for item in part]
            for part in self._parts
        ]
        self._whole = self._current = self._build(None)

    @property
    def current(self) -> list[Batch]:
        """The batches of the rows, or of the sizes, that runs compute now. The lists stay, their entries change."""
        if self._version != self._views.version:
            self._version = self._views.version
            for batch, grids in zip(self._current, self.grids, strict=True):
                pairs = zip(batch, self._views.grids(grids), strict=True)
                batch[:] = [(p, g, x, y) for (p, g, _, _), (x, y) in pairs]
        return self._current

    def use(self, extent: DynamicRows | None) -> bool:
        """Selects the batches for an extent: the same dispatches with fewer workgroups.

        Returns:
            Whether the batches of other numbers of rows were forgotten, to make room.
        """
        if extent is None:
            self._current = self._whole
            return False
        key = extent.actual, extent.upper
        full = key not in self._fewer and len(self._fewer) >= _MAX_EXTENTS
        if full:
            self._fewer.clear()
        if key not in self._fewer:
            self._fewer[key] = self._build(extent)
        self._current = self._fewer[key]
        return full

    @property
    def workgroups(self) -> int:
        """Workgroups dispatched by one run."""
        return sum(x * y for batch in self.current for _, _, x, y in batch)

    def close(self) -> None:
        """Drops bind groups and pipelines."""
        self._whole = self._current = [[]]
        self._fewer.clear()
        self.bound.clear()

    def _place(self, value: Value) -> tuple[Any, int]:
        """The buffer that holds a value, and where in it."""
        if value.id in self._buffers:
            return self._buffers[value.id], 0
        return self._arena, self._plan.slots[value.id].offset

    def _resources(self, dispatch: Dispatch) -> list[tuple[Any, int, int]]:
        values = [self._resource(value, dispatch) for value in dispatch.values]
        if self._sizes is not None and dispatch.reads_sizes:
            values.append((self._sizes.buffer, 0, self._sizes.nbytes))
        return values

    def _resource(self, value: Value, dispatch: Dispatch) -> tuple[Any, int, int]:
        size = padded(value.type)
        where = dispatch.call.node.where()
        check_limit(self._gpu, "max-storage-buffer-binding-size", size, where)
        return (*self._place(value), size)

    def _build(self, extent: DynamicRows | None) -> list[Batch]:
        if self._sizes is not None:
            grids = map(self._views.grids, self.grids)
            return [
                [(*self.bound[id(item)], x, y) for item, (x, y) in zip(*pair, strict=True)]
                for pair in zip(self._parts, grids, strict=True)
            ]
        batches: list[Batch] = []
        for part in self._parts:
            sizes = [(item, *shrunk(item, extent)) for item in part]
            batches.append([(*self.bound[id(item)], x, y) for item, x, y in sizes if x and y])
        return batches


R = TypeVar("R")


class PreparedRun:
    """The submissions of a run.

    Args:
        gpu: The device.
        factory: Makes runners.
        works: The submissions.
        steps: The computations of the host between two of them.
        apart: The last submission with all rows of the outputs, for runs whose results are kept apart.
        outputs: Offset in the arena and type of every output.
        gate: Keeps changes of weights out of runs of several submissions.
        version: The version of the host's views.

    Attributes:
        version: See above.
    """

    def __init__(
        self,
        gpu: GpuDevice,
        factory: RunnerFactory,
        works: Sequence[Submission],
        steps: Sequence[HostStep | Pause],
        apart: Submission,
        outputs: Sequence[tuple[int, TensorType]],
        gate: ReadWriteLock,
        version: int,
    ) -> None:
        self.version = version
        self._steps, self._outputs, self._gate = steps, outputs, gate
        self._runners = [factory.runner(work) for work in works]
        # A runner submits many dispatches in parts.
        self._in_one_part = len(works) == 1 and len(works[0].batch) <= TOGETHER
        if len(works) == 1 and not self._in_one_part and isinstance(self._runners[0], Runner):
            self._runners[0].set_gate(gate)
        self._apart = gpu, factory, apart
        self._ring: StagingRing | None = None

    def follows(
        self, outputs: Sequence[tuple[int, TensorType]], wanted: Sequence[int], version: int
    ) -> bool:
        """Returns whether later runs are of the sizes of now, also beside runs of other ones that are under way.

        Compiled runners transfer what the sizes of now say. Memory for results stays as it is where theirs are the same.
        """
        if self.version != version and all(isinstance(each, Runner) for each in self._runners):
            if all(outputs[i] == self._outputs[i] for i in wanted):
                self._outputs, self.version = outputs, version
        return self.version == version

    def resize(
        self, works: Sequence[Submission], outputs: Sequence[tuple[int, TensorType]], version: int
    ) -> None:
        """Has later runs transfer the values of other sizes; no run is under way. Compiled runners do so by themselves."""
        gpu, factory, _ = self._apart
        for runner, work in zip(self._runners, works, strict=True):
            if isinstance(runner, PythonRunner):
                runner.resize(work)
        self.close()
        self._ring, self._outputs, self._apart = None, outputs, (gpu, factory, works[-1])
        self.version = version

    @property
    def ring(self) -> StagingRing:
        """Memory for the results of more runs at the same time, which the first of them makes."""
        if self._ring is None:
            self._ring = StagingRing(*self._apart)
        return self._ring

    def reset(self) -> None:
        """Makes the memory of the ring free; no run is under way."""
        if self._ring is not None:
            self._ring.reset()

    def single(self) -> SubmissionRunner | None:
        """Returns the runner of a run that is one submission; None for others."""
        return self._runners[0] if len(self._runners) == 1 else None

    def submit(self, last: Callable[[], R]) -> R:
        """Makes a run, up to its last submission, which is not waited for.

        Args:
            last: Makes the last submission.
        """
        if self._in_one_part:
            return last()
        return self._gate.read(self._submit, last)

    def _submit(self, last: Callable[[], R]) -> R:
        for runner, step in zip(self._runners, self._steps, strict=False):
            check(runner, runner.run())
            step.run()
        return last()

    def submit_last(self) -> None:
        """Makes the last submission, whose results come back through the executable's own staging memory."""
        runner = self._runners[-1]
        check(runner, runner.submit())

    def wait(self) -> None:
        """Waits for the last submission, and refreshes the output views."""
        runner = self._runners[-1]
        check(runner, runner.wait())

    def read(self, staged: Array, output: int) -> Array:
        """Copies an output from the staged bytes of a run."""
        offset, type = self._outputs[output]
        return from_device(staged[self.ring.place(offset) :], type)

    def close(self) -> None:
        """Frees the memory of the ring."""
        if self._ring is not None:
            self._ring.close()


class SubmittedRun:
    """A run that was submitted; see ``rlx.backends.executable.Pending``.

    Args:
        run: The run.
        outputs: Positions of the outputs that are wanted.
        views: The output views of the executable.
        fresh: Whether the outputs are copied.
        staged: The block of staging memory with the results, and their number there; None where the views get them.
        unfinished: Holds the run until its outputs were taken.
    """

    def __init__(
        self,
        run: PreparedRun,
        outputs: Sequence[int],
        views: Sequence[Array],
        fresh: bool,
        staged: tuple[StagingBlock, int] | None,
        unfinished: WeakSet[SubmittedRun],
    ) -> None:
        self._run, self._outputs, self._views = run, tuple(outputs), views
        self._fresh, self._staged, self._unfinished = fresh, staged, unfinished
        self._arrays: list[Array] | None = None
        if self._outputs:
            unfinished.add(self)
            if staged is not None:
                staged[0].wanted.add(self)

    def wait(self) -> list[Array]:
        """Waits for the run and returns its outputs."""
        if self._arrays is None:
            try:
                self._arrays = self._take()
            finally:  # a run on a lost device is over, too
                self._unfinished.discard(self)
        return self._arrays

    def _take(self) -> list[Array]:
        if self._staged is not None:
            block, index = self._staged
            row = block.row(index)
            results = [self._run.read(row, output) for output in self._outputs]
            block.wanted.discard(self)
            return results
        self._run.wait()
        views = [self._views[output] for output in self._outputs]
        return [view.copy() for view in views] if self._fresh else views
