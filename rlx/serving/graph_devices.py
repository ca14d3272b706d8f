"""GraphDevices: one graph on every device that can run it, with one set of params."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from rlx.backends.base import CompileOptions
from rlx.compiler.device_picks import Chain, DevicePicks, Hint
from rlx.device.candidates import not_viable
from rlx.device.names import HOST_DEVICE, Device
from rlx.device.policy import Benchmark, DevicePolicy, device_tuple, parse
from rlx.errors import DeviceLostError, InputError, describe
from rlx.ir.attributes import frozen
from rlx.ir.dtype import DTypeLike
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime.closing import Closing
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.convert import from_bytes, to_array
from rlx.runtime.device_bench import DeviceBenchResult, all_failed, failed, made_up, medians, timed
from rlx.runtime.session import Session
from rlx.runtime.state import unknown_name

T = TypeVar("T")


class GraphDevices(DevicePicks, Closing):
    """One graph, compiled for devices as they are needed, with the policy that chooses between them.

    Params set before a compile reach it; params set later reach every compiled device. Where a call
    takes a ``hint``, a device that is named there is used or refused; without one ``RLX_DEVICE`` is,
    and without that the policy's pick. It belongs to one thread at a time.

    Args:
        graph: The graph, with outputs set; it is not changed.
        policy: Which devices may be used, and how one is picked; ``DevicePolicy()`` by default.
        options: How the graph is compiled.

    Raises:
        VerifyError: The graph is not legal.
        InputError: ``policy`` is not one.

    Example:
        >>> import numpy as np, rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (1, 2)) + g.param("b", (1, 2))])
        >>> gd = rlx.GraphDevices(g)
        >>> gd.set_param("b", np.float32([[1, 2]]))
        >>> device, (y,) = gd.run_try(["cuda", "cpu"], {"x": np.float32([[3, 4]])})
        >>> str(device), y.tolist()
        ('cpu', [[4.0, 6.0]])
    """

    def __init__(
        self,
        graph: Graph,
        policy: DevicePolicy | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        super().__init__(graph, DevicePolicy() if policy is None else policy, options)
        self._params: dict[str, Array] = {}
        self._compiled: dict[Device, CompiledGraph] = {}
        self._compile_ns: dict[Device, float] = {}

    @classmethod
    def from_env(cls, graph: Graph, options: CompileOptions | None = None) -> GraphDevices:
        """One with the policy that the environment asks for; see ``DevicePolicy.from_env``."""
        return cls(graph, DevicePolicy.from_env(), options)

    # --- params ------------------------------------------------------------------------------------

    def set_param(self, name: str, array: Any) -> None:
        """Sets a weight on every compiled device, and on those compiled later.

        Args:
            name: A param of the graph.
            array: Its value; see ``CompiledGraph.set_param``. A copy is kept of what can be written to.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: Wrong shape, or a dtype that does not convert.
        """
        node = self.graph.named(self._param(name))
        value = frozen(to_array(array, node.shape, node.dtype, f"param {name!r}"))
        self._params[name] = value
        for compiled in self._live().values():
            compiled.set_param(name, value)

    def set_param_typed(self, name: str, data: bytes, dtype: DTypeLike) -> None:
        """``set_param`` from raw bytes in row-major order.

        Args:
            name: A param of the graph.
            data: The bytes.
            dtype: Their dtype.

        Raises:
            UnknownNameError: The graph has no param of that name.
            InputError: The bytes are too few or too many, or the dtype does not convert.
        """
        self.set_param(name, from_bytes(self.graph.named(self._param(name)), data, dtype))

    def sync_params_to_all(self) -> None:
        """Uploads every param again, for compiled graphs whose own ``set_param`` was called."""
        for compiled in self._live().values():
            for name, value in {**self.graph.param_values, **self._params}.items():
                compiled.set_param(name, value)

    # --- compiling ---------------------------------------------------------------------------------

    def compile(self, device: Device | str) -> CompiledGraph:
        """The graph on a device, compiled the first time.

        Raises:
            DeviceParseError: The text is not a device.
            DeviceUnavailableError: It is not on this machine, or the policy excludes it.
            CompileError: It can't run the graph.
        """
        device = parse(device, "device")
        live = self._live()
        if device not in live:
            excluded = self._policy.excludes(device)
            if excluded is not None:
                raise not_viable(device, "GraphDevices.compile", excluded, self.devices)
            began = time.perf_counter_ns()
            live[device] = Session(device, options=self._options).compile(self.graph, self._params)
            self._compile_ns[device] = float(time.perf_counter_ns() - began)
        return live[device]

    def compile_fastest(self) -> CompiledGraph:
        """The graph on ``fastest()``."""
        return self.compile(self.fastest())

    def compile_resolved(self, hint: Hint = None) -> CompiledGraph:
        """The graph on ``resolve(hint)``."""
        return self.compile(self.resolve(hint))

    def compile_resolved_with_inputs(self, hint: Hint, inputs: Mapping[str, Any]) -> CompiledGraph:
        """The graph on ``resolve_with_inputs(hint, inputs)``."""
        return self.compile(self.resolve_with_inputs(hint, inputs))

    def compile_chain(self, hint: Device | Chain | None = None) -> CompiledGraph:
        """The graph on the first device of ``chain(hint)`` that it compiles for.

        Raises:
            DeviceFallbackError: It compiles for none; ``attempts`` says why.
        """
        return self._first(self.chain(hint), self.compile, "compile")[1]

    def warm_all(self) -> dict[Device, Exception]:
        """Compiles for every device of ``devices``.

        Returns:
            The devices that failed, each with its error; empty when all is well.
        """
        failures: dict[Device, Exception] = {}
        for device in self.devices:
            try:
                self.compile(device)
            except Exception as error:
                failures[device] = error
        return failures

    def invalidate_cache(self) -> None:
        """Compiles anew from now on, and looks for devices again. Who holds a compiled graph keeps it."""
        self._compiled.clear()
        self._compile_ns.clear()
        self._forget_picks()

    # --- running -----------------------------------------------------------------------------------

    def run(self, device: Device | str, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on a device; see ``compile`` and ``CompiledGraph.run``."""
        device = parse(device, "device")
        try:
            return self.compile(device).run(inputs)
        except DeviceLostError:
            # The next call starts on a new device.
            self._compiled.pop(device, None)
            raise

    def run_fastest(self, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on the policy's pick; a benchmark runs on these inputs."""
        return self.run(self._fastest(inputs), inputs)

    def run_resolved(self, hint: Hint, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on ``resolve(hint)``."""
        return self.run(self.resolve(hint), inputs)

    def run_resolved_with_inputs(self, hint: Hint, inputs: Mapping[str, Any]) -> list[Array]:
        """Runs on ``resolve_with_inputs(hint, inputs)``."""
        return self.run(self.resolve_with_inputs(hint, inputs), inputs)

    def run_try(self, chain: Chain, inputs: Mapping[str, Any]) -> tuple[Device, list[Array]]:
        """Runs on the first device of a chain on which that succeeds.

        Args:
            chain: The devices, in the order tried.
            inputs: One array per input.

        Returns:
            The device, and the outputs.

        Raises:
            DeviceFallbackError: All failed. ``attempts`` holds each device and its error; for an empty
                chain the CPU, with an error that says that the chain is empty.
        """
        return self._first(device_tuple(chain, "chain"), lambda item: self.run(item, inputs), "run")

    def run_chain(
        self, hint: Device | Chain | None, inputs: Mapping[str, Any]
    ) -> tuple[Device, list[Array]]:
        """``run_try`` with ``chain(hint)``."""
        return self.run_try(self.chain(hint), inputs)

    def benchmark(self, inputs: Mapping[str, Any], runs: int = 10) -> list[DeviceBenchResult]:
        """Times runs on every device of ``devices``. The fastest comes first; failed devices come last.

        Args:
            inputs: One array per input.
            runs: Timed runs on each device, after one warm-up run.

        Raises:
            InputError: ``runs`` is not a whole number >= 1.
        """
        runs = Benchmark(runs).runs
        twins = {row.device: row.same_as for row in self._survey()}
        results = []
        for device in self.devices:
            try:
                compiled = self.compile(device)
                taken = timed(compiled, inputs, runs)
                output = DeviceBenchResult.of(device, self._compile_ns[device], taken)
            except Exception as error:
                if isinstance(error, DeviceLostError):
                    self._compiled.pop(device, None)
                output = failed(device, self._compile_ns.get(device), error)
            results.append(output.beside(twins.get(device)))
        return sorted(results, key=lambda result: result.median_ns)

    # --- life --------------------------------------------------------------------------------------

    def close(self) -> None:
        """Closes every compiled graph."""
        for compiled in self._compiled.values():
            compiled.close()
        self.invalidate_cache()

    def __repr__(self) -> str:
        compiled = ", ".join(map(str, self._live())) or "nothing yet"
        return f"<GraphDevices {self.graph.name!r}, compiled for {compiled}>"

    # -----------------------------------------------------------------------------------------------

    def _live(self) -> dict[Device, CompiledGraph]:
        """Returns the compiled graphs that the user has not closed."""
        for device in [d for d, compiled in self._compiled.items() if compiled.closed]:
            del self._compiled[device]
        return self._compiled

    def _param(self, name: str) -> str:
        if name not in self.graph.param_names:
            raise unknown_name(self.graph, name, self.graph.param_names, "param")
        return name

    def _measure(self, inputs: Mapping[str, Any] | None, runs: int) -> dict[Device, float]:
        """The median of every device that runs; on made-up values where there are none."""
        if inputs is None:
            inputs = {name: made_up(self.graph.named(name)) for name in self.graph.input_names}
        values = {**self.graph.param_values, **self._params}
        if values.keys() >= set(self.graph.param_names):
            return medians(self.graph, self.benchmark(inputs, runs))
        # Made-up values of params must not stay: later runs have to report params that were never set.
        with GraphDevices(self.graph, self._policy, self._options) as scratch:
            for name in self.graph.param_names:
                known = name in values
                scratch.set_param(name, values[name] if known else made_up(self.graph.named(name)))
            return medians(self.graph, scratch.benchmark(inputs, runs))

    def _first(
        self, chain: Sequence[Device], attempt: Callable[[Device], T], verb: str
    ) -> tuple[Device, T]:
        """The first device on which an attempt succeeds, and its result."""
        attempts: list[tuple[Device, Exception]] = []
        for device in chain:
            try:
                return device, attempt(device)
            except Exception as error:
                attempts.append((device, error))
        if not attempts:
            empty = describe(
                "the chain of devices is empty", hint='name one, as in ["cuda", "cpu"]'
            )
            attempts = [(HOST_DEVICE, InputError(empty))]
        raise all_failed(verb, self.graph, attempts)


def devices_for(graph: Graph) -> list[Device]:
    """The devices of this machine that can run a graph.

    Args:
        graph: The graph, with outputs set.

    Raises:
        VerifyError: The graph is not legal.

    Example:
        >>> g = Graph()
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> Device("cpu") in devices_for(g)
        True
    """
    return GraphDevices(graph).devices


def fastest_device_for(graph: Graph, policy: DevicePolicy | None = None) -> Device:
    """The device that a policy picks for a graph.

    Args:
        graph: The graph, with outputs set.
        policy: The allowed devices and the way to choose; the least estimated time by default.

    Raises:
        VerifyError: The graph is not legal.
        DeviceUnavailableError: No device can run the graph.

    Example:
        >>> g = Graph()
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> fastest_device_for(g, DevicePolicy(allow="cpu"))
        rlx.Device('cpu')
    """
    return GraphDevices(graph, policy).fastest()
