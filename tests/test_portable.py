"""Builds for other systems: what setup.py makes of a platform, and script/portable's own functions."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_unknown_systems_are_refused():
    command = [sys.executable, str(ROOT / "script/portable"), "plan9"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert "usage: script/portable" in done.stdout
