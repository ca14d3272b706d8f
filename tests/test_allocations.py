"""run_slots allocates nothing: every malloc of the process is counted, Python's own included."""

import shutil
import subprocess
import sys

import pytest
from python_process import run_python
from samples import ALL

# Counts what Python, NumPy and rlx allocate; the driver and wgpu-native, which is called with their own
# allocators, are told by the file that the caller's code is in.
COUNTER = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stddef.h>
#include <string.h>
static long count;
static int armed;
static __thread int inside;
long allocations(void) { armed = 1; return count; }
extern void *__libc_malloc(size_t), *__libc_calloc(size_t, size_t), *__libc_realloc(void *, size_t);
static const char *ours[] = {"python", "numpy", "/rlx/", NULL}, *others[] = {"libwgpu_native", NULL};
static int in(const char *file, const char **names) {
    for (; *names; names++)
        if (strstr(file, *names)) return 1;
    return 0;
}
static void saw(void *caller) {
    Dl_info info;
    if (inside || !armed) return;
    inside = 1;
    if (dladdr(caller, &info) && info.dli_fname && in(info.dli_fname, ours) && !in(info.dli_fname, others))
        __atomic_fetch_add(&count, 1, __ATOMIC_RELAXED);
    inside = 0;
}
void *malloc(size_t n) { saw(__builtin_return_address(0)); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { saw(__builtin_return_address(0)); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { saw(__builtin_return_address(0)); return __libc_realloc(p, n); }
"""
PROGRAM = """
import ctypes, gc, itertools, sys
import numpy as np, rlx
allocations = ctypes.CDLL(sys.argv[1]).allocations
allocations.restype = ctypes.c_long
g = rlx.Graph()
x, w = g.input("x", (1, 64)), g.param("w", (64, 64))
if sys.argv[3] == "beside a handle":
    state, x = x, g.input("y", (1, 64))
    g.set_outputs([g.softmax(g.gelu(x @ w + state))])
else:
    g.set_outputs([g.softmax(g.gelu(x @ w + 1.0))])
cg = rlx.compile(g, sys.argv[2], params={"w": np.ones((64, 64))})
arrays = () if sys.argv[3] == "fed" else (np.ones((1, 64), np.float32),)
if sys.argv[3] != "given":
    cg.bind_gpu_handle("x", np.ones((1, 64), np.float32))
    cg.set_gpu_handle_feed("x", 0)
run = cg.run_slots
def loop(times):
    for _ in times:
        run(*arrays)
gc.disable()
loop(itertools.repeat(None, 200))
counts = []
for calls in (1, int(sys.argv[4]) + 1):
    times = itertools.repeat(None, calls)
    before = allocations()
    loop(times)
    counts.append(allocations() - before)
print(counts[1] - counts[0])
"""
LINUX = pytest.mark.skipif(sys.platform != "linux", reason="LD_PRELOAD and /proc are Linux's")
CALLS = {"cpu": 100_000, "webgpu": 2000}


@pytest.fixture(scope="module")
def counter(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc")
    assert compiler, "a C compiler built rlx here, so there is one"
    folder = tmp_path_factory.mktemp("counter")
    source, library = folder / "count.c", folder / "count.so"
    source.write_text(COUNTER)
    subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", library, source], check=True)
    return library


@LINUX
@pytest.mark.parametrize("way", ["given", "fed", "beside a handle"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def test_no_malloc_per_call(counter, device, way, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    # With PYTHONMALLOC=malloc Python's small objects are counted too.
    env = {"LD_PRELOAD": str(counter), "PYTHONMALLOC": "malloc"}
    done = run_python("-c", PROGRAM, counter, device, way, CALLS[device], env=env)
    # The two calls of ``loop`` themselves may differ by an object or two.
    assert abs(int(done.stdout)) <= 2, f"{done.stdout.strip()} allocations in {CALLS[device]} calls"


GROWTH = """
import sys
import numpy as np, rlx
g = rlx.Graph()
x, state = g.input("x", (64, 64)), g.input("state", (64, 64))
g.set_outputs([x + 1.0, state + x])
cg = rlx.compile(g, sys.argv[1])
cg.bind_gpu_handle("state", np.zeros((64, 64)))
cg.set_gpu_handle_feed("state", 1)
run, array, calls = cg.run_slots, np.ones((64, 64), np.float32), int(sys.argv[2])
def kib():
    for line in open("/proc/self/status"):
        if line.startswith("VmRSS"):
            return int(line.split()[1])
for _ in range(calls // 10):
    run(array)
before = kib()
for _ in range(calls):
    run(array)
print(kib() - before)
"""


@LINUX
@pytest.mark.parametrize(
    ("device", "calls"),
    [
        ("cpu", 1_000_000 if ALL else 200_000),
        pytest.param("webgpu", 50_000 if ALL else 20_000, marks=pytest.mark.webgpu),
    ],
)
def test_memory_stays_flat(device, calls, request):
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    done = run_python("-c", GROWTH, device, calls)
    # Calls that each kept 64 bytes would show as more; an allocator's own steps are smaller.
    assert int(done.stdout) < max(1024, calls * 64 // 1024)


def test_importing_rlx_loads_no_driver():
    program = "import sys, rlx; assert 'wgpu' not in sys.modules and 'jinja2' not in sys.modules"
    run_python("-c", program)
