"""MLX's device here. It runs from sources, too."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).parents[3]
sys.path[:0] = [str(Path(__file__).parents[1] / "src"), str(ROOT / "tests")]
os.environ.setdefault("RLX_CACHE", "off")
os.environ.setdefault("RLX_CALIBRATION", "off")

import rlx_mlx

rlx_mlx.register()
EVERYTHING = bool(os.environ.get("RLX_TEST_ALL"))
