"""Session and compile: from a Graph to a CompiledGraph, one way."""

from __future__ import annotations

import copyreg
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from rlx.backends.base import CompileOptions
from rlx.backends.registry import backend
from rlx.compiler.choice import Choice
from rlx.compiler.compile_cache import build, target_text
from rlx.compiler.loading import LoadedGraph
from rlx.compiler.precomputed_params import weight_cache_of
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.compiler.target import Target
from rlx.device.names import Device, DeviceLike, info_of
from rlx.device.policy import DevicePolicy
from rlx.errors import CompileError, DeviceMemoryError, GraphError, did_you_mean
from rlx.ir.graph import Graph
from rlx.ir.input_sizes import computes_sizes
from rlx.ir.serialize import joined
from rlx.ir.spans import phase, phases
from rlx.ir.spans import progress as told
from rlx.ir.static_sizes import usual
from rlx.resource_limits import budget
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.state import unknown_name
from rlx.threads import MAX_THREADS

PRECISIONS = ("f32", "tf32", "bf16", "f16", "int8", "fast")
DENORMALS = ("flush", "keep")


# Bytes of params that are given to an executable at once; between them a compile tells how far it is, and may be cancelled.
_BATCH_BYTES = 32 << 20


class Session:
    """Compiles graphs for one device.

    Args:
        device: A device or its name; "auto" picks one per graph. A ``wgpu.GPUDevice`` of the program is
            used as it is; see ``CompiledGraph.run_gpu``.
        precision: How values of dtype f16 are computed; their storage is f16 either way. "f32" widens
            them. "f16" hands them to half-precision kernels (products, convolutions and attention, summed
            in f32) and needs an adapter with shader-f16; on matrix units (the device "dawn") it also rounds
            the operands of those of f32 to f16. "tf32" and "bf16" round the operands of products of f32 to 10 and
            to 7 bits behind the point, where a device multiplies those faster; devices without such units refuse them. On
            processors with AMX "bf16" does so for products of nine rows and more by params and constants; products of
            fewer rows with block-quantised weights are those of "int8".
            "int8", on the CPU, rounds what products with block-quantised weights (``dequant_matmul``) read to 8 bits,
            with a scale for every 32 elements. "fast" is "bf16" on processors with AMX, "int8" on others, "f16" on GPUs
            with matrix units, and "f32" elsewhere. Sums and all other operations stay f32.
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
        device: DeviceLike = "auto",
        precision: str | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        options = options or CompileOptions()
        if precision is not None:
            options = replace(options, precision=precision)
        self.options: CompileOptions = options
        self.device: Device | None = None if device == "auto" else Device.parse(device)
        _check_options(self.options)
        if self.device is not None and not Target.is_known(self.device, options):
            info = info_of(self.device)
            backend(info.backend).open_ahead(info)

    def compile(
        self,
        graph: Graph,
        params: Mapping[str, Any] | None = None,
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
    ) -> CompiledGraph:
        """Compiles a graph; it is not changed and can be compiled again.

        Args:
            graph: The graph, with outputs set.
            params: Values of params; those attached to the graph need none.
            progress: See ``rlx.compile``.
            cancel: See ``rlx.compile``.

        Returns:
            The executable.

        Raises:
            VerifyError: The graph is not legal.
            UnsupportedOpError: The device has no kernel for an op.
            DeviceMemoryError: The graph is above the memory limit.
            UnknownNameError: ``params`` has a name that the graph has not.
            InputError: A param's value does not fit.
            LimitError: Compiling it is more work than ``rlx.limits`` allows.
            CancelledError: ``cancel`` was cancelled.
        """
        if progress is None and cancel is None:
            return self._compile(graph, params)
        with watching(progress, cancel):
            return self._compile(graph, params)

    def _compile(self, graph: Graph, params: Mapping[str, Any] | None) -> CompiledGraph:
        with phases() as spans:
            _verify(graph)
            values = self._values(graph, params or {})
            choice = self.choose(graph)
            target = Target.of(choice.device, self.options)
            try:
                loaded = self._load(graph, target, choice)
            except DeviceMemoryError:
                raise
            except MemoryError as error:
                what = f"there is no memory to compile graph {graph.name!r}"
                hint = "make its tensors smaller"
                raise DeviceMemoryError(what, got=error, hint=hint) from None
        missing = set(graph.param_names)
        # The forms of the graph for other devices are dropped.
        choice = replace(choice, lowered={})
        compiled = CompiledGraph(graph, target, loaded, missing, {}, spans, choice)
        try:
            cache = None if params else weight_cache_of(graph)
            text = partial(target_text, target)
            with budget(), phase("params"), loaded.precomputed.cached(cache, text):
                for start, batch in _batches(values):
                    told(start / len(values), "params")
                    compiled.set_params(batch)
            told(1.0, "done")
        except BaseException:
            compiled.close()
            raise
        return compiled

    def _load(self, graph: Graph, target: Target, choice: Choice) -> LoadedGraph:
        """Lowers and loads a graph; one with dims for usual sizes first."""
        if not graph.dims:
            return build(graph, target, choice.lowered.get(choice.device))
        if computes_sizes(graph):
            from rlx.compiler.segmented import load_segmented

            return load_segmented(graph, target, self.options)
        from rlx.compiler.sized import load_sized

        return load_sized(graph, target, self.options)

    def choose(self, graph: Graph) -> Choice:
        """Returns the device that ``compile`` takes, and why: the requested one, or the choice of "auto".

        Args:
            graph: The graph, with outputs set.

        Raises:
            VerifyError: The graph is not legal.
            DeviceUnavailableError: No device can run it.

        Example:
            >>> import rlx
            >>> g = rlx.Graph()
            >>> g.set_outputs([g.exp(g.input("x", (4,)))])
            >>> rlx.Session("cpu").choose(g).reason
            "'cpu' was asked for"
        """
        _verify(graph)
        if self.device is not None:
            args = f"{str(self.device)!r} was asked for"
            shared = f"the program shares its wgpu device on {str(self.device)!r}"
            return Choice(self.device, args if self.device.handle is None else shared, {}, {})
        graph = usual(graph)
        policy = DevicePolicy.from_env()
        if policy.pick == "cost" or policy.device is not None:
            from rlx.compiler.device_choice import choose

            return choose(graph, self.options, policy)
        from rlx.runtime.timed_picks import TimedPicks

        device = TimedPicks(graph, policy, self.options, compile).fastest()
        return Choice(device, "least measured time per run", {}, {})

    @staticmethod
    def _values(graph: Graph, params: Mapping[str, Any]) -> dict[str, Any]:
        """The values of the params by name.

        Raises:
            UnknownNameError: ``params`` has a name that the graph has not.
        """
        values = {**graph.param_values, **params}
        names = set(graph.param_names)
        for name in values:
            if name not in names:
                raise unknown_name(graph, name, graph.param_names, "param")
        return values


def _batches(values: Mapping[str, Any]) -> Iterator[tuple[int, dict[str, Any]]]:
    """Params by name, some at a time: how many came before, and these."""
    batch: dict[str, Any] = {}
    nbytes = 0
    for i, (name, value) in enumerate(values.items()):
        batch[name] = value
        nbytes += getattr(value, "nbytes", 0)
        if nbytes > _BATCH_BYTES or i == len(values) - 1:
            yield i + 1 - len(batch), batch
            batch, nbytes = {}, 0


def _verify(graph: Graph) -> None:
    if not isinstance(graph, Graph):
        raise GraphError("not a graph", got=repr(graph), expected="a rlx.Graph")
    if not graph.verified_hash:
        with phase("verify"):
            graph.verify()


def compile(
    graph: Graph,
    device: DeviceLike = "auto",
    params: Mapping[str, Any] | None = None,
    options: CompileOptions | None = None,
    *,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> CompiledGraph:
    """Compiles a graph for a device.

    Args:
        graph: The graph, with outputs set.
        device: A device, its name, or "auto" for the one with the least estimated time; or a
            ``wgpu.GPUDevice`` of the program, which rlx then uses as well.
        params: Values of params.
        options: See ``CompileOptions``.
        progress: Called in this thread with an ``rlx.Progress``, as each phase begins and while long ones go
            on. What it raises ends the compile.
        cancel: Ends the compile from another thread: it raises ``CancelledError`` after the kernel, the node
            or the pipeline that it is at.

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
    return Session(device, options=options).compile(graph, params, progress, cancel)


def _reduce(compiled: CompiledGraph) -> tuple[Any, ...]:
    """Pickles a compiled graph by content."""
    from rlx.runtime.pickle import pickled

    state = compiled._state
    return restored, tuple(state.lock.call(pickled, state))


copyreg.pickle(CompiledGraph, _reduce)


def restored(*fields: Any) -> Any:
    """Compiles a pickled graph and restores its settings.

    Args:
        *fields: Those of ``PickledGraph``.


    Raises:
        DeviceUnavailableError: This machine has no such device.
        RlxError: As ``rlx.compile``.
    """
    from rlx.runtime.pickle import PickledGraph

    state = PickledGraph(*fields)
    graph = joined(Graph, state.graph, state.arrays)
    compiled = compile(graph, state.device, state.params, state.options)
    try:
        for name, (kind, array) in state.handles.items():
            bind = compiled.bind_gpu_handle if kind == "device" else compiled.bind_handle
            bind(name, array)
        for name, output in state.feeds.items():
            compiled.set_gpu_handle_feed(name, output)
        if state.masks is not None:
            compiled.set_moe_resident_experts_per_layer(state.masks)
        if state.capture is not None:
            compiled.enable_moe_topk_capture(state.capture)
        if state.extent is not None:
            compiled.set_active_extent(state.extent)
    except BaseException:
        compiled.close()
        raise
    return compiled


def _check_options(options: CompileOptions) -> None:
    precision = options.precision
    if precision not in PRECISIONS:
        raise CompileError(
            "no such precision", got=repr(precision), hint=did_you_mean(precision, PRECISIONS)
        )
    if options.denormals not in DENORMALS:
        expected = " or ".join(map(repr, DENORMALS))
        raise CompileError("option denormals", got=repr(options.denormals), expected=expected)
    alignment = options.arena_alignment
    if alignment < 64 or alignment & (alignment - 1):
        raise CompileError("arena_alignment", got=alignment, expected="a power of two from 64 on")
    trips = options.max_iterations
    if trips is not None and (not isinstance(trips, int) or trips < 0):
        raise CompileError("option max_iterations", got=repr(trips), expected="None or >= 0")
    limit, threads = options.memory_limit, options.threads
    if limit is not None and limit < 1:
        raise CompileError("option memory_limit", got=limit, expected="None or >= 1")
    whole = isinstance(threads, int) and not isinstance(threads, bool)
    if threads is not None and not (whole and 1 <= threads <= MAX_THREADS):
        expected = f"None or a whole number from 1 to {MAX_THREADS}"
        raise CompileError("option threads", got=repr(threads), expected=expected)
