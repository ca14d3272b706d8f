"""Signal processing: functions that take nodes of a graph, or arrays, which they compile and run.

Each module is imported when one of its functions is first used. Type checkers read ``__init__.pyi`` in place of this
file; `script/stubs` makes it of this table.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    # Tools that freeze a program find the modules here.
    from rlx.signal import (
        analytic as analytic,
    )
    from rlx.signal import (
        bands as bands,
    )
    from rlx.signal import (
        composites as composites,
    )
    from rlx.signal import (
        cross as cross,
    )
    from rlx.signal import (
        decimation as decimation,
    )
    from rlx.signal import (
        filters as filters,
    )
    from rlx.signal import (
        fourier as fourier,
    )
    from rlx.signal import (
        framing as framing,
    )
    from rlx.signal import (
        mel as mel,
    )
    from rlx.signal import (
        peaks as peaks,
    )
    from rlx.signal import (
        spectrum as spectrum,
    )
    from rlx.signal import (
        streaming as streaming,
    )
    from rlx.signal import (
        window_functions as window_functions,
    )

# What each module of this package has for users.
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
_HOMES = {name: module for module, names in NAMES.items() for name in names.split()}
__all__ = sorted(_HOMES.keys() - {"composites"})


def __getattr__(name: str) -> Any:
    module = _HOMES.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    home = import_module(f"{__name__}.{module}")
    found = globals()[name] = home if module == name else getattr(home, name)
    return found


def __dir__() -> list[str]:
    return [*globals(), *__all__]
