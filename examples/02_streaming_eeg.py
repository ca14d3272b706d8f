"""Streaming: the alpha peak of 64 EEG channels, one call of run_slots per 50 ms of signal."""

import time

import rlx
from rlx.cli.demo import HOP, SEGMENTS, alpha, build_graph, spectra_of
from rlx.cli.eeg import load_recording

recording = load_recording()
graph = build_graph(len(recording.names), recording.fs, SEGMENTS, k=16)
oz = recording.names.index("Oz")

with rlx.compile(graph, device="cpu") as cg:
    (window,) = cg.input_views
    width, took = window.shape[1], []
    for start in range(0, 200 * HOP, HOP):
        begin = time.perf_counter()
        window[...] = recording.samples[:, start : start + width]
        (peaks,) = cg.run_slots()
        took.append(time.perf_counter() - begin)
    hz, power = alpha(spectra_of(peaks, 129), recording.fs)
    print(f"Oz: {hz[oz]:.2f} Hz, {power[oz]:.0f} uV^2/Hz")
    print(
        f"median {sorted(took)[len(took) // 2] * 1e6:.0f} us per hop of {HOP / recording.fs * 1e3:.0f} ms"
    )
