"""Compiles the graphs of a model. By default the CPU and matrix units round operands of products."""

from __future__ import annotations

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.device.names import DeviceLike, info_of
from rlx.ir.fragments import fragment_limits, fragment_params
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
        options: Options of the compiler; None takes the fastest precision of the device.
        progress: See ``rlx.compile``.
        cancel: See ``rlx.compile``.
    """
    with watching(progress, cancel):
        choice = Session(device, options=options).choose(graph)
        if options is None:
            info = info_of(choice.device)
            units = fragment_params(fragment_limits(info.fragments, info.features))
            on_cpu = choice.device.backend == "cpu"
            options = CompileOptions(precision="int8" if on_cpu else "f16" if units else "f32")
        return Session(choice.device, options=options).compile(graph), choice
