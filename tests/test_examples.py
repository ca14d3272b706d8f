"""Every example runs by itself, and so does the code in the documentation."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"
EXAMPLES = sorted((ROOT / "examples").glob("[0-9]*.py"))
PAGES = sorted(page for page in DOCS.rglob("*.md") if "```python\n" in page.read_text())


def test_there_are_examples():
    assert len(EXAMPLES) >= 3


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_example(path):
    done = subprocess.run([sys.executable, path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout


# Packages that rlx can do without and that extras bring.
EXTRAS = (
    "tokenizers",
    "scipy",
    "matplotlib",
    "librosa",
    "onnx",
    "onnxruntime",
    "gguf",
    "sounddevice",
    "pygfx",
)
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


def run(code, folder=ROOT):
    command = [sys.executable, "-P", "-c", code]  # not the checkout's rlx
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_readme(tmp_path):
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


@pytest.mark.parametrize("page", PAGES, ids=lambda page: f"{page.parent.name}-{page.stem}")
def test_page_of_the_documentation(page, tmp_path):
    """The code blocks of a page run, one after the other; those of a tutorial in an empty folder."""
    run("\n".join(blocks_of(page)), tmp_path if page.parent.name == "tutorials" else ROOT)


def test_the_tutorial_on_onnx_can_be_followed_to_the_letter(tmp_path):
    """Its commands run in the folder that its code has worked in."""
    page = DOCS / "tutorials/onnx_model.md"
    run("\n".join(blocks_of(page)), tmp_path)
    commands = re.findall(r"^    rlx (.+)$", page.read_text(), re.MULTILINE)
    assert len(commands) == 3
    start = "import sys; from rlx.cli.main import main; sys.exit(main(sys.argv[1:]))"
    for command in commands:
        arguments = [sys.executable, "-P", "-c", start, *command.split()]
        done = subprocess.run(arguments, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
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
