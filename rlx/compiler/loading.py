"""From a lowered graph to an executable: the backend's program of it, and the target's memory."""

from __future__ import annotations

from dataclasses import replace
from typing import cast

from rlx.backends.base import Executable, KernelLimitError, set_params
from rlx.backends.plugins import executable_of, program_of
from rlx.compiler.lowered import Lowered
from rlx.compiler.prepared import PreparedExecutable, Preparing
from rlx.compiler.target import Target
from rlx.errors import DeviceMemoryError, describe
from rlx.ir.spans import phase


def programmed(lowered: Lowered, target: Target) -> Lowered:
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


def _with_program(lowered: Lowered, target: Target) -> Lowered:
    if not target.reads_kernels and lowered.hosted:
        from rlx.compiler.parts import PartedProgram, parted

        parts = tuple(
            part
            if part.on_host
            else replace(
                part, program=program_of(target.info, part.graph, None, None, target.options)
            )
            for part in parted(lowered.graph, lowered.hosted)
        )
        return replace(lowered, program=PartedProgram(lowered.graph, parts))
    made = program_of(target.info, lowered.graph, lowered.schedule, lowered.plan, target.options)
    return replace(lowered, program=made)


def loaded(lowered: Lowered, target: Target) -> tuple[Lowered, Executable]:
    """Makes the backend's program where there is none yet, and loads it.

    Returns:
        The lowered graph with its program, and an executable.

    Raises:
        UnsupportedOpError: See ``programmed``.
        CompileError: A kernel does not compile.
        DeviceMemoryError: The device has no room.
    """
    with phase("load"):
        found = programmed(lowered, target)
        return found, _load(found, target)


def _load(lowered: Lowered, target: Target) -> Executable:
    """Takes the target's memory and makes everything that runs need."""
    assert lowered.program is not None
    executable = executable_of(lowered.program, target.info, lowered.graph, target.options)
    _check_memory(executable, target)
    if not lowered.preparations:
        return executable
    kept = frozenset(lowered.graph.param_names)
    preparing = Preparing(lowered.preparations, kept, target.options)
    for made in preparing.at_once():
        set_params(executable, made)
    return cast(Executable, PreparedExecutable(executable, preparing))


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
            describe(
                f"the graph takes more memory on {target.device} than the limit",
                got=f"{memory['arena']} bytes of values and {memory['params']} of params",
                expected=f"at most {limit} bytes (memory_limit)",
            )
        )
