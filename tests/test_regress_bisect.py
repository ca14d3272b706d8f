"""``rlx regress bisect``: the first bad commit of a small project, with wheels that are really built."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

pytest.importorskip("msgspec")
from rlx.errors import InputError
from rlx.regress.bisect import Opinion, built, first_bad
from rlx.regress.commits import Checkout
from rlx.regress.installs import BuildError, Installs

PROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "toy"
version = "1"

[tool.setuptools]
packages = ["toy"]
"""
ONE = {"GIT_AUTHOR_NAME": "A", "GIT_AUTHOR_EMAIL": "a@b", "GIT_AUTHOR_DATE": "2026-01-01T00:00:00Z"}
WHO = ONE | {key.replace("AUTHOR", "COMMITTER"): value for key, value in ONE.items()}
CONFIG = {"GIT_CONFIG_GLOBAL": os.devnull, "GIT_CONFIG_NOSYSTEM": "1"}


def git(folder, *arguments):
    done = subprocess.run(
        ["git", "-C", str(folder), *arguments],
        capture_output=True, text=True, check=True, env={**os.environ, **WHO, **CONFIG},
    )  # fmt: skip
    return done.stdout.strip()


class Project:
    """A checkout of a package whose module says a number."""

    def __init__(self, root):
        self.root = root
        (root / "toy").mkdir(parents=True)
        git(root.parent, "init", "--quiet", "--initial-branch=main", str(root))

    def commit(self, subject, value, pyproject=PROJECT):
        (self.root / "pyproject.toml").write_text(pyproject)
        (self.root / "toy/__init__.py").write_text(f"VALUE = {value}\nSUBJECT = {subject!r}\n")
        git(self.root, "add", "-A")
        git(self.root, "commit", "--quiet", "-m", subject)
        return git(self.root, "rev-parse", "HEAD")


@pytest.fixture
def sixteen(tmp_path):
    """Sixteen commits; the twelfth makes the number 2, and the eighth, which halves them, can't be built."""
    project = Project(tmp_path / "toy")
    broken = PROJECT.replace("setuptools.build_meta", "no_such_module")
    for number in range(1, 17):
        project.commit(f"Change {number}", 1 + (number >= 12), broken if number == 8 else PROJECT)
    return project


def said(python, expression):
    command = [str(python), "-c", f"import toy; print({expression})"]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()


def worse(good, candidate):
    first, other = (int(said(python, "toy.VALUE")) for python in (good, candidate))
    return Opinion(other > first, f"{first} and {other}")


def listing(project):
    """Lists the traces that a search may not leave: worktrees, and changes of the checkout."""
    return git(project.root, "worktree", "list"), git(project.root, "status", "--porcelain")


@pytest.mark.slow
def test_the_first_bad_of_sixteen_commits(sixteen, tmp_path):
    before, lines = listing(sixteen), []
    checkout = Checkout(sixteen.root / "toy")
    installs = Installs(checkout, tmp_path / "scratch", tmp_path / "wheels", lines.append)
    good, bad = checkout.commit("HEAD~15"), checkout.commit("main")
    result = first_bad(checkout, good, bad, built(good, installs.python, worse), lines.append)
    assert [commit.subject for commit in result.commits] == ["Change 12"]
    # The first and the last one, one that can't be built, and at most one more than halving takes.
    assert 4 <= len(result.steps) <= 7
    verdicts = {step.commit.subject: step.opinion.bad for step in result.steps}
    assert verdicts["Change 8"] is None
    assert all(
        bad == (int(subject.split()[1]) >= 12)
        for subject, bad in verdicts.items()
        if bad is not None
    )
    assert [
        line
        for line in lines
        if "skipped" in line and "Change 8" in line and "no_such_module" in line
    ]
    assert lines[-1].endswith("found)")
    assert listing(sixteen) == before
    # A second search builds nothing: the wheels were kept.
    built_before = [line for line in lines if line.startswith("building")]
    assert len(built_before) >= 4
    more = []
    again = Installs(checkout, tmp_path / "again", tmp_path / "wheels", more.append)
    assert said(again.python(result.commits[0]), "toy.SUBJECT") == "Change 12"
    assert not more


def test_an_install_has_its_own_package_and_the_others_of_here(sixteen, tmp_path):
    checkout = Checkout(sixteen.root)
    installs = Installs(checkout, tmp_path / "scratch", tmp_path / "wheels", print)
    python = installs.python(checkout.commit("HEAD"))
    assert str(tmp_path) in said(python, "toy.__file__")
    assert said(python, "__import__('numpy').__file__") == sys.modules["numpy"].__file__


def test_every_merged_branch_is_looked_through(tmp_path):
    """The bad commit is on a branch, beside good ones on the other side of the merge."""
    project = Project(tmp_path / "toy")
    first = project.commit("One", 1)
    project.commit("Two", 1)
    git(project.root, "checkout", "--quiet", "-b", "side", first)
    culprit = project.commit("Three", 2)
    project.commit("Four", 2)
    git(project.root, "checkout", "--quiet", "main")
    git(project.root, "merge", "--quiet", "-s", "ours", "-m", "Merge", "side")
    last = project.commit("Five", 2)
    checkout = Checkout(project.root)

    def opinion_of(commit):
        return Opinion(checkout.precedes(checkout.commit(culprit), commit), "known")

    result = first_bad(checkout, checkout.commit(first), checkout.commit(last), opinion_of, print)
    assert [commit.digest for commit in result.commits] == [culprit]


def test_skipped_commits_beside_the_first_bad_one_are_named(sixteen):
    checkout = Checkout(sixteen.root)

    def opinion_of(commit):
        number = int(commit.subject.split()[1])
        return Opinion(None if number in (11, 12) else number >= 12, "known")

    result = first_bad(
        checkout, checkout.commit("HEAD~15"), checkout.commit("HEAD"), opinion_of, print
    )
    assert {commit.subject for commit in result.commits} == {"Change 11", "Change 12", "Change 13"}


def test_what_can_not_be_searched(sixteen, tmp_path):
    checkout = Checkout(sixteen.root)
    first, last = checkout.commit("HEAD~15"), checkout.commit("HEAD")
    with pytest.raises(InputError, match="no ancestor"):
        first_bad(checkout, last, first, lambda commit: Opinion(True, ""), print)
    with pytest.raises(InputError, match="no ancestor"):
        first_bad(checkout, first, first, lambda commit: Opinion(True, ""), print)
    with pytest.raises(InputError, match=r"does not differ(.|\n)*1 and 1"):
        first_bad(checkout, first, last, lambda commit: Opinion(False, "1 and 1"), print)
    for name in ("nothing", "--help", "", "a\0b"):
        with pytest.raises(InputError, match="no such commit"):
            checkout.commit(name)
    with pytest.raises(InputError, match="not a git checkout"):
        Checkout(tmp_path)
    with pytest.raises(InputError, match="no folder"):
        Checkout(tmp_path / "none")
    installs = Installs(checkout, tmp_path / "scratch", tmp_path / "wheels", print)
    with pytest.raises(InputError, match="the good commit can't be built"):
        built(checkout.commit("HEAD~8"), installs.python, worse)(last)


def test_a_failing_build_leaves_no_worktree(sixteen, tmp_path):
    before = listing(sixteen)
    checkout = Checkout(sixteen.root)
    installs = Installs(checkout, tmp_path / "scratch", tmp_path / "wheels", print)
    with pytest.raises(BuildError, match="no_such_module"):
        installs.wheel(checkout.commit("HEAD~8"))
    assert listing(sixteen) == before
    assert not list(Path(tmp_path / "wheels").iterdir())
    trees = []

    def interrupted():
        with checkout.files(checkout.commit("HEAD")) as tree:
            trees.append(tree)
            assert (tree / "toy/__init__.py").exists()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert listing(sixteen) == before
    assert not trees[0].exists()


def test_a_failing_build_says_what_the_compiler_said(tmp_path):
    project = Project(tmp_path / "toy")
    (project.root / "toy/module.c").write_text("int main(void) { return oops; }\n")
    (project.root / "setup.py").write_text(
        "from setuptools import Extension, setup\n"
        "setup(ext_modules=[Extension('toy.module', ['toy/module.c'])])\n"
    )
    project.commit("One", 1)
    checkout = Checkout(project.root)
    installs = Installs(checkout, tmp_path / "scratch", tmp_path / "wheels", print)
    with pytest.raises(BuildError, match=r"module\.c:1:.*error:.*oops"):
        installs.wheel(checkout.commit("HEAD"))


@pytest.mark.skipif(os.name == "nt", reason="Windows has no SIGTERM that a process can handle")
def test_a_cancelled_search_leaves_no_worktree(tmp_path):
    project = Project(tmp_path / "toy")
    (project.root / "setup.py").write_text("import time\n\ntime.sleep(60)\n")
    for subject in ("One", "Two"):
        project.commit(subject, 1)
    before = listing(project)
    options = (
        "--good",
        "HEAD~1",
        "--case",
        "^gelu ",
        "--suite",
        "ops",
        "--wheels",
        str(tmp_path / "wheels"),
    )
    command = [
        sys.executable,
        "-P",
        "-m",
        "rlx",
        "regress",
        "bisect",
        "--repository",
        str(project.root),
        *options,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as search:
        assert search.stdout.readline().startswith("building")
        while git(project.root, "worktree", "list") == before[0]:
            time.sleep(0.1)
        search.terminate()
        assert search.wait(60) == 128 + signal.SIGTERM
    assert listing(project) == before
    assert not list((tmp_path / "wheels").iterdir())


def test_wheels_in_a_folder_of_others_are_not_used(sixteen, tmp_path):
    shared = tmp_path / "shared"
    shared.mkdir()
    shared.chmod(0o777)
    checkout = Checkout(sixteen.root)
    with pytest.warns(RuntimeWarning, match="others can write"):
        installs = Installs(checkout, tmp_path / "scratch", shared, print)
    assert installs.wheel(checkout.commit("HEAD")).is_relative_to(tmp_path / "scratch")
    assert not list(shared.iterdir())
