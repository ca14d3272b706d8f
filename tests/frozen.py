"""Freezing programs in tests: a build of rlx in a folder of its own, PyInstaller, and an empty environment."""

import importlib.util
import os
import shutil
import subprocess
from importlib import metadata
from pathlib import Path

from python_process import run_python

import rlx
from rlx._ext import cpu
from rlx.backends.webgpu import c_types
from rlx.backends.webgpu.template_compiler import write
from rlx.backends.webgpu.template_runtime import environment
from rlx.build_digest import digest_of, module_text

ROOT = Path(__file__).resolve().parent.parent
SOURCES = ("setup.py", "rlx", "cython_src", "shaders")
UNUSED = shutil.ignore_patterns("*.so", "*.pyd", "__pycache__", "_shaders")


def packaged(folder, edits=()):
    """A package of this rlx as a wheel has it, with some of its sources changed first.

    Args:
        folder: Where it goes.
        edits: Triples: a file of the checkout, a text in it, and what replaces the text. The compiled modules
            stay as they are, so only Python and shaders may be changed.

    Returns:
        The folder to put on the path.
    """
    source = folder / "source"
    for name in SOURCES:
        copy = shutil.copytree if (ROOT / name).is_dir() else shutil.copyfile
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        copy(ROOT / name, source / name, **({"ignore": UNUSED} if copy is shutil.copytree else {}))
    for name, old, new in edits:
        text = (source / name).read_text()
        assert text.count(old) == 1, (name, old)
        (source / name).write_text(text.replace(old, new))
    site = folder / "site"
    shutil.copytree(source / "rlx", site / "rlx")
    shutil.copytree(source / "shaders", site / "rlx/_shaders")
    write(source / "shaders", site / "rlx/_templates", environment.filters, environment.tests)
    (site / "rlx/_wgpu_types.py").write_text(c_types.source_of(c_types.header()))
    (site / "rlx/_build.py").write_text(module_text(digest_of(source)))
    for module in Path(cpu.__file__).parent.iterdir():
        if module.suffix in (".so", ".pyd"):
            shutil.copy(module, site / "rlx/_ext")
    described = site / f"rlx-{rlx.__version__}.dist-info"
    (described / "licenses").mkdir(parents=True)
    result = metadata.distribution("rlx")
    (described / "METADATA").write_text(
        result.read_text("METADATA") or result.read_text("PKG-INFO"), encoding="utf-8"
    )
    (described / "entry_points.txt").write_text(result.read_text("entry_points.txt"))
    shutil.copy(ROOT / "LICENSE", described / "licenses")
    installed = [path.relative_to(site).as_posix() for path in site.rglob("*") if path.is_file()]
    (described / "RECORD").write_text("".join(f"{name},,\n" for name in installed))
    return site


def freeze(folder, program, *options, site=None):
    """Freezes a program with PyInstaller, and moves it away from where it was made.

    Args:
        folder: An empty folder for all that is made.
        program: A Python file, or a .spec file.
        options: Further options.
        site: What ``packaged`` made, in place of the rlx that is installed.

    Returns:
        The folder that was ``dist``.
    """
    assert importlib.util.find_spec("PyInstaller"), "PyInstaller is a part of the extra test"
    folder.mkdir(parents=True, exist_ok=True)
    env = {} if site is None else {"PYTHONPATH": str(site)}
    places = ("--distpath", "dist", "--workpath", "work")
    arguments = ("-m", "PyInstaller", "--noconfirm", *places, *options, program)
    run_python(*arguments, cwd=folder, env=env)
    shutil.rmtree(folder / "work")
    return Path(shutil.move(folder / "dist", folder / "elsewhere"))


def alone(command, home, **more):
    """Runs a program with next to nothing in its environment, from an empty folder.

    Args:
        command: The program and its arguments.
        home: The user's home folder, below which everything is cached.
        more: Further variables of the environment.

    Returns:
        What it printed, in ``stdout`` and ``stderr``.
    """
    empty = Path(home).with_name("empty")
    empty.mkdir(exist_ok=True)
    remaining = {
        name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "TMPDIR") if name in os.environ
    }
    done = subprocess.run(
        [*map(str, command)], cwd=empty, env={**remaining, "HOME": str(home), **more},
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert not list(empty.iterdir())
    return done
