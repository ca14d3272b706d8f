"""Running: Session, CompiledGraph, traces and profiles."""

# Calls that may wait or run at a time, if the caller names no number.
MAX_PENDING = 64
