"""Compiled code that threads share, protected by nothing but its own locks: Python without the GIL.

With the GIL these tests hold as well; most can fail only without it. ``script/portable nogil`` runs them there.
"""

import sysconfig
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from python_process import run_python

import rlx
from rlx._ext.locks import ReadWriteLock, TryLock
from rlx._ext.program import free_idle, idle_bytes

THREADS = 4
SECONDS = 0.5
LARGE = 1 << 14  # elements, enough that an output gets a block of its own
FREE = bool(sysconfig.get_config_var("Py_GIL_DISABLED"))
MODULES = """
import sys
import rlx
from rlx._ext import cpu, locks, program, webgpu_hot
g = rlx.Graph()
g.set_outputs([g.input("x", (4,)) + 1.0])
for device in ("cpu", "reference", *["webgpu"] * rlx.is_available("webgpu")):
    rlx.compile(g, device).run({"x": [0, 1, 2, 3]})
print(sys._is_gil_enabled())
"""
# All threads import, open devices and compile at the same time, and nothing was there before.
FIRST = """
import sys, threading
from concurrent.futures import ThreadPoolExecutor
import numpy as np

THREADS, device = 6, sys.argv[1]
ready = threading.Barrier(THREADS)

def work(at):
    ready.wait()
    import rlx
    g = rlx.Graph()
    x = g.input("x", (4, 8 + at % 3))
    g.set_outputs([g.softmax(x), x * g.constant(np.float32(at))])
    given = np.arange(4 * (8 + at % 3), dtype=np.float32).reshape(4, -1)
    expected, compiled = rlx.compile(g, "reference").run({"x": given}), rlx.compile(g, device)
    for one in (compiled, compiled.clone()):
        for found, right in zip(one.run({"x": given}), expected, strict=True):
            np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-6)
    return 1

with ThreadPoolExecutor(THREADS) as pool:
    print(sum(pool.map(work, range(THREADS))))
"""


def together(work):
    """Returns the results of ``work(number of the thread)`` in threads that begin at the same time."""
    ready = threading.Barrier(THREADS)

    def begin(index):
        ready.wait()
        return work(index)

    with ThreadPoolExecutor(THREADS) as pool:
        return list(pool.map(begin, range(THREADS)))


@pytest.mark.skipif(not FREE, reason="this Python has no build without the GIL to switch it on in")
def test_no_module_switches_the_gil_on():
    assert run_python("-c", MODULES).stdout.strip() == "False"


def test_one_thread_at_a_time_has_an_owner():
    lock = TryLock("this test", "wait")
    inside, limit = [], []

    def alone(index):
        inside.append(index)
        limit.append(len(inside))
        inside.pop()

    def work(index):
        entered, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            try:
                lock.call(alone, index)
                entered += 1
            except rlx.BusyError:
                continue
        return entered

    assert sum(together(work))
    assert set(limit) == {1}
    lock.close()
    with pytest.raises(rlx.InputError, match="closed"):
        lock.call(alone, 0)


def test_runs_and_changes_stay_apart():
    gate, running, changing = ReadWriteLock(), [], []

    def change(index):
        changing.append(index)
        assert not running
        changing.pop()

    def run(index):
        running.append(index)
        assert not changing
        running.pop()

    def work(index):
        seen, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            if index % 2:
                gate.write(change, index)
                time.sleep(1e-4)
            else:
                gate.read(gate.read, run, index)
            seen += 1
        return seen

    assert all(together(work))
    gate.write(int)  # nothing counts as running any more


def test_many_threads_may_be_the_first(target_device):
    assert run_python("-c", FIRST, target_device).stdout.strip() == "6"


def scaled(device="cpu"):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (LARGE,)) * 2.0])
    return rlx.compile(g, device)


def test_threads_make_use_and_drop_graphs(target_device):
    def work(index):
        runs, end = 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            g = rlx.Graph()
            x = g.input("x", (1 + (index + runs) % 5, 16))
            g.set_outputs([x @ g.param("w", (16, 16)) + float(runs % 3)])
            compiled = rlx.compile(g, target_device, {"w": np.eye(16, dtype=np.float32)})
            arguments = np.full(x.shape, index, np.float32)
            for item in (compiled, compiled.clone()):
                (y,) = item.run({"x": arguments})
                assert np.array_equal(y, arguments + runs % 3)
            runs += 1
        return runs

    assert all(together(work))


def test_no_two_results_share_memory():
    compiled = scaled()
    free_idle()

    def work(index):
        clone, retained, runs = compiled.clone(), [], 0
        end = time.monotonic() + SECONDS
        while time.monotonic() < end:
            value = 1000 * index + runs % 1000
            retained.append((value, clone.run({"x": np.full(LARGE, value, np.float32)})[0]))
            if len(retained) > 4:
                value, y = retained.pop(0)
                assert (y == 2 * value).all()
            runs += 1
        return runs

    assert all(together(work))
    # Blocks of one size: what is idle is a whole number of them, and counted once.
    assert idle_bytes() % (4 * LARGE) == 0
    assert 0 < idle_bytes() <= 64 * 4 * LARGE
    free_idle()
    assert idle_bytes() == 0


def test_views_may_be_asked_for_during_runs():
    def work(compiled, asked):
        x = np.arange(LARGE, dtype=np.float32)
        for _ in range(20):
            (y,) = compiled.run({"x": x})
            assert np.array_equal(y, 2 * x)
            asked.set()

    for _ in range(20):
        compiled, asked = scaled(), threading.Event()
        with ThreadPoolExecutor(1) as pool:
            running = pool.submit(work, compiled, asked)
            asked.wait(10)
            (view,) = compiled.input_views
            running.result()
        assert not view.any()


def test_weights_may_change_while_clones_run(target_device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (8, 64)) @ g.param("w", (64, 64))])
    ones = np.ones((64, 64), np.float32)
    compiled = rlx.compile(g, target_device, {"w": ones})
    clones = [compiled.clone() for _ in range(THREADS)]

    def work(index):
        x, runs, end = np.ones((8, 64), np.float32), 0, time.monotonic() + SECONDS
        while time.monotonic() < end:
            if index == 0:
                clones[index].set_param("w", ones * (1 + runs % 2))
            else:
                (y,) = clones[index].run({"x": x})
                assert len(np.unique(y)) == 1
                assert y[0, 0] in (64, 128)
            runs += 1
        return runs

    assert all(together(work))
