"""From a lowered graph to an executable: the backend's program of it, and the target's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from rlx.backends.base import KernelLimitError, Program
from rlx.backends.executable import Executable
from rlx.compiler.lowered_module import LoweredModule
from rlx.compiler.precomputed_params import PrecomputedParams
from rlx.compiler.target import Target
from rlx.errors import DeviceMemoryError
from rlx.ir.graph import Graph
from rlx.ir.spans import phase


class LoadedGraph(NamedTuple):
    """A lowered graph on its target.

    Attributes:
        lowered: The graph with the backend's program.
        executable: The executable, which knows the precomputed params.
        precomputed: Computes those from the params of the graph.
    """

    lowered: LoweredModule
    executable: Executable
    precomputed: PrecomputedParams


def programmed(lowered: LoweredModule, target: Target) -> LoweredModule:
    """A lowered graph with the backend's program of it; nodes too large for its kernels run on the host.

    Raises:
        UnsupportedOpError: There are such nodes, and the host may not help or can't.
        CompileError: The backend makes no program of it.
    """
    if lowered.program is not None:
        return lowered
    try:
        return _with_program(lowered, target)
    except KernelLimitError as error:
        from rlx.compiler.lowering import moved_to_host

        return _with_program(moved_to_host(lowered, target, error), target)


def _with_program(lowered: LoweredModule, target: Target) -> LoweredModule:
    if not target.reads_kernels and lowered.hosted:
        from rlx.compiler.partition import PartitionedProgram, partition

        parts = tuple(
            part if part.on_host else replace(part, program=_program(part.graph, None, target))
            for part in partition(lowered.graph, lowered.hosted)
        )
        return replace(lowered, program=PartitionedProgram(lowered.graph, target.backend, parts))
    return replace(lowered, program=_program(lowered.graph, lowered, target))


def _program(graph: Graph, lowered: LoweredModule | None, target: Target) -> Program:
    schedule, plan = (lowered.schedule, lowered.plan) if lowered is not None else (None, None)
    return target.backend.program(target.info, graph, schedule, plan, target.options)


def load(lowered: LoweredModule, target: Target) -> LoadedGraph:
    """Makes the backend's program where there is none yet, and loads it.

    Raises:
        UnsupportedOpError: See ``programmed``.
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device has no room.
    """
    with phase("load"):
        lowered = programmed(lowered, target)
        assert lowered.program is not None
        executable = target.backend.executable(
            lowered.program, target.info, lowered.graph, target.options
        )
        _check_memory(executable, target)
        retained = frozenset(lowered.graph.param_names)
        precomputed = PrecomputedParams(lowered.preparations, retained, target.options)
        constants = precomputed.constants()
        if constants:
            executable.set_params(constants)
        return LoadedGraph(lowered, executable, precomputed)


def _check_memory(executable: Executable, target: Target) -> None:
    """Closes and refuses an executable that is above the memory limit, of a backend that plans its own memory.

    Raises:
        DeviceMemoryError: It is.
    """
    limit = target.options.memory_limit
    if limit is None or target.reads_kernels:
        return
    memory = executable.memory()
    if memory["arena"] + memory["params"] > limit:
        executable.close()
        raise DeviceMemoryError(
            f"the graph takes more memory on {target.device} than the limit",
            got=f"{memory['arena']} bytes of values and {memory['params']} of params",
            expected=f"at most {limit} bytes (memory_limit)",
        )
