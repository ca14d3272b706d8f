"""Fixtures: the verifier after every pass, and a WebGPU device that must be there when CI says so."""

import gc
import json
import os
import sys
from pathlib import Path

os.environ.setdefault("RLX_VERIFY", "1")
# Small products of the reference on several threads: those wait for each other by spinning.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Tests patch the compiler, so each compiles anew; those of the caches have folders of their own.
os.environ["RLX_CACHE"] = "off"
# Estimates are known answers then; the tests of calibration switch it on.
os.environ["RLX_CALIBRATION"] = "off"

import numpy as np
import pytest
from selection import SELECTION

import rlx
from rlx import flags
from rlx._ext import cpu
from rlx.backends.registry import absent
from rlx.compiler import compile_cache
from rlx.device.names import info_of

assert rlx.ops  # every operation is registered
PLUGINS = []  # the plugin manager of this process


def pytest_addoption(parser):
    text = "of the tests that are marked per_op, only those of this op"
    parser.addoption("--op", action="append", default=[], metavar="NAME", help=text)


def pytest_collection_finish(session):
    """Freezes the objects that collecting the tests made: walking them took each ``gc.collect()`` half a second."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config, items):
    """With ``--op``: of the tests marked per_op, those with the op's name among their parameters.

    Tests of files that passed before with the same tree are left out, too (tests/selection.py).
    """
    wanted = set(config.getoption("op"))

    def left_out(item):
        if not wanted:
            return SELECTION.leaves_out(item.path, item.nodeid)
        parts = item.callspec.id.split("-") if hasattr(item, "callspec") else []
        return item.get_closest_marker("per_op") and not wanted & set(parts)

    dropped = [item for item in items if left_out(item)]
    config.hook.pytest_deselected(items=dropped)
    gone = set(dropped)
    items[:] = [item for item in items if item not in gone]


def pytest_configure(config):
    PLUGINS.append(config.pluginmanager)
    if SELECTION.mode:
        SELECTION.patch(pytest.MonkeyPatch())
    if SELECTION.mode == "record":
        sys.addaudithook(SELECTION.audit)


def pytest_runtest_logreport(report):
    """Names each failure as soon as it is known, so that a run that is stopped tells of it too."""
    reporter = PLUGINS[0].get_plugin("terminalreporter")
    if report.failed and reporter is not None:
        reporter.write_line(f" failed: {report.nodeid}")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    """Says which file the record notes shaders for."""
    SELECTION.begin(item.path)
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item):
    """An item with the marker by_program is left out where its program is known (tests/selection.py)."""
    if item.get_closest_marker("by_program") is None:
        return (yield)
    with SELECTION.item(item.path, item.name):
        return (yield)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """A worker of xdist has ended."""
    SELECTION.add(getattr(node, "workeroutput", {}).get("selection"))


def pytest_sessionfinish(session, exitstatus):
    """Hands what a worker counted to the process that started it; that one writes the record after a green run."""
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["selection"] = SELECTION.result()
    elif SELECTION.mode == "record" and exitstatus == 0:
        SELECTION.write()


def pytest_terminal_summary(terminalreporter):
    if SELECTION.mode:
        terminalreporter.section("selection")
        terminalreporter.write_line(SELECTION.text())


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def webgpu():
    """The name of the WebGPU device; without an adapter the tests are left out, or fail in CI."""
    if not rlx.is_available("webgpu"):
        reason = absent("webgpu")
        if flags.REQUIRE_WEBGPU.get():
            pytest.fail(f"RLX_REQUIRE_WEBGPU is set: {reason}")
        pytest.skip(reason)
    return "webgpu"


@pytest.fixture(scope="session")
def hardware(webgpu):
    """Returns whether the WebGPU device is a GPU, and not a software adapter."""
    return not info_of(rlx.Device(webgpu)).software


@pytest.fixture(scope="session")
def swiftshader(tmp_path_factory):
    """The environment in which SwiftShader is the only Vulkan driver; where it is not, as for ``webgpu``."""
    library = Path("/usr/lib/chromium/libvk_swiftshader.so")  # of Debian's chromium-common
    if not library.exists():
        if flags.REQUIRE_WEBGPU.get():
            pytest.fail(f"RLX_REQUIRE_WEBGPU is set: {library} is missing")
        pytest.skip(f"{library} is missing")
    driver = {"library_path": str(library), "api_version": "1.1.0"}
    path = tmp_path_factory.mktemp("swiftshader") / "icd.json"
    path.write_text(json.dumps({"file_format_version": "1.0.0", "ICD": driver}))
    return {"VK_DRIVER_FILES": str(path), "VK_ICD_FILENAMES": str(path)}


@pytest.fixture(params=["reference", "cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def device(request):
    """Each backend that runs graphs."""
    if request.param == "webgpu":
        return request.getfixturevalue("webgpu")
    return request.param


@pytest.fixture(params=["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def target_device(request):
    """Each device that has kernels."""
    return request.getfixturevalue("webgpu") if request.param == "webgpu" else "cpu"


@pytest.fixture(params=cpu.isas())
def isa(request, monkeypatch):
    """Each instruction set that this machine has, as the one that the CPU uses."""
    monkeypatch.setenv("RLX_CPU_ISA", request.param)
    return request.param


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A cache folder of its own, and nothing in memory."""
    monkeypatch.setenv("RLX_CACHE", str(tmp_path / "kept"))
    compile_cache._kept.clear()
    yield tmp_path / "kept"
    compile_cache._kept.clear()


@pytest.fixture
def benchmark_modules(monkeypatch):
    """The benchmarks' modules can be imported, and go when the test ends."""
    folder, before = str(Path(__file__).parents[1] / "benchmarks"), set(sys.modules)
    monkeypatch.syspath_prepend(folder)
    monkeypatch.setenv("RLX_CACHE", "off")
    yield
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(folder):
            del sys.modules[name]
