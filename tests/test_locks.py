"""One call at a time uses a graph: threads, calls from inside a run, weights that clones share, and memory."""

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import rlx
from rlx._ext.locks import ReadWriteLock, ReentrancyCheckedLock, TryLock
from rlx.locks import Lock

N = 1 << 12
# The function that the custom operation "reenters" calls.
ACTION = []


def _reenter(x):
    ACTION[0]()
    return x + 0


rlx.register_custom_op("reenters", shape=lambda x: x, numpy=_reenter)


def _in_place(x):
    x += 100
    return x


rlx.register_custom_op("in_place", shape=lambda x: x, numpy=_in_place)


def doubled(device, n=N):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (n,)) * 2.0])
    return rlx.compile(g, device)


def product(rows, n=256):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (rows, n)) @ g.param("w", (n, n))])
    return g


@pytest.fixture(autouse=True)
def often():
    """Threads change places as often as they can."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(before)


# --- locks ---------------------------------------------------------------------------------------------------


class _Tick(Exception):
    """The exception of a timer's handler."""


def _tick(*_):
    raise _Tick


def _nothing():
    pass


def _within(lock, times):
    """A function that calls another inside ``with``, so many times inside each other."""

    def call(function):
        with lock:
            return _within(lock, times - 1)(function) if times > 1 else function()

    return call


# Two wrappers that call a function with a lock taken: one to be tried, and one that would be refused, or wait for ever, in
# another thread if the first had left the lock taken.
def _turns():
    return (ReentrancyCheckedLock("this test").call,) * 2


def _owner():
    return (TryLock("this test", "wait").call,) * 2


def _runs():
    gate = ReadWriteLock()
    return gate.read, gate.write


def _changes():
    gate = ReadWriteLock()
    return gate.write, gate.read


def _lock(times=1):
    return (_within(Lock(), times),) * 2


def _lock_inside_itself():
    return _lock(2)


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="timers are of POSIX")
@pytest.mark.parametrize(
    "kind", [_turns, _owner, _runs, _changes, _lock, _lock_inside_itself], ids=lambda f: f.__name__
)
def test_a_handler_that_raises_leaves_no_lock_taken(kind):
    (call, other), raised = kind(), 0
    before = signal.signal(signal.SIGALRM, _tick)
    deadline = time.monotonic() + 1
    try:
        while raised < 3000 and time.monotonic() < deadline:
            try:
                signal.setitimer(signal.ITIMER_REAL, 2e-5)  # once
                for _ in range(200):
                    call(_nothing)
                signal.setitimer(signal.ITIMER_REAL, 0)
                time.sleep(0)  # a signal that came last is handled here
            except _Tick:
                raised += 1
    finally:
        signal.signal(signal.SIGALRM, before)
    assert raised > 100
    done = []
    thread = threading.Thread(target=lambda: done.append(other(_nothing)), daemon=True)
    thread.start()
    thread.join(30)
    assert done


@pytest.mark.parametrize("kind", [_turns, _owner])
def test_a_call_from_inside_is_refused(kind):
    call, _ = kind()
    with pytest.raises(rlx.BusyError, match=r"this test is already .*, further up in this thread"):
        call(call, _nothing)
    assert call(lambda *args, **kwargs: (args, kwargs), 1, function=2) == ((1,), {"function": 2})


def test_other_threads_wait_for_their_turn():
    turns, inside, most = ReentrancyCheckedLock("this test"), 0, 0

    def alone():
        nonlocal inside, most
        inside += 1
        time.sleep(1e-5)
        most = max(most, inside)
        inside -= 1

    def work():
        for _ in range(50):
            turns.call(alone)

    with ThreadPoolExecutor(4) as pool:
        for done in [pool.submit(work) for _ in range(4)]:
            done.result()
    assert most == 1


# --- two threads ------------------------------------------------------------------------------------------


def test_a_second_thread_is_told_and_never_wrong(device):
    cg = doubled(device)

    def work(value):
        x, right = np.full(N, value, np.float32), 0
        for _ in range(150):
            try:
                (y,) = cg.run({"x": x})
            except rlx.BusyError:
                continue
            np.testing.assert_array_equal(y, 2 * value)
            right += 1
        return right

    with ThreadPoolExecutor(2) as pool:
        assert sum(pool.map(work, (1.0, 2.0)))


def test_every_call_is_refused_while_another_is_under_way(device):
    cg = doubled(device)
    x = np.ones(N, np.float32)
    calls = {
        "run": lambda: cg.run({"x": x}),
        "run_raw": lambda: cg.run_raw({"x": x}),
        "call": lambda: cg(x=x),
        "run_slots": lambda: cg.run_slots(x),
        "run_read_outputs": lambda: cg.run_read_outputs({"x": x}),
        "read_output_row": lambda: cg.read_output_row(0, 0),
        "commit_no_wait": lambda: cg.commit_no_wait({"x": x}),
        "sync_pending": cg.sync_pending,
        "run_pipelined": lambda: cg.run_pipelined([{"x": x}]),
        "run_typed": lambda: cg.run_typed([("x", x.tobytes(), "f32")]),
        "bind_handle": lambda: cg.bind_handle("x", x),
        "bind_gpu_handle": lambda: cg.bind_gpu_handle("x", x),
        "read_handle": lambda: cg.read_handle("x"),
        "set_gpu_handle_feed": lambda: cg.set_gpu_handle_feed("x", 0),
        "run_feed_gpu_handle": lambda: cg.run_feed_gpu_handle({}, "x", 0),
        "set_param": lambda: cg.set_param("x", x),
        "set_param_typed": lambda: cg.set_param_typed("x", x.tobytes(), "f32"),
        "set_active_extent": lambda: cg.set_active_extent((1, N)),
        "recover": cg.recover,
        "profile": lambda: cg.profile({"x": x}, runs=1),
        "close": cg.close,
    }

    def during():
        with ThreadPoolExecutor(1) as pool:
            for name, call in calls.items():
                if name in ("set_param_typed", "profile"):
                    continue
                with pytest.raises(rlx.BusyError, match="further up in this thread"):
                    call()
                with pytest.raises(rlx.BusyError, match="in another thread"):
                    pool.submit(call).result()
            assert pool.submit(lambda: cg.clone().run({"x": x})[0][0]).result() == 2

    cg._state.lock.call(during)
    np.testing.assert_array_equal(cg.run({"x": x})[0], 2)


# --- a call from inside a call ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["run", "run_slots", "set_param", "close", "recover", "bind"])
def test_a_custom_operation_cannot_use_its_own_graph(name, device):
    g = rlx.Graph()
    x, w = g.input("x", (4,), "i32"), g.param("w", (4,), "i32")
    g.set_outputs([g.custom("reenters", [x]) + w])
    ones = np.ones(4, np.int32)
    cg = rlx.compile(g, device, {"w": ones})
    ACTION[:] = [
        {
            "run": lambda: cg.run({"x": ones}),
            "run_slots": lambda: cg.run_slots(ones),
            "set_param": lambda: cg.set_param("w", ones * 5),
            "close": cg.close,
            "recover": cg.recover,
            "bind": lambda: cg.bind_handle("x", ones),
        }[name]
    ]
    for call in (lambda: cg.run({"x": ones})[0], lambda: cg.run_slots(ones)[0]):
        with pytest.raises(rlx.BusyError, match="further up in this thread"):
            call()
    ACTION[:] = [lambda: None]
    np.testing.assert_array_equal(cg.run({"x": ones})[0], 2)


@pytest.mark.parametrize("name", ["run", "close", "set_param"])
def test_an_argument_that_is_converted_cannot_use_the_graph(name, device):
    g = rlx.Graph()
    a, b = g.input("a", (4,)), g.input("b", (4,))
    g.set_outputs([a + b * g.param("w", (4,))])
    ones = np.ones(4, np.float32)
    cg = rlx.compile(g, device, {"w": ones})
    calls = {
        "run": lambda: cg.run_slots(ones, ones),
        "close": cg.close,
        "set_param": lambda: cg.set_param("w", ones),
    }

    class LockedCalls:
        def __array__(self, *arguments, **named):
            calls[name]()
            return ones

    for call in (
        lambda: cg.run_slots(ones, LockedCalls()),
        lambda: cg.run({"a": ones, "b": LockedCalls()}),
    ):
        with pytest.raises(rlx.BusyError, match="further up in this thread"):
            call()
    np.testing.assert_array_equal(cg.run_slots(ones, ones)[0], 2)


HANDLER = """
import faulthandler, os, signal, sys, threading, numpy as np, rlx
faulthandler.dump_traceback_later(60, exit=True)
g = rlx.Graph()
y = x = g.input("x", (1 << 16,), "f64")
for _ in range(30):
    y = g.sin(y) + x
g.set_outputs([y])
cg = rlx.compile(g, sys.argv[1])
x = np.zeros(1 << 16)
cg.run({"x": x})
def stop(*_):
    try:
        cg.close()
    except rlx.BusyError:
        print("busy")
    raise KeyboardInterrupt
signal.signal(signal.SIGTERM, stop)
threading.Timer(0.1, lambda: os.kill(os.getpid(), signal.SIGTERM)).start()
try:
    while True:
        cg.run({"x": x})
except KeyboardInterrupt:
    cg.run({"x": x})
    cg.close()
    print("closed")
"""


@pytest.mark.skipif(
    os.name == "nt", reason="os.kill ends a process of Windows, and no handler runs"
)
def test_a_signal_handler_cannot_close_the_graph_that_runs(device):
    done = subprocess.run(
        [sys.executable, "-c", HANDLER, device], capture_output=True, text=True, timeout=120
    )
    # Between two runs the handler may close it; nothing hangs.
    assert done.stdout.split() in (["busy", "closed"], []), done.stdout + done.stderr
    assert done.returncode == 0 or "is closed" in done.stderr, done.stderr


# --- weights --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("hosted", [False, True])
def test_a_run_sees_a_whole_weight(hosted, device):
    """Set on one clone while another runs: every run has one value of it, and the next has the new one."""
    n, g = 256, rlx.Graph()
    x, w = g.input("x", (8, n)), g.param("w", (n, n))
    y = x @ w
    if (
        hosted
    ):  # a part on the host splits a run on a GPU into two submissions, before and after the weight
        y = g.cast(g.cast(y, "f64") * 1.0, "f32") + x @ w - y
    g.set_outputs([y])
    ones = np.ones((n, n), np.float32)
    cg = rlx.compile(g, device, {"w": ones})
    clone, over = cg.clone(), threading.Event()
    values, runs = np.ones((8, n), np.float32), 0

    def run():
        nonlocal runs
        while not over.is_set() or not runs:
            (y,) = clone.run({"x": values})
            assert len(np.unique(y)) == 1
            assert y[0, 0] in (n, 2 * n)
            runs += 1
        return runs

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(run)
        end = time.monotonic() + 1.5
        try:
            position = 0
            while time.monotonic() < end and min(runs, position) < 150 and not running.done():
                position += 1
                cg.set_param("w", ones * (1 + position % 2))
                np.testing.assert_array_equal(cg.run({"x": values})[0], n * (1 + position % 2))
        finally:
            over.set()
        assert running.result()


def test_a_weight_that_two_graphs_share_is_pinned(device):
    ones = np.ones((256, 256), np.float32)
    for index in range(5):
        first, other = (rlx.compile(product(rows), device, {"w": ones}) for rows in (1, 2))
        clone, over = first.clone(), threading.Event()
        x = np.ones((1, 256), np.float32)

        def run(clone=clone, over=over, x=x):
            while not over.is_set():
                y = clone.run_slots(x)[0][0]
                assert set(np.unique(y)) <= {256.0, 512.0}

        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(run)
            try:
                first.set_param("w", 2 * ones)
                if index % 2:
                    other.close()
                del other
                gc.collect()
                junk = [np.full((256, 256), 7.0, np.float32) for _ in range(8)]
                time.sleep(0.02)
            finally:
                over.set()
            running.result()
        assert junk
        np.testing.assert_array_equal(clone.run_slots(x)[0], 512)


def test_a_function_that_was_taken_before_sees_new_weights(device):
    cg = rlx.compile(product(1), device, {"w": np.eye(256, dtype=np.float32)})
    clone = cg.clone()
    taken, x = clone.run_slots, np.ones((1, 256), np.float32)
    del clone
    cg.set_param("w", 3 * np.eye(256, dtype=np.float32))
    np.testing.assert_array_equal(taken(x)[0], 3)


def test_a_param_that_nothing_reads(device):
    g = rlx.Graph()
    g.param("unused", (2,))
    g.set_outputs([g.exp(g.input("x", (2,)))])
    cg = rlx.compile(g, device, {"unused": np.ones(2, np.float32)})
    cg.set_param("unused", np.zeros(2, np.float32))
    np.testing.assert_allclose(cg.run({"x": np.zeros(2, np.float32)})[0], 1)
    np.testing.assert_array_equal(cg._state.read_param("unused"), 0)


def test_custom_operations_get_views_that_they_cannot_write_to(device):
    g = rlx.Graph()
    x, p = g.input("x", (4,), "i32"), g.param("w", (4,), "i32")
    y = x * 2
    g.set_outputs([g.custom("in_place", [y]), y + 0, g.custom("in_place", [p])])
    weight = np.zeros(4, np.int32)
    cg = rlx.compile(g, device, {"w": weight})
    with pytest.raises(ValueError, match="read-only"):
        cg.run({"x": np.ones(4, np.int32)})
    np.testing.assert_array_equal(weight, 0)
    np.testing.assert_array_equal(cg._state.read_param("w"), 0)


# --- memory ---------------------------------------------------------------------------------------------------


def test_the_last_reference_frees_everything(device):
    gc.collect()
    gc.disable()
    try:
        cg = rlx.compile(product(4), device, {"w": np.eye(256, dtype=np.float32)})
        x = np.ones((4, 256), np.float32)
        cg.run({"x": x})
        with cg.trace(os.devnull):
            cg.run_slots(x)
        cg.commit_no_wait({"x": x})
        cg.sync_pending()
        cg.clone().run_slots(x)
        stored = [weakref.ref(cg), weakref.ref(cg._state.executable)]
        memory = cg._state.executable
        if device == "webgpu":
            stored += [weakref.ref(memory._arena), weakref.ref(memory._builder.staging)]
            stored += [weakref.ref(buffer) for buffer in memory._constants.buffers.values()]
        elif device == "cpu":
            stored.append(weakref.ref(memory._arena))
        run = cg.run_slots
        del cg, memory
        # The function keeps what it needs.
        np.testing.assert_array_equal(run(x)[0], 1)
        del run
        assert [item() for item in stored] == [None] * len(stored)
    finally:
        gc.enable()


def test_incomplete_and_closed_graphs_are_freed(device):
    gc.disable()
    try:
        cg = rlx.compile(product(1), device)
        with pytest.raises(rlx.InputError, match="never set"):
            cg.run_slots(np.ones((1, 256), np.float32))
        stored = [weakref.ref(cg), weakref.ref(cg._state.executable)]
        del cg
        cg = rlx.compile(product(1), device)
        cg.close()
        stored += [weakref.ref(cg), weakref.ref(cg._state.executable)]
        del cg
        assert [item() for item in stored] == [None] * 4
    finally:
        gc.enable()
