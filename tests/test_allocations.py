"""run_slots allocates nothing: every malloc of the process is counted, Python's own included."""

import os
import shutil
import subprocess
import sys

import pytest

COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
static long count;
long allocations(void) { return count; }
#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
void *malloc(size_t n) { count++; return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { count++; return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { count++; return __libc_realloc(p, n); }
"""
PROGRAM = """
import ctypes, gc, itertools, sys
import numpy as np, rlx
allocations = ctypes.CDLL(sys.argv[1]).allocations
allocations.restype = ctypes.c_long
g = rlx.Graph()
x, w = g.input("x", (1, 64)), g.param("w", (64, 64))
g.set_outputs([g.softmax(g.gelu(x @ w + 1.0))])
run = rlx.compile(g, "cpu", params={"w": np.ones((64, 64))}).run_slots
array = np.ones((1, 64), np.float32)
def loop(times):
    for _ in times:
        run(array)
gc.disable()
loop(itertools.repeat(None, 100))
counts = []
for calls in (1, 100_001):
    times = itertools.repeat(None, calls)
    before = allocations()
    loop(times)
    counts.append(allocations() - before)
print(counts[1] - counts[0])
"""


@pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD counts mallocs on Linux only")
def test_no_malloc_per_call(tmp_path):
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler built rlx here, so there is one"
    source, library = tmp_path / "count.c", tmp_path / "count.so"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    # With PYTHONMALLOC=malloc Python's small objects are counted too.
    env = {**os.environ, "LD_PRELOAD": str(library), "PYTHONMALLOC": "malloc"}
    command = [sys.executable, "-c", PROGRAM, str(library)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    # The two calls of ``loop`` themselves may differ by an object or two.
    assert abs(int(done.stdout)) <= 2, f"{done.stdout.strip()} allocations in 100,000 calls"


def test_importing_rlx_loads_no_driver():
    program = "import sys, rlx; assert 'wgpu' not in sys.modules and 'jinja2' not in sys.modules"
    subprocess.run([sys.executable, "-c", program], check=True)
