"""The list of passes, in order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from rlx import flags
from rlx.cost.gate import IoFusionGate
from rlx.ir.graph import Graph
from rlx.ir.notes import Note
from rlx.ir.rewrite import copied, discard
from rlx.ir.spans import phase
from rlx.ir.verify import verify
from rlx.ops.placeholders import LEAVES
from rlx.passes.channels_last import CONVOLUTIONS, move_channels
from rlx.passes.fuse import fuse_elementwise
from rlx.passes.fusion_gate import Specialisation
from rlx.passes.legalize import has_other_dtypes, legalize
from rlx.passes.patterns import fuse_patterns
from rlx.passes.powers import expand_powers
from rlx.passes.simplify import cse, dce, fold
from rlx.resource_limits import charge


class Pass(NamedTuple):
    """One step of the pipeline.

    Attributes:
        name: Its name in notes and messages.
        run: Graph in, graph out: another one, or the same one where there is nothing to change. It appends a note for each
            change that it made or left out. A pass that specialises is told what for as well.
        option: The field of ``CompileOptions`` that switches it; "" when it is always needed.
        specialise: Whether it belongs to the part that knows the device.
        concerns: Says whether a graph has nodes that it may change for these kernels; it is not run on others.
    """

    name: str
    run: Callable[..., Graph]
    option: str = ""
    specialise: bool = False
    concerns: Callable[[Graph, str], bool] = lambda graph, kernel_set: True


def _has_powers(graph: Graph, kernel_set: str) -> bool:
    return any(node.op == "pow" for node in graph.nodes)


def _has_convolutions(graph: Graph, kernel_set: str) -> bool:
    return kernel_set == "cpu" and any(node.op in CONVOLUTIONS for node in graph.nodes)


def _has_more_than_elementwise(graph: Graph, kernel_set: str) -> bool:
    """Returns whether a pattern may match: each holds an operation that is not elementwise."""
    return any(not node.opdef.elementwise and node.op not in LEAVES for node in graph.nodes)


def _has_chains(graph: Graph, kernel_set: str) -> bool:
    """Returns whether there are two operations to join, or a constant that may become part of one."""
    leaves = [node.op for node in graph.nodes if node.op in LEAVES]
    return len(graph.nodes) - len(leaves) > 1 or "constant" in leaves


# Passes on the graph as its owner wrote it. What depends on params alone is split off after these and the next ones.
SIMPLIFY_PASSES: tuple[Pass, ...] = (
    Pass("dce", dce, "dce"),
    Pass("fold", fold, "fold"),
    Pass("cse", cse, "cse"),
    Pass("dce", dce, "dce"),
)
# Before legalize, whose casts would come between a product and its bias.
PATTERN_PASSES: tuple[Pass, ...] = (
    Pass("fuse", fuse_patterns, "fuse", True, _has_more_than_elementwise),
)
# Cleans up after patterns and casts.
FOLD_PASSES: tuple[Pass, ...] = (Pass("fold", fold, "fold"),)
# Passes that bring the graph to the kernels that exist.
KERNEL_PASSES: tuple[Pass, ...] = (
    Pass("legalize", legalize, specialise=True, concerns=has_other_dtypes),
    # After legalize: chains of narrow types are computed in wider ones and rounded once.
    Pass("powers", expand_powers, "fold", True, _has_powers),
    Pass("channels_last", move_channels, specialise=True, concerns=_has_convolutions),
    Pass("cse", cse, "cse"),
    Pass("fuse_elementwise", fuse_elementwise, "fuse", True, _has_chains),
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
    args = graph
    check = flags.VERIFY.get()
    for step in passes:
        if (step.specialise and not kernel_set) or (step.option and not enabled(step.option)):
            continue
        if not step.concerns(graph, kernel_set):
            continue
        more = (Specialisation.of(kernel_set, gate),) if step.specialise else ()
        charge(f"pass {step.name}")
        with phase(f"pass {step.name}"):
            result = step.run(graph, notes, *more)
        if check and result is not graph:
            with phase("verify"):
                verify(result, after=step.name)
        if graph is not args and result is not graph:
            discard(graph)
        graph = result
    # A pass that changes nothing gives back its graph. Its owner may add to it later.
    return copied(graph) if graph is args else graph, notes
