"""Devices that were never measured: "auto" chooses at once by defaults, and they are measured in the background."""

import threading
import time

import numpy as np
import pytest
from calibrations import FakeMeter
from python_process import run_python

import rlx
from rlx.cost import background, calibration, store
from rlx.cost.background import waiting_for_figures


def graph():
    g = rlx.Graph("small")
    g.set_outputs([g.tanh(g.input("x", (64, 64)))])
    return g


class SlowMeter(FakeMeter):
    """Measures until it is let go."""

    def __init__(self):
        super().__init__()
        self.begun, self.free = threading.Event(), threading.Event()

    def measure(self, device, progress):
        self.begun.set()
        assert self.free.wait(30)
        if progress is not None:
            progress(0.5, "half")
        return super().measure(device, progress)


@pytest.fixture
def slow(monkeypatch, tmp_path, webgpu):
    """The meter; nothing is known of any device."""
    result = SlowMeter()
    monkeypatch.setattr(calibration, "provided", lambda _: result)
    monkeypatch.setattr(background, "_measuring", background._Measuring())
    monkeypatch.setenv("RLX_CALIBRATION", str(tmp_path / "figures"))
    store.forget()
    yield result
    result.free.set()
    assert rlx.cost.wait_for_figures(30)
    store.forget()


def test_the_first_choice_waits_for_nothing(slow):
    choice = rlx.choose(graph())
    assert "by default figures of cpu, webgpu" in choice.reason
    assert "measured in the background" in choice.reason
    assert slow.begun.wait(10)
    assert len(choice.estimates) >= 2
    # While a device is being measured, known figures can be had, and a compile is made.
    with rlx.compile(graph()) as cg:
        assert cg.run_slots(np.zeros((64, 64), np.float32))[0].shape == (64, 64)
        assert "by default figures" in cg.choice.reason
    slow.free.set()
    assert rlx.cost.wait_for_figures(30)
    assert sorted(slow.measured) == ["cpu", "webgpu"]
    assert "default figures" not in rlx.choose(graph()).reason
    assert sorted(slow.measured) == ["cpu", "webgpu"]


def test_commands_wait(slow):
    slow.free.set()
    with waiting_for_figures():
        assert "default figures" not in rlx.choose(graph()).reason
    assert sorted(slow.measured) == ["cpu", "webgpu"]


def test_a_device_that_cannot_be_measured_is_asked_once(slow, monkeypatch, caplog):
    tried = []

    def fails(device, progress):
        tried.append(str(device))
        raise rlx.DeviceError("no figures")

    monkeypatch.setattr(slow, "measure", fails)
    for _ in range(2):
        assert "by default figures" in rlx.choose(graph()).reason
        assert rlx.cost.wait_for_figures(30)
    assert sorted(tried) == ["cpu", "webgpu"]
    assert "webgpu could not be measured" in caplog.text


def test_a_device_that_is_asked_for_is_not_measured(slow):
    with rlx.compile(graph(), "cpu") as cg:
        assert cg.choice.reason == "'cpu' was asked for"
    assert not slow.begun.is_set()


PROGRAM = """
import time, rlx
g = rlx.Graph()
g.set_outputs([g.tanh(g.input("x", (64, 64)))])
began = time.perf_counter()
cg = rlx.compile(g)
print("compiled", time.perf_counter() - began, flush=True)
cg.run_slots(cg.input_views[0])
print("ran", time.perf_counter() - began, flush=True)
"""


def test_a_short_program_ends_at_once(tmp_path, webgpu):
    """A measurement that is under way does not hold up the end of the process, and breaks nothing."""
    env = {"RLX_CALIBRATION": str(tmp_path / "figures")}
    began = time.perf_counter()
    done = run_python("-P", "-c", PROGRAM, env=env, timeout=120)
    assert "ran" in done.stdout
    assert "Traceback" not in done.stderr
    assert time.perf_counter() - began < 60
