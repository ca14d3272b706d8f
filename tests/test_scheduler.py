"""The queue of a pool of devices: work shared by time, answers once each, and devices that fail under it."""

import threading
import time
import warnings
from concurrent.futures import Future

import pytest

import rlx
from rlx.serving.scheduler import Task, Worker, WorkScheduler


class SchedulerStub:
    """Workers that run functions in place of devices."""

    def __init__(self, **functions):
        self.closed = []
        self.workers = WorkScheduler(
            [
                Worker(rlx.Device(name), function, lambda name=name: self.closed.append(name))
                for name, function in functions.items()
            ],
            "the pool",
        )

    def add(self, inputs):
        task = Task((inputs,), Future())
        self.workers.add(task)
        return task.future

    def add_together(self, sets):
        task = Task(sets, Future(), together=True)
        self.workers.add(task)
        return task.future

    def done(self):
        return {str(worker.device): worker.done for worker in self.workers.workers}

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        self.workers.close()


def _sleeping(seconds):
    def run(index):
        time.sleep(seconds)
        return index

    return run


def _all(fake, count):
    futures = [fake.add(index) for index in range(count)]
    return [future.result() for future in futures]


def _by_fives(fake, count):
    """Items of five sets, during which the second device is lost."""
    futures = [fake.add_together(range(index, index + 5)) for index in range(0, count, 5)]
    results = [item for future in futures for item in future.result()]
    fake.workers._threads[1].join(10)
    return results


def _let_go(event, fake):
    event.set()
    fake.workers._threads[0].join(10)


def _until_one_has_left(work, workers):
    """Does some work again and again; devices take turns by chance."""
    deadline = time.monotonic() + 60
    while True:
        work()
        if any(worker.left is not None for worker in workers):
            return
        assert time.monotonic() < deadline


def test_work_is_shared_by_time():
    with SchedulerStub(a=_sleeping(0.004), b=_sleeping(0.02)) as fake:
        futures = [fake.add(index) for index in range(120)]
        assert [future.result() for future in futures] == list(range(120))
        done = fake.done()
    # 5 to 1 if sleeps were exact, which they are not on a busy machine.
    assert done["a"] + done["b"] == 120
    assert done["a"] > 2 * done["b"] > 0


def test_a_slow_device_leaves_the_last_item_to_a_fast_one():
    with SchedulerStub(fast=_sleeping(0.002), slow=_sleeping(0.5)) as fake:
        for _ in range(2):  # the second item of a device tells its time
            for future in [fake.add(index) for index in range(40)]:
                future.result()
        began, before = time.perf_counter(), fake.done()["slow"]
        assert before >= 2
        for index in range(5):  # the slow one is free
            assert fake.add(index).result() == index
        assert fake.done()["slow"] == before
        assert time.perf_counter() - began < 0.4


def test_a_fast_device_that_is_stuck_keeps_no_items_from_a_slow_one():
    go = threading.Event()

    def fast(index):
        if index < 0:
            go.wait(20)
        return index

    with SchedulerStub(fast=fast, slow=_sleeping(0.02)) as fake:
        fake.workers.workers[0].seconds, fake.workers.workers[1].seconds = 0.001, 0.02
        stuck = fake.add(-1)
        others = [fake.add(index) for index in range(5)]
        assert [future.result(10) for future in others] == list(range(5))
        assert not stuck.done()
        go.set()
        assert stuck.result() == -1


def test_a_first_item_that_takes_long_does_not_keep_a_fast_device_from_work():
    """A driver compiles kernels while the first item is run. Once it judged the device by that, and left it out."""
    first = threading.Event()

    def compiling(index):
        time.sleep(0.0005 if first.is_set() else 0.5)
        first.set()
        return index

    with SchedulerStub(gpu=compiling, cpu=_sleeping(0.005)) as fake:
        assert _all(fake, 300) == list(range(300))
        first_round = fake.done()["gpu"]
        assert _all(fake, 100) == list(range(100))
        assert fake.done()["gpu"] - first_round > 50


def test_a_lost_device_leaves_and_its_item_is_done_elsewhere():
    calls, lock = [], threading.Lock()

    def note(index):
        with lock:
            calls.append(index)
        time.sleep(0.001)
        return index

    def lost(index):
        if len(calls) > 20:
            raise rlx.DeviceLostError("gone")
        return note(index)

    with SchedulerStub(a=note, b=lost, c=note) as fake:
        with pytest.warns(RuntimeWarning, match=r"b has left the pool \(DeviceLostError: gone\)"):
            result = _all(fake, 300)
    assert result == list(range(300))
    assert sorted(calls) == list(range(300))  # each once
    assert sorted(fake.closed) == ["a", "b", "c"]


def test_bad_inputs_are_the_callers():
    def run(index):
        if index % 3 == 0:
            raise rlx.InputError("no such input")
        return index

    with SchedulerStub(a=run, b=run) as fake:
        futures = [fake.add(index) for index in range(30)]
        errors = [future.exception() for future in futures]
        assert [isinstance(error, rlx.InputError) for error in errors] == [
            index % 3 == 0 for index in range(30)
        ]
        assert all(worker.left is None for worker in fake.workers.workers)


def test_errors_everywhere_are_the_items_and_errors_of_one_device_are_its_own():
    def bad(index):
        if index < 0:
            raise ValueError("negative")
        return index

    def broken(index):
        raise OSError("broken driver")

    with SchedulerStub(a=bad, b=bad) as fake:
        for _ in range(8):
            assert isinstance(fake.add(-1).exception(), ValueError)
        assert all(worker.left is None for worker in fake.workers.workers)
    with SchedulerStub(a=_sleeping(0.002), b=broken) as fake:
        with pytest.warns(RuntimeWarning, match="b has left"):
            _until_one_has_left(lambda: _all(fake, 40), fake.workers.workers)


def test_all_devices_are_lost():
    def lost(index):
        time.sleep(0.002)
        raise rlx.DeviceLostError(f"gone at {index}")

    with SchedulerStub(a=lost, b=lost) as fake:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)
            futures = [fake.add(index) for index in range(2)]
            errors = [future.exception() for future in futures]
        assert all(isinstance(error, rlx.DeviceFallbackError) for error in errors)
        assert any(len(error.attempts) == 2 for error in errors)
        with pytest.raises(rlx.DeviceFallbackError, match="no device of the pool is left"):
            fake.add(0)


def test_an_item_whose_last_device_leaves_is_answered():
    """It has failed at one device and waits for the other, which is then lost under another item."""
    began, go = threading.Event(), threading.Event()

    def small(index):
        if index == "large":
            raise rlx.DeviceMemoryError("no room")
        return index

    def dying(index):
        began.set()
        go.wait(10)
        raise rlx.DeviceLostError("gone")

    with SchedulerStub(b=dying) as fake:
        first = fake.add("any")
        began.wait(10)
        fake.workers.workers.append(Worker(rlx.Device("a"), small, lambda: None))
        failed = [(rlx.Device("a"), rlx.DeviceMemoryError("no room"))]
        large = Task(("large",), type(first)(), failed=failed)
        fake.workers.add(large)
        with pytest.warns(RuntimeWarning, match="b has left"):
            _let_go(go, fake)
        assert isinstance(large.future.exception(0), rlx.DeviceFallbackError)


def test_what_waits_for_another_device_ends_with_the_pool():
    began, go = threading.Event(), threading.Event()

    def busy(index):
        began.set()
        go.wait(10)
        return index

    def small(index):
        began.wait(10)
        raise rlx.DeviceMemoryError("no room")

    fake = SchedulerStub(a=busy, b=small)
    futures = [fake.add(index) for index in range(2)]
    began.wait(10)
    closing = threading.Thread(target=fake.workers.close)
    time.sleep(0.1)
    closing.start()
    time.sleep(0.05)
    go.set()
    closing.join(10)
    assert not closing.is_alive()
    for future in futures:
        assert future.done() or future.cancel()


@pytest.mark.filterwarnings("error")
def test_warnings_that_are_errors_end_no_thread():
    def lost(index):
        raise rlx.DeviceLostError("gone")

    with SchedulerStub(a=_sleeping(0.001), b=lost) as fake:
        assert _all(fake, 100) == list(range(100))
        assert _all(fake, 100) == list(range(100))


def test_too_large_for_one_device():
    def small(index):
        if index > 5:
            raise rlx.DeviceMemoryError("no room")
        return index

    with SchedulerStub(a=small, b=_sleeping(0.001)) as fake:
        assert fake.add(9).result() == 9
        assert all(worker.left is None for worker in fake.workers.workers)


def test_a_cancelled_item_is_not_done():
    began, go = threading.Event(), threading.Event()
    seen = []

    def run(index):
        began.set()
        go.wait(10)
        seen.append(index)
        return index

    with SchedulerStub(a=run) as fake:
        first = fake.add(0)
        began.wait(10)
        second, third = fake.add(1), fake.add(2)
        assert second.cancel()
        go.set()
        assert (first.result(), third.result()) == (0, 2)
    assert seen == [0, 2]


def test_sets_together_are_each_done_once_where_a_device_is_lost_between_them():
    calls, gone = [], threading.Event()

    def note(index):
        gone.wait(10)
        calls.append(index)
        return index

    def lost(index):
        if index % 5 == 2:
            gone.set()
            raise rlx.DeviceLostError("gone")
        calls.append(index)
        return index

    with SchedulerStub(a=note, b=lost) as fake:
        with pytest.warns(RuntimeWarning, match="b has left"):
            result = _by_fives(fake, 300)
        assert fake.done() == {"a": 298, "b": 2}
    assert result == list(range(300))
    assert sorted(calls) == list(range(300))


def test_sets_together_end_where_one_can_not_be_run():
    def run(index):
        if index == 3:
            raise rlx.InputError("no such input")
        return index

    with SchedulerStub(a=run) as fake:
        outcomes = fake.add_together(range(6)).result()
        assert outcomes[:3] == [0, 1, 2]
        assert isinstance(outcomes[3], rlx.InputError)
        assert len(outcomes) == 4


@pytest.mark.parametrize("count", [1, 2, 3, 7])
@pytest.mark.parametrize("sets", [1, 6])
def test_devices_as_fast_as_each_other_do_not_leave_an_item_to_each_other(count, sets):
    with SchedulerStub(a=_sleeping(0.001), b=_sleeping(0.001), c=_sleeping(0.001)) as fake:
        for worker in fake.workers.workers:
            worker.seconds = 0.001
        for _ in range(20):
            futures = [fake.add_together(range(sets)) for _ in range(count)]
            assert [future.result(10) for future in futures] == [list(range(sets))] * count


def test_short_sets_are_worth_handing_out_together():
    with SchedulerStub(fast=_sleeping(0.0002), slow=_sleeping(0.02)) as fake:
        assert fake.workers.together() == 1  # nothing is known yet
        while any(worker.seconds is None for worker in fake.workers.workers):
            _all(fake, 8)
        fast, slow = (worker.seconds for worker in fake.workers.workers)
        assert fake.workers.together() == max(1, int(0.002 / fast))
        fake.workers.workers[0].seconds = slow
        assert fake.workers.together() == 1
