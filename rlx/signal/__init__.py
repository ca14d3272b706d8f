"""Signal processing: functions that take nodes of a graph, or arrays, which they compile and run."""

from rlx.signal.arrays import compile_with
from rlx.signal.fourier import fft_frequencies, irfft, istft, rfft, stft
from rlx.signal.frames import complex_block, extend, frame, overlap_add
from rlx.signal.mel import log_mel, mel_filterbank, mfcc
from rlx.signal.spectrum import psd, welch, welch_frequencies
from rlx.signal.windows import window

__all__ = [
    "compile_with",
    "complex_block",
    "extend",
    "fft_frequencies",
    "frame",
    "irfft",
    "istft",
    "log_mel",
    "mel_filterbank",
    "mfcc",
    "overlap_add",
    "psd",
    "rfft",
    "stft",
    "welch",
    "welch_frequencies",
    "window",
]
