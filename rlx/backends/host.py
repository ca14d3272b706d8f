"""Parts of a graph that a device has no kernels for, compiled for the CPU and run between dispatches."""

from __future__ import annotations

from rlx.backends.base import CompileOptions
from rlx.backends.cpu.cpu_backend import BACKEND
from rlx.backends.executable import Executable
from rlx.ir.graph import Graph
from rlx.ir.kernel_sets import HOST_KERNELS
from rlx.ir.notes import Note
from rlx.ir.spans import phase
from rlx.passes.memory_plan import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler


def compile_host(graph: Graph, options: CompileOptions) -> Executable:
    """Compiles a graph for the CPU.

    Args:
        graph: Its inputs are the values read from the device, its outputs those written back.
        options: The options of the whole graph; those of runs are taken from it.
    """

    def specialise(graph: Graph) -> tuple[Graph, list[Note]]:
        return run_pipeline(graph, lambda option: True, HOST_KERNELS)

    with phase("host part"):
        simplified, _ = specialise(graph)
        schedule = Scheduler(simplified, HOST_KERNELS, {}, specialise).run()
        plan = plan_memory(schedule)
        info = BACKEND.devices()[0]
        own = CompileOptions(max_iterations=options.max_iterations, denormals=options.denormals)
        return BACKEND.load(info, simplified, schedule, plan, own)
