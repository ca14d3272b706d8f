"""Changed files of every kind: taken or refused by a typed error, in bounded time and memory, and nothing else touched."""

import json
import os
import secrets
import subprocess
import sys
import time
from pathlib import Path

import pytest
from samples import ALL

HERE = Path(__file__).parent
# Of so many files at least this part is refused, and at least one in 200 taken: fewer would mean that the
# changes do not reach what is read, or leave nothing to read.
REFUSED, TAKEN = 0.5, 0.005


def _run(kind, folder, *ranges):
    command = [sys.executable, "-W", "ignore", str(HERE / "fuzzing.py"), kind, str(folder)]
    texts = [f"{first}+{count}" for first, count in ranges]
    return subprocess.run(
        [*command, *texts],
        env=os.environ
        # A folder in which there is no room: nothing is written, and plans of models are used.
        | {"RLX_CACHE": str(folder / "inside" / "cache"), "RLX_CACHE_BYTES": "1"}
        | {"RLX_CALIBRATION": "off", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60 + sum(count for _, count in ranges) / 5,
        check=False,
    )


def fuzz(kind, folder, *ranges):
    """Loads files, for each pair as many as it says from a first seed on; a crash or a hang of their process fails."""
    done, count = _run(kind, folder, *ranges), sum(count for _, count in ranges)
    seed = folder / "seed"
    died = f"status {done.returncode} at seed {seed.read_text() if seed.exists() else None}"
    assert done.returncode == 0, f"{died}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    taken = sum(result["said"].pop(name, 0) for name in ("taken", "plan used"))
    assert taken + sum(result["said"].values()) == count
    assert taken >= TAKEN * count
    assert sum(result["said"].values()) >= REFUSED * count


@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["onnx", "safetensors", "gguf", "rlx", "plan"])
def test_changed_files(kind, tmp_path):
    """The same files at every run and, of the formats of rlx, others that no run had; these seeds are printed."""
    ranges = [(0, 2000 if ALL else 100), (secrets.randbits(40), 150)]
    ranges = ranges if kind in ("rlx", "plan") else ranges[:1]
    print(kind, ranges)
    fuzz(kind, tmp_path, *ranges)


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_plans_changed_anew_for_long(tmp_path):
    end = time.monotonic() + float(os.environ.get("RLX_TEST_SECONDS", "120"))
    while time.monotonic() < end:
        first = secrets.randbits(40)
        print(f"fuzzing.py plan FOLDER {first}+1000")
        fuzz("plan", tmp_path, (first, 1000))


def test_faults_are_noticed(tmp_path):
    done = _run("fault", tmp_path, (0, 5))
    wrong = json.loads(done.stdout)["wrong"]
    for seed, text in enumerate(("KeyError", "secret.bin", "w.bin", "bytes", "InterruptedError")):
        assert any(item.startswith(f"seed {seed}") and text in item for item in wrong), (
            seed,
            wrong,
        )
    with pytest.raises(AssertionError, match="at seed 5"):
        fuzz("fault", tmp_path, (5, 1))
