"""The example's window frozen by its .spec: with nothing else around it, and after an update over the same cache."""

import os
import time

import numpy as np
import pytest
from desktop import CLOSE_S, FOLDER, PLATFORMS, middle, result
from frozen import freeze, packaged

pytest.importorskip("PySide6.QtWidgets", exc_type=ImportError)

# Another build of the same version: its entries are its own.
UPDATE = [("rlx/version.py", '"""The version of rlx', '"""The version of this rlx')]


@pytest.fixture(scope="module")
def programs(tmp_path_factory):
    """The program as it was released, and after an update of rlx."""
    folder = tmp_path_factory.mktemp("desktop")
    results = {}
    for name, edits in (("first", ()), ("update", UPDATE)):
        site = packaged(folder / f"{name} built", edits)
        # PyInstaller's own folders go where it is started; the sources of the example stay as they are.
        output = freeze(folder / name, FOLDER / "desktop.spec", site=site)
        results[name] = (output / "listen/listen",)
    return results


def environment(home):
    """A user's environment with next to nothing in it: no PYTHONPATH, and no programs but the system's."""
    remaining = {
        name: os.environ[name] for name in ("XDG_RUNTIME_DIR", "TMPDIR") if name in os.environ
    }
    return remaining | {"HOME": str(home), "PATH": "/usr/bin:/bin", "LC_ALL": "C.UTF-8"}


def check(output, device):
    assert output["failures"] == []
    assert output["device"] == device
    assert abs(output["tone_hz"] - output["expected_tone_hz"]) < 100
    voice, quiet = middle(output, True), middle(output, False)
    if output["dropped"]:
        # A machine that is too slow for its GPU skips from a voice into a silence.
        voice, quiet = np.median(voice), np.median(quiet)
    assert np.min(voice) > 0.9
    assert np.max(quiet) < 0.5
    assert 0.0 < output["window_s"] < output["first_result_s"] < 60.0
    assert output["close_s"] < CLOSE_S


def entries(home, since=0.0):
    """Names of what is cached and was stored or used since then."""
    output = (home / ".cache/rlx").rglob("*.rlxc")
    return {path.name for path in output if path.stat().st_mtime >= since}


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_frozen_and_updated(programs, tmp_path, webgpu):
    """From an empty folder with a fresh cache, then warm, then after the update: results, device, and the end."""
    home, empty = tmp_path / "home", tmp_path / "empty"
    home.mkdir()
    empty.mkdir()
    # Figures that are measured in the background would make the second start compile anew.
    how = {"environment": {**environment(home), "RLX_CALIBRATION": "off"}, "cwd": empty}
    for name, program in programs.items():
        others = entries(home)
        for device in ("cpu", "webgpu"):
            for state in ("cold", "warm"):
                before, began = entries(home), time.time()
                output = result("--seconds", 3, "--device", device, program=program, **how)
                whole_s = time.time() - began
                check(output, device)
                first_s, gap_ms = output["first_result_s"], output["worst_gap_ms"]
                outside_s = whole_s - first_s - 3.0 - output["close_s"]
                print(
                    f"{name}, {device}, {state}: window {output['window_s']:.2f} s, first result {first_s:.2f} s, "
                    f"worst pause {gap_ms:.0f} ms, loading and ending {outside_s:.2f} s"
                )
                # A build takes what it stored itself, and an update nothing of the build before it.
                used = entries(home, began) & before
                assert not used & others, (name, device, state)
                assert used if state == "warm" else entries(home) > before, (name, device, state)
    assert not list(empty.iterdir())


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("platform", PLATFORMS)
def test_it_chooses_for_itself(programs, platform, tmp_path):
    """With "auto" on a machine where nothing was measured; on a real screen, too."""
    picture = tmp_path / "window.png"
    arguments = ("--seconds", 3, "--screenshot", picture)
    how = {"program": programs["first"], "environment": environment(tmp_path), "cwd": tmp_path}
    output = result(*arguments, platform=platform, **how)
    check(output, output["device"])
    assert "estimated time" in output["reason"]
    assert picture.stat().st_size > 10_000
