"""An operation of your own: the NumPy function says what it means, C and WGSL make it fast.

The C part is compiled here with the system's compiler; without one the CPU runs the NumPy function.
"""

import ctypes
import shutil
import subprocess
import tempfile
from pathlib import Path

import numpy as np

import rlx

C = """
#include <math.h>
#include <stdint.h>
int soft_threshold(const void *const *inputs, void *const *outputs, const int64_t *sizes,
                   const double *numbers) {
    const float *x = inputs[0];
    float *y = outputs[0];
    const float t = (float)numbers[0];
    for (int64_t i = 0; i < sizes[0]; i++)
        y[i] = copysignf(fmaxf(fabsf(x[i]) - t, 0.0f), x[i]);
    return 0;
}
"""
WGSL = """
fn compute(i: u32) {
    let x = in0[i];
    out0[i] = sign(x) * max(abs(x) - THRESHOLD, 0.0);
}
"""


def compiled_function(folder):
    """The C function as ctypes sees it, or None without a compiler."""
    compiler = shutil.which("cc") or shutil.which("gcc")
    if compiler is None:
        return None
    source, library = Path(folder) / "op.c", Path(folder) / "op.so"
    source.write_text(C)
    command = [compiler, "-O2", "-shared", "-fPIC", str(source), "-o", str(library), "-lm"]
    subprocess.run(command, check=True)
    return ctypes.CDLL(str(library)).soft_threshold


with tempfile.TemporaryDirectory() as folder:
    rlx.register_custom_op(
        "soft_threshold",
        shape=lambda x, threshold: x,
        numpy=lambda x, threshold: np.sign(x) * np.maximum(np.abs(x) - threshold, 0),
        wgsl=WGSL,
        c=compiled_function(folder),
    )
    g = rlx.Graph("shrink")
    x = g.input("x", (2, 6))
    g.set_outputs([g.custom("soft_threshold", [x], {"threshold": 0.5}) * 2.0])

    data = np.linspace(-1.5, 1.5, 12, dtype=np.float32).reshape(2, 6)
    for device in rlx.available_devices():
        with rlx.compile(g, device) as compiled:
            (y,) = compiled(x=data)
        expected = 2 * np.sign(data) * np.maximum(np.abs(data) - 0.5, 0)
        assert np.allclose(y, expected, atol=1e-6)
        print(f"{device}: {y[0].round(3).tolist()}")
