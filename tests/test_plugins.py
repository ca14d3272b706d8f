"""Plug-in backends: an installed package brings a device, and a broken one breaks nothing else."""

import json
import os
import shutil
import tomllib
from pathlib import Path

import pytest
from python_process import run_python

PACKAGE = Path(__file__).parent / "plugin_package"
PRELUDE = """
import json, numpy as np, rlx
def product():
    g = rlx.Graph("product")
    g.set_outputs([g.input("x", (2, 2)) @ g.param("w", (2, 2))])
    return g
def spectrum():
    g = rlx.Graph("spectrum")
    g.set_outputs([g.fft(g.input("x", (2, 16)))])
    return g
X = {"x": np.float32([[1, 2], [3, 4]])}
W = 2 * np.eye(2, dtype=np.float32)
gd = rlx.GraphDevices(product())
gd.set_param("w", W)
rows = {str(row.device): row for row in gd.report()}
"""


def install(package, site):
    """Creates the files of an installed package: the package, and its metadata with the entry points."""
    project = tomllib.loads((package / "pyproject.toml").read_text())["project"]
    module = project["name"].replace("-", "_")
    shutil.copytree(package / module, site / module)
    info = site / f"{module}-{project['version']}.dist-info"
    info.mkdir()
    heading = f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
    (info / "METADATA").write_text(heading)
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return info


@pytest.fixture
def site(tmp_path):
    install(PACKAGE, tmp_path)
    return tmp_path


def run(code, site, **env):
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    return run_python("-c", PRELUDE + code, env={"PYTHONPATH": path, **env}).stdout


def test_a_plugin_is_found_chosen_and_reported(site):
    run(
        """
assert [str(d) for d in rlx.available_devices() if d.backend == "cuda"] == ["cuda", "cuda:1"]
row = rows["cuda"]
assert row.available and row.registered and row.supports_graph and row.recommended, row
assert row.label == "Example GPU" and row.blocker is None, row
assert row.capabilities == rlx.Capabilities(arena_ptr=False)
assert rows["cuda:1"].estimate_ns == row.estimate_ns + 10.0
assert str(gd.fastest()) == str(rlx.fastest_device_for(product())) == "cuda"
np.testing.assert_array_equal(gd.run_fastest(X)[0], X["x"] @ W)
assert rlx.compile(product(), params={"w": W}).device == rlx.Device("cuda")
results = gd.benchmark(X, 3)
assert {str(r.device) for r in results} >= {"cpu", "cuda", "cuda:1"}
assert all(r.error is None for r in results)
""",
        site,
    )


def test_a_plugin_goes_by_its_own_figures_where_others_are_measured(site, tmp_path):
    run(
        """
assert rows["cuda"].recommended and str(gd.fastest()) == "cuda"
from rlx.cost.store import stored
assert stored("cpu") is not None
assert stored("cuda") is None
from rlx.cli.main import main
assert main(["devices"]) == 0
""",
        site,
        RLX_CALIBRATION=str(tmp_path / "figures"),
    )


def test_a_plugin_refuses_graphs_with_its_reason(site):
    run(
        """
gd = rlx.GraphDevices(spectrum())
row = next(row for row in gd.report() if str(row.device) == "cuda")
assert row.available and not row.supports_graph and not row.recommended
assert "no FFT on Example GPU" in row.blocker
assert rlx.Device("cuda") not in gd.devices
for attempt in (lambda: gd.resolve("cuda"), lambda: rlx.compile(spectrum(), "cuda")):
    try:
        attempt()
    except rlx.RlxError as error:
        assert "no FFT on Example GPU" in str(error), error
    else:
        raise AssertionError("was not refused")
x = {"x": np.ones((2, 16), np.float32)}
device, _ = gd.run_chain("cuda", x)
assert device.backend != "cuda"
""",
        site,
    )


def test_the_chain_falls_back_from_a_plugin_that_can_not_load(site):
    run(
        """
device, (y,) = gd.run_try(["cuda", "cpu"], X)
assert str(device) == "cpu"
np.testing.assert_array_equal(y, X["x"] @ W)
results = gd.benchmark(X, 2)
assert [str(r.device) for r in results[-2:]] == ["cuda", "cuda:1"]
for result in results[-2:]:
    assert isinstance(result.error, rlx.CompileError)
    assert "the example breaks in load" in str(result.error)
assert results[0].error is None
# The same executable is measured and run: the pick goes past it, too.
picked = rlx.fastest_device_for(product(), rlx.DevicePolicy(pick=rlx.Benchmark(2)))
assert picked.backend != "cuda"
assert {str(d) for d in gd.warm_all()} == {"cuda", "cuda:1"}
""",
        site,
        EXAMPLE_CUDA="load",
    )


def test_a_device_that_fails_as_it_runs_is_listed_last_with_its_error(site):
    run(
        """
results = gd.benchmark(X, 2)
assert [r.error is None for r in results] == sorted((r.error is None for r in results), reverse=True)
assert "the example breaks in run" in str(results[-1].error)
assert results[-1].median_ns == float("inf") and results[-1].compile_ns > 0
try:
    gd.run_try("cuda,cuda:1", X)
except rlx.DeviceFallbackError as error:
    assert [str(d) for d, _ in error.attempts] == ["cuda", "cuda:1"]
    assert all(isinstance(e, RuntimeError) for _, e in error.attempts)
else:
    raise AssertionError("nothing failed")
assert str(gd.run_chain(None, X)[0]) in ("cpu", "webgpu")
""",
        site,
        EXAMPLE_CUDA="run",
    )


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ("import", "RuntimeError: the example breaks in import"),
        ("exit", "SystemExit: the example ends the process"),
        ("devices", "RuntimeError: the example breaks in devices"),
        ("absent", "no CUDA driver; install one"),
    ],
)
def test_a_plugin_without_devices_is_listed_with_its_reason(site, fault, reason):
    printed = run(
        f"""
row = rows["cuda"]
assert not row.available and row.registered and not row.supports_graph, row
assert {reason!r} in row.blocker, row.blocker
assert not rlx.is_available("cuda")
assert "cuda" not in map(str, rlx.available_devices())
try:
    rlx.compile(product(), "cuda", {{"w": W}})
except rlx.DeviceUnavailableError as error:
    assert {reason!r} in str(error), error
else:
    raise AssertionError("compiled")
np.testing.assert_array_equal(gd.run("cpu", X)[0], X["x"] @ W)
assert str(gd.run_try(["cuda", "cpu"], X)[0]) == "cpu"
from rlx.cli.main import main
assert main(["devices", "--json"]) == 0
""",
        site,
        EXAMPLE_CUDA=fault,
    )
    listed = json.loads(printed)
    assert listed["devices"][0]["device"] == "cpu"
    (missing,) = [line for line in listed["missing"] if line.startswith("cuda:")]
    assert reason in missing


@pytest.mark.parametrize("fault", ["refuses", "cost_model"])
def test_a_plugin_that_can_not_be_asked_is_not_picked(site, fault):
    run(
        f"""
row = rows["cuda"]
assert row.available and not row.viable, row
assert "the example breaks in {fault}" in row.blocker
assert gd.fastest().backend != "cuda"
""",
        site,
        EXAMPLE_CUDA=fault,
    )


def test_two_packages_of_one_name_are_not_guessed_between(site):
    other = site / "another_cuda-1.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: another-cuda\nVersion: 1\n")
    (other / "entry_points.txt").write_text("[rlx.backends]\ncuda = another_cuda:BACKEND\n")
    run(
        """
assert "2 packages claim this name" in rows["cuda"].blocker
assert "rlx-example-cuda 0.1" in rows["cuda"].blocker
assert "another-cuda 1" in rows["cuda"].blocker
assert gd.fastest().backend != "cuda"
""",
        site,
    )
