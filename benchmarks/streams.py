"""Measures the cost of a push of each stream, by the length of the pieces.

``python benchmarks/streams.py [--device cpu] [--seconds 0.3]`` prints microseconds per push: the median, and the
quartiles beside it. A piece is random numbers, f32; every stream has 64 channels unless its row says otherwise.
"""

import argparse
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from rlx import signal

FS = 256
# A band-pass from 8 to 30 Hz at 256 Hz: Butterworth, order 4.
SOS = [
    [0.002842, 0.005684, 0.002842, 1.0, -1.281, 0.4951],
    [1.0, 2.0, 1.0, 1.0, -1.383, 0.7459],
    [1.0, -2.0, 1.0, 1.0, -1.7, 0.7553],
    [1.0, -2.0, 1.0, 1.0, -1.914, 0.9514],
]
SPEECH = {"sample_rate": 16000, "n_fft": 400, "hop": 160}

ROWS: dict[str, tuple[int, int, Callable[..., Any]]] = {
    "filter, 4 sections, runs of 128": (64, 128, lambda **k: signal.StreamingFilter((64, 128), sos=SOS, **k)),
    "filter, 65 taps, runs of 128": (64, 128, lambda **k: signal.StreamingFilter((64, 128), b=np.hanning(65), **k)),
    "stft 256 / 128": (64, 128, lambda **k: signal.StreamingStft(64, 256, 128, **k)),
    "welch 256, mean": (64, 128, lambda **k: signal.StreamingWelch(64, FS, **k)),
    "welch 256, exponential": (64, 128, lambda **k: signal.StreamingWelch(64, FS, average="exponential", alpha=0.1, **k)),
    "welch 256, the last 20": (64, 128, lambda **k: signal.StreamingWelch(64, FS, average="sliding", last=20, **k)),
    "band power 256": (64, 128, lambda **k: signal.StreamingBandPower(64, [(4, 8), (8, 13), (13, 30)], FS, **k)),
    "resampler 1 / 2": (64, 128, lambda **k: signal.StreamingResampler(64, 1, 2, block=128, **k)),
    "log-mel 80, 1 channel": (1, 160, lambda **k: signal.StreamingLogMel(1, **SPEECH, n_mels=80, **k)),
    "mfcc 13 of 40, 1 channel": (1, 160, lambda **k: signal.StreamingMfcc(1, **SPEECH, n_mfcc=13, n_mels=40, **k)),
}  # fmt: skip


def measured(stream: Any, pieces: list[np.ndarray], seconds: float) -> np.ndarray:
    """Microseconds of each push."""
    for piece in pieces * 3:
        stream.push(piece)
    took, until = [], time.perf_counter() + seconds
    while time.perf_counter() < until or len(took) < 20:
        for piece in pieces:
            begin = time.perf_counter()
            stream.push(piece)
            took.append(time.perf_counter() - begin)
    return np.array(took) * 1e6


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seconds", type=float, default=0.3, help="time for each figure")
    args = parser.parse_args()
    rng = np.random.default_rng(0)
    print(
        f"{'us per push on ' + args.device:34} {'whole blocks':>24} {'1 to 2 blocks, uneven':>24}"
    )
    for name, (channels, block, make) in ROWS.items():
        stream, cells = make(device=args.device), []
        for lengths in ([block] * 8, rng.integers(block, 2 * block, 8)):
            pieces = [rng.standard_normal((channels, n), np.float32) for n in lengths]
            low, middle, high = np.percentile(measured(stream, pieces, args.seconds), [25, 50, 75])
            cells.append(f"{middle:.1f} ({low:.1f} to {high:.1f})")
        print(f"{name:34} {cells[0]:>24} {cells[1]:>24}")


if __name__ == "__main__":
    main()
