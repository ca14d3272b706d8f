"""Parts of a graph that a device has no kernels for, compiled for the CPU and run between dispatches."""

from __future__ import annotations

from rlx.backends.base import CompileOptions, Executable
from rlx.backends.cpu import BACKEND
from rlx.ir.graph import Graph
from rlx.passes.memory import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler


def compile_host(graph: Graph) -> Executable:
    """A graph of its own as a CPU executable.

    Args:
        graph: Its inputs are the values read from the device, its outputs those written back.
    """
    simplified, _ = run_pipeline(graph, lambda option: True, "cpu")
    schedule = Scheduler(simplified, "cpu", {}).run()
    plan = plan_memory(schedule)
    return BACKEND.load(BACKEND.devices()[0], simplified, schedule, plan, CompileOptions())
