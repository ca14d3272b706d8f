"""The list of passes, in order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlx import flags
from rlx.ir.graph import Graph
from rlx.ir.verify import verify
from rlx.passes.fuse import fuse_elementwise, fuse_matmul
from rlx.passes.simplify import cse, dce, fold


class Pass(NamedTuple):
    """One step of the pipeline.

    Attributes:
        name: What notes and messages call it.
        run: Graph in, graph out; appends a line to the notes for what it took or left.
        option: The field of ``CompileOptions`` that switches it.
        specialise: Whether it belongs to the part that knows the device.
    """

    name: str
    run: Callable[[Graph, list[str]], Graph]
    option: str
    specialise: bool = False


PIPELINE: tuple[Pass, ...] = (
    Pass("dce", dce, "dce"),
    Pass("fold", fold, "fold"),
    Pass("cse", cse, "cse"),
    Pass("dce", dce, "dce"),
    Pass("fuse_matmul", fuse_matmul, "fuse", specialise=True),
    Pass("fuse_elementwise", fuse_elementwise, "fuse", specialise=True),
    Pass("dce", dce, "dce", specialise=True),
)


def run_pipeline(
    graph: Graph, enabled: Callable[[str], bool], *, specialise: bool
) -> tuple[Graph, list[str]]:
    """Runs the passes.

    Args:
        graph: A verified graph; it is not changed.
        enabled: Says whether the option of that name is on.
        specialise: Also run the passes that know the device.

    Returns:
        The rewritten graph, and a line for every change taken or refused.
    """
    notes: list[str] = []
    check = flags.VERIFY.get()
    for step in PIPELINE:
        if (step.specialise and not specialise) or not enabled(step.option):
            continue
        graph = step.run(graph, notes)
        if check:
            verify(graph, after=step.name)
    return graph, notes
