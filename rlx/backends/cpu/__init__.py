"""The CPU backend: compiled kernels on one aligned arena."""

from rlx.backends.cpu.backend import BACKEND

__all__ = ["BACKEND"]
