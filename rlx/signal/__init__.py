"""Signal processing: functions that take nodes of a graph, or arrays, which they compile and run."""

from rlx.signal import composites as composites  # registers the ops stft and istft
from rlx.signal.analytic import envelope, hilbert, resample_poly
from rlx.signal.bands import band_power
from rlx.signal.cross import coherence, csd
from rlx.signal.decimation import decimate
from rlx.signal.filters import (
    filtfilt,
    lfilter,
    lfilter_zi,
    sosfilt,
    sosfilt_zi,
    sosfiltfilt,
)
from rlx.signal.fourier import fft_frequencies, irfft, istft, rfft, stft
from rlx.signal.framing import complex_block, extend, frame, overlap_add
from rlx.signal.mel import log_mel, mel_filterbank, mfcc
from rlx.signal.peaks import find_peaks
from rlx.signal.spectrum import psd, welch, welch_frequencies
from rlx.signal.streaming import (
    StreamingBandPower,
    StreamingFilter,
    StreamingLogMel,
    StreamingMfcc,
    StreamingResampler,
    StreamingStft,
    StreamingWelch,
)
from rlx.signal.window_functions import window

__all__ = [
    "StreamingBandPower",
    "StreamingFilter",
    "StreamingLogMel",
    "StreamingMfcc",
    "StreamingResampler",
    "StreamingStft",
    "StreamingWelch",
    "band_power",
    "coherence",
    "complex_block",
    "csd",
    "decimate",
    "envelope",
    "extend",
    "fft_frequencies",
    "filtfilt",
    "find_peaks",
    "frame",
    "hilbert",
    "irfft",
    "istft",
    "lfilter",
    "lfilter_zi",
    "log_mel",
    "mel_filterbank",
    "mfcc",
    "overlap_add",
    "psd",
    "resample_poly",
    "rfft",
    "sosfilt",
    "sosfilt_zi",
    "sosfiltfilt",
    "stft",
    "welch",
    "welch_frequencies",
    "window",
]
