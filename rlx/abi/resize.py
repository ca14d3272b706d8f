"""The signature of resizing (kernels/resize)."""

from __future__ import annotations

from rlx.abi.signature import FLAG, FLOATS, INT, REAL, Parallel, Signature

KERNELS = (
    Signature(
        "interpolate",
        "One axis resized by tables [count, taps] of places and weights; a result of place -1 is `outside`. "
        "Where inner is 1 and taps are few the tables are [taps, count]; rising: along them no place is lower than "
        "the one before, and none is -1. Where inner is not 1 it is at least a vector.",
        {
            "outer": INT,
            "n": INT,
            "count": INT,
            "inner": INT,
            "taps": INT,
            "rising": FLAG,
            "outside": REAL,
        },
        {"x": "T", "indices": "i32", "weights": "T"},
        {"y": "T"},
        types=FLOATS,
        parallel=Parallel(),
    ),
    Signature(
        "resize_taps",
        "Tables of an axis of n entries resized to `count`: places and weights of its taps, [padded, taps] or, turned, "
        "[taps, padded]. Rows from `count` on are those of the last result. x is not read.",
        {
            "n": INT,
            "count": INT,
            "padded": INT,
            "taps": INT,
            "turned": FLAG,
            "mode": INT,
            "coordinates": INT,
            "rounding": INT,
            "exclude": FLAG,
            "scale": REAL,
            "cubic": REAL,
        },
        {"x": "T"},
        {"indices": "i32", "weights": "T"},
        types=FLOATS,
        alone="an axis has few results, and what reads the tables is shared",
    ),
    Signature(
        "nearest_planes",
        "Planes [rows, columns] of the entries of planes [n, width] in rows `lines` and columns `places`. The places are "
        "padded to a whole number of the widest vectors; rising: none is lower than the one before.",
        {"planes": INT, "n": INT, "width": INT, "rows": INT, "columns": INT, "rising": FLAG},
        {"x": "T", "lines": "i32", "places": "i32"},
        {"y": "T"},
        types=FLOATS,
        parallel=Parallel(),
    ),
)
