"""Processes that rlx starts import nothing from the folder that the user is in."""

import ast
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import rlx
from rlx.python_start import python

ROOT = Path(__file__).parent.parent
STARTS = {"run", "Popen", "call", "check_call", "check_output", "getoutput", "getstatusoutput"}
SPAWNS = ("exec", "spawn", "posix_spawn", "system", "popen", "startfile")
# Modules that scripts run by the name of the module, wherever the user is.
TOOLS = {"pip", "venv", "uv", "build", "ziglang", "abi3audit"}
PRODUCT = sorted([*ROOT.glob("rlx/**/*.py"), *ROOT.glob("plugins/*/src/**/*.py")])


def faults(tree):
    """Lines of a source that start a process in another way than by ``python`` or by the path of a program."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            owner, name = node.value.id, node.attr
            if (owner, name) == ("sys", "executable"):
                yield node.lineno, "sys.executable"
            if owner == "os" and name.startswith(SPAWNS):
                yield node.lineno, f"os.{name}"
            if owner in ("multiprocessing", "asyncio") and "rocess" in name:
                yield node.lineno, f"{owner}.{name}"
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            if name.startswith(("multiprocessing", "concurrent.futures.Process", "subprocess.")):
                yield node.lineno, f"import of {name}"
        if isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else ""
            shell = [word.value for word in node.keywords if word.arg == "shell"]
            if called in STARTS and any(getattr(value, "value", True) for value in shell):
                yield node.lineno, "shell=True"
        if isinstance(node, ast.List | ast.Tuple) and node.elts:
            texts = [item.value for item in node.elts if isinstance(item, ast.Constant)]
            if "-m" in texts and "-P" not in texts and not isinstance(node.elts[0], ast.Constant):
                yield node.lineno, "-m without -P"


# Where the interpreter is named: the helper itself, and what hands it on to the helper.
ALLOWED = {
    ("rlx/python_start.py", "sys.executable"),
    ("rlx/cli/regressions/record_command.py", "sys.executable"),
}


def test_the_product_starts_python_in_one_place():
    results = {
        (path.relative_to(ROOT).as_posix(), what): line
        for path in PRODUCT
        for line, what in faults(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert len(PRODUCT) > 400
    assert {key: line for key, line in results.items() if key not in ALLOWED} == {}
    assert set(results) == ALLOWED


@pytest.mark.parametrize(
    "source",
    [
        "subprocess.run([sys.executable, '-m', 'x'])",
        "subprocess.run([path, '-m', 'x'])",
        "os.system('python')",
        "os.execv(a, b)",
        "import multiprocessing",
        "from multiprocessing import Pool",
        "from concurrent.futures import ProcessPoolExecutor",
        "from subprocess import run",
        "subprocess.Popen('python', shell=True)",
    ],
)
def test_starts_that_are_not_isolated_are_found(source):
    assert list(faults(ast.parse(source)))


def test_scripts_start_tools_in_isolation():
    for path in [*ROOT.glob("script/*"), *ROOT.glob("script/_portable/*.py")]:
        if path.is_dir():
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.List | ast.Tuple):
                texts = [item.value for item in node.elts if isinstance(item, ast.Constant)]
                for index, text in enumerate(texts[:-1]):
                    if text == "-m" and texts[index + 1] in TOOLS:
                        assert "-P" in texts[:index], f"{path.name}:{node.lineno}"


def test_python_starts_outside_of_the_current_folder(tmp_path):
    (tmp_path / "colorsys.py").write_text("raise SystemExit(7)")
    command = python("-c", "import colorsys")
    assert command[0] == sys.executable
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 0
    assert python("-V", executable="other")[:2] == ["other", "-P"]


@pytest.fixture
def hostile(tmp_path):
    """A folder with a model, and with modules that say that they were run."""
    folder = tmp_path / "download"
    folder.mkdir()
    for name in ("numpy", "json", "rlx", "sitecustomize"):
        text = f"open({str(tmp_path / 'ran')!r}, 'a').write({name!r})"
        (folder / f"{name}.py").write_text(text)
    g = rlx.Graph("scale")
    g.set_outputs([g.input("x", (2,)) * g.param("w", (2,), value=np.float32([3, 4]))])
    rlx.save_model(g, folder / "model.rlx")
    return folder


@pytest.mark.parametrize("more", [["--seconds", "0.02"], ["--cold", "--runs", "1"]])
def test_bench_runs_nothing_of_the_folder_that_it_is_started_in(hostile, more):
    # As the command ``rlx`` does it, whose own folder is not the current one.
    start = "import sys; from rlx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    command = python("-c", start, "bench", "model.rlx", "--devices", "cpu", "--json", *more)
    done = subprocess.run(command, cwd=hostile, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [row["error"] for row in json.loads(done.stdout)["rows"]] == [None]
    assert not (hostile.parent / "ran").exists()
