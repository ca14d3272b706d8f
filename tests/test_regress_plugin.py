"""The pytest plug-in: projects of their own that test their graphs, run by a pytest inside this one."""

import contextlib
import importlib
import itertools
import json
import pkgutil
from pathlib import Path

import pytest
from faulty_installs import hurried

import rlx
from rlx.regress import fresh, system_load
from rlx.regress.record_schema import Load, Times
from rlx.regress.recording import read

pytest_plugins = ["pytester"]

GRAPH = """
import os
import numpy as np
import pytest
import rlx

WEIGHT = np.float32(os.environ.get("TEST_WEIGHT", "2"))


def compiled(device="cpu"):
    g = rlx.Graph("mine")
    x = g.input("x", (3, 4))
    g.set_outputs([g.tanh(x) * g.param("w", (4,)), x + 1.0])
    g.param_values["w"] = np.full(4, WEIGHT)
    return rlx.compile(g, device)


X = np.linspace(-1, 1, 12, dtype="f4").reshape(3, 4)
"""
ONE = f"""{GRAPH}
def test_mine(rlx_regress):
    with compiled() as cg:
        found, _ = rlx_regress(cg, X)
    np.testing.assert_allclose(found, np.tanh(X) * WEIGHT, rtol=1e-5)
"""
# A pytest inside this one does without the plug-ins of others, and rlx is imported already.
INSIDE = ("-p", "rlx.pytest_plugin", "-p", "no:cacheprovider", "-W", "default")
IMPORTED = ("-W", "ignore::pytest.PytestAssertRewriteWarning")


def made_up(slow, noise=1.0):
    """``fresh.times`` of a machine that does nothing else.

    Args:
        slow: How much longer each call finds the runs; the last one counts for all later calls.
        noise: Thousandths by which processes differ, more or less.
    """
    wiggle, turns = itertools.cycle([0, 3, -2, 1, 4, -3, 2]), iter(slow)
    factor = 1.0

    def times(graph, job, processes):
        nonlocal factor
        factor = next(turns, factor)
        for process in processes:
            ns = round(factor * (1_000_000 + 1000 * noise * next(wiggle)))
            yield Times(job.run, job.device, job.case, process, [ns] * 5, [], ns, ns, 1, 0.0, [])

    return times


@pytest.fixture(scope="module")
def all_modules():
    """Every module of rlx, imported. A pytest inside this one drops modules that it imports first.

    A second copy of a module would have caches of its own, which later tests in this process would meet.
    """
    for module in pkgutil.walk_packages(rlx.__path__, "rlx.", onerror=lambda name: None):
        if "__" not in module.name:
            with contextlib.suppress(ImportError):
                importlib.import_module(module.name)


@pytest.fixture
def project(pytester, monkeypatch, all_modules):
    """A project; ``project(*options, **environment)`` runs its tests, in a process of its own if ``apart``."""
    monkeypatch.setenv("RLX_CACHE", "off")
    # This suite's own workers and options are no business of the project's run.
    for name in ("PYTEST_XDIST_WORKER", "PYTEST_XDIST_TESTRUNUID", "PYTEST_ADDOPTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(system_load, "load", lambda: Load(0.0))

    def run(*options, apart=False, **environment):
        with monkeypatch.context() as patch:
            for key, value in environment.items():
                patch.setenv(key, str(value))
            if apart:
                return pytester.runpytest_subprocess("-p", "no:cacheprovider", *options)
            patch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
            return pytester.runpytest_inprocess(*INSIDE, *options, *IMPORTED)

    run.path = pytester.path
    run.files = pytester.makepyfile
    return run


def output(result):
    return "\n".join(result.outlines + result.errlines)


def test_nothing_is_imported_until_it_is_needed(project):
    project.files(
        test_plain="""
import sys

def test_plain(pytestconfig):
    assert pytestconfig.pluginmanager.hasplugin("rlx.pytest_plugin")
    found = {name.partition(".")[0] for name in sys.modules}
    assert not found & {"wgpu", "numpy", "msgspec", "scipy"}
    # The package itself is imported with its plug-in, and imports next to nothing.
    mine = {name.removeprefix("rlx.") for name in sys.modules if name.startswith("rlx.")}
    assert mine <= {"pytest_plugin", "lazy_imports", "version", "_ext"}, mine
"""
    )
    # Other plug-ins may import any of these.
    options = ("-p", "rlx.pytest_plugin")
    project(*options, apart=True, PYTEST_DISABLE_PLUGIN_AUTOLOAD=1).assert_outcomes(passed=1)


def test_the_entry_point_brings_it(project):
    project.files(test_one="def test_one(rlx_regress):\n    pass\n")
    project(apart=True).assert_outcomes(passed=1)


def test_results_are_checked_and_nothing_is_measured(project):
    project.files(test_one=ONE)
    before = set(project.path.iterdir())
    project("-W", "error").assert_outcomes(passed=1)
    assert {path.name for path in set(project.path.iterdir()) - before} <= {"__pycache__"}


def test_wrong_results_fail(project):
    project.files(
        test_wrong=f"""{GRAPH}
def test_wrong(rlx_regress):
    with compiled() as cg:
        cg.set_param("w", np.full(4, 3, "f4"))  # others than the reference has
        rlx_regress(cg, X)

def test_too_strict(rlx_regress):
    with compiled() as cg:
        rlx_regress(cg, {{"x": X}}, tolerance=0.4)
        rlx_regress(cg, X * 3, tolerance=1e-12)

def test_not_finite(rlx_regress):
    g = rlx.Graph()
    g.set_outputs([g.reciprocal(g.input("x", (2,)))])
    with rlx.compile(g, "cpu") as cg:
        rlx_regress(cg, np.float32([0, np.nan]))  # as the reference has them
"""
    )
    result = project()
    result.assert_outcomes(passed=1, failed=2)
    text = output(result)
    assert (
        "test_wrong: output 'output_0' on cpu: 0.5 of its largest element off"
        in text.replace("multiply", "output_0")
        or "0.5 of its largest element off, tolerance 0.0001" in text
    )
    assert "tolerance 1e-12" in text
    assert "test_too_strict call 2" in text


def test_a_recording_is_made_and_compared(project, tmp_path):
    """Real measurements in fresh processes. How busy the machine is decides what is said of times."""
    project.files(test_one=ONE)
    record = ("--rlx-record", "a.rlxreg", "--rlx-processes", "3")
    quick = {"PYTHONPATH": Path(hurried(tmp_path / "quick")).parent}
    project(*record, **quick).assert_outcomes(passed=1)
    (result,) = read([project.path / "a.rlxreg"])
    (((device, _), measured),) = result.measured.items()
    assert device == "cpu"
    assert measured.case.name == "test_one.py::test_mine"
    assert measured.case.suite == "application"
    assert sorted(measured.times) == [0, 1, 2]
    assert all(len(times.ns) >= 5 and times.compile_ns for times in measured.times.values())
    # The fresh processes compute what the tests' process does.
    assert {tuple(t.bits) for t in measured.times.values()} == {
        tuple(item.bits for item in measured.case.outputs)
    }
    assert result.end is not None
    text = (project.path / "a.rlxreg").read_text()
    assert str(project.path) not in text
    # The second recording is added; results are the same.
    again = project(*record, "--rlx-baseline", "a.rlxreg", "--rlx-fail-on", "changed", **quick)
    again.assert_outcomes(passed=1)
    assert len(read([project.path / "a.rlxreg"])) == 2


def test_changed_results_fail(project):
    project.files(test_one=ONE)
    project("--rlx-record", "a.rlxreg", "--rlx-processes", "0").assert_outcomes(passed=1)
    compare = ("--rlx-baseline", "a.rlxreg", "--rlx-processes", "0")
    project("-W", "error", *compare).assert_outcomes(passed=1)
    result = project(*compare, TEST_WEIGHT="2.0000002")
    result.assert_outcomes(failed=1)
    assert "test_one.py::test_mine on cpu, compared with the recording of 20" in output(result)
    assert "bits: output " in output(result)
    project(*compare, "--rlx-fail-on", "error,slower", TEST_WEIGHT="2.0000002").assert_outcomes(
        passed=1
    )


@pytest.fixture
def timed(project, monkeypatch):
    """A project with a baseline; ``slow`` of a run says how long its graph takes, ``noise`` how evenly."""
    project.files(test_one=ONE)

    def run(*options, slow=(1.0,), noise=1.0):
        monkeypatch.setattr(fresh, "times", made_up(slow, noise))
        return project(*options)

    run("--rlx-record", "a.rlxreg").assert_outcomes(passed=1)
    run.path, run.files = project.path, project.files
    return run


@pytest.mark.parametrize(
    ("slow", "passed", "said"),
    [
        ([1], True, ""),
        ([1.02], True, ""),
        ([0.7], True, ""),
        ([1.3], False, "slower: 1.30 times as long"),
        ([1.3, 1], True, "slower at first, and not when it was measured again"),
    ],
)
def test_slower_graphs_fail(timed, slow, passed, said):
    result = timed("--rlx-baseline", "a.rlxreg", slow=slow)
    result.assert_outcomes(passed=passed, failed=not passed, warnings=int(passed and bool(said)))
    assert said in output(result)


def test_what_is_undecided_warns(timed):
    result = timed("--rlx-baseline", "a.rlxreg", slow=[1.045], noise=3)
    result.assert_outcomes(passed=1, warnings=1)
    assert "RegressWarning: test_one.py::test_mine: inconclusive" in output(result)
    few = timed("--rlx-baseline", "a.rlxreg", "--rlx-processes", "2")
    few.assert_outcomes(passed=1, warnings=1)
    assert "2 processes; 3 decide at the earliest" in output(few)
    strict = timed(
        "--rlx-baseline", "a.rlxreg", "--rlx-processes", "2", "--rlx-fail-on", "inconclusive"
    )
    strict.assert_outcomes(failed=1)


def test_a_graph_that_the_baseline_lacks_warns(timed):
    timed.files(test_one=ONE.replace("linspace(-1, 1", "linspace(-2, 1"))
    result = timed("--rlx-baseline", "a.rlxreg")
    result.assert_outcomes(passed=1, warnings=1)
    assert "the baseline has no such graph with these inputs" in output(result)


def test_the_newest_recording_that_has_the_graph_counts(timed):
    timed("--rlx-record", "a.rlxreg", slow=[1.3]).assert_outcomes(passed=1)
    timed("--rlx-baseline", "a.rlxreg", slow=[1.3]).assert_outcomes(passed=1)


# In the project's own processes: times that need no processes.
QUICK = """
from rlx.regress import fresh
from test_regress_plugin import made_up

fresh.times = made_up([1.0])
"""


@pytest.mark.slow
def test_workers_of_xdist_write_one_recording(project):
    many = f"""{GRAPH}
@pytest.mark.parametrize("number", range(3))
def test_many(rlx_regress, number):
    with compiled() as cg:
        rlx_regress(cg, X)
        rlx_regress(cg, X + number)
"""
    project.files(test_many=many, conftest=QUICK)
    here = {"apart": True, "PYTHONPATH": Path(__file__).parent}
    project("-n", "2", "--rlx-record", "a.rlxreg", **here).assert_outcomes(passed=3)
    (actual,) = read([project.path / "a.rlxreg"])
    assert len(actual.measured) == 6
    assert all(len(measured.times) == 5 for measured in actual.measured.values())
    assert actual.end is not None
    result = project("-n", "2", "--rlx-baseline", "a.rlxreg", TEST_WEIGHT=3, **here)
    result.assert_outcomes(failed=3)


def test_beside_pytest_benchmark(project):
    project.files(
        test_bench=f"""{GRAPH}
def test_bench(rlx_regress, benchmark):
    with compiled() as cg:
        rlx_regress(cg, X)
        benchmark(cg.run_slots, X)
""",
        conftest=QUICK,
    )
    options = ("--benchmark-json=b.json", "--benchmark-max-time=0.01", "--rlx-record", "a.rlxreg")
    result = project(*options, apart=True, PYTHONPATH=Path(__file__).parent)
    result.assert_outcomes(passed=1)
    (first,) = json.loads((project.path / "b.json").read_text())["benchmarks"]
    (figures,) = first["extra_info"]["rlx"]
    assert figures["device"] == "cpu"
    assert figures["case"] == next(iter(read([project.path / "a.rlxreg"])[0].measured))[1]
    assert figures["median, us"] == pytest.approx(1000, rel=0.01)
    assert any("ULP" in name for name in figures)


def test_graphs_that_other_processes_can_not_compute(project):
    """Custom operations and missing weights: timed by the tests' process, which decides nothing."""
    project.files(
        test_own=f"""{GRAPH}
def test_without_weights(rlx_regress):
    g = rlx.Graph("late")
    g.set_outputs([g.input("x", (3, 4)) * g.param("w", (4,))])
    with rlx.compile(g, "cpu") as cg:
        cg.set_param("w", np.ones(4, "f4"))
        rlx_regress(cg, X)
"""
    )
    result = project("--rlx-record", "a.rlxreg")
    result.assert_outcomes(passed=1, warnings=2)
    assert "so that there is no reference" in output(result)
    assert "timed by the tests' own process alone" in output(result)
    (actual,) = read([project.path / "a.rlxreg"])
    (measured,) = actual.measured.values()
    assert list(measured.times) == [0]
    assert measured.case.outputs[0].difference is None


def test_bad_input(project):
    project.files(
        test_bad=f"""{GRAPH}
def test_bad(rlx_regress):
    with compiled() as cg:
        with pytest.raises(rlx.InputError, match="expected: 1: x"):
            rlx_regress(cg, X, X)
        with pytest.raises(rlx.InputError, match="not a compiled graph"):
            rlx_regress(np.tanh, X)
        with pytest.raises(rlx.InputError):
            rlx_regress(cg, X[:2])
"""
    )
    project().assert_outcomes(passed=1)
    other = project.path / "notes.txt"
    other.write_text("mine\n")
    for options, said in (
        (("--rlx-baseline", "none.rlxreg"), "none.rlxreg"),
        (("--rlx-baseline", "notes.txt"), "no line of a record file"),
        (("--rlx-record", "notes.txt"), "no line of a record file"),
        (("--rlx-record", "a", "--rlx-processes", "-1"), "0 to 1000"),
        (("--rlx-record", "a", "--rlx-min-effect", "nan"), "--rlx-min-effect"),
        (("--rlx-record", "a", "--rlx-fail-on", "slow"), "did you mean 'slower'"),
    ):
        result = project(*options)
        assert result.ret == pytest.ExitCode.USAGE_ERROR, options
        assert said in output(result)
    assert other.read_text() == "mine\n"
