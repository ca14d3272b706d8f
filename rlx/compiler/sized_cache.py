"""Lowered graphs with dims that another process made, in the cache folder: a few ranges of sizes of each graph."""

from __future__ import annotations

from rlx import flags
from rlx.compiler.cache_stats import count
from rlx.compiler.compile_cache import target_text, unsealed_name
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.plan_codec import sources_of
from rlx.compiler.signed_cache import Sealed, sealed_entries
from rlx.compiler.target import Target
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.graph import Graph
from rlx.ir.spans import phase
from rlx.sizes import Assumptions

# Ranges of a graph that are kept.
_RANGES = 8


def lowered_for_sizes(graph: Graph, target: Target, assumptions: Assumptions) -> LoweredModule:
    """Lowers a graph with dims, or finds what another process made of an equal one for sizes like these.

    Args:
        graph: A verified graph with dims; it is not changed.
        target: The device and its options.
        assumptions: Values of the dims; it gets the guards of what was assumed.

    Raises:
        UnknownSizeError: Something needs a size as a number.
        RlxError: See ``rlx.compiler.lowering.lower``.
    """
    entries, names = _entries(graph, target, " steady" if assumptions.steady else "")
    sources = tuple(sources_of(graph))
    free = None
    with phase("cache"):
        for name in names:
            record = entries.get(name) if entries is not None else None
            if record is None:
                free = name
                break
            lowered, guards, lines = record
            if lines == sources and all(guard.holds(assumptions.hints) for guard in guards):
                assumptions.guards.update(dict.fromkeys(guards))
                count("disk_hits")
                result: LoweredModule = lowered
                assert result.schedule is not None
                result.schedule.sizes = dict(assumptions.hints)
                return result
    from rlx.compiler.lowering import lower_sized

    made = lower_sized(graph, target, assumptions)
    count("lowered")
    if entries is not None and free is not None:
        with phase("store"):
            try:
                if entries.put(free, (made, list(assumptions.guards), sources)):
                    count("stored")
            except OpaqueError:
                count("refused")
    return made


def _entries(graph: Graph, target: Target, steady: str) -> tuple[Sealed | None, list[str]]:
    """The cache folder and the names of a graph's entries; None where nothing is kept."""
    entries = None if flags.CACHE.get() == "off" else sealed_entries()
    if entries is None:
        return None, []
    try:
        with phase("hash"):
            name = unsealed_name(f"{content_hash(graph)} {target_text(target)}{steady}", target)
    except OpaqueError:
        return None, []
    if name is None:
        count("unidentified")
        return None, []
    return entries, [entries.name("sized", name, index) for index in range(_RANGES)]
