"""Pool: one model on all devices of a machine at once, with one queue for them."""

from __future__ import annotations

import os
import time
import warnings
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence, Sized
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from typing import Any, Literal, NoReturn

from rlx.backends.base import CompileOptions
from rlx.compiler.model_file import load_model
from rlx.compiler.progress import Progress, ProgressCallback
from rlx.dataclasses import dataclass
from rlx.device.candidates import separate_devices
from rlx.device.names import Device, DeviceLike
from rlx.errors import CompileError, DeviceError, InputError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime import MAX_PENDING
from rlx.runtime.closing import Closing
from rlx.runtime.executor import Queue
from rlx.runtime.semaphore import whole
from rlx.runtime.session import Session
from rlx.serving.onnx_model import Model
from rlx.serving.scheduler import Task, Worker, WorkScheduler

Inputs = Mapping[str, Any] | Any
Source = Graph | Model | str | os.PathLike[str] | bytes


@dataclass(frozen=True)
class PoolDevice:
    """Counters of one device of a pool.

    Attributes:
        device: The device.
        done: Items that it has done.
        busy_s: Seconds that it worked on them.
        item_s: Seconds of an item lately, the first one aside; None before the second is done.
        left: Why it has left the pool; None where it is in it.
    """

    device: Device
    done: int
    busy_s: float
    item_s: float | None
    left: Exception | None


class Pool(Closing):
    """A model on several devices, which share the work by the time that each takes.

    Each device has an executable and a thread of its own. A device that is free takes the next set of inputs, unless
    the others would have done all that wait by the time that it would be through: a slow one is not left with the last
    item. A device that is lost, or fails where others do not, leaves the pool with a ``RuntimeWarning``; what it was
    doing is done by another one. Every set of inputs is answered once, by its future or in its place in ``map``.

    It pays for items of a millisecond and more: handing one to a thread takes tens of microseconds.

    Args:
        source: A graph with its params attached; an ``rlx.onnx.Model``; or a file or the bytes of one: ``.rlx`` of
            ``rlx.save_model``, ``.onnx``.
        devices: "all" for the CPU and each GPU once; or devices, in any order.
        params: Values of params of a graph that has them not attached.
        options: How it is compiled.
        max_pending: While so many items wait or run, ``submit`` and ``map`` wait. An item that is cancelled no longer
            counts, and its inputs are let go of.

    Attributes:
        skipped: Devices of "all" that can't run the model, each with the reason.

    Raises:
        DeviceError: A device that is named is not here; or there is none that can run it.
        CompileError: A device that is named can't run it.
        RlxError: The model can't be read.

    Example:
        >>> import numpy as np, rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (3,)) * 2.0])
        >>> with rlx.Pool(g, devices=["cpu"]) as pool:
        ...     xs = [np.full(3, at, np.float32) for at in range(4)]
        ...     [float(y[0]) for (y,) in pool.map(xs)]
        [0.0, 2.0, 4.0, 6.0]
    """

    def __init__(
        self,
        source: Source,
        devices: Literal["all"] | Sequence[DeviceLike] = "all",
        *,
        params: Mapping[str, Any] | None = None,
        options: CompileOptions | None = None,
        max_pending: int = MAX_PENDING,
    ) -> None:
        self._most = whole(max_pending)
        make = _maker(source, params, options)
        every = isinstance(devices, str)
        if every and devices != "all":
            raise InputError("devices", got=repr(devices), expected='"all", or a list of devices')
        chosen = separate_devices() if every else [Device.parse(device) for device in devices]
        if len(set(chosen)) < len(chosen) or not chosen:
            names = ", ".join(map(str, chosen)) or "none"
            raise InputError("devices of a pool", got=names, expected="each once")
        self.skipped = dict[Device, Exception]()
        self._scheduler = WorkScheduler(
            self._build_workers(make, chosen, every), f"the pool of {_name(source)}"
        )
        self._queue = Queue(self._scheduler)
        self._room = self._queue._room

    def _build_workers(self, make: _Make, devices: Sequence[Device], every: bool) -> list[Worker]:
        """The devices, compiled side by side."""
        with ThreadPoolExecutor(len(devices), "rlx-pool") as threads:
            futures = [threads.submit(make, device) for device in devices]
        failed = {
            device: error
            for device, future in zip(devices, futures, strict=True)
            if (error := future.exception()) is not None
        }
        workers = [future.result() for future in futures if future.exception() is None]
        tolerated = all(isinstance(value, (CompileError, DeviceError)) for value in failed.values())
        if failed and not (every and workers and tolerated):
            for worker in workers:
                worker.close()
            raise next(iter(failed.values()))
        self.skipped = {
            device: error for device, error in failed.items() if isinstance(error, Exception)
        }
        return workers

    # --- work --------------------------------------------------------------------------------------

    def submit(self, inputs: Inputs) -> Future[list[Array]]:
        """Has a set of inputs run on some device; while ``max_pending`` of them wait or run, it waits.

        A callback of a future may submit one set, which then waits beside the ``max_pending`` others.

        Args:
            inputs: By name; the array alone for one input. They are read when their turn comes: leave them as they
                are until then.

        Returns:
            A future of the outputs. To cancel it takes it out of the queue.

        Raises:
            DeviceFallbackError: All devices have left the pool.
            ClosedError: The pool is closed.
            InputError: It was made by another process.
            BusyError: There is no room, and this is a thread of the pool: a custom operation, or a callback.
        """
        return self._queue.submit(self._item((inputs,)), self._most)

    def run(self, inputs: Inputs) -> list[Array]:
        """Runs one set of inputs, and waits for it.

        Raises:
            RlxError: As ``CompiledGraph.run``, or ``submit``.
            BusyError: This is a thread of the pool, which would wait for itself.
        """
        self._queue.check_outside()
        future = self.submit(inputs)
        try:
            return future.result()
        finally:
            future.cancel()

    def map(
        self, items: Iterable[Inputs], progress: ProgressCallback | None = None
    ) -> Iterator[list[Array]]:
        """The outputs of every set of inputs, in their order.

        Sets are taken from ``items`` as there is room for them, so that it may be endless, or read a file. Where it has
        a length (a list, say) and a set takes well under a millisecond, a device is given several at a time.

        Args:
            items: Sets of inputs.
            progress: Called with each result: the phase is "items", the part known where ``items`` has a length.

        Raises:
            RlxError: That of the first set that could not be run, in its place; what waits is cancelled.
            BusyError: This is a thread of the pool, which would wait for itself.
        """
        self._queue.check_outside()
        total = _length(items)
        began, pos, under_way = time.monotonic(), 0, 0
        pending: deque[Future[list[Any]]] = deque()
        source = iter(items)
        try:
            while True:
                while under_way < self._most:
                    # A source without a length may wait between two of its sets, which keeps none of them back.
                    some = self._together() if total is not None else 1
                    sets = tuple(islice(source, min(some, self._most - under_way)))
                    if not sets:
                        break
                    task = self._item(sets, together=True)
                    under_way += len(sets)
                    pending.append(self._queue.submit(task, self._most, len(sets)))
                    del task, sets  # a generator that stands still keeps no inputs
                    # Room for others stays where a caller shares the pool.
                    if pending[0].done():
                        break
                if not pending:
                    return
                for outcome in pending.popleft().result():
                    if isinstance(outcome, BaseException):
                        raise outcome
                    pos, under_way = pos + 1, under_way - 1
                    if progress is not None:
                        part = None if not total else min(1.0, pos / total)
                        progress(Progress("items", part, time.monotonic() - began, part or 0.0))
                    yield outcome
        finally:
            for future in pending:
                future.cancel()

    async def run_async(self, inputs: Inputs) -> list[Array]:
        """``run`` for asyncio: the event loop goes on meanwhile.

        Raises:
            RlxError: As ``run``.
        """
        results: list[Array] = await self._queue.run(self._item((inputs,)), self._most)
        return results

    async def map_async(
        self, items: Iterable[Inputs] | AsyncIterator[Inputs]
    ) -> AsyncIterator[list[Array]]:
        """``map`` for asyncio.

        Args:
            items: Sets of inputs; those of an asynchronous iterator are awaited.

        Raises:
            RlxError: As ``map``.
        """
        import asyncio

        pending: deque[asyncio.Task[list[Array]]] = deque()
        try:
            async for item in _awaited(items):
                pending.append(asyncio.ensure_future(self.run_async(item)))
                if len(pending) >= self._most:
                    yield await pending.popleft()
                await asyncio.sleep(0)  # lets the task begin, and others of the loop
            while pending:
                yield await pending.popleft()
        finally:
            for task in pending:
                task.cancel()

    # --- what it is --------------------------------------------------------------------------------

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that are in the pool now."""
        return tuple(worker.device for worker in self._scheduler.workers if worker.left is None)

    def report(self) -> tuple[PoolDevice, ...]:
        """Returns the counters of each device, removed devices included."""
        return tuple(
            PoolDevice(worker.device, worker.done, worker.busy_s, worker.seconds, worker.left)
            for worker in self._scheduler.workers
        )

    def close(self) -> None:
        """Cancels what waits, lets what runs end, and frees the devices. Closing twice does nothing."""
        self._queue.close()

    def __reduce__(self) -> NoReturn:
        """Refuses to be pickled.

        Raises:
            InputError: Always.
        """
        raise InputError(
            "a pool can't be pickled", hint="pickle its model, and make a pool of that"
        )

    def __repr__(self) -> str:
        return f"<rlx.Pool on {', '.join(map(str, self.devices)) or 'no device'}>"

    def _item(self, sets: Sequence[Inputs], together: bool = False) -> Task:
        return Task(sets, self._queue.answer(), together)

    def _together(self) -> int:
        """Returns how many sets ``map`` hands out at a time: each device has two portions within the pending limit."""
        return min(
            self._scheduler.together(), max(1, self._most // (2 * len(self._scheduler.workers)))
        )


_Make = Callable[[Device], Worker]


async def _awaited(items: Iterable[Inputs] | AsyncIterator[Inputs]) -> AsyncIterator[Inputs]:
    if isinstance(items, AsyncIterator):
        async for item in items:
            yield item
    else:
        for item in items:
            yield item


def _length(items: Iterable[Inputs]) -> int | None:
    """Returns the number of sets that the iterable states, for progress alone; None if it states none or fails."""
    try:
        return len(items) if isinstance(items, Sized) else None
    except Exception:
        return None


def _name(source: Source) -> str:
    if isinstance(source, Graph):
        return f"graph {source.name!r}"
    if isinstance(source, (Model, bytes)):
        return repr(source.output_names) if isinstance(source, Model) else "a model"
    return repr(os.fspath(source))


def _maker(
    source: Source, params: Mapping[str, Any] | None, options: CompileOptions | None
) -> _Make:
    """Returns a function that compiles for a device.

    Raises:
        InputError: It is no model, or has no use for params or options.
        RlxError: The file can't be read.
    """
    if isinstance(source, (str, os.PathLike)) and Path(source).suffix.lower() == ".rlx":
        source = load_model(source)
    if isinstance(source, Graph):
        graph, values = source, dict(params or {})
        return lambda device: _graph_worker(graph, device, values, options)
    if params:
        raise InputError("params are for graphs only", got="an ONNX model, which has its own")
    if isinstance(source, Model):
        if options is not None:
            raise InputError("a model is compiled with its own options", got="options")
        model = source
        return lambda device: _model_worker(model.clone(device), device)
    path = source
    return lambda device: _model_worker(Model(path, device, options=options), device)


def _graph_worker(
    graph: Graph, device: Device, params: Mapping[str, Any], options: CompileOptions | None
) -> Worker:
    compiled = Session(device, options=options).compile(graph, params)
    names = graph.input_names

    def run(inputs: Inputs) -> list[Array]:
        if isinstance(inputs, Mapping):
            return compiled.run(inputs)
        if len(names) != 1:
            raise InputError("inputs by name", got=type(inputs).__name__, expected=", ".join(names))
        return compiled.run({names[0]: inputs})

    return Worker(device, run, lambda: _closed(compiled.close))


def _model_worker(model: Model, device: Device) -> Worker:
    model._on_lost = "raise"  # another device of the pool goes on
    return Worker(device, model.run, lambda: _closed(model.close))


def _closed(close: Callable[[], None]) -> None:
    """Frees a device; a lost device is skipped."""
    try:
        close()
    except Exception as error:
        warnings.warn(
            f"a device of a pool could not be freed: {error}", RuntimeWarning, stacklevel=2
        )
