"""The references of all operations, with MLX in place of NumPy."""

from __future__ import annotations

from rlx.plugin import Rebound
from rlx_mlx.hand import INSTEAD, RECORDS
from rlx_mlx.space import Space

REBOUND = Rebound(Space(), INSTEAD, RECORDS)
