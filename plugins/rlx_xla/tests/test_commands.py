"""The commands of rlx treat devices of the package as any other, in processes of their own as well."""

import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from conftest import DEVICE

import rlx

PLUGIN = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    rng = np.random.default_rng(0)
    g = rlx.Graph("net")
    x = g.input("x", (16, 32))
    for index in range(2):
        w = (rng.standard_normal((32, 32)) / 6).astype(np.float32)
        x = g.gelu(x @ g.param(f"w{index}", w.shape, value=w))
    g.set_outputs([g.softmax(x)])
    path = tmp_path_factory.mktemp("model") / "net.rlx"
    rlx.save_model(g, path)
    return path


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Runs a command where the package is installed, by the entry points that its project states."""
    folder = tmp_path_factory.mktemp("site")
    points = tomllib.loads((PLUGIN / "pyproject.toml").read_text())["project"]["entry-points"]
    info = folder / "rlx_xla-0.0.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: rlx-xla\nVersion: 0.0.0\n")
    lines = [
        f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in listed.items())
        for group, listed in points.items()
    ]
    (info / "entry_points.txt").write_text("\n".join(lines))
    paths = [str(folder), str(PLUGIN / "src"), os.environ.get("PYTHONPATH", "")]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}

    def run(*arguments, fails=False):
        done = subprocess.run(
            [sys.executable, "-m", "rlx", *map(str, arguments)],
            env=env,
            cwd=folder,
            capture_output=True,
            text=True,
            check=False,
        )
        assert (done.returncode != 0) == fails, done.stderr[-2000:]
        return done

    return run


def test_it_is_listed_with_the_figures_that_it_states(command):
    rows = json.loads(command("devices", "--json").stdout)["devices"]
    assert DEVICE in [row["device"] for row in rows]


def test_bench_compares_it_with_the_processor(command, model):
    result = json.loads(
        command("bench", model, "--devices", f"cpu,{DEVICE}", "--seconds", "0.1", "--json").stdout
    )
    assert DEVICE in json.dumps(result)


def test_profile_says_that_there_are_no_times_of_kernels(command, model):
    assert "can't time kernels" in command("profile", model, "--device", DEVICE, fails=True).stderr


@pytest.mark.timeout(600)
def test_a_regression_record_holds_it_and_two_agree(command, model, tmp_path):
    records = [tmp_path / f"{index}.jsonl" for index in range(2)]
    for path in records:
        command(
            *("regress", "record", "--devices", f"{DEVICE},cpu", "--quick", "--suite", model),
            *("--processes", "1", "-o", path),
        )
    shown = command("regress", "show", records[0]).stdout
    assert DEVICE in shown
    # With one process each, times decide nothing.
    told = command("regress", "compare", *records, "--fail-on", "changed").stdout
    assert "No result changed of 2 cases" in told
    assert f"on {DEVICE}" in told
