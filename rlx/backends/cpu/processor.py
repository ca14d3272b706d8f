"""Selects the kernel variants for this processor; some need instructions beyond its instruction set's minimum."""

from __future__ import annotations

from collections.abc import Container

from rlx._ext import cpu as compiled

# The best first.
VARIANTS = compiled.variants()


def variant_of(kernel: str, kernels: Container[str]) -> str:
    """Returns the variant of a kernel for this processor; "" without one.

    Args:
        kernel: Its name without the variant.
        kernels: The names of all kernels of the instruction set.
    """
    return next((variant for variant in VARIANTS if f"{kernel}_{variant}" in kernels), "")
