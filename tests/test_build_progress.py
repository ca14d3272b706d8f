"""Builds say which file they compile."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from threading import Lock

import pytest

ROOT = Path(__file__).resolve().parent.parent


@pytest.fixture
def scripts(monkeypatch):
    """Returns the shared module of the scripts."""
    spec = importlib.util.spec_from_file_location("_setup", ROOT / "script/_setup.py")
    result = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "_setup", result)
    spec.loader.exec_module(result)
    return result


def defined(name, **names):
    """Returns a class or function of setup.py, which can't be imported: that would build."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    tree.body = [item for item in tree.body if getattr(item, "name", "") == name]
    names |= {"Lock": Lock, "Path": Path, "sys": sys}
    exec(compile(tree, "setup.py", "exec"), names)
    return names[name]


def test_a_build_names_each_file_in_a_line(capfd):
    told = defined("BuildProgress", PROGRESS="")(2)
    told.begin("cython_src/parts.c", is_compiled=True)
    told.begin("cython_src/kernels/isa_avx2.c")
    assert capfd.readouterr().err == "keeping 1 of 2: parts.c\ncompiling 2 of 2: isa_avx2.c\n"


def test_an_object_is_kept_until_its_command_or_a_file_changes(tmp_path):
    is_compiled, target, header = defined("is_compiled"), tmp_path / "a.o", tmp_path / "a.h"
    texts = {".h": "", ".d": f"a.o: \\\n {header}\n", ".command": "cc"}
    for suffix, text in texts.items():
        target.with_suffix(suffix).write_text(text)
    assert not is_compiled(target, "cc")
    target.write_text("")
    os.utime(header, ns=(0, 0))
    assert is_compiled(target, "cc")
    assert not is_compiled(target, "cc -g")
    header.write_text("int x;")
    assert not is_compiled(target, "cc")


def test_a_terminal_has_one_line(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = defined("BuildProgress", PROGRESS="")(2)
    for name in ("a.c", "b.c"):
        told.begin(name)
    written = capfd.readouterr().err
    assert written.count("\r") == 2
    assert written.count("\n") == 1


def test_scripts_show_what_an_installer_hides(scripts, capfd, tmp_path):
    text = "compiling 1 of 1: a.c\\n"
    program = f"import os; open(os.environ['RLX_BUILD_PROGRESS'], 'a').write('{text}')"
    with scripts.building() as env:
        told = defined("BuildProgress", PROGRESS=env["RLX_BUILD_PROGRESS"])(1)
        told.begin("b.c")
        subprocess.run([sys.executable, "-c", program], env=env, check=True)
    expected = "-- compiling 1 of 1: b.c\n-- compiling 1 of 1: a.c\n"
    assert capfd.readouterr().out == expected
