"""The list of passes, in order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlx import flags
from rlx.budget import spend
from rlx.cost.gate import IoFusionGate
from rlx.ir.graph import Graph
from rlx.ir.notes import Note
from rlx.ir.rewrite import copied
from rlx.ir.spans import phase
from rlx.ir.verify import verify
from rlx.passes.fuse import fuse_elementwise
from rlx.passes.fusion_gate import Specialisation
from rlx.passes.legalize import legalize
from rlx.passes.patterns import fuse_patterns
from rlx.passes.powers import expand_powers
from rlx.passes.simplify import cse, dce, fold


class Pass(NamedTuple):
    """One step of the pipeline.

    Attributes:
        name: What notes and messages call it.
        run: Graph in, graph out: another one, or the same one where there is nothing to change. It appends a note for each
            change that it made or left out. A pass that specialises is told what for as well.
        option: The field of ``CompileOptions`` that switches it; "" when it is always needed.
        specialise: Whether it belongs to the part that knows the device.
    """

    name: str
    run: Callable[..., Graph]
    option: str = ""
    specialise: bool = False


# Passes on the graph as its owner wrote it. What depends on params alone is split off after these and the next ones.
SIMPLIFY_PASSES: tuple[Pass, ...] = (
    Pass("dce", dce, "dce"),
    Pass("fold", fold, "fold"),
    Pass("cse", cse, "cse"),
    Pass("dce", dce, "dce"),
)
# Before legalize, whose casts would come between a product and its bias.
PATTERN_PASSES: tuple[Pass, ...] = (Pass("fuse", fuse_patterns, "fuse", specialise=True),)
# What patterns and casts leave.
FOLD_PASSES: tuple[Pass, ...] = (Pass("fold", fold, "fold"),)
# Passes that bring the graph to the kernels that exist.
KERNEL_PASSES: tuple[Pass, ...] = (
    Pass("legalize", legalize, specialise=True),
    # After legalize: chains of narrow types are computed in wider ones and rounded once.
    Pass("powers", expand_powers, "fold", specialise=True),
    Pass("cse", cse, "cse"),
    Pass("fuse_elementwise", fuse_elementwise, "fuse", specialise=True),
    Pass("dce", dce, "dce"),
)
PIPELINE = (*SIMPLIFY_PASSES, *PATTERN_PASSES, *FOLD_PASSES, *KERNEL_PASSES)


def run_pipeline(
    graph: Graph,
    enabled: Callable[[str], bool],
    kernel_set: str,
    gate: IoFusionGate | None = None,
    passes: Sequence[Pass] = PIPELINE,
) -> tuple[Graph, list[Note]]:
    """Runs the passes.

    Args:
        graph: A verified graph; it is not changed.
        enabled: Says whether the option of that name is on.
        kernel_set: The kernels to specialise for: "cpu", "webgpu", "webgpu-f16", or "" for none.
        gate: Decides which fusions pay; None takes those that gain anything on a device of that kind.
        passes: Which ones.

    Returns:
        The rewritten graph, never the given one, and a note for every change made or left out.
    """
    notes: list[Note] = []
    given = graph
    check = flags.VERIFY.get()
    target = Specialisation.of(kernel_set, gate)
    for step in passes:
        if (step.specialise and not kernel_set) or (step.option and not enabled(step.option)):
            continue
        more = (target,) if step.specialise else ()
        spend(f"pass {step.name}")
        with phase(f"pass {step.name}"):
            graph = step.run(graph, notes, *more)
        if check:
            with phase("verify"):
                verify(graph, after=step.name)
    # A pass that changes nothing gives back its graph. Its owner may add to it later.
    return copied(graph) if graph is given else graph, notes
