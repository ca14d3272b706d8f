"""Measuring which variants of kernels are fastest on a device."""
