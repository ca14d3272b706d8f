"""Session and compile: from a Graph to a CompiledGraph, one way."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rlx.backends.base import Backend, CompileOptions, DeviceInfo, backend
from rlx.device.choose import choose
from rlx.device.names import Device, info_of
from rlx.errors import (
    CompileError,
    DeviceMemoryError,
    GraphError,
    UnknownNameError,
    describe,
    did_you_mean,
)
from rlx.ir.graph import Graph
from rlx.passes.memory import plan_memory
from rlx.passes.pipeline import run_pipeline
from rlx.passes.schedule import Scheduler, check_supported
from rlx.runtime.compiled import CompiledGraph

PRECISIONS = ("f32", "f16")


class Session:
    """Compiles graphs for one device.

    Args:
        device: A device or its name; "auto" picks one per graph.
        precision: How values of dtype f16 are computed; their storage is f16 either way. "f32" widens
            them. "f16" hands them to half-precision kernels (products, summed in f32) and needs an
            adapter with shader-f16.
        options: Everything else.

    Raises:
        DeviceParseError: ``device`` is not a device.
        DeviceUnavailableError: It is not on this machine.
        CompileError: An option has no such value.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> rlx.Session("cpu").compile(g).device
        rlx.Device('cpu')
    """

    def __init__(
        self,
        device: Device | str = "auto",
        precision: str | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        self.options = options or CompileOptions()
        self.precision = precision or self.options.precision
        self.device = None if device == "auto" else Device.parse(device)
        if self.device is not None:
            info_of(self.device)
        _check_options(self.options, self.precision)

    def compile(self, graph: Graph, params: Mapping[str, Any] | None = None) -> CompiledGraph:
        """Compiles a graph; it is not changed and can be compiled again.

        Args:
            graph: The graph, with outputs set.
            params: Values of params; those attached to the graph need none.

        Returns:
            The executable.

        Raises:
            VerifyError: The graph is not legal.
            UnsupportedOpError: The device has no kernel for an op.
            DeviceMemoryError: The graph is above the memory limit.
            UnknownNameError: ``params`` has a name that the graph has not.
            InputError: A param's value does not fit.
        """
        if not isinstance(graph, Graph):
            raise GraphError(describe("not a graph", got=repr(graph), expected="a rlx.Graph"))
        graph.verify()
        values = {**graph.param_values, **(params or {})}
        for name in values:
            if name not in graph.param_names:
                raise UnknownNameError(
                    describe(
                        f"graph {graph.name!r} has no param named {name!r}",
                        hint=did_you_mean(name, graph.param_names),
                    )
                )
        device = self.device or choose(graph).device
        info, runs_on = info_of(device), backend(device.backend)
        options = self.options

        def enabled(name: str) -> bool:
            return bool(getattr(options, name))

        kernel_set = _kernel_set(device, info, runs_on, self.precision)
        if kernel_set:
            check_supported(graph, kernel_set, str(device), options.allow_host_fallback)

        def specialise(one: Graph) -> tuple[Graph, list[str]]:
            return run_pipeline(one, enabled, kernel_set)

        fused, notes = specialise(graph)
        schedule = plan = None
        if kernel_set:
            schedule = Scheduler(fused, kernel_set, info.limits, specialise).run()
            param_bytes = sum(value.type.nbytes for value in schedule.params.values())
            limit = options.memory_limit
            if limit is not None and param_bytes > limit:
                raise DeviceMemoryError(
                    describe(
                        "the params alone are above the memory limit",
                        got=f"{param_bytes} bytes",
                        expected=f"at most {limit} bytes (memory_limit)",
                    )
                )
            plan = plan_memory(
                schedule,
                max(
                    options.arena_alignment,
                    info.limits.get("min-storage-buffer-offset-alignment", 1),
                ),
                None if limit is None else limit - param_bytes,
                options.reuse_memory,
            )
        executable = runs_on.load(info, fused, schedule, plan, options)
        compiled = CompiledGraph(
            device,
            graph,
            fused,
            schedule,
            plan,
            notes,
            executable,
            options,
            set(graph.param_names),
        )
        for name, value in values.items():
            compiled.set_param(name, value)
        return compiled


def compile(
    graph: Graph,
    device: Device | str = "auto",
    params: Mapping[str, Any] | None = None,
    options: CompileOptions | None = None,
) -> CompiledGraph:
    """Compiles a graph for a device.

    Args:
        graph: The graph, with outputs set.
        device: A device, its name, or "auto" for the one with the least estimated time.
        params: Values of params.
        options: See ``CompileOptions``.

    Returns:
        The executable.

    Raises:
        RlxError: See ``Session`` and ``Session.compile``.

    Example:
        >>> import numpy as np, rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (1, 2)) + g.param("b", (1, 2))])
        >>> cg = rlx.compile(g, device="cpu", params={"b": np.float32([[1, 2]])})
        >>> cg.run_slots(np.float32([[3, 4]]))[0].tolist()
        [[4.0, 6.0]]
    """
    return Session(device, options=options).compile(graph, params)


def _kernel_set(device: Device, info: DeviceInfo, runs_on: Backend, precision: str) -> str:
    """The kernels to compile for: those of the backend, or its half-precision ones.

    Raises:
        CompileError: The device has no half-precision arithmetic.
    """
    if precision == "f32" or not runs_on.kernel_set:
        return runs_on.kernel_set
    if runs_on.kernel_set != "webgpu" or "shader-f16" not in info.features:
        raise CompileError(
            describe(
                f"{device} has no half-precision arithmetic",
                got=f"{info.adapter}: {', '.join(sorted(info.features)) or 'no features'}",
                expected="a GPU with shader-f16",
                hint='precision="f32" keeps f16 in memory and computes in f32',
            )
        )
    return "webgpu-f16"


def _check_options(options: CompileOptions, precision: str) -> None:
    if precision not in PRECISIONS:
        raise CompileError(
            describe(
                "no such precision", got=repr(precision), hint=did_you_mean(precision, PRECISIONS)
            )
        )
    for name in ("io_gate", "profile"):
        if getattr(options, name):
            raise CompileError(
                describe(f"option {name} is not supported yet", hint="leave it at its default")
            )
    alignment = options.arena_alignment
    if alignment < 64 or alignment & (alignment - 1):
        raise CompileError(
            describe("arena_alignment", got=alignment, expected="a power of two from 64 on")
        )
    for name in ("threads", "memory_limit"):
        value = getattr(options, name)
        if value is not None and value < 1:
            raise CompileError(describe(f"option {name}", got=value, expected="None or >= 1"))
