"""The list of passes, in order, and how they are run."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from rlx import flags
from rlx.ir.graph import Graph
from rlx.ir.spans import phase
from rlx.ir.verify import verify
from rlx.passes.fuse import fuse_elementwise, fuse_matmul
from rlx.passes.legalize import legalize
from rlx.passes.simplify import cse, dce, fold


class Pass(NamedTuple):
    """One step of the pipeline.

    Attributes:
        name: What notes and messages call it.
        run: Graph in, graph out; appends a line to the notes for what it took or left. A pass that
            specialises is told the kernels it works for as well.
        option: The field of ``CompileOptions`` that switches it; "" when it is always needed.
        specialise: Whether it belongs to the part that knows the device.
    """

    name: str
    run: Callable[..., Graph]
    option: str = ""
    specialise: bool = False


PIPELINE: tuple[Pass, ...] = (
    Pass("dce", dce, "dce"),
    Pass("fold", fold, "fold"),
    Pass("cse", cse, "cse"),
    Pass("dce", dce, "dce"),
    # Before casts part a product from its bias.
    Pass("fuse_matmul", fuse_matmul, "fuse", specialise=True),
    Pass("legalize", legalize, specialise=True),
    Pass("cse", cse, "cse"),
    Pass("fuse_elementwise", fuse_elementwise, "fuse", specialise=True),
    Pass("dce", dce, "dce"),
)


def run_pipeline(
    graph: Graph, enabled: Callable[[str], bool], kernel_set: str
) -> tuple[Graph, list[str]]:
    """Runs the passes.

    Args:
        graph: A verified graph; it is not changed.
        enabled: Says whether the option of that name is on.
        kernel_set: The kernels to specialise for: "cpu", "webgpu", "webgpu-f16", or "" for none.

    Returns:
        The rewritten graph, and a line for every change taken or refused.
    """
    notes: list[str] = []
    check = flags.VERIFY.get()
    for step in PIPELINE:
        if (step.specialise and not kernel_set) or (step.option and not enabled(step.option)):
            continue
        device = (kernel_set,) if step.specialise else ()
        with phase(f"pass {step.name}"):
            graph = step.run(graph, notes, *device)
        if check:
            with phase("verify"):
                verify(graph, after=step.name)
    return graph, notes
