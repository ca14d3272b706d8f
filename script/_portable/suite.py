"""The tests that a wheel is run through on another system, in steps that each take some minutes.

A step is what pytest gets. Tests of what only developers of rlx do (documentation, type checkers, benchmarks) stay out.
"""

import datetime
import json
import re
import subprocess
import tempfile
import time

from _setup import ROOT, say

from _portable.sources import HOME

# Conformance: each operation, dtype and sample on the CPU, against NumPy.
CONFORMANCE = ("tests/test_conformance.py::test_cpu", "tests/test_dynamic_batch.py::test_cpu")

STEPS = {
    "conformance": CONFORMANCE,
    "threads": (
        "tests/test_threads.py",
        "tests/test_teams.py",
        "tests/test_locks.py",
        "tests/test_runtime.py",
        "tests/test_contract.py",
        "tests/test_without_gil.py",
    ),
    "caches": (
        "tests/test_cache_folder.py",
        "tests/test_compile_cache.py",
        "tests/test_hard_paths.py",
        "tests/test_file_cache.py",
        "tests/test_model_file.py",
        "tests/test_weight_files.py",
    ),
    "numbers": (
        "tests/test_exact_numbers.py",
        "tests/test_denormals.py",
        "tests/test_filters.py",
        "tests/test_signatures.py",
    ),
    # The tests of threads, files and caches that take little time in qemu.
    "basics": (
        "tests/test_locks.py",
        "tests/test_teams.py",
        "tests/test_cache_folder.py",
        "tests/test_file_cache.py",
        "tests/test_model_file.py",
    ),
    # Products by each instruction that the processor has for them.
    "kernels": ("tests/test_micro_kernels.py",),
    # In script/portable units alone.
    "matrix units": ("tests/test_fragments.py", "tests/test_matrix_units.py"),
    # Tests of commands on models compare with ONNX Runtime, and stay out.
    "ONNX": ("tests/test_onnx.py", "tests/test_smoke.py"),
}
# The steps of script/test --portable, and those of a system that is emulated: it has twenty minutes on two processors.
REDUCED = ("conformance", "threads", "caches")
EMULATED = {"aarch64": ("conformance", "basics")}
ORDER = ("conformance", "threads", "caches", "numbers", "kernels", "ONNX")
RESULTS = HOME / "results"


def run_steps(
    name: str, command: list[str], env: dict[str, str], steps: tuple[str, ...], root: str = ""
) -> bool:
    """Runs steps with a Python that has the wheel, and keeps the counts; whether all tests passed.

    Args:
        name: The system, which the file of counts is named after.
        command: What starts that Python.
        env: Its environment.
        steps: Names of ``STEPS``.
        root: What stands before a path of this machine there, a drive in wine.
    """
    result, passed = {}, True
    # RLX_TEST_SOURCES names a file of this system, which tests in another system can't read.
    env = {name: value for name, value in env.items() if name != "RLX_TEST_SOURCES"}
    with tempfile.TemporaryDirectory(prefix="rlx-portable-") as folder:
        options = ["-q", "-p", "no:benchmark", "-p", "no:cacheprovider", "-m", "not slow"]
        # A driver compiles one kernel for matrix units for 18 minutes on an idle processor.
        options += ["-n", "2", "--dist", "worksteal", "--timeout", "3600"]
        options += ["-c", f"{root}{ROOT}/pyproject.toml"]
        for step in steps:
            say(f"{name}: {step}")
            tests = [f"{root}{ROOT}/{test}" for test in STEPS[step]]
            start = time.monotonic()
            pytest = [*command, "-m", "pytest", *options, *tests]
            # Pipes: Python in wine does not take files of this system as its streams. It writes some texts as Windows does.
            streams = {"input": "", "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
            streams["errors"] = "replace"
            done = subprocess.run(pytest, cwd=folder, env=env, text=True, check=False, **streams)
            log = RESULTS / f"{name} {step}.log"
            RESULTS.mkdir(parents=True, exist_ok=True)
            log.write_text(done.stdout)
            counts = {
                what: int(n)
                for n, what in re.findall(
                    r"(\d+) (passed|failed|skipped|errors?)", done.stdout[-400:]
                )
            }
            result[step] = {"seconds": round(time.monotonic() - start), **counts}
            well = done.returncode == 0 and counts.get("passed", 0) > 0
            passed &= well
            say(f"{name}: {step}: {'passed' if well else f'FAILED, see {log}'} {result[step]}")
    about = {"date": datetime.date.today().isoformat(), "steps": result}
    (RESULTS / f"{name}.json").write_text(json.dumps(about, indent=1) + "\n")
    return passed
