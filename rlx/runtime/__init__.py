"""Running: Session, CompiledGraph, and what watches their runs."""

# Calls that may wait or run at a time, if the caller names no number.
MAX_PENDING = 64
