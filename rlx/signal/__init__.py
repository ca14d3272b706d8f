"""Signal processing: functions that take nodes of a graph, or arrays, which they compile and run.

Each module is imported when one of its functions is first used. Type checkers read ``__init__.pyi`` in place of this
file; `script/stubs` makes it of this table.
"""

from typing import TYPE_CHECKING

from rlx import lazy_imports

if TYPE_CHECKING:
    # Tools that freeze a program find the modules here.
    # isort: off
    from rlx.signal import (
        analytic as analytic,
        bands as bands,
        composites as composites,
        cross as cross,
        decimation as decimation,
        filters as filters,
        fourier as fourier,
        framing as framing,
        mel as mel,
        peaks as peaks,
        spectrum as spectrum,
        streaming as streaming,
        window_functions as window_functions,
    )
    # isort: on

# The public names of each module of this package.
NAMES = {
    "composites": "composites",
    "analytic": "envelope hilbert resample_poly",
    "bands": "band_power",
    "cross": "coherence csd",
    "decimation": "decimate",
    "filters": "filtfilt lfilter lfilter_zi sosfilt sosfilt_zi sosfiltfilt",
    "fourier": "fft_frequencies irfft istft rfft stft",
    "framing": "complex_block extend frame overlap_add",
    "mel": "log_mel mel_filterbank mfcc",
    "peaks": "find_peaks",
    "spectrum": "psd welch welch_frequencies",
    "streaming": (
        "StreamingBandPower StreamingFilter StreamingLogMel StreamingMfcc StreamingResampler StreamingStft "
        "StreamingWelch"
    ),
    "window_functions": "window",
}
# The functions of programs are there, too: ``composites`` is known as a whole.
_homes = lazy_imports.names_of(
    __name__, {f"{__name__}.{key}": "" if key == names else names for key, names in NAMES.items()}
)
__all__ = sorted(_homes.keys() - {"composites"})
