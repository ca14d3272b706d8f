"""The left-out samples of WebGPU tests, and the changes that bring them back."""

import importlib
import subprocess
import sys
from functools import partial
from pathlib import Path

import numpy as np
import pytest
import selection
from file_selection import PROCESSES, of_tests, parts, shaders, source
from selection import Selection
from source_digests import COVERED as COVERED_SOURCES
from source_digests import FLOOR, ROOT, files, floor

import rlx

# Files that a change of concerns every program: hot path, linker, ABI, driver, runtime, compiler, and test helpers.
SHARED = (
    "cython_src/webgpu_hot.pyx", "cython_src/program.pyx", "cython_src/webgpu_run.h", "rlx/abi/header.py",
    "rlx/backends/webgpu/webgpu_backend.py", "rlx/backends/webgpu/provider.py", "rlx/runtime/session.py",
    "rlx/compiler/loading.py", "rlx/ir/graph.py", "rlx/ops/conformance_cases.py", "rlx/errors.py", "tests/samples.py",
    "tests/conftest.py", "rlx/new_folder/module.py",
)  # fmt: skip
COVERED = (
    "rlx/passes/fuse.py", "rlx/ops/rows/softmax.py", "rlx/importers/onnx/importer.py", "cython_src/kernels/rows/rows.h",
    "shaders/rows/softmax.wgsl", "shaders/rows/sort.wgsl", "docs/index.md", "CHANGELOG.md", "rlx/cli/main.py",
    "tests/test_conformance.py",
)  # fmt: skip
EVERY = "plain docs reads tool starts"
HEADER = {"library": "0", "adapter": "made up", "driver": "1", "floor rlx/abi": "a"}


@pytest.fixture
def tree(tmp_path):
    for name in (*SHARED, *COVERED):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text('"""Text."""\nx = 1\n')
    return tmp_path


@pytest.mark.parametrize("name", SHARED)
def test_a_change_of_a_shared_file_changes_the_floor(name, tree):
    before = floor(tree)
    (tree / name).write_text('"""Text."""\nx = 2\n')
    assert floor(tree) != before


@pytest.mark.parametrize("name", COVERED)
def test_a_change_of_what_digests_cover_does_not(name, tree):
    before = floor(tree)
    (tree / name).write_text("x = 2\n")
    assert floor(tree) == before


def test_shared_files_are_those_of_this_tree():
    """A file that was renamed has another place in the list above."""
    result = files(FLOOR) - files(COVERED_SOURCES)
    known = {path.relative_to(ROOT).as_posix() for path in result}
    assert {name for name in SHARED if "new_folder" not in name} <= known


def test_comments_and_docstrings_change_nothing(tree):
    before = floor(tree)
    for path in tree.rglob("*.py"):
        path.write_text('"""Another text."""\n\n# A comment.\nx = 1  # another\n')
    assert floor(tree) == before


@pytest.mark.parametrize(("text", "counts"), [("import rlx.signal", True), ("import rlx", False)])
def test_a_folder_that_a_test_file_names_is_part_of_its_digest(text, counts, tree, monkeypatch):
    monkeypatch.setattr(selection, "ROOT", tree)
    monkeypatch.setattr(selection, "of_sources", partial(selection.of_sources, root=tree))
    monkeypatch.setattr(selection, "files", partial(selection.files, root=tree))
    test, folder = tree / "tests/test_a_file.py", tree / "rlx/signal"
    folder.mkdir()
    digests = []
    for value in (1, 2):
        test.write_text(text)
        (folder / "filters.py").write_text(f"x = {value}")
        digests.append(selection.of_file.__wrapped__(test))
    assert (digests[0] != digests[1]) == counts


@pytest.mark.parametrize(
    ("changed", "runs"),
    [
        ("docs/index.md", "docs"),
        ("shaders/rows/softmax.wgsl", "reads starts"),
        ("shaders/rows/sort.wgsl", "starts"),
        ("rlx/errors.py", EVERY),
        ("cython_src/program.pyx", EVERY),
        ("tests/samples.py", EVERY),
        ("tests/test_conformance.py", ""),
        ("tests/test_reads.py", "reads"),
        ("shaders/rows/new.wgsl", EVERY),
        ("rlx/new.py", EVERY),
    ],
)
def test_a_test_file_runs_where_what_it_stands_on_changed(changed, runs, tree):
    texts = {
        "plain": "import samples", "docs": 'ROOT / "docs"', "reads": "", "tool": "",
        "starts": "def test(webgpu): ...",
    }  # fmt: skip
    reads = {"reads": ("softmax",), "starts": (PROCESSES,), "tool": (PROCESSES,)}
    subprocess.run(["git", "init", "-q"], cwd=tree, check=True)
    paths = {name: tree / f"tests/test_{name}.py" for name in texts}
    for name, path in paths.items():
        path.write_text(texts[name])

    def taken():
        for function in (source, parts, shaders, of_tests):
            function.cache_clear()
        return {name: of_tests(path, reads.get(name, ()), tree) for name, path in paths.items()}

    before = taken()
    assert before == taken()
    assert "" not in before.values()
    with (tree / changed).open("a") as file:
        file.write("# another byte\n")
    assert {name for name, value in taken().items() if value != before[name]} == {*runs.split()}


def test_without_git_no_file_is_left_out(tree):
    path = tree / "tests/test_conformance.py"
    assert of_tests(path, (), tree) == ""


@pytest.mark.webgpu
def test_tests_of_known_files_are_left_out(webgpu, recorded, monkeypatch):
    monkeypatch.setattr(selection, "of_tests", lambda path, reads: "-".join((path.name, *reads)))
    first = Selection("record")
    first.header = HEADER
    assert not first.leaves_out(Path("test_a.py"), "a test")
    first.begin(Path("test_a.py"))
    with pytest.MonkeyPatch.context() as patch:
        first.patch(patch)
        rlx.compile(*graphs(2.0), "webgpu")
        first.audit("open", ("shaders/rows/sort.wgsl", "r", 0))
        first.audit("os.fork", ())
    assert {"lib/math", "lib/wide", "sort", PROCESSES} <= first.reads["test_a.py"]
    later = recorded(first.lines())
    assert later.leaves_out(Path("test_a.py"), "a test")
    assert not later.leaves_out(Path("test_b.py"), "a test")
    assert "1 tests were left out" in later.text()
    assert not recorded(first.lines(), driver="2").leaves_out(Path("test_a.py"), "a test")
    monkeypatch.setattr(selection, "AUDITED", 1)
    assert not later.leaves_out(Path("test_a.py"), "a test"), "it audits the record"


@pytest.fixture
def recorded(tmp_path, monkeypatch):
    """Makes a selection that knows what another one passed; its header may say something else."""
    monkeypatch.setattr(selection, "ROOT", tmp_path)
    monkeypatch.setattr(selection, "AUDITED", 1 << 70)

    def make_selection(passed, **changes):
        selection.write(selection.record_of(HEADER), HEADER, passed)
        result = Selection("a commit")
        result.header = {**HEADER, **changes}
        return result

    return make_selection


def graphs(*factors):
    results = []
    for factor in factors:
        g = rlx.Graph("scaled")
        g.set_outputs([g.exp(g.input("x", (4, 33))) * factor])
        results.append(g)
    return results


def run(chosen, *compiled, fails=False, name="a sample"):
    """A sample that compiles some graphs; whether its last line was reached."""
    reached = False
    with pytest.MonkeyPatch.context() as patch:
        chosen.patch(patch)
        with chosen.item(Path("test_a_file.py"), "an item"), chosen.sample(name, None):
            for graph in compiled:
                rlx.compile(graph, "webgpu").run({"x": np.ones((4, 33), np.float32)})
            assert not fails
            reached = True
    return reached


@pytest.fixture
def first(webgpu, monkeypatch):
    """The digests of a sample that passed."""
    monkeypatch.setattr(selection, "of_file", lambda path: "a file")
    chosen = Selection("record")
    chosen.header = HEADER
    assert run(chosen, *graphs(2.0))
    assert len(chosen.passed) == 1
    return chosen.passed


@pytest.mark.webgpu
def test_a_sample_is_left_out_where_its_program_passed(first, recorded):
    chosen = recorded(first)
    assert not run(chosen, *graphs(2.0))
    assert chosen.counts == {"left out": 1, "run": 0, "audited": 0}


@pytest.mark.webgpu
def test_another_program_runs(first, recorded):
    chosen = recorded(first)
    assert run(chosen, *graphs(3.0))
    assert run(chosen, *graphs(2.0), name="another sample")
    assert chosen.counts["run"] == 2
    assert "0 samples were left out" in chosen.text()


@pytest.mark.webgpu
@pytest.mark.parametrize("other", ["driver", "floor rlx/abi", "floor rlx/new"])
def test_everything_runs_where_the_header_is_another(other, first, recorded):
    chosen = recorded(first, **{other: "b"})
    assert run(chosen, *graphs(2.0))
    assert f"another {other}" in chosen.text()


@pytest.mark.webgpu
def test_everything_runs_without_a_record(first, recorded):
    chosen = recorded(first, adapter="one that nobody has seen")
    assert run(chosen, *graphs(2.0))
    assert "there is no" in chosen.text()


@pytest.mark.webgpu
def test_known_samples_run_to_audit_the_record(first, recorded, monkeypatch):
    chosen = recorded(first)
    monkeypatch.setattr(selection, "AUDITED", 1)
    assert run(chosen, *graphs(2.0))
    assert chosen.counts["audited"] == 1


@pytest.mark.webgpu
def test_two_programs_in_a_sample_are_never_recorded(webgpu, recorded, monkeypatch):
    monkeypatch.setattr(selection, "of_file", lambda path: "a file")
    chosen = recorded(())
    assert run(chosen, *graphs(2.0, 3.0))
    with pytest.raises(AssertionError):
        run(chosen, *graphs(4.0), fails=True)
    assert not chosen.passed
    assert chosen.counts["run"] == 3


def test_workers_add_what_they_counted():
    left, other = Selection("record"), Selection("record")
    other.counts["run"], other.passed, other.why = 3, {"b"}, "no record"
    left.reads, other.reads = {"test_a.py": {"sort"}}, {"test_a.py": {"fold"}, "test_b.py": set()}
    left.add(other.result())
    left.add(None)
    assert left.result()[0] == {"left out": 0, "run": 3, "audited": 0}
    reads = {"test_a.py": ["fold", "sort"], "test_b.py": []}
    assert left.result()[1:] == (["b"], reads, 0, "no record")


@pytest.fixture
def stages(tmp_path, monkeypatch):
    """The record of stages, in a tree of its own."""
    monkeypatch.syspath_prepend(str(ROOT / "script"))
    passed, setup = importlib.import_module("_passed"), importlib.import_module("_setup")
    monkeypatch.setattr(setup, "ROOT", tmp_path)
    monkeypatch.setattr(passed, "PASSED", tmp_path / "stages.txt")
    (tmp_path / "a.py").write_text("x = 1\n")

    def ran(mode, passes=True, name="types"):
        python = Path(sys.executable)
        return passed.unless_passed(name, ("*.py",), python, mode, lambda: passes)

    yield ran
    for name in ("_passed", "_setup"):
        sys.modules.pop(name)


def test_a_stage_is_left_out_where_it_passed_with_the_same_sources(stages, tmp_path):
    assert stages("a commit")  # there is no record yet
    assert stages("record", passes=False)
    assert stages("a commit"), "it failed"
    assert stages("record")
    assert not stages("a commit")
    assert stages(""), "everything is asked for"
    assert stages("a commit", name="plugins"), "another stage"
    (tmp_path / "a.py").write_text("x = 2\n")
    assert stages("a commit"), "another source"
    assert stages("record")
    assert len((tmp_path / "stages.txt").read_text().splitlines()) == 1
