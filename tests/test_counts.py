"""The size of the house: calls of a run, and files that a compile passes through (``script/counts``)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[1] / "script/counts"
pytestmark = pytest.mark.webgpu


@pytest.fixture(scope="module")
def counts(webgpu):
    """The counts of this checkout, by the interpreter of the tests."""
    code = (
        "import runpy, sys, pathlib; sys.path.insert(0, sys.argv[1]); import _setup; "
        "_setup.PYTHON = pathlib.Path(sys.executable); sys.argv = ['counts', '--json']; "
        "runpy.run_path(sys.path[0] + '/counts', run_name='__main__')"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(SCRIPT.parent)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_run_is_one_call(counts, device):
    assert (counts[device]["run"], counts[device]["run_slots"]) == (1, 0)


@pytest.mark.parametrize(("device", "bound"), [("cpu", 45), ("webgpu", 45)])
def test_a_compile_of_one_node_passes_through_few_files(counts, device, bound):
    assert counts[device]["files"] <= bound


def test_the_engine_does_not_grow(counts):
    lines = counts["lines"]
    assert lines["rlx"] + lines["cython_src"] + lines["shaders"] <= 117_150
    assert lines["tests"] <= 55_150
