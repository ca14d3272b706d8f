"""The package by its entry points, its folder on disk, and what rlx says of its devices."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
ROOT = PACKAGE.parents[1]


def installed(site):
    """Creates the files that an installer leaves behind."""
    project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
    shutil.copytree(PACKAGE / "src" / "rlx_xla", site / "rlx_xla")
    info = site / "rlx_xla-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: 0.1.0\n"
    )
    points = project["entry-points"]["rlx.backends"]
    lines = ["[rlx.backends]", *(f"{name} = {value}" for name, value in points.items())]
    (info / "entry_points.txt").write_text("\n".join(lines) + "\n")
    return set(points)


def run(code, site, **env):
    path = os.pathsep.join(filter(None, [str(site), os.environ.get("PYTHONPATH", "")]))
    inputs = {**os.environ, "PYTHONPATH": path, "JAX_PLATFORMS": "cpu", **env}
    done = subprocess.run(
        [sys.executable, "-c", code], env=inputs, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_every_device_has_an_entry_point_and_a_reason_to_be_absent(tmp_path):
    names = installed(tmp_path)
    assert names == {"xla", "cuda", "rocm", "tpu"}
    run(
        """
import rlx
assert "jax" not in __import__("sys").modules
g = rlx.Graph()
g.set_outputs([g.input("x", (8, 8)) @ g.param("w", (8, 8))])
rows = {str(row.device): row for row in rlx.GraphDevices(g).report()}
assert rows["xla"].available and rows["xla"].supports_graph, rows["xla"]
assert rows["xla"].capabilities.allocates
for name in ("cuda", "rocm", "tpu"):
    assert not rows[name].available and f"rlx_xla[{name}]" in rows[name].blocker, rows[name]
try:
    rlx.compile(g, "cuda")
except rlx.DeviceUnavailableError as error:
    assert "rlx_xla[cuda]" in str(error), error
else:
    raise AssertionError("compiled")
from rlx.cli.main import main
assert main(["devices", "--json"]) == 0
""",
        tmp_path,
        RLX_CALIBRATION="off",
    )


def test_figures_are_measured_once_and_kept(tmp_path):
    installed(tmp_path)
    folder = tmp_path / "cache"
    code = """
import rlx
from rlx.device.figures import cost_model
from rlx.device.names import Device, info_of
device = Device.parse("xla")
model = cost_model(device, info_of(device))
assert model.roundtrip_overhead_ns() > 1_000, model.roundtrip_overhead_ns()
assert 0.05 < model.sgemm_gflops(256, 256, 256) < 1e6
print(model.calibration.measured_at_unix_s)
g = rlx.Graph()
g.set_outputs([g.input("x", (8, 8)) @ g.param("w", (8, 8))])
assert rlx.GraphDevices(g).fastest() is not None
"""
    env = {"RLX_CACHE": str(folder), "RLX_CALIBRATION": str(tmp_path / "figures")}
    first, second = run(code, tmp_path, **env), run(code, tmp_path, **env)
    assert first == second
    assert list(folder.glob("engine-xla/figures-*.json"))


def test_compiled_programs_are_kept_in_the_folder_of_rlx(tmp_path):
    installed(tmp_path)
    folder = tmp_path / "cache"
    code = """
import numpy as np, rlx, jax
jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
g = rlx.Graph()
g.set_outputs([g.input("x", (8, 8)) @ g.input("y", (8, 8))])
with rlx.compile(g, "xla") as cg:
    cg.run_slots(*np.ones((2, 8, 8), np.float32))
print(jax.config.jax_compilation_cache_dir)
"""
    run(code, tmp_path, RLX_CACHE=str(folder))
    assert any("jit_" in path.name for path in (folder / "engine-xla").iterdir())
    assert run(code, tmp_path, RLX_CACHE="off").strip() == "None"
    theirs = str(tmp_path / "theirs")
    assert (
        run(code, tmp_path, RLX_CACHE=str(folder), JAX_COMPILATION_CACHE_DIR=theirs).strip()
        == theirs
    )


def test_the_example_runs_and_says_what_is_missing(tmp_path):
    example = PACKAGE / "examples" / "cache_on_device.py"
    env = {**os.environ, "JAX_PLATFORMS": "cpu"}

    def run_it(*folders):
        path = os.pathsep.join([*map(str, folders), os.environ.get("PYTHONPATH", "")])
        command = [sys.executable, str(example)]
        return subprocess.run(
            command, env={**env, "PYTHONPATH": path}, capture_output=True, text=True, check=False
        )

    bare = run_it()
    assert bare.returncode == 1
    assert "pip install plugins/rlx_xla" in bare.stderr
    installed(tmp_path)
    done = run_it(tmp_path)
    assert done.returncode == 0, done.stderr
    assert "the cache holds 768, of 768" in done.stdout
