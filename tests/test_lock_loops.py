"""Loops that do not end are ended by signals and by bounds; a forked process is told."""

import os
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

import rlx


def endless():
    again = rlx.Graph("again")
    x = again.input("x", (), "i32")
    again.set_outputs([again.eq(x, x)])
    body = rlx.Graph("body")
    body.set_outputs([body.input("x", (), "i32") * 1])
    g = rlx.Graph()
    g.set_outputs([g.while_(again, body, g.input("x", (), "i32"))])
    return g


class _Alarm(Exception):
    pass


def _ring(*arguments):
    raise _Alarm


@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="Windows has no alarms")
def test_signals_end_a_loop_that_does_not(device):
    cg = rlx.compile(endless(), device)
    before = signal.signal(signal.SIGALRM, _ring)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        start = time.monotonic()
        with pytest.raises(_Alarm):
            cg.run({"x": np.int32(1)})
        assert time.monotonic() - start < 3
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def test_a_bound_of_trips(device):
    options = rlx.CompileOptions(max_iterations=100)
    cg = rlx.compile(endless(), device, options=options)
    for call in (lambda: cg.run({"x": np.int32(1)}), lambda: cg.clone().run_slots(np.int32(1))):
        with pytest.raises(rlx.InputError, match="more trips than allowed"):
            call()
    with pytest.raises(rlx.CompileError, match="max_iterations"):
        rlx.compile(endless(), device, options=rlx.CompileOptions(max_iterations=-1))


def test_an_endless_loop_of_constants_is_not_folded(device):
    g = endless()
    outer = rlx.Graph()
    outer.set_outputs([outer.while_(*_graphs(g), outer.constant(np.int32(1)))])
    options = rlx.CompileOptions(max_iterations=50)
    with pytest.raises(rlx.InputError, match="more trips than allowed"):
        rlx.compile(outer, device, options=options).run({})


def _graphs(g):
    node = next(node for node in g.nodes if node.op == "while_")
    return node.attrs["cond_graph"], node.attrs["body_graph"]


def test_a_scan_of_many_steps(device):
    """Longer than one submission of a GPU, and longer than it may list."""
    body = rlx.Graph("sum")
    total = body.input("total", ()) + body.input("x", ())
    body.set_outputs([total])
    for steps in (9_000, 70_000):
        g = rlx.Graph()
        g.set_outputs([g.scan(body, 1, g.constant(np.float32(0)), g.input("x", (steps,)))])
        cg = rlx.compile(g, device)
        x = np.ones(steps, np.float32)
        np.testing.assert_array_equal(cg.run({"x": x})[0], steps)
        if device == "webgpu":
            assert bool(cg.host_fallbacks) == (steps > 1 << 16)


FORK = """
import os, sys, numpy as np, rlx
def make(device):
    g = rlx.Graph()
    g.set_outputs([g.input("x", (4,)) * 2.0])
    return rlx.compile(g, device)
x, cg = np.ones(4, np.float32), make("webgpu")
cpu = make("cpu")
cg.run_slots(x)
pid = os.fork()
if not pid:
    for call in (lambda: cg.run_slots(x), lambda: cg.run({"x": x}), lambda: make("webgpu"), cg.clone):
        try:
            call()
            print("no error")
        except rlx.DeviceUnavailableError as error:
            assert "fork" in str(error), error
            print("told")
    print(float(cpu.run_slots(x)[0][0]), float(make("auto").run_slots(x)[0][0]), flush=True)
    os._exit(0)  # as multiprocessing does: the driver's own exit handlers fail in a forked process
_, status = os.waitpid(pid, 0)
print("child", status, "parent", float(cg.run_slots(x)[0][0]))
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="Windows does not fork")
@pytest.mark.parametrize("hot", ["1", "0"])
def test_a_forked_process_is_told(hot, webgpu):
    done = subprocess.run(
        [sys.executable, "-c", FORK],
        env={**os.environ, "RLX_WEBGPU_HOT": hot},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.stdout.split() == [*["told"] * 4, "2.0", "2.0", "child", "0", "parent", "2.0"], (
        done.stdout + done.stderr
    )
