"""Builds for other systems: what setup.py makes of a platform, and script/portable's own functions."""

import json
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from python_process import run_python
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
    """Returns a module's file name, and the libraries that it is linked with."""
    done = run_python("-c", NAMES, cwd=ROOT, env=environment)
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
    results = {
        name: COMPLEX.fullmatch(name) for name in ("creal", "creall", "cabsf", "ctanh", "cos")
    }
    assert [value and value["base"] for value in results.values()] == [
        "creal",
        "creal",
        "cabs",
        "ctanh",
        None,
    ]
    assert [value and value["type"] for value in results.values()] == ["", "l", "f", "", None]


def test_every_step_names_tests_that_exist(portable):
    from _portable.suite import EMULATED, ORDER, REDUCED, STEPS

    assert set(REDUCED) <= set(ORDER)
    whole = {test for step in ORDER for test in STEPS[step]}
    for steps in EMULATED.values():
        assert {test for step in steps for test in STEPS[step]} < whole
    for tests in STEPS.values():
        for test in tests:
            file, _, name = test.partition("::")
            assert f"def {name}" in (ROOT / file).read_text()


def test_every_python_without_the_gil_leaves_out_steps_that_exist(portable):
    from _portable.nogil import VERSIONS
    from _portable.suite import ORDER

    for version, free in VERSIONS.items():
        assert free.left_out <= set(ORDER), version
        assert ("webgpu" in free.devices) == (not free.tools), version  # pip can install wgpu


def test_a_mirror_without_the_sources_is_told(portable, monkeypatch, tmp_path, capsys):
    from _portable import interpreters

    def failing(*_):
        raise subprocess.CalledProcessError(100, "apt-get")

    monkeypatch.setattr(interpreters, "HOME", tmp_path)
    monkeypatch.setattr(interpreters, "apt", lambda _: True)
    monkeypatch.setattr(interpreters, "python_sources", failing)
    assert interpreters.without_gil("3.14", "sid") is None
    assert "the sources of python3.14 in sid" in capsys.readouterr().out


def test_the_version_of_an_interpreter(portable, tmp_path):
    from _portable.interpreters import version_of

    assert version_of(sys.executable) == ".".join(map(str, sys.version_info[:3]))
    assert version_of(sys.executable, str(tmp_path / "none")) == ""  # as of one that does not start


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


# The parts of a module for macOS that _portable/macho.py reads.
def load_command(kind, body):
    body += b"\0" * (-len(body) % 8)
    return struct.pack("<II", kind, 8 + len(body)) + body


def macos_module(library, folder, oldest, bindings):
    commands = [
        load_command(0x0C, struct.pack("<IIII", 24, 0, 0, 0) + library.encode() + b"\0"),
        load_command(0x32, struct.pack("<IIII", 1, oldest, 0, 0)),
    ]
    if folder:
        commands.append(load_command(0x8000001C, struct.pack("<I", 12) + folder.encode() + b"\0"))
    size = 32 + sum(map(len, commands)) + 48
    commands.append(
        load_command(0x80000022, struct.pack("<10I", 0, 0, size, len(bindings), *[0] * 6))
    )
    head = struct.pack("<IiIIIIII", 0xFEEDFACF, 0x0100000C, 0, 8, len(commands), 0, 0, 0)
    return head + b"".join(commands) + bindings


def test_modules_for_macos_are_looked_into(portable):
    from _portable import macho

    system, python = "/usr/lib/libSystem.B.dylib", {"PyList_New"}
    qos = b"\x40_pthread_attr_set_qos_class_np\0\x11\x72\x80\x01\x90"
    lists = b"\x40_PyList_New\0\x3e\x72\x08\x90"
    result = macho.read(macos_module(system, "", 11 << 16, lists + qos))
    assert result.symbols == {"_PyList_New": None, "_pthread_attr_set_qos_class_np": system}
    assert macho.faults("cpu", result, "arm64", python) == []
    assert macho.faults("cpu", result, "x86_64", python) == [
        "is for the processor 0x100000c, not for x86_64"
    ]
    assert macho.faults("cpu", result, "arm64", set()) == [
        "needs _PyList_New, which neither Python's limited API nor macOS has"
    ]
    result = macho.read(macos_module("/opt/lib/libz.dylib", "/opt/lib", 15 << 16, lists + qos))
    assert macho.faults("cpu", result, "arm64", python) == [
        "needs macOS (15, 0), not (11, 0)",
        "needs the library /opt/lib/libz.dylib",
        "looks for libraries in /opt/lib",
        "looks for _pthread_attr_set_qos_class_np in /opt/lib/libz.dylib",
    ]
    result = macho.read(macos_module(system, "", 11 << 16, lists))
    assert macho.faults("owner", result, "arm64", python) == []
    assert macho.faults("cpu", result, "arm64", python) == [
        "does not call _pthread_attr_set_qos_class_np"
    ]
    with pytest.raises(ValueError, match="Mach-O"):
        macho.read(b"\x7fELF" + bytes(64))


def test_unknown_systems_are_refused():
    done = run_python(ROOT / "script/portable", "plan9", status=2)
    assert "usage: script/portable" in done.stdout
