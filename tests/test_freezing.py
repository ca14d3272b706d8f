"""Frozen programs: the hook for PyInstaller, and what they go without."""

import importlib.util
import json
import os
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import numpy as np
import pytest

import rlx

PROGRAM = """
import json, sys, time
import numpy as np
import rlx

g = rlx.Graph("app")
x = g.input("x", (4, 8))
g.set_outputs([g.softmax(x @ g.constant(np.eye(8, dtype=np.float32)), axis=-1)])
data = np.arange(32, dtype=np.float32).reshape(4, 8) / 8
wanted = np.exp(data) / np.exp(data).sum(-1, keepdims=True)
found = {"frozen": getattr(sys, "frozen", False), "errors": {}}
for device in [*map(str, rlx.available_devices()), "auto"]:
    with rlx.compile(g, device=device) as cg:
        found["errors"][device] = float(np.abs(cg.run({"x": data})[0] - wanted).max())
        found["profile"] = str(cg.profile())
found["modules"] = sorted({name.split(".")[0] for name in sys.modules})
found["ours"] = sorted(name for name in sys.modules if name.startswith("rlx."))
print(json.dumps(found))
"""


@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_a_profile_prints_without_rich(monkeypatch, device, webgpu):
    g = rlx.Graph()
    g.set_outputs([g.tanh(g.input("x", (4, 4)))])
    with rlx.compile(g, device) as cg:
        cg.run_slots(np.zeros((4, 4), np.float32))
        profile = cg.profile()
    for name in [name for name in sys.modules if name.split(".")[0] == "rich"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "rich", None)
    title, headings, *rows, peaks = str(profile).splitlines()
    assert title.startswith(f"{device}")
    assert headings.split()[:3] == ["op", "calls", "us"]
    assert len({len(row) for row in rows}) == 1
    assert any("tanh" in row for row in rows)
    assert "peak" in peaks


def test_the_hook_is_announced():
    """PyInstaller finds it by an entry point, and it is a file of that folder."""
    (point,) = [
        point
        for point in metadata.entry_points(group="pyinstaller40")
        if point.value.startswith("rlx.")
    ]
    (folder,) = point.load()()
    assert (Path(folder) / "hook-rlx.py").is_file()


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("form", ["--onedir", "--onefile"])
def test_a_frozen_program_runs(form, tmp_path, webgpu):
    """In an empty environment, from an empty folder, with nothing cached, on every device."""
    assert importlib.util.find_spec("PyInstaller"), "PyInstaller is a part of the extra test"
    (tmp_path / "app.py").write_text(PROGRAM)
    made = subprocess.run(
        [sys.executable, "-m", "PyInstaller", "--noconfirm", form, "app.py"],
        cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert made.returncode == 0, made.stderr[-3000:]
    program = tmp_path / "dist" / ("app/app" if form == "--onedir" else "app")
    empty = tmp_path / "empty"
    empty.mkdir()
    moved = shutil.move(tmp_path / "dist", tmp_path / "elsewhere")
    program = Path(moved) / program.relative_to(tmp_path / "dist")
    for _ in range(2):  # with nothing cached, then with what the first run cached
        kept = {
            name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "TMPDIR") if name in os.environ
        }
        done = subprocess.run(
            [program], cwd=empty, env=kept | {"HOME": str(tmp_path / "home")},
            capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = json.loads(done.stdout)
        assert found["frozen"]
        assert {"cpu", "webgpu", "auto"} <= found["errors"].keys()
        assert max(found["errors"].values()) < 1e-6
        assert "softmax" in found["profile"]
        assert not {"rich", "scipy", "onnx", "matplotlib", "pygments"} & {*found["modules"]}
        assert not [name for name in found["ours"] if name.startswith(("rlx.cli", "rlx.regress"))]
