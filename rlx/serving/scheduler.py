"""Hands items to devices by the time that each takes, and takes devices out that fail."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import field
from typing import TYPE_CHECKING, Any

from rlx.dataclasses import dataclass
from rlx.device.names import Device
from rlx.errors import (
    CompileError,
    DeviceError,
    DeviceFallbackError,
    DeviceMemoryError,
    RlxError,
    describe,
    first_line,
)
from rlx.locks import Bell
from rlx.runtime.workers import Workers

if TYPE_CHECKING:
    from concurrent.futures import Future

# How much the newest time of a device counts beside those before, and how many items in a row a device has to fail at, that
# others can do, to lose its place.
_NEWEST, _STRIKES = 0.2, 3
# How long a device that leaves items to faster ones waits before it looks again, in seconds.
_SHORTEST, _LONGEST = 0.001, 1.0
# Sets of inputs are handed out together where they take the fastest device less than this, in seconds. Each hand-over
# costs threads of Python some 50 microseconds, in which only one of them runs.
_TOGETHER = 0.002


@dataclass(eq=False)
class Task:
    """Sets of inputs that one device does, one after the other.

    Attributes:
        sets: The inputs for the device.
        future: Gets the outputs; of several sets, a list that ends where one fails, with its error.
        together: Whether these are several sets.
        outcomes: The outputs so far. Where a device fails, another one goes on from there.
        failed: Devices that could not do it, each with its error.
        started: Whether a device has taken it before.
    """

    sets: Sequence[Any]
    future: Future[Any]
    together: bool = False
    outcomes: list[Any] = field(default_factory=list)
    failed: list[tuple[Device, Exception]] = field(default_factory=list)
    started: bool = False

    @property
    def left(self) -> int:
        """The number of sets that are left."""
        return len(self.sets) - len(self.outcomes)

    def settle(self, error: BaseException | None = None) -> None:
        """Gives the future its outputs, and the error of the first set that could not be run."""
        if self.together:
            self.future.set_result([*self.outcomes, *([] if error is None else [error])])
        elif error is not None:
            self.future.set_exception(error)
        else:
            self.future.set_result(self.outcomes[0])

    def drop(self) -> None:
        """Lets go of the inputs and outputs."""
        self.sets, self.outcomes = (), []

    def may_go_to(self, worker: Worker) -> bool:
        """Returns whether a device has not failed at this item yet."""
        return all(device != worker.device for device, _ in self.failed)


@dataclass(eq=False)
class Worker:
    """A device, and what is known of it.

    Attributes:
        device: The device.
        run: Does one set of inputs.
        close: Frees what it runs on.
        seconds: A set's time lately; None before the second is done.
        done: Sets done.
        busy_s: Time that they took together.
        since: When the item that it works on began, on ``time.perf_counter``; None where it works on none.
        taken: How many sets that item had.
        strikes: Items in a row that it failed at and another device did.
        left: Why it has left; None where it has not.
    """

    device: Device
    run: Callable[[Any], Any]
    close: Callable[[], None]
    seconds: float | None = None
    done: int = 0
    busy_s: float = 0.0
    since: float | None = None
    taken: int = 0
    strikes: int = 0
    left: Exception | None = None

    def takes(self, task: Task) -> None:
        """Notes that it begins an item."""
        self.since, self.taken = time.perf_counter(), task.left

    def ends(self, task: Task) -> None:
        """Notes the time of an item. That of the first does not count: a driver compiles its kernels meanwhile."""
        first, sets = self.done == 0, self.taken - task.left
        spent = time.perf_counter() - (self.since or 0.0)
        self.since = None
        if not sets:
            return
        self.done += sets
        self.busy_s += spent
        if self.seconds is not None:
            self.seconds += _NEWEST * (spent / sets - self.seconds)
        elif not first:
            self.seconds = spent / sets

    def would_do(self, seconds: float, sets: int) -> int:
        """Estimates how many items of so many sets the device would finish within some seconds."""
        if self.left is not None or self.seconds is None:
            return 0
        if self.since is not None:
            # It ends its present item first. For an idle device nothing is subtracted, not even a rounding error: two
            # devices of the same speed must not each count on the other.
            expected = self.seconds * self.taken
            ahead = self.since + expected - time.perf_counter()
            if ahead < -expected:  # twice as long as usual: it may be stuck
                return 0
            seconds -= max(0.0, ahead)
        return max(0, math.ceil(seconds / max(self.seconds * sets, 1e-9)) - 1)


class WorkScheduler(Workers[Task]):
    """A queue of items, and a thread for each device that takes them from it.

    A free device takes the next item, unless the others would have done all that wait by the time that it would be
    through with this one.

    Args:
        workers: The devices.
        what: The name of the whole in messages.
    """

    def __init__(self, workers: Sequence[Worker], what: str) -> None:
        names = [f"rlx-pool-{worker.device}" for worker in workers]
        super().__init__(what, names, [Bell() for _ in workers])
        self.workers = list(workers)

    def together(self) -> int:
        """Returns how many sets to hand out as one item; 1 until the time of a device is known."""
        workers = [worker for worker in self.workers if worker.left is None]
        times = [worker.seconds for worker in workers if worker.seconds is not None]
        if not times or len(times) < len(workers):
            return 1
        return max(1, int(_TOGETHER / max(min(times), 1e-9)))

    # --- what the threads do -----------------------------------------------------------------------

    def _check(self) -> None:
        super()._check()
        if all(worker.left is not None for worker in self.workers):
            raise self._all_left([])

    def _leaves(self, index: int) -> bool:
        return self.workers[index].left is not None

    def _do(self, index: int, job: Task) -> None:
        worker = self.workers[index]
        if not job.started and not job.future.set_running_or_notify_cancel():
            return
        job.started = True
        try:
            for inputs in job.sets[len(job.outcomes) :]:
                job.outcomes.append(worker.run(inputs))
        except Exception as error:
            self._failed(worker, job, error)
        except BaseException as error:  # an exit that the item's own code asks for
            job.settle(error)
        else:
            self._done(worker, job)
            job.settle()

    def _chosen(self, index: int) -> Task | None:
        # Items that failed elsewhere stand in front. They are left to nobody: others may have failed at them, too.
        worker = self.workers[index]
        for task in self._waiting:
            if not task.failed:
                break
            if task.may_go_to(worker):
                return task
        else:
            return None
        if worker.seconds is None:
            return task
        # Waiting items are assumed to be as long as this item. Before the fastest device is through with it no other one is, so
        # that there is always one that takes it.
        sets = task.left
        others = (item for item in self.workers if item is not worker)
        done = sum(other.would_do(worker.seconds * sets, sets) for other in others)
        return task if done < len(self._waiting) else None

    def _patience(self, index: int) -> float | None:
        seconds = self.workers[index].seconds
        if not self._waiting or seconds is None:
            return None
        return min(max(seconds, _SHORTEST), _LONGEST)

    def _takes(self, index: int, job: Task) -> None:
        self.workers[index].takes(job)

    def _idles(self, index: int) -> None:
        self.workers[index].since = None

    def _refused(self, job: Task) -> None:
        # One that a device has failed at is under way, and can't be cancelled any more.
        if job.started:
            job.settle(self.closed())
        else:
            job.future.cancel()

    def _ended(self, index: int, failure: BaseException | None = None) -> None:
        worker = self.workers[index]
        if failure is not None and worker.left is None:
            worker.left = failure if isinstance(failure, Exception) else DeviceError(repr(failure))
        with self._lock:
            stranded = self._stranded()
        self._give_up(stranded)
        worker.close()

    def _done(self, worker: Worker, task: Task) -> None:
        gone, stranded = [], list[Task]()
        with self._lock:
            worker.ends(task)
            worker.strikes = 0
            for device, error in task.failed:
                (failed,) = (worker for worker in self.workers if worker.device == device)
                failed.strikes += 1
                if failed.strikes >= _STRIKES and failed.left is None:
                    failed.left = error
                    gone.append(failed)
            if gone:
                stranded = self._stranded()
                self._ring()
        self._give_up(stranded)
        for item in gone:
            self._warn(item, others=True)

    # --- failures -----------------------------------------------------------------------------------

    def _failed(self, worker: Worker, task: Task, error: Exception) -> None:
        """Decides whose fault an error is: the item's, or the device's, whose item goes to another one."""
        task.failed.append((worker.device, error))
        lost = isinstance(error, DeviceError) and not isinstance(error, DeviceMemoryError)
        # Inputs that don't fit fit nowhere.
        fits = not isinstance(error, RlxError) or isinstance(error, (DeviceError, CompileError))
        with self._lock:
            worker.ends(task)
            if lost:
                worker.left = error
            rest = [worker for worker in self.workers if worker.left is None]
            again = fits and not self._closed and any(task.may_go_to(item) for item in rest)
            if again:
                self._waiting[task] = None
                self._waiting.move_to_end(task, last=False)
            stranded = self._stranded() if lost else []
            self._ring()
        try:
            if not again:
                task.settle(self._all_left(task.failed) if lost and not rest else error)
        finally:
            self._give_up(stranded)
        if lost:
            self._warn(worker, bool(rest))

    def _stranded(self) -> list[Task]:
        """Takes out items that no device is left for. The caller holds the lock."""
        rest = [worker for worker in self.workers if worker.left is None]
        results = [
            item for item in self._waiting if not any(item.may_go_to(worker) for worker in rest)
        ]
        for item in results:
            del self._waiting[item]
        return results

    def _give_up(self, stranded: Sequence[Task]) -> None:
        for item in stranded:
            if item.started or item.future.set_running_or_notify_cancel():
                self._answered(item, self._all_left(item.failed))

    def _warn(self, worker: Worker, others: bool) -> None:
        first = f"{type(worker.left).__name__}: {worker.left and first_line(worker.left)}"
        then = "its work is done elsewhere" if others else "no device is left"
        try:
            warnings.warn(
                f"{worker.device} has left {self.what} ({first}); {then}",
                RuntimeWarning,
                stacklevel=2,
            )
        except RuntimeWarning:
            # The program makes errors of warnings, which would end a thread that nobody calls; ``left`` tells as well.
            pass

    def _all_left(self, failed: Sequence[tuple[Device, Exception]]) -> DeviceFallbackError:
        tried = {device for device, _ in failed}
        attempts = list(failed) + [
            (worker.device, worker.left)
            for worker in self.workers
            if worker.left is not None and worker.device not in tried
        ]
        listed = "; ".join(f"{device}: {first_line(error)}" for device, error in attempts)
        return DeviceFallbackError(
            describe(f"no device of {self.what} is left", got=listed), attempts
        )
