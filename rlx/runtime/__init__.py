"""Compiling and running: Session, CompiledGraph."""
