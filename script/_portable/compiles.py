"""The checks of script/portable without a wheel: compiles all targets with warnings as errors, and builds by clang.

zig's clang compiles for every target. GCC compiles for ARM too: it is what `pip install .` takes on such a Linux, and its
rules for instructions that not every processor has are stricter.
"""

import os
import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from _setup import PYTHON, ROOT, apt, say

from _portable.sources import zig

TARGETS = (
    "x86_64-windows-gnu",
    "aarch64-windows-gnu",
    "x86_64-macos.11.0",
    "aarch64-macos.11.0",
    "x86_64-linux-gnu.2.28",
    "aarch64-linux-gnu.2.28",
    "x86_64-linux-musl",
)
GCC, PACKAGES = "aarch64-linux-gnu-gcc", "gcc-aarch64-linux-gnu libc6-dev-arm64-cross"
# The sources that include nothing of Python.
SOURCES = (
    "parallel.c",
    "parts.c",
    "kernels/isa_plain.c",
    "kernels/isa_neon.c",
    "kernels/isa_avx2.c",
    "kernels/isa_avx512.c",
)
FLAGS = "-std=gnu11 -O2 -fwrapv -fno-math-errno -fno-trapping-math -Wall -Werror -Wno-unknown-pragmas -Wno-pass-failed".split()
FOLDERS = ("-Icython_src", "-Icython_src/kernels", "-Ibuild/generated")
TESTS = (
    "tests/test_conformance.py::test_cpu",
    "tests/test_contract.py",
    "tests/test_exact_numbers.py",
    "tests/test_dynamic_batch.py::test_cpu",
    "tests/test_filters.py",
    "tests/test_fuzz.py",
    "tests/test_locks.py",
    "tests/test_runtime.py",
    "tests/test_signatures.py",
    "tests/test_threads.py",
)


def compiled(compiler: list[str], source: str) -> str:
    """Returns the compiler's messages for a source that it can't compile; "" if it can."""
    with tempfile.NamedTemporaryFile(suffix=".o") as result:
        place = ["-c", f"cython_src/{source}", "-o", result.name]
        command = [*compiler, *FLAGS, *FOLDERS, *place]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    return (done.stderr or f"status {done.returncode}") if done.returncode else ""


def cross() -> bool:
    """Compiles each source for each target; whether all could be."""
    if shutil.which(GCC) is None and not apt(PACKAGES):
        return False
    compilers = {target: [*zig(), "-target", target] for target in TARGETS} | {GCC: [GCC]}
    failed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for name, compiler in compilers.items():
            said = list(pool.map(partial(compiled, compiler), SOURCES))
            say(f"{name}: {'FAILED' if any(said) else 'compiled'}")
            print("".join(said), end="", flush=True)
            failed += any(said)
    return not failed


def native() -> bool:
    """Builds for this machine, in a copy, and runs the tests there; whether they passed."""
    with tempfile.TemporaryDirectory(prefix="rlx-portable-") as folder:
        target = Path(folder)
        for name in ("rlx", "shaders", "tests", "examples", "cython_src", "script"):
            shutil.copytree(
                ROOT / name, target / name, ignore=shutil.ignore_patterns("*.so", "__pycache__")
            )
        for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
            shutil.copy(ROOT / name, target)
        say("building with clang")
        single = " ".join(zig())
        env = {**os.environ, "CC": single, "LDSHARED": f"{single} -shared", "PYTHONPATH": folder}
        build = [str(PYTHON), "setup.py", "-q", "build_ext", "--inplace"]
        if subprocess.run(build, cwd=target, env=env, check=False).returncode:
            return False
        say("testing that build")
        pytest = [
            str(PYTHON),
            "-m",
            "pytest",
            "-q",
            "-n",
            "2",
            "-p",
            "no:benchmark",
            "-m",
            "not slow",
        ]
        return subprocess.run([*pytest, *TESTS], cwd=target, env=env, check=False).returncode == 0
