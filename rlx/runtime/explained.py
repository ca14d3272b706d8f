"""What was compiled, as text."""

from __future__ import annotations

from rlx.errors import UnknownNameError, describe, did_you_mean, printable
from rlx.runtime.loaded import Loaded

STAGES = ("graph", "fused", "schedule", "memory", "kernels")


def text_of(loaded: Loaded, stage: str) -> str:
    """See ``CompiledGraph.as_text``."""
    if stage not in STAGES:
        raise UnknownNameError(
            describe(f"no stage is named {stage!r}", hint=did_you_mean(stage, STAGES))
        )
    lowered = loaded.lowered
    none = f"{loaded.target.device} runs the graph without this stage"
    if stage == "graph":
        return str(loaded.graph)
    if stage == "fused":
        return "\n".join([str(lowered.graph), *(f"# {printable(note)}" for note in lowered.notes)])
    if stage == "kernels":
        return loaded.executable.kernels()
    found = str(lowered.schedule or none) if stage == "schedule" else str(lowered.plan or none)
    extent = loaded.extent
    if extent is not None:
        how = f"; all are computed: {extent.reason}" if extent.graph is None else ""
        found += f"\n# active extent {extent.actual} of {extent.upper} rows{how}"
    return found
