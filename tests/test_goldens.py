"""Spectra and filter banks that other programs published."""

import numpy as np
from fetched import read

import rlx


def test_complex_spectrum_of_matlab(device):
    series = np.loadtxt(read("nitime==0.12.1", "nitime/tests/tseries12.txt"))
    golden, n = np.loadtxt(read("nitime==0.12.1", "nitime/tests/fxx_matlab.txt")), 256
    window = rlx.signal.window("hann", n, periodic=False)
    g = rlx.Graph("cpsd")
    x = g.input("x", (2 * n,))
    spectrum = g.fft(x * np.tile(window, 2).astype(np.float32))
    real, imaginary = g.split(spectrum, [n, n], 0)
    g.set_outputs([(real * real + imaginary * imaginary) * float(1 / np.sum(window**2))])
    # One segment fits; the signal's real part is the second row, its imaginary part the first.
    signal = np.concatenate([series[1, :n], series[0, :n]]).astype(np.float32)
    (power,) = rlx.compile(g, device).run({"x": signal})
    np.testing.assert_allclose(power, golden, rtol=2e-5, atol=1e-8 * golden.max())


def test_filter_banks_of_whisper():
    member = "openai_whisper-20250625/whisper/assets/mel_filters.npz"
    golden = np.load(read("openai-whisper==20250625", member))
    for name in golden.files:
        bank = rlx.signal.mel_filterbank(16000, 400, int(name.removeprefix("mel_")))
        np.testing.assert_allclose(bank, golden[name], rtol=1e-5, atol=1e-8)
