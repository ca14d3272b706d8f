"""tinygrad on WebGPU (Dawn): products, JIT-compiled, the slope over many in a row."""

import os
from importlib.util import find_spec
from pathlib import Path

import numpy as np
from gpu_peers import Absent, slope

FEW, MANY = 2, 10
AGREES = 1e-4
ROWS = ("f32 matmul 4096", "f32 matmul 1024")


def start():
    """Its version; the variables that choose Dawn are set."""
    result = find_spec("pydawn")
    if result is None or result.origin is None:
        raise Absent("no module named pydawn (dawn-python)")
    library = Path(result.origin).parent / "lib" / "libwebgpu_dawn_x86_64.so"
    os.environ.setdefault("DEV", "WEBGPU")
    os.environ.setdefault("WEBGPU_PATH", str(library))
    os.environ.setdefault("WEBGPU_BACKEND", "WGPUBackendType_Vulkan")
    from tinygrad import Device, Tensor

    if Device.DEFAULT != "WEBGPU":
        raise Absent(f"tinygrad runs on {Device.DEFAULT}")
    Tensor.training = False
    from importlib.metadata import version

    return f"tinygrad {version('tinygrad')} on WebGPU"


def takes(row):
    """Products of two f32 matrices only: others take it minutes."""
    return row.name in ROWS


def measure(work):
    """Microseconds of a product."""
    from tinygrad import Device, Tensor, TinyJit

    a, b = (Tensor(work.values[name]).realize() for name in ("a", "w"))

    @TinyJit
    def product(a, b):
        return (a @ b).realize()

    for _ in range(3):
        result = product(a, b)
    expected = work.values["a"].astype(np.float64)[:8] @ work.values["w"].astype(np.float64)
    error = np.linalg.norm(result.numpy()[:8] - expected) / np.linalg.norm(expected)
    if not error <= AGREES:
        raise ArithmeticError(f"its result differs by {error:.2g}")

    def run(count):
        for _ in range(count):
            product(a, b)
        Device[Device.DEFAULT].synchronize()

    return slope(run, FEW, MANY)
