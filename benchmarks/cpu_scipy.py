"""SciPy and librosa on the CPU: spectra, which ONNX Runtime has no fast kernels for."""

from functools import partial
from importlib.util import find_spec

import numpy as np
from work_signal import FS


def absent(kind):
    """The package that a workload lacks here; None when everything is there."""
    wanted = {"log_mel": "librosa"}.get(kind, "scipy") if kind in BUILDS else None
    return wanted if wanted and not find_spec(wanted) else None


def ways(work, threads):
    """Ways to run the workload, by name; each makes ``(call, outputs)`` of it."""
    kind, settings = work.peer
    if kind not in BUILDS:
        return {}
    name = "librosa" if kind == "log_mel" else "SciPy"
    return {name: partial(_prepared, work.values["x"], BUILDS[kind], settings, threads)}


def _prepared(x, build, settings, threads):
    compute, back = build(x, threads, **settings)
    kept = []

    def call():
        kept[:] = [compute()]

    return call, lambda: [back(kept[0])]


def _blocks(z):
    """Complex rows in block layout, as rlx has them."""
    return np.concatenate([z.real, z.imag], -1).astype(np.float32)


def _fft(x, threads):
    import scipy.fft

    n = x.shape[-1] // 2
    z = (x[:, :n] + 1j * x[:, n:]).astype(np.complex64)
    return partial(scipy.fft.fft, z, workers=threads), _blocks


def _rfft(x, threads):
    import scipy.fft

    return partial(scipy.fft.rfft, x.copy(), workers=threads), _blocks


def _stft(x, threads, n_fft, hop):
    """By hand: SciPy's own functions of this name are slower."""
    import scipy.fft
    import scipy.signal

    frames = np.lib.stride_tricks.sliding_window_view(x.copy(), n_fft, -1)[:, ::hop]
    taper = scipy.signal.get_window("hann", n_fft).astype(np.float32)
    return lambda: scipy.fft.rfft(frames * taper, workers=threads), _blocks


def _psd(x, threads, n_fft):
    from scipy.signal import welch

    return lambda: welch(x, FS, "hann", n_fft)[1], np.asarray


def _peaks(x, threads, segments, n_fft, k):
    from scipy.signal import welch

    def compute():
        power = welch(x, FS, "hann", n_fft)[1]
        order = np.argpartition(-power, k, axis=1)[:, :k]
        found = np.take_along_axis(power, order, 1)
        turns = np.argsort(-found, axis=1)
        return np.take_along_axis(order, turns, 1), np.take_along_axis(found, turns, 1)

    def back(found):
        return np.stack(found, -1).reshape(len(x), 2 * k).astype(np.float32)

    return compute, back


def _log_mel(x, threads, n_fft, hop, filters):
    import librosa

    def compute():
        spec = librosa.stft(x, n_fft=n_fft, hop_length=hop, center=False)
        power = spec.real**2 + spec.imag**2
        return np.log10(np.maximum(np.matmul(filters, power), np.float32(1e-10)))

    return compute, lambda found: found.swapaxes(-1, -2)


BUILDS = {
    "fft": _fft,
    "rfft": _rfft,
    "stft": _stft,
    "psd": _psd,
    "welch": _peaks,
    "log_mel": _log_mel,
}
