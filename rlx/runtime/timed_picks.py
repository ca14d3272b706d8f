"""Picks a device by a benchmark instead of estimates, for ``RLX_BENCHMARK_PICK``."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

from rlx.backends.base import CompileOptions
from rlx.compiler.device_picks import DevicePicks
from rlx.device.names import Device
from rlx.device.policy import DevicePolicy
from rlx.ir.graph import Graph
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.device_bench import DeviceBenchResult, failed, made_up, medians, timed


class TimedPicks(DevicePicks):
    """Picks a device for a graph by a benchmark on made-up values.

    Args:
        graph: The graph.
        policy: Which devices may be picked.
        options: The options of the compile.
        compiled: ``rlx.compile``.
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy,
        options: CompileOptions,
        compiled: Callable[..., CompiledGraph],
    ) -> None:
        super().__init__(graph, policy, options)
        self._compiled = compiled

    def _measure(self, inputs: Mapping[str, Any] | None, runs: int) -> dict[Device, float]:
        graph = self.graph
        names = (*graph.input_names, *graph.param_names)
        values = {name: made_up(graph.named(name)) for name in names} | graph.param_values
        args = {name: values[name] for name in graph.input_names}
        params = {name: values[name] for name in graph.param_names}
        results = []
        for device in self.devices:
            began = time.perf_counter_ns()
            try:
                with self._compiled(graph, device, params, self._options) as compiled:
                    compile_ns = time.perf_counter_ns() - began
                    result = DeviceBenchResult.of(device, compile_ns, timed(compiled, args, runs))
            except Exception as error:  # another device may run it
                result = failed(device, None, error)
            results.append(result)
        return medians(graph, results)
