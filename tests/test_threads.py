"""Graphs on several threads: each result is right whatever the others do, and nothing is shared by mistake."""

import threading
import time

import numpy as np
import pytest

import rlx


def graph():
    g = rlx.Graph("threads")
    x, state = g.input("x", (8, 32)), g.input("state", (8, 32))
    y = g.tanh(x @ g.param("w", (32, 32))) + state
    g.set_outputs([y, g.sum(y, [1])])
    return g


W = np.random.default_rng(0).normal(size=(32, 32)).astype(np.float32) / 6


def drive(compiled, seed, rounds, failures):
    """Every way of running, checked."""
    rng = np.random.default_rng(seed)

    def value():
        return rng.normal(size=(8, 32)).astype(np.float32)

    def check(got, x, state):
        want = np.tanh(x @ W) + state
        if np.abs(got[0] - want).max() > 1e-4 or np.abs(got[1] - want.sum(1)).max() > 1e-3:
            failures.append(seed)

    for _ in range(rounds):
        x, state = value(), value()
        check(compiled.run_slots(x, state), x, state)
        check(compiled.run({"x": x, "state": state}), x, state)
        for found in compiled.run_pipelined([{"x": x, "state": state}] * 3):
            check(found, x, state)
        compiled.commit_no_wait({"x": x, "state": state})
        compiled.sync_pending()
        compiled.set_active_extent((3, 8))
        got = compiled.run_slots(x, state)
        check([got[0][:3], got[1][:3]], x[:3], state[:3])
        compiled.set_active_extent(None)
        if len(failures) > 3:
            return


@pytest.mark.parametrize("shared", [False, True], ids=["apart", "clones"])
def test_every_way_of_running_at_once(device, shared):
    first = rlx.compile(graph(), device, {"w": W})
    failures = []

    def work(seed):
        own = first.clone() if shared else rlx.compile(graph(), device, {"w": W})
        with own:
            drive(own, seed, 20, failures)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    drive(first, 9, 20, failures)
    for thread in threads:
        thread.join()
    first.close()
    assert not failures


def test_runs_overlap(device):
    """The GIL is free while a graph runs: Python goes on beside it."""
    g = rlx.Graph("long")
    x = y = g.input("x", (384, 384))
    for _ in range(10):
        y = g.tanh(y @ x)
    g.set_outputs([y])
    data = np.full((384, 384), 0.01, np.float32)
    with rlx.compile(g, device) as compiled:
        compiled.run_slots(data)
        ticks, done = 0, threading.Event()

        def run():
            for _ in range(3):
                compiled.run_slots(data)
            done.set()

        thread = threading.Thread(target=run)
        thread.start()
        while not done.is_set():
            ticks += 1
            time.sleep(0.0005)
        thread.join()
        assert ticks > 3


def test_compiling_on_several_threads(device):
    failures = []

    def work(seed):
        try:
            for at in range(5):
                g = rlx.Graph()
                x = g.input("x", (4 + seed, 3))
                g.set_outputs([x * float(at + seed)])
                with rlx.compile(g, device) as compiled:
                    got = compiled.run_slots(np.ones((4 + seed, 3), np.float32))[0]
                    if (got != at + seed).any():
                        failures.append(seed)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
