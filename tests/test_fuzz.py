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


def _run(kind, first, count, folder):
    command = [
        sys.executable,
        "-W",
        "ignore",
        str(HERE / "fuzzing.py"),
        kind,
        str(first),
        str(count),
    ]
    return subprocess.run(
        [*command, str(folder)],
        env=os.environ
        # A folder in which there is no room: nothing is written, and plans of models are used.
        | {"RLX_CACHE": str(folder / "inside" / "cache"), "RLX_CACHE_BYTES": "1"}
        | {"RLX_CALIBRATION": "off", "OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=60 + count / 5,
        check=False,
    )


def fuzz(kind, first, count, folder):
    """Loads ``count`` files; a crash or a hang of the process that does it is a failure."""
    done = _run(kind, first, count, folder)
    seed = folder / "seed"
    died = f"status {done.returncode} at seed {seed.read_text() if seed.exists() else None}"
    assert done.returncode == 0, f"{died}: {done.stderr[-2000:]}"
    result = json.loads(done.stdout)
    assert result["wrong"] == []
    taken = sum(result["said"].pop(name, 0) for name in ("taken", "plan used"))
    assert taken + sum(result["said"].values()) == count
    assert taken >= TAKEN * count
    assert sum(result["said"].values()) >= REFUSED * count


@pytest.mark.parametrize("kind", ["onnx", "safetensors", "gguf", "rlx", "plan"])
def test_changed_files(kind, tmp_path):
    fuzz(kind, 0, 250 if ALL else 100, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("kind", ["onnx", "safetensors", "gguf", "rlx", "plan"])
def test_2000_changed_files(kind, tmp_path):
    fuzz(kind, 1000, 2000, tmp_path)


@pytest.mark.parametrize("kind", ["rlx", "plan"])
def test_files_changed_anew(kind, tmp_path):
    """Other files at every run; the seed stands in the message, and ``fuzzing.py`` takes it."""
    first = secrets.randbits(40)
    print(f"fuzzing.py {kind} {first} 150 FOLDER")
    fuzz(kind, first, 150, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(1500)
def test_plans_changed_anew_for_ten_minutes(tmp_path):
    begin = time.monotonic()
    while time.monotonic() - begin < 600:
        first = secrets.randbits(40)
        print(f"fuzzing.py plan {first} 1000 FOLDER")
        fuzz("plan", first, 1000, tmp_path)


def test_faults_are_noticed(tmp_path):
    done = _run("fault", 0, 5, tmp_path)
    wrong = json.loads(done.stdout)["wrong"]
    for seed, text in enumerate(("KeyError", "secret.bin", "w.bin", "bytes", "InterruptedError")):
        assert any(item.startswith(f"seed {seed}") and text in item for item in wrong), (
            seed,
            wrong,
        )
    with pytest.raises(AssertionError, match="at seed 5"):
        fuzz("fault", 5, 1, tmp_path)
