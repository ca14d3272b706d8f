"""The device ``dawn``: when Dawn is started, what it means beside ``webgpu``, and what it says when it can't be used.

Each test is a process of its own on SwiftShader. What graphs compute on Dawn is tested with RLX_WEBGPU=dawn, by the tests
that are marked webgpu.
"""

import os
import textwrap

import pytest
from python_process import run_python

import rlx
from rlx.backends.base import DeviceInfo
from rlx.backends.webgpu import device as devices
from rlx.backends.webgpu.provider import provider, provider_of
from rlx.device import candidates
from rlx.device.names import Device
from rlx.ir.fragments import Fragment

pytestmark = pytest.mark.webgpu
START = """
import sys
import numpy as np
import pytest
import rlx

def started():
    return "wgpudawn" in sys.modules

def graph():
    g = rlx.Graph()
    x = g.input("x", (8, 8))
    g.set_outputs([g.softmax(x @ x) + x])
    return g

X = np.random.default_rng(0).normal(size=(8, 8)).astype(np.float32)

def right(device):
    with rlx.compile(graph(), device) as cg, rlx.compile(graph(), "reference") as exact:
        np.testing.assert_allclose(cg.run_slots(X)[0], exact.run_slots(X)[0], 1e-5, 1e-6)
        return cg._state.executable
"""


@pytest.fixture
def run(swiftshader, monkeypatch):
    """Runs the lines of a program, in which WebGPU is wgpu-native unless they say otherwise; gives what it prints."""
    monkeypatch.delenv("RLX_WEBGPU", raising=False)

    def call(lines, **env):
        env = {"RLX_CACHE": "off", "RLX_CALIBRATION": "off", **swiftshader, **env}
        return run_python("-c", START + textwrap.dedent(lines), env=env).stdout.split()

    return call


def test_it_is_started_when_somebody_asks(run):
    run(
        """
        assert [str(one) for one in rlx.available_devices()] == ["cpu", "webgpu"]
        right("webgpu")
        assert rlx.choose(graph()).device.backend != "dawn"
        rlx.GraphDevices(graph()).report()
        assert not started()
        executable = right("dawn")
        assert started()
        assert executable._factory.hot
        assert [str(one) for one in rlx.available_devices()] == ["cpu", "webgpu", "dawn"]
        """
    )


def test_it_is_the_same_hardware(run):
    run(
        """
        assert rlx.is_available("dawn:0")
        rows = {str(row.device): row for row in rlx.GraphDevices(graph()).report()}
        assert str(rows["dawn"].same_as) == "webgpu"
        assert "same GPU as webgpu" in rows["dawn"].label
        assert not rows["dawn"].recommended
        assert rows["dawn"].capabilities.device_timestamps
        """
    )


def test_auto_starts_it_where_it_was_measured_and_is_faster(run, tmp_path):
    """Stored figures decide, without Dawn: made up such that it is slower first, and then faster."""
    folder = tmp_path / "figures"
    folder.mkdir(mode=0o700)
    measure = """
        from calibrations import figures
        from rlx.calibrate.measurer import METER
        from rlx.cost.store import file_of, save
        for name, ns in (("webgpu", 1e6), ("dawn", ROUNDTRIP)):
            own = METER.identity(name)
            assert save(file_of(own), figures(own, roundtrip_ns=ns))
        """
    choose = """
        g = rlx.Graph()
        g.set_outputs([g.input("x", (4,)) * 2.0])
        found = rlx.choose(g, policy=rlx.DevicePolicy(deny="cpu"))
        print(found.device, int(started()))
        """
    here = os.path.dirname(__file__)
    env = {"RLX_CALIBRATION": str(folder), "PYTHONPATH": here}
    for roundtrip, expected in (("1e7", ["webgpu", "0"]), ("1e5", ["dawn", "1"])):
        run(textwrap.dedent(measure).replace("ROUNDTRIP", roundtrip), **env)
        assert run(choose, **env) == expected


def test_webgpu_may_mean_dawn(run):
    lines = """
        for name in ("webgpu", "gpu", "vulkan"):
            executable = right(name)
            assert executable._gpu.provider.name == "dawn"
        assert started()
        from rlx.backends.registry import backend
        print(backend("webgpu").build_id())
        """
    assert run(lines, RLX_WEBGPU="dawn")[0] == "wgpudawn"


def test_both_in_one_process(run):
    run(
        """
        for _ in range(2):
            assert right("webgpu")._gpu.provider.name == "wgpu"
            assert right("dawn")._gpu.provider.name == "dawn"
        """
    )


def test_a_device_of_the_program(run):
    run(
        """
        import wgpudawn
        adapter = wgpudawn.gpu.enumerate_adapters_sync()[0]
        device = adapter.request_device_sync(
            required_features=["subgroups", "implicit-device-synchronization"],
            required_limits=dict(adapter.limits),
        )
        executable = right(device)
        assert executable._gpu.device is device
        assert executable._gpu.shared
        from rlx.device.names import Device, info_of
        info = info_of(Device.parse(device))
        assert (info.backend, info.features) == ("dawn", frozenset({"subgroup"}))
        """
    )


def test_a_device_of_the_library_that_is_not_in_use(run):
    lines = """
        import wgpu
        device = wgpu.gpu.enumerate_adapters_sync()[0].request_device_sync()
        try:
            rlx.compile(graph(), device)
        except rlx.DeviceUnavailableError as error:
            assert "a wgpu device that rlx can't share" in str(error)
            assert "wgpudawn" in str(error)
            print("refused")
        """
    assert run(lines, RLX_WEBGPU="dawn") == ["refused"]


def test_a_program_that_made_the_instance_keeps_it(run):
    run(
        """
        import wgpudawn
        assert wgpudawn.gpu.enumerate_adapters_sync()
        right("dawn")
        """
    )


def test_without_the_package(run):
    run(
        """
        from importlib import metadata
        from rlx.backends.webgpu import provider_dawn
        provider_dawn.version_of = lambda name: metadata.distribution("not installed")
        sys.modules["wgpudawn"] = None
        right("auto")
        assert not rlx.is_available("dawn")
        with pytest.raises(rlx.DeviceUnavailableError, match="wgpudawn is not installed") as error:
            rlx.compile(graph(), "dawn")
        assert "pip install '.[dawn]'" in str(error.value)
        right("webgpu")
        """
    )


def test_a_release_that_lacks_what_rlx_needs(run):
    run(
        """
        from rlx.backends.webgpu.provider_dawn import Dawn
        Dawn.needed = ("a-feature-of-tomorrow",)
        with pytest.raises(rlx.DeviceUnavailableError, match="no a-feature-of-tomorrow") as error:
            rlx.compile(graph(), "dawn")
        assert "wgpudawn" in str(error.value)
        """
    )


@pytest.mark.parametrize("checks", ["0", "1"])
def test_checks_of_shaders_are_a_matter_of_the_device(run, checks):
    lines = """
        from wgpudawn.backends.dawn import extras
        toggles = extras.get_toggles(right("dawn")._gpu.device)
        print(int("disable_robustness" not in toggles), int("skip_validation" in toggles))
        """
    assert run(lines, RLX_SHADER_CHECKS=checks) == [checks, "0"]


def test_an_error_is_raised_by_the_call_that_made_it(run):
    """Not in another thread that calls into the device at the same time."""
    run(
        """
        import threading
        executable = right("dawn")
        gpu, stop, seen = executable._gpu, threading.Event(), []

        def others():
            while not stop.is_set():
                try:
                    gpu.buffer("one", 256, "STORAGE").destroy()
                except Exception as error:
                    seen.append(error)

        thread = threading.Thread(target=others)
        thread.start()
        refused = 0
        for _ in range(50):
            try:
                with gpu.provider.reporting(gpu.device):
                    gpu.provider.shader_module(gpu.device, "broken", "@compute fn main( {")
            except Exception as error:
                assert "parsing WGSL" in str(error)
                refused += 1
        stop.set()
        thread.join()
        assert refused == 50
        assert not seen, seen
        """
    )


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_process(run):
    lines = """
        import os
        right("dawn")
        sys.stdout.flush()
        child = os.fork()
        if not child:
            try:
                rlx.compile(graph(), "dawn")
            except rlx.DeviceUnavailableError as error:
                os._exit(7 if "forked" in str(error) else 8)
            os._exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
        """
    assert run(lines) == ["7"]


# --- without a device ----------------------------------------------------------------------------------------


def row(name, time, same_as=None):
    device = Device.parse(name)
    return candidates.DeviceCandidate(
        device, name, True, True, True, False, time, None, None, same_as and Device.parse(same_as)
    )


def test_a_second_way_is_picked_where_it_was_measured(monkeypatch):
    rows = [row("cpu", 9.0), row("webgpu", 2.0), row("dawn", 1.0, "webgpu")]
    monkeypatch.setattr(candidates, "stored", lambda device: None)
    assert [str(contender.device) for contender in candidates.contenders(rows)] == ["cpu", "webgpu"]
    monkeypatch.setattr(candidates, "stored", lambda device: object())
    assert [str(contender.device) for contender in candidates.contenders(rows)] == [
        "cpu",
        "webgpu",
        "dawn",
    ]
    # Alone it is no second way.
    monkeypatch.setattr(candidates, "stored", lambda device: None)
    assert candidates.contenders([rows[0], rows[2]]) == [rows[0], rows[2]]


def test_versions_tell_the_libraries_apart():
    assert provider("wgpu").version() != provider("dawn").version()
    assert provider_of("dawn") is provider("dawn")
    infos = [DeviceInfo(name, 0, "GPU") for name in ("webgpu", "dawn")]
    first, second = map(devices._key, infos)
    assert (first == second) == (provider_of("webgpu") is provider("dawn"))


def test_matrices_of_subgroups(monkeypatch):
    """wgpudawn reports the matrices of subgroups; an adapter without the feature is not asked."""

    class Extras:
        def get_adapter_properties(self, adapter):
            names = "component_type", "result_component_type", "m", "n", "k"
            sizes = {"min_subgroup_size": 32, "max_subgroup_size": 64}
            return {
                "subgroup_matrix_configs": [
                    dict(zip(names, ("f16", "f32", 16, 8, 4), strict=True)) | sizes
                ]
            }

    class DawnAdapterStub:
        features = frozenset({"chromium-experimental-subgroup-matrix"})

    monkeypatch.setattr("rlx.backends.webgpu.provider_dawn._extras", Extras)
    speaks = "rlx.backends.webgpu.provider_dawn._speaks"
    monkeypatch.setattr(speaks, lambda words: "BufferView" in words)
    result = provider("dawn").fragments(DawnAdapterStub)
    assert result == (Fragment("f16", "f32", 16, 8, 4, 32, 64),)
    # A release whose WGSL lacks what the kernels are written with.
    monkeypatch.setattr(speaks, lambda words: False)
    assert provider("dawn").fragments(DawnAdapterStub) == ()
    DawnAdapterStub.features = frozenset()
    assert provider("dawn").fragments(DawnAdapterStub) == ()
    assert provider("wgpu").fragments(DawnAdapterStub) == ()


def test_the_name():
    assert str(rlx.Device.parse("dawn:1")) == "dawn:1"
    assert rlx.Device.parse("dawn").backend == "dawn"
