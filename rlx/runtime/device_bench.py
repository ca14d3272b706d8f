"""Times one graph on one device: a row of ``rlx.GraphDevices.benchmark``."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.device.names import Device
from rlx.errors import DeviceFallbackError, describe, one_line
from rlx.ir.dtype import store
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array
from rlx.runtime.bind_inputs import bind_all
from rlx.runtime.compiled import CompiledGraph


@dataclass(frozen=True)
class DeviceBenchResult:
    """The times of one device.

    Attributes:
        device: The device.
        compile_ns: Nanoseconds that the compile took; NaN where it failed.
        median_ns: Median nanoseconds of a run, inputs and outputs included; infinite where it failed.
        p99_ns: The 99th percentile; infinite where it failed.
        error: Why it failed; None when it ran.
        same_as: A device listed before that is the same hardware through another API or backend.
    """

    device: Device
    compile_ns: float
    median_ns: float
    p99_ns: float
    error: Exception | None = None
    same_as: Device | None = None

    @classmethod
    def of(cls, device: Device, compile_ns: float, times: Sequence[int]) -> DeviceBenchResult:
        """The result of a device that ran.

        Args:
            device: The device.
            compile_ns: Nanoseconds that the compile took.
            times: Nanoseconds of each run.
        """
        median, p99 = np.percentile(times, (50, 99))
        return cls(device, compile_ns, float(median), float(p99))

    def beside(self, same_as: Device | None) -> DeviceBenchResult:
        """The same result, marked as the same hardware as another device."""
        return replace(self, same_as=same_as)


def failed(device: Device, compile_ns: float | None, error: Exception) -> DeviceBenchResult:
    """The result of a device that did not run."""
    taken = math.nan if compile_ns is None else compile_ns
    return DeviceBenchResult(device, taken, math.inf, math.inf, error)


def timed(compiled: CompiledGraph, inputs: Mapping[str, Any], runs: int) -> list[int]:
    """Nanoseconds of each run, after one warm-up run, which also checks the inputs.

    Args:
        compiled: The compiled graph.
        inputs: One array per input.
        runs: How often.
    """
    state = compiled._state
    run = partial(compiled.run_slots, *state.lock.call(bind_all, state, inputs))
    run()
    times = []
    for _ in range(runs):
        began = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - began)
    return times


def made_up(node: Node) -> Array:
    """A made-up value for an input or param: floats between 0.1 and 1, zeros for other dtypes.

    Zeros are in range wherever numbers are indices; ordinary floats are not slowed by denormals.
    """
    if not node.dtype.is_float:
        return np.zeros(node.shape, node.dtype.numpy)
    return store(np.random.default_rng(0).uniform(0.1, 1.0, node.shape), node.dtype)


def medians(graph: Graph, results: Sequence[DeviceBenchResult]) -> dict[Device, float]:
    """The median nanoseconds of every device that ran.

    Raises:
        DeviceFallbackError: None ran.
    """
    outputs = {result.device: result.median_ns for result in results if result.error is None}
    if not outputs:
        raise all_failed("benchmark", graph, [(r.device, r.error) for r in results])
    return outputs


def all_failed(
    verb: str, graph: Graph, attempts: Sequence[tuple[Device, Exception | None]]
) -> DeviceFallbackError:
    """The error for a graph that failed on every device.

    Args:
        verb: The action that was tried.
        graph: The graph.
        attempts: Each device and its error.
    """
    known = [(device, error) for device, error in attempts if error is not None]
    tried = "; ".join(f"{d}: {one_line(error)}" for d, error in known)
    return DeviceFallbackError(
        describe(
            f"no device of the chain could {verb} graph {graph.name!r}",
            got=tried,
            hint="error.attempts holds each device's own error",
        ),
        known,
    )
