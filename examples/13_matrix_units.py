"""Products on the matrix units of a GPU: what precision="f16" changes, in the numbers and in the time.

Matrix units (tensor cores and their like) multiply halves. The device "dawn", of `pip install '.[dawn]'`, has kernels
for them. Elsewhere the same program runs with other kernels, or in f32 where there is no f16 at all.
"""

import time

import numpy as np

import rlx

ROWS, WIDTH, RUNS = 256, 512, 5

rng = np.random.default_rng(0)
weights = {
    name: (rng.standard_normal((WIDTH, WIDTH)) / WIDTH**0.5).astype(np.float32)
    for name in ("w0", "w1", "w2")
}
x = rng.standard_normal((ROWS, WIDTH)).astype(np.float32)


def network() -> rlx.Graph:
    """Three layers of f32."""
    g = rlx.Graph("network")
    y = g.input("x", x.shape)
    for name, weight in weights.items():
        y = g.gelu(y @ g.param(name, weight.shape))
    g.set_outputs([y])
    return g


device = next(name for name in ("dawn", "webgpu", "cpu") if rlx.is_available(name))
exact = rlx.compile(network(), "cpu", weights).run_slots(x)[0].copy()
print("device:", device)
for precision in ("f32", "f16"):
    try:
        compiled = rlx.Session(device, precision=precision).compile(network(), weights)
    except rlx.CompileError as error:
        print(f"{precision}: {error.args[0].splitlines()[0]}")
        continue
    (found,) = compiled.run_slots(x)
    began = time.perf_counter()
    for _ in range(RUNS):
        compiled.run_slots(x)
    spent = (time.perf_counter() - began) / RUNS * 1e3
    units = "subgroupMatrix" in compiled.as_text("kernels")
    off = np.abs(found - exact).max() / np.abs(exact).max()
    where = "on matrix units" if units else "without matrix units"
    print(f"{precision}: {spent:.2f} ms {where}, error {off:.0e}")
    # Rounding the operands of a product to halves costs about 5e-4 of its terms.
    assert off < 5e-3
