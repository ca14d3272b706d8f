"""The device that is tested: XLA on the processor, or what RLX_XLA_TEST_DEVICE names. It runs from sources, too."""

import os
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(ROOT / "tests")]
# Nothing is written to the user's folders. XLA's lowest level compiles small graphs in half of the time.
os.environ.setdefault("RLX_CACHE", "off")
os.environ.setdefault("RLX_CALIBRATION", "off")
if not os.environ.get("RLX_XLA_TEST_DEVICE"):
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import rlx_xla

rlx_xla.register()
DEVICE = os.environ.get("RLX_XLA_TEST_DEVICE") or "xla"
EVERYTHING = bool(os.environ.get("RLX_TEST_ALL"))


@pytest.fixture(scope="session")
def device():
    return DEVICE
