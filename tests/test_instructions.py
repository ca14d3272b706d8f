"""Counts the instructions of a call of run_slots on the CPU by callgrind, and compares them with a golden.

Only what runs inside a marked C function is counted. Kernels are the plain ones on a single element: nearly all
of it is the call itself and the loop around it. After a change that is meant, and on
another compiler or Python, ``python tests/test_instructions.py`` prints what to put into GOLDEN.
"""

import os
import platform
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

MARK = """
#include <valgrind/callgrind.h>
void rlx_mark(void (*loop)(void)) {
    CALLGRIND_START_INSTRUMENTATION;
    loop();
    CALLGRIND_STOP_INSTRUMENTATION;
}
"""
PROGRAM = """
import ctypes, gc, itertools, sys
import numpy as np, rlx
mark = ctypes.CDLL(sys.argv[1]).rlx_mark
g, way = rlx.Graph(), sys.argv[2]
n = rlx.Dim("n") if "sizes" in way else 1
x, y = g.input("x", (n,)), g.input("y", (n,))
g.set_outputs([g.tanh(g.softmax(x)) + y])
run = rlx.compile(g, "cpu").run_slots
a, b = np.ones(1, np.float32), np.ones(1, np.float32)
times = itertools.repeat(None, int(sys.argv[3]))
def views():
    for _ in times:
        run()
def arguments():
    for _ in times:
        run(a, b)
c, d = np.ones(2, np.float32), np.ones(3, np.float32)  # a size of 1 has a program of its own
both = [(c, c), (d, d)] * (int(sys.argv[3]) // 2)
def others():
    for arrays in both:
        run(*arrays)
if "sizes" in way:
    run(d, d)
run(a, b)
gc.disable()
ways = {"views": views, "arguments": arguments, "same sizes": arguments, "other sizes": others}
mark(ctypes.CFUNCTYPE(None)(ways[way]))
"""
CALLS = 5000
WAYS = ("arguments", "views", "same sizes", "other sizes")
# Instructions per call by Python, its compiler and processor. CPython's own part depends on its release.
GOLDEN = {
    "3.11.7 GCC12 x86_64": (1962, 1483, 2083, 6786),
    "3.11.2 GCC12 x86_64": (1814, 1391, 1935, 6439),
}
SLACK = 0.03
# Elsewhere the same C code takes somewhat more or less.
SLACK_ELSEWHERE = 0.5


def here():
    major = platform.python_compiler().replace(" ", "").split(".")[0]
    return f"{platform.python_version()} {major} {platform.machine()}"


def per_call(way):
    with tempfile.TemporaryDirectory() as folder:
        source, library = Path(folder) / "mark.c", Path(folder) / "mark.so"
        source.write_text(MARK)
        subprocess.run(["cc", "-shared", "-fPIC", "-O0", "-o", library, source], check=True)
        command = ["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null"]
        command += ["--instr-atstart=no"]
        command += [sys.executable, "-c", PROGRAM, str(library), way, str(CALLS)]
        env = {**os.environ, "PYTHONHASHSEED": "0", "RLX_CPU_ISA": "plain", "RLX_CACHE": "off"}
        done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (line,) = [line for line in done.stderr.splitlines() if "Collected :" in line]
    return int(line.split()[-1]) / CALLS


@pytest.mark.slow
@pytest.mark.parametrize("way", WAYS)
def test_instructions_of_a_call(way):
    assert shutil.which("valgrind"), "script/test --all installs valgrind"
    result = per_call(way)
    slack = SLACK if here() in GOLDEN else SLACK_ELSEWHERE
    golden = GOLDEN.get(here(), next(iter(GOLDEN.values())))[WAYS.index(way)]
    assert result <= golden * (1 + slack), f"{here()}: {result:.0f} instructions, golden {golden}"
    assert result >= golden * (1 - slack), f"{result:.0f}: fewer than {golden}, lower the golden"


if __name__ == "__main__":
    print({here(): tuple(round(per_call(way)) for way in WAYS)})
