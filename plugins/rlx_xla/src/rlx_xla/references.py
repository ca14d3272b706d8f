"""The references of all operations, with JAX in place of NumPy. ``rlx_xla.hand`` replaces some of them."""

from __future__ import annotations

from rlx.plugin import ArrayNamespace, ReboundReferences
from rlx_xla.space import of_jax

REBOUND = ReboundReferences(ArrayNamespace(of_jax))
