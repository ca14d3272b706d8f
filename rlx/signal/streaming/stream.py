"""The base of all streams: a compiled graph whose state stays on its device from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import InputError
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape, size
from rlx.signal.arrays import compiled, computes_f64
from rlx.signal.checks import integer
from rlx.signal.streaming.intake import Intake

if TYPE_CHECKING:
    from rlx.runtime.compiled import CompiledGraph


class Stream:
    """A graph that takes a block, a state and settings, and gives a result and the next state.

    A state is an input of the graph that keeps its value on the device, and that takes over an output
    after each run. Settings are small inputs that the host writes before a run. A stream belongs to one
    thread at a time.

    Args:
        shape: Leading dimensions of the samples, or their one size.
        dtype: "f32" or "f64".
        device: Where it runs.
        nan: The policy for samples that are NaN or infinite.
    """

    _runs: CompiledGraph
    _views: dict[str, Array]
    _states: tuple[str, ...]
    _settings: dict[str, Array]

    def __init__(self, shape: int | Sequence[int], dtype: DTypeLike, device: Any, nan: str) -> None:
        self._where = type(self).__name__
        self._outer = dimensions(self._where, shape)
        self._dtype = DType.parse(dtype)
        if self._dtype not in (DType.F32, DType.F64):
            raise InputError(f"[{self._where}] dtype", got=self._dtype, expected="f32 or f64")
        self._device = device
        self._intake = Intake(self._where, self._outer, self._dtype, nan)

    def _wide(self) -> DType:
        """Returns the dtype of sums over the whole signal: f64 if the device computes it."""
        return DType.F64 if computes_f64(self._device) else self._dtype

    def _load(self, result: Node, states: dict[str, Node]) -> None:
        """Compiles the graph, of which each state takes over an output after every run, and resets the stream."""
        stored = {name: node for name, node in states.items() if size(node.shape)}
        graph = result.graph
        graph.set_outputs([result, *stored.values()])
        self._runs = compiled(graph, self._device)
        self._states = tuple(stored)
        for i, name in enumerate(stored, 1):
            self._runs.bind_gpu_handle(name, np.zeros(stored[name].shape, stored[name].dtype.numpy))
            self._runs.set_gpu_handle_feed(name, i)
        self._views = dict(zip(graph.input_names, self._runs.input_views, strict=True))
        self._settings = {n: view for n, view in self._views.items() if n not in stored}
        self._local = self._runs.capabilities.host_memory
        self.reset()

    def _step(self, wanted: bool = True) -> Array:
        """Runs on what stands in the views. Gives a view of the result that the next run overwrites."""
        if self._local:
            return self._runs.run_slots()[0]
        # States are outputs too; only the result is read back from the device, where it is wanted.
        result = self._runs.run_read_outputs(self._settings, [0] if wanted else [])
        return result[0] if wanted else np.empty(0)

    def _set_state(self, name: str, value: Array) -> None:
        """Gives a state a value; one without elements needs none."""
        if name in self._states:
            self._runs.bind_gpu_handle(name, value)

    def reset(self) -> None:
        """Forgets everything: the next sample is the first one."""
        for name in self._states:
            self._set_state(name, np.zeros_like(self._views[name]))
        self._intake.taken = 0


def dimensions(where: str, shape: Any) -> Shape:
    """A shape that may be given as its one size.

    Raises:
        InputError: It is something else.
    """
    try:
        sizes = tuple(shape) if np.iterable(shape) else (shape,)
        return tuple(integer(where, "shape", item, 0) for item in sizes)
    except InputError:
        raise InputError(
            f"[{where}] shape",
            got=repr(shape),
            expected="the number of channels, or the leading dimensions of the samples",
        ) from None
