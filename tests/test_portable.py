"""Builds for other systems: what setup.py makes of a platform, and script/portable's own functions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from shader_sizes import shared_of, threads_of

ROOT = Path(__file__).resolve().parents[1]
NAMES = """
import json, runpy, sys
from setuptools import Distribution, Extension
sys.argv = ["setup.py", "--version"]
made = runpy.run_path("setup.py")
extension = Extension("rlx._ext.cpu", [], py_limited_api=made["ABI3"])
distribution = Distribution({"ext_modules": [extension], "packages": ["rlx"]})
command = made["BuildExtensions"](distribution)
command.ensure_finalized()
print()
print(json.dumps([command.get_ext_filename("rlx._ext.cpu"), command.get_libraries(extension)]))
"""


def asked(**environment):
    """What a module's file is called, and the libraries that it is linked with."""
    env = {**os.environ, **environment}
    command = [sys.executable, "-c", NAMES]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.skipif(sys.platform == "win32", reason="the system that is built for is this one")
def test_modules_are_those_of_the_system_that_is_built_for():
    assert asked(_PYTHON_HOST_PLATFORM="win-amd64") == ["rlx/_ext/cpu.pyd", ["python3"]]
    assert asked(_PYTHON_HOST_PLATFORM="macosx-11.0-arm64") == ["rlx/_ext/cpu.abi3.so", []]
    assert asked(_PYTHON_HOST_PLATFORM="linux-aarch64") == ["rlx/_ext/cpu.abi3.so", []]


def test_a_build_for_one_version_is_named_after_it():
    name, _ = asked(RLX_BUILD_ABI3="0")
    assert "abi3" not in name
    assert f"3{sys.version_info.minor}" in name


@pytest.fixture
def portable(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "script"))


def test_options_of_the_linker_become_a_c_file(portable, tmp_path):
    from _portable.windows import exporting

    file = exporting(tmp_path / "a.c", " -export:a=b.a -export:c=d", "before\n")
    assert file.read_text() == (
        'before\n__asm__(".section .drectve,\\"yn\\"\\n"\n'
        '    ".ascii \\" -export:a=b.a\\"\\n"\n'
        '    ".ascii \\" -export:c=d\\"\\n"\n'
        '    ".text");\n'
    )


def test_complex_functions_are_told_from_others(portable):
    from _portable.windows import COMPLEX, MATH, SUBSTITUTE

    assert len(MATH) == len(SUBSTITUTE)  # one replaces the other inside of a file
    found = {name: COMPLEX.fullmatch(name) for name in ("creal", "creall", "cabsf", "ctanh", "cos")}
    assert [one and one["base"] for one in found.values()] == [
        "creal",
        "creal",
        "cabs",
        "ctanh",
        None,
    ]
    assert [one and one["type"] for one in found.values()] == ["", "l", "f", "", None]


def test_every_step_names_tests_that_exist(portable):
    from _portable.suite import ORDER, REDUCED, STEPS

    assert set(REDUCED) <= set(ORDER)
    for tests in STEPS.values():
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text()


def test_texts_beyond_a_platform_are_told(portable):
    from _portable.shaders import beyond

    text = {"bindings": 30, "shared": 32768, "threads": 1024}
    assert not list(beyond(text))
    assert list(beyond({**text, "bindings": 31})) == ["bindings 31, limit 30"]
    assert len(list(beyond({"bindings": 40, "shared": 32772, "threads": 2048}))) == 3


def test_what_a_text_takes_of_a_workgroup():
    source = "var<workgroup> a: array<vec4<f32>, 64>; @compute @workgroup_size(8, 4) fn main() {}"
    assert (shared_of(source), threads_of(source)) == (1024, 32)
    assert (shared_of("fn f() {}"), threads_of("fn f() {}")) == (0, 0)


def test_unknown_systems_are_refused():
    command = [sys.executable, str(ROOT / "script/portable"), "plan9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: script/portable" in done.stdout
