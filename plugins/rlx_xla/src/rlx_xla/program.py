"""XLA programs of a graph: one executable for each device, and for each requested number of rows."""

from __future__ import annotations

import threading
from typing import Any, NamedTuple

from rlx.plugin import (
    CompileOptions,
    DeviceMemoryError,
    DynamicRows,
    Graph,
    Node,
    describe,
    dynamic_rows_of,
)
from rlx_xla.engine import jax, wide_types

# Handles up to this many bytes are copied when an output feeds them; larger ones give up their memory to it.
_DONATED_BYTES = 1 << 20
PLATFORMS = {"xla": "cpu", "cuda": "cuda", "rocm": "rocm", "tpu": "tpu"}


class ExecutableKey(NamedTuple):
    """The key of a program's executable.

    Attributes:
        device: JAX's device.
        rows: Rows that are computed, of how many; None for all.
        donated: Positions of inputs whose memory a run may take.
        cudnn: Whether attention runs in cuDNN.
    """

    device: Any
    rows: tuple[int, int] | None = None
    donated: frozenset[int] = frozenset()
    cudnn: bool = False


class Code(NamedTuple):
    """One executable.

    Attributes:
        run: Takes a list of held arrays, then the inputs; gives the outputs.
        wide: Whether an input or output has 64 bits.
        temporary: Bytes of its temporaries.
        text: The text that XLA made of it.
    """

    run: Any
    wide: bool
    temporary: int
    compiled: Any


class Compilation:
    """A graph and its compiled forms so far.

    Args:
        graph: The graph after the passes.
        options: The options of the compile.
        platform: JAX's name of the platform.
    """

    def __init__(self, graph: Graph, options: CompileOptions, platform: str) -> None:
        from rlx_xla.trace import INLINE_BYTES

        self.graph, self.options, self.platform = graph, options, platform
        self.inputs = [graph.named(name) for name in graph.input_names]
        self.params = [graph.named(name) for name in graph.param_names]
        self.constants = [
            node
            for node in graph.nodes
            if node.op == "constant" and node.attrs["value"].nbytes > INLINE_BYTES
        ]
        self.nbytes = sum(node.type.nbytes for node in self.constants)
        self._codes: dict[ExecutableKey, Code] = {}
        self._buckets: dict[tuple[int, int], Graph | None] = {}
        self._lock = threading.Lock()

    def donated(self, feeds: Any) -> frozenset[int]:
        """Returns the inputs whose memory is given to the output that feeds them."""
        return frozenset(
            index
            for index, output in feeds
            if self.inputs[index].type.nbytes >= _DONATED_BYTES
            and self.inputs[index].type == self.graph.outputs[output].type
        )

    def bucket(self, extent: DynamicRows) -> tuple[int, int] | None:
        """The number of rows that serves an extent, and of how many; None for all of them."""
        if extent.graph is None:
            return None
        rows = 1 << max(extent.actual - 1, 0).bit_length()
        key = (rows, extent.upper)
        if rows >= extent.upper:
            return None
        if key not in self._buckets:
            self._buckets[key] = dynamic_rows_of(self.graph, *key).graph
        return None if self._buckets[key] is None else key

    def code(self, key: ExecutableKey) -> Code:
        """An executable, compiled when it is first asked for."""
        with self._lock:
            if key not in self._codes:
                self._codes[key] = self._compiled(key)
            return self._codes[key]

    def _compiled(self, key: ExecutableKey) -> Code:
        graph = self.graph if key.rows is None else self._buckets[key.rows]
        assert graph is not None
        try:
            return self._built(graph, key)
        except Exception as error:
            if key.cudnn:  # it refuses some problems only when it makes a plan for them
                return self._compiled(key._replace(cudnn=False))
            if "RESOURCE_EXHAUSTED" in str(error):
                text = describe(
                    f"no room for graph {self.graph.name!r}", got=str(error).splitlines()[0]
                )
                raise DeviceMemoryError(text) from error
            raise

    def _built(self, graph: Graph, key: ExecutableKey) -> Code:
        from rlx_xla.hand import replace_references
        from rlx_xla.loop_bounds import bounded
        from rlx_xla.trace import outputs_of, stored_dtype
        from rlx_xla.values import computing

        replace_references()
        jax_ = jax()
        names, limit = graph.input_names, self.options.max_iterations
        large = [graph.nodes[node.id] for node in self._constants_of(graph)]
        fields = {
            "precision": self.options.precision,
            "platform": self.platform,
            "cudnn": key.cudnn,
        }

        def function(stored: list[Any], *inputs: Any) -> list[Any]:
            params = dict(zip((node.name for node in self.params), stored, strict=False))
            constants = {
                node.id: value
                for node, value in zip(large, stored[len(self.params) :], strict=True)
            }
            leaves = {**params, **dict(zip(names, inputs, strict=True))}
            with computing(**fields):
                if limit is None:
                    return [_owned(item) for item in outputs_of(graph, leaves, constants)]
                with bounded(jax_.numpy.int64(limit)) as left:
                    results = [_owned(item) for item in outputs_of(graph, leaves, constants)]
                return [*results, left[0]]

        def _owned(value: Any) -> Any:
            return jax_.numpy.asarray(value)

        place = jax_.sharding.SingleDeviceSharding(key.device)

        def spec(node: Node) -> Any:
            return jax_.ShapeDtypeStruct(node.shape, stored_dtype(node.dtype), sharding=place)

        inputs = [spec(graph.named(name)) for name in names]
        stored = [spec(node) for node in (*self.params, *large)]
        donated = tuple(1 + index for index in sorted(key.donated))
        with wide_types(), jax_.default_matmul_precision("highest"):
            jitted = jax_.jit(function, donate_argnums=donated, keep_unused=True)
            compiled = jitted.lower(stored, *inputs).compile()
        wide = any(item.dtype.itemsize == 8 for item in (*inputs, *stored)) or any(
            node.dtype.itemsize == 8 for node in graph.outputs
        )
        analysis = compiled.memory_analysis()
        temporary = int(getattr(analysis, "temp_size_in_bytes", 0) or 0)
        # The bound method spares each call a look-up.
        return Code(compiled.__call__, wide, temporary, compiled)

    def _constants_of(self, graph: Graph) -> list[Node]:
        """The large constants of a graph; those of one on fewer rows are the same, in the same order."""
        from rlx_xla.trace import INLINE_BYTES

        return [
            node
            for node in graph.nodes
            if node.op == "constant" and node.attrs["value"].nbytes > INLINE_BYTES
        ]
