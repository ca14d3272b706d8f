"""The signature of resizing (kernels/resize)."""

from __future__ import annotations

from rlx.abi.signature import FLOATS, INT, REAL, Kernel

KERNELS = (
    Kernel(
        "interpolate",
        "One axis resized by tables [count, taps] of places and weights; a result of place -1 is `outside`.",
        {"outer": INT, "n": INT, "count": INT, "inner": INT, "taps": INT, "outside": REAL},
        {"x": "T", "indices": "i32", "weights": "T"},
        {"y": "T"},
        types=FLOATS,
    ),
)
