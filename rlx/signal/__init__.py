"""Signal processing on nodes of a graph: windows and framing, built from ops."""

from rlx.signal.frames import complex_block, frame
from rlx.signal.windows import window

__all__ = ["complex_block", "frame", "window"]
