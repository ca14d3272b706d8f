"""Measuring how fast a device is, for the estimates of ``rlx.cost``."""
