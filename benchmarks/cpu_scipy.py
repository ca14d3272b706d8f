"""NumPy, SciPy and librosa on the CPU: spectra, and what ONNX Runtime has no fast kernels for."""

from functools import partial

import numpy as np
from work_signal import FS


def ways(work, threads):
    """Ways to run the workload, by name; each makes ``(call, outputs)`` of it.

    They get operands of their own, as named arguments.
    """
    kind, settings = work.peer
    if kind == "conv" and not _is_filter(work):
        return {}
    return {
        name: partial(_prepared, work, build, settings, threads)
        for name, build in BUILDS.get(kind, {}).items()
    }


def _is_filter(work):
    """Returns whether a convolution filters each of some signals on its own."""
    x, w = work.values["x"], work.values["w"]
    stride = work.peer[1]["stride"]
    return x.ndim == 3 and stride == 1 and w.shape[1] == 1 and len(w) == x.shape[1]


def _prepared(work, build, settings, threads):
    values = {name: value.copy() for name, value in work.values.items()}
    compute, back = build(threads, **values, **settings)
    retained = []

    def call():
        retained[:] = [compute()]

    return call, lambda: [back(retained[0])]


def _blocks(z):
    """Complex rows in block layout, as rlx has them."""
    return np.concatenate([z.real, z.imag], -1).astype(np.float32)


def _fft(threads, x):
    import scipy.fft

    n = x.shape[-1] // 2
    z = (x[:, :n] + 1j * x[:, n:]).astype(np.complex64)
    return partial(scipy.fft.fft, z, workers=threads), _blocks


def _rfft(threads, x):
    import scipy.fft

    return partial(scipy.fft.rfft, x, workers=threads), _blocks


def _spectra(threads, x, n_fft, hop):
    """By hand: SciPy's own short-time transforms are slower."""
    import scipy.fft
    import scipy.signal

    frames = np.lib.stride_tricks.sliding_window_view(x, n_fft, -1)[:, ::hop]
    taper = scipy.signal.get_window("hann", n_fft).astype(np.float32)
    return lambda: scipy.fft.rfft(frames * taper, workers=threads)


def _stft(threads, x, n_fft, hop):
    return _spectra(threads, x, n_fft, hop), _blocks


def _librosa_stft(threads, x, n_fft, hop):
    import librosa

    def compute():
        return librosa.stft(x, n_fft=n_fft, hop_length=hop, center=False)

    return compute, lambda result: _blocks(result.swapaxes(-1, -2))


def _psd(threads, x, n_fft):
    from scipy.signal import welch

    return lambda: welch(x, FS, "hann", n_fft)[1], np.asarray


def _peaks(threads, x, segments, n_fft, k):
    from scipy.signal import welch

    def compute():
        power = welch(x, FS, "hann", n_fft)[1]
        order = np.argpartition(-power, k, axis=1)[:, :k]
        result = np.take_along_axis(power, order, 1)
        turns = np.argsort(-result, axis=1)
        return np.take_along_axis(order, turns, 1), np.take_along_axis(result, turns, 1)

    def back(result):
        return np.stack(result, -1).reshape(len(x), 2 * k).astype(np.float32)

    return compute, back


def _log_mel(threads, x, n_fft, hop, filters):
    compute = _spectra(threads, x, n_fft, hop)
    transposed = np.ascontiguousarray(filters.T)

    def features():
        spec = compute()
        mel = np.matmul(spec.real**2 + spec.imag**2, transposed)
        return np.log10(np.maximum(mel, np.float32(1e-10), out=mel), out=mel)

    return features, np.asarray


def _librosa_log_mel(threads, x, n_fft, hop, filters):
    compute, _ = _librosa_stft(threads, x, n_fft, hop)

    def features():
        spec = compute()
        mel = np.matmul(filters, spec.real**2 + spec.imag**2)
        return np.log10(np.maximum(mel, np.float32(1e-10), out=mel), out=mel)

    return features, lambda result: result.swapaxes(-1, -2)


def _filter(threads, x, w, b, stride, padding, groups):
    """By overlapping transforms: what long kernels are filtered with."""
    from scipy.signal import oaconvolve

    # A convolution of networks is a correlation.
    transposed, more = w[None, :, 0, ::-1], b[:, None]
    padded = np.pad(x, [(0, 0), (0, 0), (padding, padding)])
    return lambda: oaconvolve(padded, transposed, "valid", axes=-1) + more, np.asarray


def _reduce(threads, x, kind, axis):
    function = getattr(np, kind)
    return partial(function, x, axis, out=function(x, axis)), np.asarray


def _cumsum(threads, x, axis):
    return partial(np.cumsum, x, axis, out=np.empty_like(x)), np.asarray


BUILDS = {
    "conv": {"SciPy": _filter},
    "reduce": {"NumPy": _reduce},
    "cumsum": {"NumPy": _cumsum},
    "fft": {"SciPy": _fft},
    "rfft": {"SciPy": _rfft},
    "stft": {"SciPy": _stft, "librosa": _librosa_stft},
    "psd": {"SciPy": _psd},
    "welch": {"SciPy": _peaks},
    "log_mel": {"SciPy": _log_mel, "librosa": _librosa_log_mel},
}
