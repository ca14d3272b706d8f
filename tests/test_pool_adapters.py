"""A pool of real devices: two software adapters and the processor, one of which is lost under it."""

import json
import os
from pathlib import Path

import pytest
from python_process import run_python

from rlx import flags

THREE = """
import warnings

import numpy as np

import rlx
from rlx.backends.webgpu.device import gpu_device
from rlx.device.names import info_of

names = ["cpu", "webgpu", "webgpu:1"]
adapters = {info_of(rlx.Device.parse(one)).adapter.split()[0] for one in names[1:]}
assert adapters == {"SwiftShader", "llvmpipe"}, adapters
rng = np.random.default_rng(0)
g = rlx.Graph("rows")
x = g.input("x", (64, 64))
y = g.tanh(x * g.param("w", (64,), value=np.linspace(0, 1, 64, dtype=np.float32)))
g.set_outputs([g.sum(y, -1), g.narrow(x, 1, 0, 1)])
sets = rng.standard_normal((7, 64, 64)).astype(np.float32)


def items():
    for at in range(10_000):
        x = sets[at % 7].copy()
        x[:, 0] = at  # tells the items apart
        yield x


expected = {}
with rlx.compile(g, "cpu") as alone:
    for at, x in enumerate(items()):
        if at % 250 == 0:
            expected[at] = alone.run({"x": x})[0]
count, lost = 0, None
with warnings.catch_warnings(record=True) as told, rlx.Pool(g, names) as pool:
    warnings.simplefilter("always")
    for at, (sums, first) in enumerate(pool.map(items())):
        assert (first == at).all(), at
        if at in expected:
            np.testing.assert_allclose(sums, expected[at], rtol=1e-3, atol=1e-3)
        count += 1
        if lost is None and at >= 2_000 and all(row.done for row in pool.report()):
            # The one of the GPUs that does more: the other may get no work for long.
            worker = max(pool._scheduler.workers[1:], key=lambda worker: worker.done)
            if worker.since is not None:
                gpu_device(info_of(worker.device)).device.destroy()
                lost = str(worker.device)
    rows = pool.report()
assert count == 10_000 and lost
assert sum(row.done for row in rows) == 10_000, rows
assert [str(row.device) for row in rows if row.left is not None] == [lost], rows
assert any(f"{lost} has left" in str(one.message) for one in told)
print({str(row.device): row.done for row in rows})
"""


@pytest.mark.webgpu
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_two_software_adapters_and_the_processor_of_which_one_is_lost(tmp_path):
    """10,000 items by real devices; the GPU of one is destroyed on the way, as a driver that resets does."""
    drivers = [Path("/usr/share/vulkan/icd.d/lvp_icd.x86_64.json"), tmp_path / "swiftshader.json"]
    library = Path("/usr/lib/chromium/libvk_swiftshader.so")
    if not (library.exists() and drivers[0].exists()):
        what = (
            "needs lavapipe and SwiftShader, which Debian has in mesa-vulkan-drivers and chromium"
        )
        if flags.REQUIRE_WEBGPU.get():
            pytest.fail(f"RLX_REQUIRE_WEBGPU is set: {what}")
        pytest.skip(what)
    stated = {"library_path": str(library), "api_version": "1.1.0"}
    drivers[1].write_text(json.dumps({"file_format_version": "1.0.0", "ICD": stated}))
    env = {"VK_DRIVER_FILES": os.pathsep.join(map(str, drivers)), "RLX_CACHE": "off"}
    env |= {"VK_ICD_FILENAMES": env["VK_DRIVER_FILES"], "RLX_WEBGPU": "wgpu"}
    run_python("-c", THREE, env=env)
