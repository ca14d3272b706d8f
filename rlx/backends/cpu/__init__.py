"""The CPU backend: compiled kernels on one aligned arena."""
