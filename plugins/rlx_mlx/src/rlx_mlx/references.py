"""The references of all operations, with MLX in place of NumPy. ``rlx_mlx.hand`` replaces some of them."""

from __future__ import annotations

from rlx.plugin import ArrayNamespace, ReboundReferences
from rlx_mlx.space import of_mlx

REBOUND = ReboundReferences(ArrayNamespace(of_mlx))
