"""Calls on a GPU: two threads inside of runs at once, and waits that no clock makes longer."""

import sys
import threading
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from samples import ALL
from side_by_side import side_by_side

import rlx
from rlx._ext import webgpu_hot

pytestmark = pytest.mark.webgpu


@pytest.fixture(params=["hot", "python"])
def way(request, monkeypatch, webgpu):
    """Both ways of running a submission."""
    monkeypatch.setenv("RLX_WEBGPU_HOT", "1" if request.param == "hot" else "0")
    return request.param


def test_two_threads_run_at_the_same_time(way):
    """Each its own executable: right results, and both are inside a run at once."""
    g = rlx.Graph()
    x = g.input("x", (128, 128))
    y = x
    for _ in range(8):
        y = g.tanh(y @ x)
    g.set_outputs([y])
    first = rlx.compile(g, "webgpu")
    both = [first, first.clone()]
    arrays = [np.full((128, 128), 0.002 * k, np.float32) for k in (1, 2)]
    expected = [item.run_slots(a)[0].copy() for item, a in zip(both, arrays, strict=True)]
    inside, seen, failures = [0], set(), []
    barrier = threading.Barrier(2)

    def work(index):
        barrier.wait()
        # On a fast GPU one thread may make its first runs before the other begins.
        for run in range(1000):
            if run >= (30 if ALL else 10) and 2 in seen:
                break
            inside[0] += 1
            seen.add(inside[0])
            got = both[index].run_slots(arrays[index])[0]
            inside[0] -= 1
            if not np.array_equal(got, expected[index]):
                failures.append(index)

    side_by_side(partial(work, 0), partial(work, 1))
    assert not failures
    assert 2 in seen


def test_waiting_does_not_read_the_wall_clock():
    """A wall clock that is set back would make a wait longer by as much."""
    module = Path(webgpu_hot.__file__).read_bytes()
    assert b"timespec_get" not in module
    assert sys.platform == "win32" or b"clock_gettime" in module
