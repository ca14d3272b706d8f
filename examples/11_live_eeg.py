"""Live EEG: an amplifier delivers pieces of any size; band powers and samples at another rate come out."""

import time

import numpy as np

from rlx import signal
from rlx.cli.eeg import load_recording

recording = load_recording()
fs, samples = recording.fs, recording.samples.astype(np.float32)
channels, total = samples.shape
rng = np.random.default_rng(0)


def amplifier():
    """Yields samples as a driver delivers them: none, a few, or what piled up; and once a lost packet."""
    position = 0
    while position < total:
        n = int(rng.choice([0, 1, 7, 16, 50, 200]))
        piece = samples[:, position : position + n].copy()
        if position <= 3000 < position + n:
            piece[:, 3000 - position] = np.nan
        yield piece
        position += n


bands = {"theta": (4, 8), "alpha": (8, 13), "beta": (13, 30)}
# A slow drift taken off: x[n] - x[n - 1] + 0.99 y[n - 1].
drift = signal.StreamingFilter((channels, 64), b=[1.0, -1.0], a=[1.0, -0.99], nan="skip")
power = signal.StreamingBandPower(
    channels, list(bands.values()), fs, nperseg=int(fs), average="sliding", last=8
)
slow = signal.StreamingResampler(channels, up=1, down=2)

took, kept = [], 0
for piece in amplifier():
    begin = time.perf_counter()
    steady = drift.push(piece)
    levels = power.push(steady)
    kept += slow.push(steady).shape[-1]
    took.append(time.perf_counter() - begin)
kept += slow.flush().shape[-1]

oz = recording.names.index("Oz")
print(f"{total} samples in {len(took)} pieces, {kept} at {fs / 2:g} Hz, {power.segments} segments")
print("Oz:", ", ".join(f"{name} {level:.1f} uV^2" for name, level in zip(bands, levels[oz])))
print(f"median {sorted(took)[len(took) // 2] * 1e6:.0f} us a piece")
