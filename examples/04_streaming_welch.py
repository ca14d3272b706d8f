"""Streaming: the spectrum of a filtered signal that arrives in blocks, compiled once."""

import numpy as np

from rlx import signal

fs, block = 256, 128
t = np.arange(20 * fs) / fs
rng = np.random.default_rng(0)
x = np.sin(2 * np.pi * 10 * t) + np.sin(2 * np.pi * 50 * t) + rng.standard_normal(t.size)

# A moving average over 50 Hz's period takes the hum away; the state carries over between blocks.
smooth = signal.StreamingFilter((1, block), b=np.ones(5) / 5)
spectrum = signal.StreamingWelch(1, fs=fs, nperseg=256)
for start in range(0, x.size, block):
    power = spectrum.push(smooth.push(x[None, start : start + block]))

hz = signal.welch_frequencies(x.size, fs, nperseg=256)
peaks, found = signal.find_peaks(power[0], prominence=0.1)
print(f"{spectrum.segments} segments; peaks at {hz[peaks]} Hz, {found['prominences']} per Hz")
