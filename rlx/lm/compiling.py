"""Compiles the graphs of a model. By default the CPU and matrix units round operands of products."""

from __future__ import annotations

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.device.names import Device, DeviceLike, info_of
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
            options = CompileOptions(precision=_precision(choice.device))
        return Session(choice.device, options=options).compile(graph), choice


def _precision(device: Device) -> str:
    if device.backend == "cpu":
        return "int8"
    info = info_of(device)
    return "f16" if fragment_params(fragment_limits(info.fragments, info.features)) else "f32"
