"""A compiled graph as text, at each stage of the compiler."""

from __future__ import annotations

from rlx.errors import UnknownNameError, did_you_mean, printable
from rlx.runtime.state import RuntimeState

STAGES = ("graph", "fused", "schedule", "memory", "kernels")


def text_of(state: RuntimeState, stage: str) -> str:
    """See ``CompiledGraph.as_text``."""
    if stage not in STAGES:
        raise UnknownNameError(f"no stage is named {stage!r}", hint=did_you_mean(stage, STAGES))
    lowered = state.lowered
    none = f"{state.target.device} runs the graph without this stage"
    if stage == "graph":
        return str(state.graph)
    if stage == "fused":
        return "\n".join([str(lowered.graph), *(f"# {printable(note)}" for note in lowered.notes)])
    if stage == "kernels":
        return state.executable.kernels()
    texts = [
        str((part.schedule if stage == "schedule" else part.plan) or none)
        for part in lowered.segments or (lowered,)
    ]
    text = "\n".join(texts)
    extent = state.binding.extent
    if extent is not None:
        how = f"; all are computed: {extent.reason}" if extent.graph is None else ""
        text += f"\n# active extent {extent.actual} of {extent.upper} rows{how}"
    return text
