# Made by script/stubs from the records of the operations. Edit those.
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph, Node, Operand
from rlx.ir.opdef import HasArray, Numbers
from typing import overload

from rlx.device.names import DeviceLike
from rlx.ir.opdef import Array
from rlx.signal import composites as composites
from rlx.signal.analytic import hilbert as hilbert
from rlx.signal.cross import coherence as coherence
from rlx.signal.cross import csd as csd
from rlx.signal.decimation import decimate as decimate
from rlx.signal.filters import filtfilt as filtfilt
from rlx.signal.filters import lfilter as lfilter
from rlx.signal.filters import lfilter_zi as lfilter_zi
from rlx.signal.filters import sosfilt as sosfilt
from rlx.signal.filters import sosfilt_zi as sosfilt_zi
from rlx.signal.filters import sosfiltfilt as sosfiltfilt
from rlx.signal.fourier import fft_frequencies as fft_frequencies
from rlx.signal.framing import complex_block as complex_block
from rlx.signal.framing import extend as extend
from rlx.signal.framing import frame as frame
from rlx.signal.framing import overlap_add as overlap_add
from rlx.signal.mel import mel_filterbank as mel_filterbank
from rlx.signal.peaks import find_peaks as find_peaks
from rlx.signal.spectrum import psd as psd
from rlx.signal.spectrum import welch as welch
from rlx.signal.spectrum import welch_frequencies as welch_frequencies
from rlx.signal.streaming import StreamingBandPower as StreamingBandPower
from rlx.signal.streaming import StreamingFilter as StreamingFilter
from rlx.signal.streaming import StreamingLogMel as StreamingLogMel
from rlx.signal.streaming import StreamingMfcc as StreamingMfcc
from rlx.signal.streaming import StreamingResampler as StreamingResampler
from rlx.signal.streaming import StreamingStft as StreamingStft
from rlx.signal.streaming import StreamingWelch as StreamingWelch
from rlx.signal.window_functions import window as window

@overload
def envelope(x: Node, axis: int = -1) -> Node:
    """The magnitude of the analytic signal.

    Args:
        x: Samples along ``axis``, at least one.
        axis: The axis of time.

    Returns:
        Like ``x``.

    Raises:
        ShapeError: There are no samples.

    Example:
        >>> import numpy as np, rlx
        >>> wave = 3 * np.cos(2 * np.pi * np.arange(64) / 8)
        >>> bool(np.allclose(rlx.signal.envelope(wave), 3))
        True
    """

@overload
def envelope(x: Numbers, axis: int = -1, *, device: DeviceLike | None = None) -> Array:
    """The magnitude of the analytic signal.

    Args:
        x: Samples along ``axis``, at least one.
        axis: The axis of time.

    Returns:
        Like ``x``.

    Raises:
        ShapeError: There are no samples.

    Example:
        >>> import numpy as np, rlx
        >>> wave = 3 * np.cos(2 * np.pi * np.arange(64) / 8)
        >>> bool(np.allclose(rlx.signal.envelope(wave), 3))
        True
    """

@overload
def resample_poly(
    x: Node,
    up: int,
    down: int,
    axis: int = 0,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = ("kaiser", 5.0),
) -> Node:
    """An axis at up / down times its sample rate (``scipy.signal.resample_poly``).

    Args:
        x: Samples along ``axis``.
        up: Factor up, >= 1.
        down: Factor down, >= 1.
        axis: The axis of time. As in SciPy, the default is the first one, in this function alone.
        window: The window of the low-pass filter, or the filter's coefficients.

    Returns:
        ceil(n * up / down) samples along ``axis``; the signal counts as 0 outside of x.

    Raises:
        InputError: A factor is no integer of at least 1.
        ShapeError: There is no such axis.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.resample_poly(g.input("x", (2, 1000)), 2, 5, axis=-1).shape
        (2, 400)
    """

@overload
def resample_poly(
    x: Numbers,
    up: int,
    down: int,
    axis: int = 0,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = ("kaiser", 5.0),
    *,
    device: DeviceLike | None = None,
) -> Array:
    """An axis at up / down times its sample rate (``scipy.signal.resample_poly``).

    Args:
        x: Samples along ``axis``.
        up: Factor up, >= 1.
        down: Factor down, >= 1.
        axis: The axis of time. As in SciPy, the default is the first one, in this function alone.
        window: The window of the low-pass filter, or the filter's coefficients.

    Returns:
        ceil(n * up / down) samples along ``axis``; the signal counts as 0 outside of x.

    Raises:
        InputError: A factor is no integer of at least 1.
        ShapeError: There is no such axis.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.resample_poly(g.input("x", (2, 1000)), 2, 5, axis=-1).shape
        (2, 400)
    """

@overload
def band_power(
    x: Node,
    bands: Sequence[tuple[float, float]],
    fs: float = 1.0,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    axis: int = -1,
    average: str = "mean",
) -> Node:
    """The power in bands of frequency, from the density that ``welch`` estimates.

    Args:
        x: Samples along ``axis``.
        bands: Pairs (low, high) in Hz. A band holds the bins with low <= f < high; a high of half the
            sample rate takes in that bin, too.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: See ``welch``.
        noverlap: See ``welch``.
        nfft: See ``welch``.
        detrend: See ``welch``.
        axis: The axis of time.
        average: See ``welch``.

    Returns:
        ``[..., bands]``: for each band the sum of its bins' density times their distance in Hz, in the
        unit of x squared. The bands stand where the time was.

    Raises:
        InputError: A band is not one, or holds no bin.

    Example:
        >>> import numpy as np, rlx
        >>> wave = np.sin(2 * np.pi * 10 * np.arange(2560) / 256)
        >>> rlx.signal.band_power(wave, [(8, 13), (13, 30)], fs=256).round(3).tolist()
        [0.5, 0.0]
    """

@overload
def band_power(
    x: Numbers,
    bands: Sequence[tuple[float, float]],
    fs: float = 1.0,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    nperseg: int | None = None,
    noverlap: int | None = None,
    nfft: int | None = None,
    detrend: str | bool = "constant",
    axis: int = -1,
    average: str = "mean",
    *,
    device: DeviceLike | None = None,
) -> Array:
    """The power in bands of frequency, from the density that ``welch`` estimates.

    Args:
        x: Samples along ``axis``.
        bands: Pairs (low, high) in Hz. A band holds the bins with low <= f < high; a high of half the
            sample rate takes in that bin, too.
        fs: Samples per second.
        window: See ``welch``.
        nperseg: See ``welch``.
        noverlap: See ``welch``.
        nfft: See ``welch``.
        detrend: See ``welch``.
        axis: The axis of time.
        average: See ``welch``.

    Returns:
        ``[..., bands]``: for each band the sum of its bins' density times their distance in Hz, in the
        unit of x squared. The bands stand where the time was.

    Raises:
        InputError: A band is not one, or holds no bin.

    Example:
        >>> import numpy as np, rlx
        >>> wave = np.sin(2 * np.pi * 10 * np.arange(2560) / 256)
        >>> rlx.signal.band_power(wave, [(8, 13), (13, 30)], fs=256).round(3).tolist()
        [0.5, 0.0]
    """

@overload
def irfft(
    spec: Node,
    n: int | None = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] | None = None,
) -> Node:
    """Real samples from a one-sided transform (``numpy.fft.irfft``).

    Args:
        spec: 2 B numbers along ``axis``, in block layout.
        n: Number of samples; the spectrum is cut or continued with zeros to n // 2 + 1 bins. None:
            2 (B - 1).
        axis: The axis of frequency.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        n samples along ``axis``. The imaginary parts of bin 0, and of bin n / 2 for an even n, have no effect.

    Raises:
        ShapeError: ``spec`` is not in block layout, or n is below 1.
    """

@overload
def irfft(
    spec: Numbers,
    n: int | None = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] | None = None,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """Real samples from a one-sided transform (``numpy.fft.irfft``).

    Args:
        spec: 2 B numbers along ``axis``, in block layout.
        n: Number of samples; the spectrum is cut or continued with zeros to n // 2 + 1 bins. None:
            2 (B - 1).
        axis: The axis of frequency.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        n samples along ``axis``. The imaginary parts of bin 0, and of bin n / 2 for an even n, have no effect.

    Raises:
        ShapeError: ``spec`` is not in block layout, or n is below 1.
    """

@overload
def istft(
    spec: Node,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    length: int | None = None,
) -> Node:
    """The signal of a short-time Fourier transform (Griffin & Lim 1984; ``librosa.istft``).

    Args:
        spec: ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next, at most ``n_fft``.
        window: The window of the ``stft``.
        center: The ``center`` of the ``stft``; the n_fft // 2 samples added there are cut off.
        length: Samples wanted: the result is cut or continued with zeros to it.

    Returns:
        ``[..., length]``; without ``length`` (frames - 1) * hop + n_fft samples, less the ones that
        ``center`` cuts off. A sample on which every window is 0 can't be known, and is 0.

    Raises:
        ShapeError: ``spec`` does not have n_fft // 2 + 1 bins, or no frames.
        InputError: ``hop`` leaves gaps between frames.

    Example:
        >>> import numpy as np, rlx
        >>> x = np.float32(range(1000))
        >>> spec = rlx.signal.stft(x, 256, 64, center=True)
        >>> bool(np.allclose(rlx.signal.istft(spec, 256, 64, center=True, length=1000), x, atol=1e-3))
        True
    """

@overload
def istft(
    spec: Numbers,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    length: int | None = None,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """The signal of a short-time Fourier transform (Griffin & Lim 1984; ``librosa.istft``).

    Args:
        spec: ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next, at most ``n_fft``.
        window: The window of the ``stft``.
        center: The ``center`` of the ``stft``; the n_fft // 2 samples added there are cut off.
        length: Samples wanted: the result is cut or continued with zeros to it.

    Returns:
        ``[..., length]``; without ``length`` (frames - 1) * hop + n_fft samples, less the ones that
        ``center`` cuts off. A sample on which every window is 0 can't be known, and is 0.

    Raises:
        ShapeError: ``spec`` does not have n_fft // 2 + 1 bins, or no frames.
        InputError: ``hop`` leaves gaps between frames.

    Example:
        >>> import numpy as np, rlx
        >>> x = np.float32(range(1000))
        >>> spec = rlx.signal.stft(x, 256, 64, center=True)
        >>> bool(np.allclose(rlx.signal.istft(spec, 256, 64, center=True, length=1000), x, atol=1e-3))
        True
    """

@overload
def rfft(
    x: Node,
    n: int | None = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] | None = None,
) -> Node:
    """The one-sided transform of real samples (``numpy.fft.rfft``).

    Args:
        x: Samples along ``axis``.
        n: Length of the transform; x is cut or continued with zeros to it. None: all of x.
        axis: The axis of time.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        2 (n // 2 + 1) numbers along ``axis``, in block layout.

    Raises:
        ShapeError: x has no axis, or the length is below 1.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.rfft(np.float32([1, 0, 0, 0])).tolist()
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """

@overload
def rfft(
    x: Numbers,
    n: int | None = None,
    axis: int = -1,
    norm: Literal["backward", "ortho", "forward"] | None = None,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """The one-sided transform of real samples (``numpy.fft.rfft``).

    Args:
        x: Samples along ``axis``.
        n: Length of the transform; x is cut or continued with zeros to it. None: all of x.
        axis: The axis of time.
        norm: NumPy's: "backward" (which None is), "ortho" or "forward".

    Returns:
        2 (n // 2 + 1) numbers along ``axis``, in block layout.

    Raises:
        ShapeError: x has no axis, or the length is below 1.

    Example:
        >>> import numpy as np, rlx
        >>> rlx.signal.rfft(np.float32([1, 0, 0, 0])).tolist()
        [1.0, 1.0, 1.0, 0.0, 0.0, 0.0]
    """

@overload
def stft(
    x: Node,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    axis: int = -1,
) -> Node:
    """Short-time Fourier transform (``librosa.stft``).

    Args:
        x: Samples along ``axis``.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: A name, a tuple of a name and its parameters, or ``n_fft`` samples.
        center: Whether frame f is centred on sample f * hop; x is then continued by n_fft // 2
            samples at both ends.
        pad_mode: How: "reflect", "constant" (zeros) or "edge".
        axis: The axis of time. It goes; frames and bins are the last two axes.

    Returns:
        ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.

    Raises:
        ShapeError: The signal is shorter than a frame.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.stft(g.input("x", (2, 1000)), 256, 128).shape
        (2, 6, 258)
    """

@overload
def stft(
    x: Numbers,
    n_fft: int,
    hop: int,
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    axis: int = -1,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """Short-time Fourier transform (``librosa.stft``).

    Args:
        x: Samples along ``axis``.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        window: A name, a tuple of a name and its parameters, or ``n_fft`` samples.
        center: Whether frame f is centred on sample f * hop; x is then continued by n_fft // 2
            samples at both ends.
        pad_mode: How: "reflect", "constant" (zeros) or "edge".
        axis: The axis of time. It goes; frames and bins are the last two axes.

    Returns:
        ``[..., frames, 2 (n_fft // 2 + 1)]`` in block layout.

    Raises:
        ShapeError: The signal is shorter than a frame.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> rlx.signal.stft(g.input("x", (2, 1000)), 256, 128).shape
        (2, 6, 258)
    """

@overload
def log_mel(
    x: Node,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mels: int,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    log: str = "log10",
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = 80.0,
    axis: int = -1,
) -> Node:
    """Log-mel spectrogram of a signal.

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mels: Number of filters, see ``mel_filterbank``.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        log: Of m = max(filters @ power, 1e-10): "log10" log10(m); "ln" the natural logarithm; "db"
            10 log10(m), at least the signal's maximum - ``top_db`` (``librosa.power_to_db``); "whisper"
            (max(L, max(L) - 8) + 4) / 4 with L = log10(m) and the signal's maximum (Radford et al.
            2022).
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels that "db" keeps below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and filters are the last two axes.

    Returns:
        ``[..., frames, n_mels]``.

    Raises:
        UnknownNameError: There is no such scale or logarithm.
        ShapeError: The signal is shorter than a frame.
    """

@overload
def log_mel(
    x: Numbers,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mels: int,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    log: str = "log10",
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = 80.0,
    axis: int = -1,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """Log-mel spectrogram of a signal.

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mels: Number of filters, see ``mel_filterbank``.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        log: Of m = max(filters @ power, 1e-10): "log10" log10(m); "ln" the natural logarithm; "db"
            10 log10(m), at least the signal's maximum - ``top_db`` (``librosa.power_to_db``); "whisper"
            (max(L, max(L) - 8) + 4) / 4 with L = log10(m) and the signal's maximum (Radford et al.
            2022).
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels that "db" keeps below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and filters are the last two axes.

    Returns:
        ``[..., frames, n_mels]``.

    Raises:
        UnknownNameError: There is no such scale or logarithm.
        ShapeError: The signal is shorter than a frame.
    """

@overload
def mfcc(
    x: Node,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mfcc: int = 20,
    n_mels: int = 128,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = 80.0,
    axis: int = -1,
) -> Node:
    """Mel-frequency cepstral coefficients (Davis & Mermelstein 1980; ``librosa.feature.mfcc``).

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mfcc: Coefficients kept, at most ``n_mels``.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels kept below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and coefficients are the last two axes.

    Returns:
        ``[..., frames, n_mfcc]``: the orthonormal DCT-II of the log-mel spectrogram in decibels.

    Raises:
        InputError: ``n_mfcc`` is not between 1 and ``n_mels``.
    """

@overload
def mfcc(
    x: Numbers,
    sample_rate: float,
    n_fft: int,
    hop: int,
    n_mfcc: int = 20,
    n_mels: int = 128,
    fmin: float = 0.0,
    fmax: float | None = None,
    mel: str = "slaney",
    window: str | tuple[Any, ...] | HasArray | Sequence[float] = "hann",
    center: bool = False,
    pad_mode: str = "reflect",
    top_db: float | None = 80.0,
    axis: int = -1,
    *,
    device: DeviceLike | None = None,
) -> Array:
    """Mel-frequency cepstral coefficients (Davis & Mermelstein 1980; ``librosa.feature.mfcc``).

    Args:
        x: Samples along ``axis``.
        sample_rate: Samples per second.
        n_fft: Samples per frame.
        hop: Samples from one frame to the next.
        n_mfcc: Coefficients kept, at most ``n_mels``.
        n_mels: Number of filters.
        fmin: Lowest frequency, Hz.
        fmax: Highest frequency, Hz.
        mel: "slaney" or "htk".
        window: See ``stft``.
        center: See ``stft``.
        pad_mode: See ``stft``.
        top_db: Decibels kept below the signal's maximum; None keeps all.
        axis: The axis of time. It goes; frames and coefficients are the last two axes.

    Returns:
        ``[..., frames, n_mfcc]``: the orthonormal DCT-II of the log-mel spectrogram in decibels.

    Raises:
        InputError: ``n_mfcc`` is not between 1 and ``n_mels``.
    """
