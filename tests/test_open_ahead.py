"""``rlx.open_ahead``: a GPU is opened in a thread while a program does other things."""

import threading
import time

import numpy as np
import pytest
from python_process import run_python

import rlx
from rlx import prewarm
from rlx.backends.webgpu import device as devices
from rlx.backends.webgpu import listing
from rlx.backends.webgpu import provider as providers
from rlx.backends.webgpu.provider import provider


def wait():
    for thread in threading.enumerate():
        if thread.name == "rlx-ahead":
            thread.join(60)


def run(code):
    return run_python("-c", code, timeout=120).stdout.strip()


@pytest.mark.webgpu
def test_a_program_that_begins_with_it(webgpu):
    """It imports little in the first thread, and adapters are asked for once."""
    code = """
import sys, threading
import rlx
rlx.open_ahead("webgpu")
here = [name for name in sys.modules if name.startswith("rlx.runtime")]
assert not here, here
from rlx.backends.webgpu import listing
asked = []
before = listing._asked
listing._asked = lambda library: asked.append(library.name) or before(library)
g = rlx.Graph()
g.set_outputs(g.input("x", (3,)) * 2.0)
with rlx.compile(g, device="webgpu") as compiled:
    print(compiled.run({"x": [1.0, 2.0, 3.0]})[0].tolist(), len(asked) <= 1)
"""
    assert run(code) == "[2.0, 4.0, 6.0] True"


@pytest.mark.webgpu
def test_the_device_is_opened_once(webgpu, monkeypatch):
    opened = []
    before = devices.GpuDevice.__init__
    monkeypatch.setattr(
        devices.GpuDevice, "__init__", lambda self, info: opened.append(info) or before(self, info)
    )
    monkeypatch.setattr(devices, "_devices", {})
    for _ in range(3):
        rlx.open_ahead(webgpu)
    g = rlx.Graph()
    g.set_outputs(g.input("x", (2,)) + 1.0)
    with rlx.compile(g, device=webgpu) as compiled:
        np.testing.assert_array_equal(compiled.run({"x": np.ones(2)})[0], [2, 2])
    wait()
    assert len(opened) == 1


@pytest.mark.parametrize("name", ["cpu", "reference", "null"])
def test_devices_without_a_driver_start_no_thread(name, monkeypatch):
    monkeypatch.setattr(prewarm.threading, "Thread", None)
    rlx.open_ahead(name)
    rlx.open_ahead(rlx.Device.parse(name))


@pytest.mark.parametrize("name", ["webgpu:99", "no such device", "metal"])
def test_what_is_not_there_is_an_error_where_it_is_used(name):
    rlx.open_ahead(name)
    wait()
    with pytest.raises(rlx.DeviceError):
        rlx.Session(name)


def test_auto_looks_for_adapters_and_opens_none(monkeypatch):
    looked = []
    monkeypatch.setattr(listing, "listed", lambda _: looked.append(1) or ())
    monkeypatch.setattr(devices, "gpu_device", None)
    rlx.open_ahead()
    wait()
    assert looked == [1]


def test_a_child_of_a_process_that_used_a_gpu_leaves_the_driver_alone(monkeypatch):
    monkeypatch.setattr(providers._State, "dead", True)
    monkeypatch.setattr(listing, "listed", lambda _: pytest.fail("the driver was called"))
    rlx.open_ahead("webgpu")
    wait()


def test_a_driver_that_fails_means_no_adapters(monkeypatch):
    listing.listed(
        provider("wgpu")
    )  # wgpu puts another object in the place of ``wgpu.gpu`` when its library is loaded
    import wgpu

    def broken():
        raise RuntimeError("a driver's own trouble")

    monkeypatch.setattr(wgpu.gpu, "enumerate_adapters_sync", broken)
    monkeypatch.setattr(listing, "_found", {})
    assert listing.listed(provider("wgpu")) == ()


def test_it_returns_at_once(monkeypatch):
    monkeypatch.setattr(listing, "listed", lambda _: time.sleep(1) or ())
    began = time.perf_counter()
    rlx.open_ahead()
    assert time.perf_counter() - began < 0.5
    wait()
