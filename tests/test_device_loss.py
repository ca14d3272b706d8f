"""A device that is lost inside a run, at each of the calls that a run makes: a typed error, and recover() works."""

import shutil
import subprocess
import zlib
from pathlib import Path

import pytest
from python_process import run_python
from selection import SELECTION

pytestmark = pytest.mark.webgpu
HERE = Path(__file__).parent
PROGRAM = """
import ctypes, importlib, os, sys
import numpy as np, rlx
from rlx.backends.webgpu.provider import provider_of

library, way, graph, first, apart = *sys.argv[1:4], *map(int, sys.argv[4:])
shim = ctypes.CDLL(library)
shim.shim_arm.argtypes = [ctypes.c_void_p, ctypes.c_int]
rlx.available_devices()
gives = provider_of("webgpu")
ffi, module, _ = gives.binding()
names = {"wgpu": "wgpu.backends.wgpu_native", "dawn": "wgpudawn.backends.dawn"}
lib = importlib.import_module(names[gives.name]).lib
address = lambda name: int(ffi.cast("uintptr_t", ffi.addressof(lib, name)))
known = [0 if one in module.ABSENT[gives.name] else address(one) for one in module.FUNCTIONS]
table = (ctypes.c_void_p * len(known))(*known)
shim.shim_install(table, len(known), ctypes.c_void_p(address("wgpuDeviceDestroy")))
instance = 0
if gives.name == "dawn":
    helpers = importlib.import_module("wgpudawn.backends.dawn._helpers")
    instance = int(ffi.cast("uintptr_t", helpers.get_wgpu_instance()))
api = module.Api(gives.name, [one or 0 for one in table], instance)
type(gives).binding = lambda self: (ffi, module, api)

g = rlx.Graph()
x, s = g.input("x", (4, 16)), g.input("s", (4, 16))
y = g.flip(g.tanh(x * g.param("w", (16,))), 0) + s
if graph == "hosted":
    y = g.cast(g.exp(g.cast(y, "f64")), "f32") + x
g.set_outputs([y, g.sum(y)])
w = np.random.default_rng(0).normal(size=16).astype(np.float32)
a, b = np.ones((4, 16), np.float32), np.full((4, 16), 2, np.float32)
cg = rlx.compile(g, "webgpu", {"w": w})
ways = {
    "run_slots": lambda: [one.copy() for one in cg.run_slots(a, b)],
    "read": lambda: cg.run_read_outputs({"x": a, "s": b}, [0, 1]),
    "later": lambda: [cg.commit_no_wait({"x": a, "s": b}), cg.sync_pending(), *cg.run({"x": a, "s": b})][2:],
    "many": lambda: cg.run_pipelined([{"x": a, "s": b}] * 2)[1],
    "param": lambda: [cg._state.read_param("w"), *cg.run({"x": a, "s": b})][1:],
    "gpu": lambda: [cg.run_gpu({"x": a, "s": b}), *cg.run({"x": a, "s": b})][1:],
    "trace": lambda: traced(),
}
def traced():
    with cg.trace(os.devnull):
        return cg.run({"x": a, "s": b})
run = ways[way]
handle = lambda: int(ffi.cast("uintptr_t", cg._state.executable._gpu.device._internal))
want = run()
run()
shim.shim_arm(handle(), 1 << 30)
run()
steps = (1 << 30) - shim.shim_arm(None, 0)
lost = 0
# A device that is lost in a panic stays with the driver, and drivers of hardware give some 64 to a process.
apart = apart if cg._state.target.info.software else steps // 40 + 1
chosen = range(min(first, steps), steps + 1, apart)
for step in chosen:
    shim.shim_arm(handle(), step)
    try:
        found = run()
    except rlx.DeviceLostError:
        lost += 1
    else:
        for one, other in zip(found, want, strict=True):
            np.testing.assert_array_equal(one, other)
    shim.shim_arm(None, 0)
    cg.recover()
    for one, other in zip(run(), want, strict=True):
        np.testing.assert_array_equal(one, other)
print(len(chosen), lost, shim.shim_calls_while_held(), flush=True)
os._exit(0)  # the exit handlers of NVIDIA's driver may fail after dozens of devices that went in panics
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    assert compiler, "the tests build the package, so there is a C compiler"
    built = tmp_path_factory.mktemp("shim") / "shim.so"
    command = [compiler, "-shared", "-fPIC", "-g", "-O1", f"-I{HERE.parent / 'cython_src'}"]
    subprocess.run([*command, HERE / "loss_shim.c", "-o", built], check=True)
    return built


@pytest.mark.parametrize("graph", ["plain", "hosted"])
@pytest.mark.parametrize("way", ["run_slots", "read", "later", "many", "param", "gpu", "trace"])
def test_a_device_is_lost_at_every_step(way, graph, library, hardware):
    """Loses the device at each of the steps.

    A run that leaves out known samples takes every third; the first differs by commit.
    """
    apart = 3 if SELECTION.selects else 1
    first = 1 + zlib.crc32(f"{SELECTION.mode} {way}".encode()) % apart
    arguments = ("-c", PROGRAM, library, way, graph, first, apart)
    done = run_python(*arguments, env={"RUST_BACKTRACE": "0", "RLX_CACHE": "off"}, timeout=300)
    steps, lost, calls_while_held = map(int, done.stdout.split())
    # Fewer calls notice on a GPU: a result that it has computed before it is lost can still be read.
    assert lost > steps // (4 if hardware else 2)
    # Traced runs end maps through the Python package, which is not seen here.
    assert not calls_while_held or way == "trace", (
        "a call of the library may end the map of memory that is being copied"
    )
