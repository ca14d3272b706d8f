"""SciPy and librosa on the CPU: spectra, which ONNX Runtime has no fast kernels for."""

from functools import partial

import numpy as np
from work_signal import FS


def ways(work, threads):
    """Ways to run the workload, by name; each makes ``(call, outputs)`` of it."""
    kind, settings = work.peer
    return {
        name: partial(_prepared, work.values["x"], build, settings, threads)
        for name, build in BUILDS.get(kind, {}).items()
    }


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


def _spectra(x, threads, n_fft, hop):
    """By hand: SciPy's own short-time transforms are slower."""
    import scipy.fft
    import scipy.signal

    frames = np.lib.stride_tricks.sliding_window_view(x.copy(), n_fft, -1)[:, ::hop]
    taper = scipy.signal.get_window("hann", n_fft).astype(np.float32)
    return lambda: scipy.fft.rfft(frames * taper, workers=threads)


def _stft(x, threads, n_fft, hop):
    return _spectra(x, threads, n_fft, hop), _blocks


def _librosa_stft(x, threads, n_fft, hop):
    import librosa

    def compute():
        return librosa.stft(x, n_fft=n_fft, hop_length=hop, center=False)

    return compute, lambda found: _blocks(found.swapaxes(-1, -2))


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
    compute = _spectra(x, threads, n_fft, hop)
    turned = np.ascontiguousarray(filters.T)

    def features():
        spec = compute()
        mel = np.matmul(spec.real**2 + spec.imag**2, turned)
        return np.log10(np.maximum(mel, np.float32(1e-10), out=mel), out=mel)

    return features, np.asarray


def _librosa_log_mel(x, threads, n_fft, hop, filters):
    compute, _ = _librosa_stft(x, threads, n_fft, hop)

    def features():
        spec = compute()
        mel = np.matmul(filters, spec.real**2 + spec.imag**2)
        return np.log10(np.maximum(mel, np.float32(1e-10), out=mel), out=mel)

    return features, lambda found: found.swapaxes(-1, -2)


BUILDS = {
    "fft": {"SciPy": _fft},
    "rfft": {"SciPy": _rfft},
    "stft": {"SciPy": _stft, "librosa": _librosa_stft},
    "psd": {"SciPy": _psd},
    "welch": {"SciPy": _peaks},
    "log_mel": {"SciPy": _log_mel, "librosa": _librosa_log_mel},
}
