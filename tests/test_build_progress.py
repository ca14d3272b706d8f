"""Builds say which file they compile."""

import ast
import importlib.util
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


def progress(**names):
    """The class of setup.py, which can't be imported: that would build."""
    tree = ast.parse((ROOT / "setup.py").read_text())
    tree.body = [item for item in tree.body if getattr(item, "name", "") == "BuildProgress"]
    names |= {"Lock": Lock, "Path": Path, "sys": sys}
    exec(compile(tree, "setup.py", "exec"), names)
    return names["BuildProgress"]


def test_a_build_names_each_file_in_a_line(capfd):
    told = progress(PROGRESS="")(2)
    for name in ("cython_src/parts.c", "cython_src/kernels/isa_avx2.c"):
        told.begin(name)
    expected = "compiling 1 of 2: parts.c\ncompiling 2 of 2: isa_avx2.c\n"
    assert capfd.readouterr().err == expected


def test_a_terminal_has_one_line(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    told = progress(PROGRESS="")(2)
    for name in ("a.c", "b.c"):
        told.begin(name)
    written = capfd.readouterr().err
    assert written.count("\r") == 2
    assert written.count("\n") == 1


def test_scripts_show_what_an_installer_hides(scripts, capfd, tmp_path):
    program = (
        "import os; open(os.environ['RLX_BUILD_PROGRESS'], 'a').write('compiling 1 of 1: a.c\\n')"
    )
    with scripts.building() as env:
        told = progress(PROGRESS=env["RLX_BUILD_PROGRESS"])(1)
        told.begin("b.c")
        subprocess.run([sys.executable, "-c", program], env=env, check=True)
    expected = "-- compiling 1 of 1: b.c\n-- compiling 1 of 1: a.c\n"
    assert capfd.readouterr().out == expected
