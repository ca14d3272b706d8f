"""The CPU backend: compiled kernels on one aligned arena."""

from rlx.backends.cpu.cpu_backend import BACKEND

__all__ = ["BACKEND"]
