"""Every example runs by itself, and so does the code in the documentation."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from python_process import run_python

from rlx.cli.main import main

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PAGES = sorted(page for page in DOCS.rglob("*.md") if "```python\n" in page.read_text())
# Frames that are drawn in memory are all alike.
ARGUMENTS = {"12_waterfall": ("--frames", "20")}
# Runs each page in a child of its own, in which rlx is imported and nothing is compiled.
PAGES_SERVER = """
import json, os, sys, types
import rlx.compiler.lowering, rlx.onnx, rlx.ops.all_ops, rlx.runtime.session, rlx.signal

for line in sys.stdin:
    code, folder, said = json.loads(line)
    if child := os.fork():
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
        continue
    os.chdir(folder)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(said, os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(1, 2)
    sys.modules["__main__"] = page = types.ModuleType("__main__")
    exec(compile(code, "page", "exec"), vars(page))
    sys.exit()
"""


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path):
    assert run_python(path, *ARGUMENTS.get(path.stem, ())).stdout


# Packages that rlx can do without and that extras bring.
EXTRAS = ("tokenizers", "scipy", "matplotlib", "librosa", "onnx", "onnxruntime", "gguf")
EXTRAS += ("sounddevice", "pygfx")
BARE = """
import runpy, sys
sys.modules.update(dict.fromkeys({extras!r}))
sys.argv = [{path!r}]
sys.path.insert(0, {folder!r})
runpy.run_path({path!r}, run_name="__main__")
"""


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example_without_extras(path):
    """It runs, or says what to install before it does anything."""
    code = BARE.format(extras=EXTRAS, path=str(path), folder=str(path.parent))
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    if done.returncode:
        assert "pip install" in done.stderr
        assert len(done.stderr.splitlines()) == 1
    assert bool(done.stdout) == (done.returncode == 0)


def blocks_of(page):
    return [part.split("```")[0] for part in page.read_text().split("```python\n")[1:]]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """A function that runs code in a folder, in a process of its own, and returns its output."""
    start = ["-P", "-c"]  # not the checkout's rlx
    if not hasattr(os, "fork"):
        yield lambda code, folder: run_python(*start, code, cwd=folder).stdout
        return
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    said = tmp_path_factory.mktemp("pages") / "said.txt"
    command = [sys.executable, *start, PAGES_SERVER]
    with subprocess.Popen(command, text=True, **pipes) as server:

        def run_in_a_child(code, folder):
            said.unlink(missing_ok=True)
            print(json.dumps([code, str(folder), str(said)]), file=server.stdin, flush=True)
            status = server.stdout.readline().strip()
            assert status == "0", said.read_text()
            return said.read_text()

        yield run_in_a_child


def test_readme(run, tmp_path):
    """The code blocks of the README run, one after the other, and it stays short."""
    page = ROOT / "README.md"
    assert "fused_matmul_bias_act" in run("\n".join(blocks_of(page)), tmp_path)
    assert len(page.read_text().splitlines()) <= 150


def test_pages_have_code():
    with_code = {page.parent.name for page in PAGES}
    assert with_code == {"docs", "tutorials", "guides", "reference", "explanation"}
    for folder in ("tutorials", "guides"):
        pages = {page for page in (DOCS / folder).glob("*.md") if page.stem != "index"}
        assert pages <= set(PAGES)


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.stem != "onnx_model"],  # the next test's
    ids=lambda page: f"{page.parent.name}-{page.stem}",
)
def test_page_of_the_documentation(run, page, tmp_path):
    """The code blocks of a page run, one after the other; those of a tutorial in an empty folder."""
    run("\n".join(blocks_of(page)), tmp_path if page.parent.name == "tutorials" else ROOT)


def test_the_tutorial_on_onnx_can_be_followed_to_the_letter(run, tmp_path, monkeypatch):
    """Its commands run in the folder that its code has worked in; how long a benchmark takes is not its subject."""
    page = DOCS / "tutorials/onnx_model.md"
    run("\n".join(blocks_of(page)), tmp_path)
    commands = re.findall(r"^    rlx (.+)$", page.read_text(), re.MULTILINE)
    assert len(commands) == 3
    monkeypatch.chdir(tmp_path)
    for command in commands:
        less = ["--seconds", "0.1"] if command.startswith("bench ") else []
        assert main([*command.split(), *less]) == 0
    assert {path.name for path in tmp_path.iterdir()} == {
        "model.onnx",
        "model.rlx",
        "small.rlx",
        "x.npy",
    }


def test_links_lead_somewhere():
    """Relative links of every page written by hand name a file that is there."""
    for page in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted(DOCS.rglob("*.md"))):
        for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target and not re.search(
                r"(^|/)ops/", target
            ):  # those are made by the build
                assert (page.parent / target).exists(), f"{page.name}: {target}"
