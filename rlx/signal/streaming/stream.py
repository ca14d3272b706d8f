"""The base of all streams: a compiled graph whose state stays on its device from run to run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import InputError, ShapeError
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.graph import Node
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape, size
from rlx.signal.arrays import compiled, computes_f64, real_numbers
from rlx.signal.checks import integer, one_of

if TYPE_CHECKING:
    from rlx.runtime.compiled import CompiledGraph

POLICIES = ("raise", "propagate", "skip")


class Intake:
    """Checks samples before a stream takes them.

    Args:
        where: The stream's name, for messages.
        outer: Leading dimensions of the samples.
        dtype: The dtype of the stream.
        nan: The policy for samples that are NaN or infinite, one of ``POLICIES``.

    Attributes:
        skips: Whether the stream leaves out samples that are not finite.
        taken: Samples since the beginning.

    Raises:
        InputError: There is no such policy.
    """

    def __init__(self, where: str, outer: Shape, dtype: DType, nan: str) -> None:
        one_of(where, "nan", nan, POLICIES)
        self._where, self._outer, self._dtype = where, outer, dtype.numpy
        self._raises, self.skips = nan == "raise", nan == "skip"
        self.taken = 0

    def take(self, samples: object) -> Array:
        """The samples ``[..., n]`` as an array of the stream's dtype.

        Raises:
            DTypeError: They are not real numbers.
            ShapeError: They have other leading dimensions.
            InputError: One is not finite, and the stream was told to raise then.
        """
        args = real_numbers(samples, self._where)
        if args.shape[:-1] != self._outer or args.ndim != len(self._outer) + 1:
            expected = "[" + ", ".join([*map(str, self._outer), "any number"]) + "]"
            raise ShapeError(
                f"[{self._where}] samples",
                got=args.shape,
                expected=expected,
                hint="time is the last axis",
            )
        with np.errstate(
            over="ignore"
        ):  # what is too large becomes infinite, which is checked here
            array = args.astype(self._dtype, copy=False)
        if self._raises:
            finite = np.isfinite(array)
            if not finite.all():
                self._refuse(args, finite)
        self.taken += array.shape[-1]
        return array

    def _refuse(self, array: Array, finite: Array) -> None:
        first = int((~finite).any(axis=tuple(range(finite.ndim - 1))).argmax())
        channel = np.argwhere(~finite[..., first])[0].tolist()
        pos = f"sample {self.taken + first}" + (f" of channel {channel}" if channel else "")
        raise InputError(
            f"[{self._where}] {pos} is not finite in {self._dtype}",
            got=array[(*channel, first)],
            expected="finite numbers; nothing of this piece was taken",
            hint='nan="skip" leaves such samples out, nan="propagate" computes with them',
        )


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
