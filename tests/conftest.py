"""Fixtures: the verifier after every pass, and a WebGPU device that must be there when CI says so."""

import os

os.environ.setdefault("RLX_VERIFY", "1")
# Tests patch the compiler, so each compiles anew; those of the caches have folders of their own.
os.environ["RLX_CACHE"] = "off"
# Estimates are known answers then; the tests of calibration switch it on.
os.environ["RLX_CALIBRATION"] = "off"

import numpy as np
import pytest

import rlx
from rlx import flags
from rlx.backends.base import backend


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture(scope="session")
def webgpu():
    """The name of the WebGPU device; without an adapter the tests are left out, or fail in CI."""
    if not rlx.is_available("webgpu"):
        reason = backend("webgpu").absent()
        if flags.REQUIRE_WEBGPU.get():
            pytest.fail(f"RLX_REQUIRE_WEBGPU is set: {reason}")
        pytest.skip(reason)
    return "webgpu"


@pytest.fixture(params=["reference", "cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
def device(request):
    """Each backend that runs graphs."""
    if request.param == "webgpu":
        return request.getfixturevalue("webgpu")
    return request.param
