"""Signatures of Fourier transforms and of functions of spectra (kernels/spectra)."""

from __future__ import annotations

from typing import Any

from rlx.abi.constants import FFT_LANE_BYTES, MEL_ROWS, MEL_UNIT, PANEL
from rlx.abi.signature import (
    FLAG,
    FLOATS,
    INT,
    INTS,
    REAL,
    REALS,
    Group,
    Parallel,
    Scratch,
    Signature,
)

# True if rows go through the passes side by side, one in each lane of a vector; the passes of a transform.
_PASSES = {"lanes": FLAG, "twiddle_count": INT, "passes": INT, "radices": INTS}
_MEL = {"rows": INT, "n_fft": INT, "bins": INT, "mels": INT}
_WELCH = Group("rlx_welch", {"signals": INT, "segments": INT, "n_fft": INT, "bins": INT, "k": INT})
_WELCH_SCRATCH = {
    "heap": Scratch("i64", lambda p: p.bins),
    "power": Scratch("f32", lambda p: p.bins),
}


def _lanes(p: Any) -> int:
    return FFT_LANE_BYTES // int(p.itemsize)


def _rfft(p: Any) -> Any:
    """Elements of a spectrum, of four transforms and of what they use; in lanes of two copies of the rows."""
    if p.lanes:
        return 4 * (p.length + 1) * _lanes(p)
    return 2 * (p.n // 2 + 1) + 4 * p.length + (6 * p.m or 2 * p.length)


KERNELS = (
    Signature(
        "fft",
        "Complex transforms in block layout. m is the length of Bluestein's convolution, or 0.",
        {"rows": INT, "n": INT, "m": INT, "inverse": FLAG, "scale": REAL, **_PASSES},
        {"x": "T", "twiddles": "T", "chirp": "T?", "filter": "T?"},
        {"y": "T"},
        {"work": Scratch("T", lambda p: 4 * p.n * _lanes(p) if p.lanes else 6 * p.m or 2 * p.n)},
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "rfft",
        "One-sided transforms of real rows: frames of signals, hop apart, times a taper; or their powers.",
        {
            "rows": INT, "n": INT, "length": INT, "m": INT, "scale": REAL, "frames": INT, "samples": INT, "hop": INT,
            "power": FLAG, **_PASSES,
        },
        {"x": "T", "twiddles": "T", "roots": "T", "taper": "T?", "chirp": "T?", "filter": "T?"},
        {"y": "T"},
        {"work": Scratch("T", _rfft)},
        FLOATS,
        parallel=Parallel(),
        flushes=True,
    ),
    Signature(
        "welch_peaks",
        "The k largest of the mean powers of a signal's segments: pairs of a bin and its power.",
        {"of": _WELCH},
        {"spectra": "T"},
        {"peaks": "T"},
        _WELCH_SCRATCH,
        ("f32",),
        parallel=Parallel(most=lambda p: p.signals),
    ),
    Signature(
        "weighted_peaks",
        "The k largest of the mean powers of a signal's segments times a weight for each bin, and their bins.",
        {"of": _WELCH},
        {"spectra": "T", "weights": "T"},
        {"peaks": "T", "places": "i32"},
        _WELCH_SCRATCH,
        ("f32",),
        parallel=Parallel(most=lambda p: p.signals),
    ),
    Signature(
        "log_mel",
        "Logarithms of mel powers; with `floor` what is far below the largest of a row is raised, and all are scaled.",
        {**_MEL, "floor": FLAG},
        {"spectra": "T", "filters": "T"},
        {"y": "T"},
        {"power": Scratch("T", lambda p: MEL_ROWS * p.bins), "panel": Scratch("T", lambda p: PANEL)},
        ("f32",),
        parallel=Parallel(most=lambda p: p.rows // MEL_UNIT),
        flushes=True,
    ),
    Signature(
        "log_mel_backward",
        "The gradient of log_mel by the spectra.",
        {**_MEL, "floor_all": FLAG},
        {"spectra": "T", "filters": "T", "dy": "T"},
        {"dx": "T"},
        {"mels": Scratch("T", lambda p: p.rows * p.mels), "power": Scratch("T", lambda p: p.bins)},
        ("f32",),
        alone="A gradient: its floor may depend on all rows, and only training computes it.",
    ),
    Signature(
        "find_peaks",
        "Local maxima within limits: least and most height, prominence and width, in this order.",
        {"rows": INT, "n": INT, "candidates": INT, "slots": INT, "distance": INT, "widths": FLAG, "limits": REALS},
        {"x": "T"},
        {"indices": "i32", "counts": "i32", "prominences": "T"},
        {"places": Scratch("i32", lambda p: 4 * p.candidates)},
        FLOATS,
        parallel=Parallel(most=lambda p: p.rows),
    ),
)  # fmt: skip
