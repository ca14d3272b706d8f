"""The lowered form of a graph for a target; it holds no memory of the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any

from rlx.backends.base import Program
from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph
from rlx.ir.notes import Note
from rlx.ir.plan import MemoryPlan, Preparation, Schedule
from rlx.ir.shape import UPDATE

NOTHING_HOSTED: Mapping[int, str] = MappingProxyType({})


@dataclass(frozen=True)
class LoweredModule:
    """A graph made ready for a target, with nothing of the target's memory taken. It is never changed.

    Attributes:
        graph: The graph after the passes.
        notes: The changes of the passes, the refused ones too, and why.
        schedule: Its calls; None for a backend that reads no kernels.
        plan: Where its values live; None likewise.
        preparations: The graphs that run when params are set.
        subgraphs: The lowered bodies of loops and branches, in the order in which the schedule
            writes them out.
        hosted: Nodes that are too large for the target's kernels and run on the host, by position, and why.
        program: The backend's program of it; None until it is loaded for the first time.
        segments: The lowered segments of a graph that reads sizes, which has no schedule of its own.
    """

    graph: Graph
    notes: tuple[Note, ...]
    schedule: Schedule | None
    plan: MemoryPlan | None
    preparations: tuple[Preparation, ...] = ()
    subgraphs: tuple[Graph, ...] = ()
    hosted: Mapping[int, str] = field(default_factory=lambda: NOTHING_HOSTED)
    program: Program | None = None
    segments: tuple[LoweredModule, ...] = ()

    @property
    def state_feeds(self) -> tuple[tuple[int, int], ...]:
        """The feeds, inputs and outputs by position, that keep states on a backend that does not update them in place."""
        if self.schedule is not None or self.segments or not self.graph.uses(UPDATE):
            return ()
        from rlx.ir.states import states_of

        states = states_of(self.graph)
        first = len(self.graph.outputs) - len(states)
        return tuple((state.position, first + i) for i, state in enumerate(states))

    def noted(self, step: str, text: str) -> LoweredModule:
        """The same with another note."""
        return replace(self, notes=(*self.notes, Note.of(step, text)))


@dataclass(frozen=True)
class Decisions:
    """The decisions of lowering; ``derive`` makes the rest from them. They may come out of a file.

    Attributes:
        graph: See ``LoweredModule``; every node has been inferred.
        notes: See ``LoweredModule``.
        preparations: See ``LoweredModule``.
        subgraphs: See ``LoweredModule``.
        hosted: See ``LoweredModule``.
        offsets: Where temporaries lie; see ``MemoryPlan.temps``.
        program: The program as the backend packed it; see ``rlx.backends.base.Program``.
    """

    graph: Graph
    notes: tuple[Note, ...]
    preparations: tuple[Preparation, ...]
    subgraphs: tuple[Graph, ...]
    hosted: Mapping[int, str]
    offsets: tuple[int, ...]
    program: Any
