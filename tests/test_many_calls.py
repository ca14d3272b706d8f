"""Calls that wait in pools and models: what they keep, who may wait for them, and what a thread meets."""

import asyncio
import concurrent.futures
import gc
import os
import threading
import time
import weakref

import numpy as np
import pytest
from test_model_threads import RAW, array
from test_scheduler import SchedulerStub

import rlx
from rlx.serving.scheduler import WorkScheduler

X = np.ones(4, np.float32)
_count = iter(range(10**6))


def custom(function):
    """A graph of one custom operation."""
    name = f"test_many_calls_{next(_count)}"
    rlx.register_custom_op(name, shape=lambda x: x, numpy=function)
    g = rlx.Graph()
    g.set_outputs([g.custom(name, [g.input("x", (4,))], {})])
    return g


@pytest.fixture
def held():
    """A graph whose runs wait, and what lets them go on."""
    go = threading.Event()

    def waits(x):
        go.wait(20)
        return x

    yield custom(waits), go
    go.set()


@pytest.fixture(params=["pool", "model", "graph"])
def busy(request, held):
    """Something whose threads are all busy, and its queue."""
    graph, go = held
    if request.param == "pool":
        with rlx.Pool(graph, ["cpu"]) as thing:
            first = [thing.submit(X)]
            yield thing, thing._queue
            go.set()
    elif request.param == "graph":
        with rlx.compile(graph, "cpu") as thing:
            first = [thing.submit(X)]
            yield thing, thing._queue
            go.set()
    else:
        with rlx.onnx.Model(RAW, "cpu") as thing:
            queue = thing._queued()
            first = [queue.submit(queue.of(go.wait, 20)) for _ in range(len(queue._threads._names))]
            yield thing, queue
            go.set()
    for future in first:
        future.result(20)


def test_calls_that_are_cancelled_or_time_out_let_go_of_their_inputs(busy):
    thing, queue = busy
    gone = []

    def make_input():
        result = array(2, 0.5)
        gone.append(weakref.ref(result))
        return result

    async def main():
        for _ in range(50):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(thing.run_async(make_input()), 0.0005)

    asyncio.run(main())
    futures = [thing.submit(make_input()) for _ in range(20)]
    assert all(future.cancel() for future in futures)  # they are still held
    gc.collect()
    assert not [item for item in gone if item() is not None]
    assert len(queue._threads._waiting) == 0
    assert queue._room._inside == len(queue._threads._names)


def test_a_future_that_is_done_keeps_no_inputs():
    with rlx.Pool(custom(lambda x: x), ["cpu"]) as pool:
        x = X.copy()
        future, gone = pool.submit(x), weakref.ref(x)
        del x
        future.result()
        pool.run(X)
        gc.collect()
        assert gone() is None


@pytest.mark.parametrize("most", [0, -1, True, 2.5, float("nan"), "4", None])
def test_odd_bounds_are_refused(most):
    graph = custom(lambda x: x)
    with pytest.raises(rlx.InputError, match="a whole number >= 1"):
        rlx.Pool(graph, ["cpu"], max_pending=most)
    with rlx.compile(graph, "cpu") as cg, pytest.raises(rlx.InputError, match="whole number"):
        cg.submit(X, max_pending=most)


def test_bounds_that_numpy_made_and_huge_ones_are_taken():
    for limit in (np.int64(2), 10**30):
        with rlx.Pool(custom(lambda x: x), ["cpu"], max_pending=limit) as pool:
            assert len(list(pool.map([X] * 9))) == 9


@pytest.mark.parametrize("length", [0, 3, 10**9, -1, 2.5, 10**30, "error"])
def test_lengths_that_are_not_true_harm_nothing(length):
    class UnsizedItems(list):
        def __len__(self):
            if length == "error":
                raise RuntimeError("no length")
            return length

    told = []
    with rlx.Pool(custom(lambda x: x), ["cpu"]) as pool:
        assert len(list(pool.map(UnsizedItems([X] * 5), progress=told.append))) == 5
    assert all(item.part is None or 0 <= item.part <= 1 for item in told)


def test_a_pool_is_not_pickled():
    import pickle

    with rlx.Pool(custom(lambda x: x), ["cpu"]) as pool, pytest.raises(rlx.InputError):
        pickle.dumps(pool)


# --- calls inside calls -------------------------------------------------------------------------------


def _inside(function):
    """Returns the error of a pool that is used inside one of its own operations."""
    box, result = {}, []

    def operation(x):
        if "pool" in box:
            function(box.pop("pool"))
        return x

    with rlx.Pool(custom(operation), ["cpu"]) as pool:
        box["pool"] = pool
        try:
            pool.submit(X).result(20)
        except rlx.RlxError as error:
            result.append(error)
        with pool:
            return result[0] if result else pool.run(X)


@pytest.mark.parametrize(
    "call",
    [
        lambda pool: pool.run(X),
        lambda pool: list(pool.map([X])),
        lambda pool: asyncio.run(pool.run_async(X)),
        lambda pool: pool.submit(X).result(),
        lambda pool: pool.submit(X).exception(),
    ],
)
def test_a_pool_does_not_wait_for_itself(call):
    assert isinstance(_inside(call), rlx.BusyError)


def test_an_operation_that_floods_its_pool_is_refused():
    error = _inside(lambda pool: [pool.submit(X) for _ in range(1000)])
    assert isinstance(error, rlx.BusyError)
    assert "full" in str(error)


def test_a_pool_may_be_closed_by_its_own_operations():
    meet, closed = threading.Barrier(2), []

    def operation(x):
        meet.wait(20)
        pool.close()
        closed.append(1)
        return x

    pool = rlx.Pool(custom(operation), ["cpu", "reference"])
    futures = [pool.submit(X) for _ in range(2)]
    concurrent.futures.wait(futures, 20)
    assert [future.result(0)[0].tolist() for future in futures] == [X.tolist()] * 2
    assert len(closed) == 2
    with pytest.raises(rlx.InputError, match="closed"):
        pool.run(X)
    pool.close()


def test_a_callback_may_submit(held):
    graph, go = held
    over, errors = threading.Semaphore(0), []

    def again(future):
        try:
            pool.submit(X).add_done_callback(lambda _: over.release())
        except rlx.RlxError as error:
            errors.append(error)

    def fill():
        for _ in range(20):
            pool.submit(X).add_done_callback(again)

    with rlx.Pool(graph, ["cpu"], max_pending=2) as pool:
        filling = threading.Thread(target=fill)
        filling.start()
        go.set()
        assert all(over.acquire(timeout=20) for _ in range(20))
        filling.join()
    assert not errors


# --- threads ------------------------------------------------------------------------------------------


def _threads():
    return [
        item for item in threading.enumerate() if item.name.startswith(("rlx-pool", "rlx-queue"))
    ]


def _until(condition):
    until = time.monotonic() + 20
    while not condition() and time.monotonic() < until:
        time.sleep(0.002)
    assert condition()


def test_threads_end_with_what_is_dropped():
    before = len(_threads())
    for _ in range(3):
        pool = rlx.Pool(custom(lambda x: x), ["cpu", "reference"])
        pool.run(X)
        model = rlx.onnx.Model(RAW, "cpu")
        model.submit(array(2, 0.5)).result()
        compiled = rlx.compile(custom(lambda x: x), "cpu")
        compiled.submit(X).result()
        del pool, model, compiled
    gc.collect()
    _until(lambda: len(_threads()) == before)


def test_what_waits_in_a_pool_that_is_dropped_is_done(held):
    graph, go = held
    pool = rlx.Pool(graph, ["cpu"])
    futures = [pool.submit(X) for _ in range(5)]
    del pool
    go.set()
    assert [future.result(20)[0].tolist() for future in futures] == [X.tolist()] * 5
    _until(lambda: not _threads())


@pytest.mark.skipif(not hasattr(os, "fork"), reason="fork")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_forked_pool_says_so_and_a_forked_graph_runs():
    with rlx.Pool(custom(lambda x: x), ["cpu"]) as pool, rlx.compile(custom(lambda x: x)) as cg:
        pool.run(X)
        cg.submit(X).result()
        child = os.fork()
        if not child:
            code = 1
            try:
                pool.submit(X)
            except rlx.InputError as error:
                code = 0 if "another process" in str(error) else 2
            if not np.array_equal(cg.submit(X).result(5)[0], X):
                code = 3
            pool.close()
            os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


# --- what threads meet --------------------------------------------------------------------------------


class _Mute(Exception):
    def __str__(self):
        raise RuntimeError("no text")


_RAISED = [AssertionError(), _Mute(), SystemExit(3), KeyboardInterrupt(), RuntimeError("any")]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("error", _RAISED, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize(
    "place", "run _chosen _patience _takes _do _done _failed _idles _all_left _warn".split()
)
def test_whatever_a_thread_meets_every_future_is_answered(place, error):
    """It is raised in one place after the other, once, while items wait."""
    begun = threading.Event()

    def run(index):
        begun.wait(20)
        if index == 1 and place == "run":
            raise error
        if index == 1 and place in ("_failed", "_all_left", "_warn"):
            raise rlx.DeviceLostError("")
        return index

    fake = SchedulerStub(a=run)
    if place != "run":
        real, armed = getattr(WorkScheduler, place), [True]

        def raises(*args):
            if armed and (place != "_chosen" or begun.is_set()):
                armed.clear()
                raise error
            return real(fake.workers, *args)

        setattr(fake.workers, place, raises)
    futures = []
    try:
        for index in range(4):
            futures.append(fake.add(index))
            if index == 2:
                begun.set()
    except rlx.DeviceFallbackError:
        pass  # the only device has left
    done, waiting = concurrent.futures.wait(futures, 20)
    assert not waiting
    assert len(done) >= 1
    fake.workers.close()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_an_exit_in_a_callback_does_not_end_the_thread():
    added = threading.Event()

    def run(index):
        added.wait(20)
        return index

    def ends(_):
        raise SystemExit(1)

    with SchedulerStub(a=run) as fake:
        item = fake.add(0)
        item.add_done_callback(ends)
        added.set()
        assert item.result(20) == 0
        assert fake.add(1).result(20) == 1


def _lost(fake):
    error = fake.add(0).exception(20)
    fake.workers._threads[0].join(20)
    return error


def test_errors_without_text_are_told_by_their_type():
    with SchedulerStub(a=lambda index: (_ for _ in ()).throw(rlx.DeviceLostError())) as fake:
        with pytest.warns(RuntimeWarning, match="DeviceLostError"):
            error = _lost(fake)
    assert isinstance(error, rlx.DeviceFallbackError)
    assert "DeviceLostError" in str(error)
