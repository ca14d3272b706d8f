"""Running: Session, CompiledGraph, and what watches their runs."""
