"""Compiles the graphs of a model. By default the CPU rounds what it multiplies packed weights by to 8 bits."""

from __future__ import annotations

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.device.names import DeviceLike
from rlx.ir.graph import Graph
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session


def compile_model(
    graph: Graph,
    device: DeviceLike,
    options: CompileOptions | None,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> tuple[CompiledGraph, Choice]:
    """Compiles a graph of a model; returns it and why its device was chosen.

    Args:
        graph: The graph.
        device: A device, its name, or "auto".
        options: Options of the compiler; None rounds what meets packed weights to 8 bits on the CPU.
        progress: See ``rlx.compile``.
        cancel: See ``rlx.compile``.
    """
    with watching(progress, cancel):
        choice = Session(device, options=options).choose(graph)
        if options is None:
            precision = "int8" if choice.device.backend == "cpu" else "f32"
            options = CompileOptions(precision=precision)
        return Session(choice.device, options=options).compile(graph), choice
