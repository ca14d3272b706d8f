"""Compiles the graphs of a model. By default the CPU and matrix units round operands of products."""

from __future__ import annotations

from collections.abc import Callable

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.device.names import DeviceLike
from rlx.ir.graph import Graph
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session


def compile_model(
    graph_for: Callable[[str], Graph],
    device: DeviceLike,
    options: CompileOptions | None,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> tuple[CompiledGraph, Choice]:
    """Compiles a graph of a model; returns it and why its device was chosen.

    Args:
        graph_for: Returns the graph for a backend.
        device: A device, its name, or "auto".
        options: Options of the compiler; None takes the fastest precision of the device.
        progress: See ``rlx.compile``.
        cancel: See ``rlx.compile``.
    """
    options = options or CompileOptions(precision="fast")
    with watching(progress, cancel):
        session = Session(device, options=options)
        graph = graph_for("webgpu" if session.device is None else session.device.backend)
        choice = session.choose(graph)
        if session.device is None:
            graph = graph_for(choice.device.backend)
        return Session(choice.device, options=options).compile(graph), choice
