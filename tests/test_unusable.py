"""A GPU that is there and that this installation can't use: "auto" says why, once, and goes on without it."""

import importlib
import sys
import warnings

import pytest
from python_process import run_python

import rlx
from rlx import flags
from rlx.backends.registry import absent
from rlx.backends.webgpu import adapters, diagnose, wgsl
from rlx.device import candidates


def graph():
    g = rlx.Graph("app")
    g.set_outputs([g.tanh(g.input("x", (4,)))])
    return g


@pytest.fixture
def fresh(monkeypatch):
    """Nothing was asked or warned of before; what a test breaks is whole again after it."""
    monkeypatch.setattr(candidates, "_asked", set())
    clear()
    yield monkeypatch
    monkeypatch.undo()
    clear()


def clear():
    diagnose.forget()
    wgsl.shader_place.cache_clear()
    flags.renew()  # a test may have compiled for the GPU before


def hide_shaders(monkeypatch):
    def missing():
        raise rlx.CompileError("the WGSL shaders are missing")

    monkeypatch.setattr(diagnose, "shader_place", missing)


def break_import(monkeypatch, name, error):
    plain = importlib.import_module

    def import_module(module, *more):
        if module == name:
            raise error
        return plain(module, *more)

    monkeypatch.setattr(diagnose.importlib, "import_module", import_module)


def hide_library(monkeypatch):
    error = RuntimeError("Could not find WGPU library libwpgu_native.\nA second line")
    break_import(monkeypatch, "wgpu.backends.wgpu_native", error)


def hide_wgpu(monkeypatch):
    break_import(monkeypatch, "wgpu", ModuleNotFoundError("No module named 'wgpu'"))


BROKEN = {
    "shaders": (hide_shaders, "the WGSL shaders are missing"),
    "library": (hide_library, r"the library.*can't be loaded \(Could not find WGPU library libwpgu_native\.\);"),
    "wgpu": (hide_wgpu, "wgpu can't be imported"),
}  # fmt: skip


def machine(monkeypatch, *, gpu):
    """A machine that has a GPU or none, whatever this one has."""
    monkeypatch.setattr(adapters, "has_hardware", lambda: gpu)
    if not gpu:
        monkeypatch.setattr(adapters, "adapters", lambda _: ())


@pytest.mark.parametrize("part", BROKEN)
def test_auto_warns_once(fresh, part, webgpu):
    damage, words = BROKEN[part]
    machine(fresh, gpu=True)
    damage(fresh)
    with pytest.warns(RuntimeWarning, match=words) as caught:
        compiled = rlx.compile(graph(), device="auto")
    assert len(caught) == 1
    assert caught[0].filename == __file__
    assert "docs/guides/freezing.md" in str(caught[0].message)
    assert str(compiled.device) == "cpu"
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        rlx.compile(graph(), device="auto")
        assert str(rlx.choose(graph()).device) == "cpu"
        assert str(rlx.GraphDevices(graph()).fastest()) == "cpu"


@pytest.mark.parametrize("pick", [rlx.choose, lambda g: rlx.GraphDevices(g).resolve()])
def test_whoever_chooses_is_warned(fresh, pick, webgpu):
    hide_shaders(fresh)
    with pytest.warns(RuntimeWarning, match="shaders are missing"):
        pick(graph())


@pytest.mark.parametrize("part", BROKEN)
def test_without_a_gpu_nothing_is_said(fresh, part):
    machine(fresh, gpu=False)
    BROKEN[part][0](fresh)
    assert str(rlx.compile(graph(), device="auto").device) == "cpu"


def test_a_whole_installation_without_a_gpu(fresh):
    machine(fresh, gpu=False)
    assert str(rlx.compile(graph(), device="auto").device) == "cpu"
    assert "no WebGPU adapter" in absent("webgpu")


@pytest.mark.parametrize("ask", ["policy", "variable", "cpu"])
def test_a_program_that_leaves_gpus_out_is_not_warned(fresh, ask):
    hide_shaders(fresh)
    if ask == "variable":
        fresh.setenv("RLX_DENY_DEVICES", "webgpu")
    if ask == "policy":
        rlx.GraphDevices(graph(), policy=rlx.DevicePolicy(deny="webgpu")).fastest()
    else:
        rlx.compile(graph(), device="cpu" if ask == "cpu" else "auto")


@pytest.mark.parametrize("part", BROKEN)
def test_asked_for_by_name_it_says_what_is_missing(fresh, part):
    damage, words = BROKEN[part]
    damage(fresh)
    with pytest.raises(rlx.DeviceUnavailableError, match=words):
        rlx.compile(graph(), device="webgpu")
    assert not rlx.is_available("webgpu")


def test_hardware_on_linux(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "platform", "linux")
    monkeypatch.setattr(diagnose, "_FOLDER", tmp_path)
    (tmp_path / "dri").mkdir()
    (tmp_path / "dri/card0").touch()  # a screen without a GPU, as servers have
    (tmp_path / "nvidiactl").touch()
    assert not diagnose.has_hardware()
    for name in ("dri/renderD128", "nvidia0", "dxg"):
        (tmp_path / name).touch()
        assert diagnose.has_hardware(), name
        (tmp_path / name).unlink()
    monkeypatch.setattr(sys, "platform", "darwin")
    assert diagnose.has_hardware()


HIDDEN = """
import os, sys, warnings
import numpy as np
from rlx.backends.webgpu import adapters, diagnose
import rlx
adapters.has_hardware = lambda: True
warnings.simplefilter("always")
g = rlx.Graph()
g.set_outputs([g.tanh(g.input("x", (4,)))])
for _ in range(3):
    with rlx.compile(g, device="auto") as cg:
        print(cg.device, cg.run({"x": np.zeros(4, np.float32)})[0])
"""


def test_a_library_that_is_really_not_there():
    """wgpu itself says what it can't load; the program computes on the CPU."""
    done = run_python("-c", HIDDEN, env={"WGPU_LIB_PATH": "/nowhere/libwgpu_native.so"})
    assert done.stdout.count("cpu") == 3
    assert done.stderr.count("RuntimeWarning") == 1
    assert "/nowhere/libwgpu_native.so" in done.stderr
