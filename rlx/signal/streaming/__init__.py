"""Signals that arrive piece by piece: pieces of any size, a graph compiled once, the state on its device."""

from rlx.signal.streaming.features import StreamingLogMel, StreamingMfcc, StreamingStft
from rlx.signal.streaming.filtered import StreamingFilter
from rlx.signal.streaming.power import StreamingBandPower, StreamingWelch
from rlx.signal.streaming.resampled import StreamingResampler

__all__ = [
    "StreamingBandPower",
    "StreamingFilter",
    "StreamingLogMel",
    "StreamingMfcc",
    "StreamingResampler",
    "StreamingStft",
    "StreamingWelch",
]
