"""An ONNX model that runs on arrays of any shape: lowered and compiled once per set of shapes."""

from __future__ import annotations

import os
import threading
import warnings
from collections.abc import Container, Hashable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.compiler.device_choice import Choice
from rlx.compiler.watching import CancelToken, ProgressCallback, watching
from rlx.dataclasses import dataclass
from rlx.device.names import HOST_DEVICE, Device, DeviceLike
from rlx.errors import (
    DeviceLostError,
    InputError,
    describe,
    did_you_mean,
    users_level,
)
from rlx.importers.onnx.load import Lowered, Port, open_file
from rlx.importers.onnx.values import NeedsValueError
from rlx.ir.opdef import Array
from rlx.ir.spans import progress as tell
from rlx.lru import Lru
from rlx.many.clones import Clones
from rlx.many.kept_models import ModelFile, open_kept
from rlx.many.model_inputs import arrays_of, stand_ins
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.queued import MOST_PENDING, Queue, run_in
from rlx.runtime.session import Session
from rlx.threads import usable_cores

if TYPE_CHECKING:
    from concurrent.futures import Future

ON_LOST = ("recover", "cpu", "raise")
# Times that a run is repeated on a device that is lost under it.
_TRIES = 3
# Executables that stay while nobody uses them, and calls of ``run_async`` and ``submit`` that run at a time.
_KEPT = 16
_WORKERS = max(2, min(8, usable_cores()))


class Model:
    """An ONNX model on a device, for any number of threads.

    Each new set of input shapes is lowered and compiled when it is first run, and kept. Where a shape
    within the model depends on what an input holds (the target of a Reshape, the number of trips of a
    Loop), the model is compiled anew for new contents of that input, too. Calls from several threads run
    side by side, each on an executable of its own; these share the weights, and there are as many as
    there were calls at a time.

    Args:
        path: The file, its contents, or a binary file object, which is read to its end.
        device: A device, its name, or "auto"; or a ``wgpu.GPUDevice`` of the program.
        capacity: Sets of shapes that are kept.
        options: How graphs are compiled.
        on_lost: What a run does when the GPU is lost under it: "recover" opens it again, "cpu" goes on
            on the CPU for good, each with a ``RuntimeWarning``; "raise" raises ``DeviceLostError``.
        progress: Called while the model is compiled; see ``rlx.compile``.
        cancel: Ends a compile that is under way; see ``rlx.compile``.

    Attributes:
        inputs: What ``run`` takes: name, element type and dimensions of each.
        output_names: Names of what it returns.
        device: Where it runs: the device that was asked for, or, with "auto", the one that was chosen for
            the last compiled shapes; None before the first of them.
        choice: Why, for the last compiled shapes: an ``rlx.Choice``. None before the first of them.

    Raises:
        ImportModelError: The file can't be read.
        UnsupportedOpError: An input is of a type that rlx lacks.
        DeviceError: There is no such device here.
        InputError: ``on_lost`` is none of these.

    Example:
        ``docs/guides/onnx.md`` runs one. A file that is not there:

        >>> import rlx
        >>> try:
        ...     rlx.onnx.Model("missing.onnx", device="cpu")
        ... except rlx.ImportModelError as error:
        ...     print(str(error).splitlines()[0])
        the model can't be read
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes | BinaryIO,
        device: DeviceLike = "auto",
        *,
        capacity: int = 16,
        options: CompileOptions | None = None,
        on_lost: str = "recover",
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
    ) -> None:
        if on_lost not in ON_LOST:
            hint = did_you_mean(on_lost, ON_LOST)
            raise InputError(describe("option on_lost", got=repr(on_lost), hint=hint))
        self._on_lost = on_lost
        self._watch = progress, cancel
        file = open_file(path)
        # The session first: it opens a GPU in a thread, while the model is read.
        session = Session(device, options=options)
        self._begin(open_kept(file), session, capacity)

    def _begin(self, file: ModelFile, session: Session, capacity: int) -> None:
        self._file, self._source = file, file.source
        self._session, self._capacity = session, capacity
        self._kept: Lru[Hashable, _Compiled] = Lru(capacity)
        # Inputs whose values determine shapes. They are discovered during lowering.
        self._fixed: frozenset[str] = frozenset()
        # What ran last, if the inputs and outputs of its graph are just the model's.
        self._last: _Compiled | None = None
        self._compiling = threading.RLock()
        self._queue: Queue[list[Array]] | None = None
        self._closed = False
        self.choice: Choice | None = None

    @property
    def inputs(self) -> tuple[Port, ...]:
        """What ``run`` takes."""
        return self._source.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of what ``run`` returns."""
        return self._source.outputs

    @property
    def fixed_inputs(self) -> frozenset[str]:
        """Inputs whose contents decided a shape in a run so far: new contents are compiled anew."""
        return self._fixed

    @property
    def device(self) -> Device | None:
        """Where it runs; None before "auto" has chosen."""
        if self._session.device is not None:
            return self._session.device
        return None if self.choice is None else self.choice.device

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    def run(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        """Runs the model. Any thread may call it at any time.

        Args:
            inputs: An array for every input, of any shape that the model takes. A model of one input may be
                given its array alone.

        Returns:
            The outputs in the file's order, in the model's own types: bfloat16 as its bits in uint16, floats of
            8 and 4 bits as their codes in uint8, integers of 4 and 2 bits in int8 and uint8. Inputs are taken in
            the same form.

        Raises:
            InputError: An input is missing, or does not fit the model; or the model is closed.
            UnknownNameError: There is no such input.
            ImportModelError: The model makes no sense for these shapes.
            UnsupportedOpError: Nodes can't be imported; all of them are listed.
            DeviceLostError: The GPU was lost, and ``on_lost`` is "raise"; or it was lost again and again.
        """
        for _ in range(_TRIES):
            session = self._session
            try:
                return self._run(inputs)
            except DeviceLostError as error:
                if self._on_lost == "raise":
                    raise
                self._replace(session, error)
        return self._run(inputs)

    def compile(self, inputs: Mapping[str, Any] | Any) -> CompiledGraph:
        """A compiled graph for these inputs, for the caller's own use: one call at a time uses it.

        It is the same at every call for the same shapes, and belongs to the model, which closes it.

        Raises:
            RlxError: As ``run``.
        """
        return self._compiled(arrays_of(self._source, inputs)).clones.lend()

    def prewarm(
        self,
        shapes: Iterable[Mapping[str, Any] | Any],
        *,
        background: bool = False,
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
    ) -> Future[int]:
        """Compiles for shapes that runs will have, and makes what their first runs would make.

        Args:
            shapes: Sets of shapes. Each is a dict of sizes of symbolic dimensions, ``{"batch": 4}``, of shapes of
                inputs, ``{"x": (4, 3, 64, 64)}``, or of both; of a model of one input also its shape alone. An
                input whose contents decide shapes is given as an array.
            background: Whether it is done in a thread of its own, while this one goes on. Runs of shapes that are
                compiled already do not wait for it. At its end a program waits for it, unless it is cancelled or the
                model is closed.
            progress: Called in the thread that compiles, as by ``rlx.compile``, and with the phase "shapes" after
                each set.
            cancel: Ends it.

        Returns:
            A future of the number of sets that had to be compiled; without ``background`` it is done.

        Raises:
            InputError: A shape is missing or does not fit, there are more sets than ``capacity``, or the contents of
                an input decide shapes and are not given. With ``background`` the future has this and what follows.
            UnknownNameError: There is no such input or dimension.
            CancelledError: ``cancel`` was cancelled.
            RlxError: As ``run``.
        """
        listed = list(shapes)
        if len(listed) > self._capacity:
            raise InputError(
                describe(
                    f"{self._source.label} is to be compiled for {len(listed)} sets of shapes",
                    expected=f"at most {self._capacity}, which it keeps",
                    hint="rlx.onnx.Model(..., capacity=...)",
                )
            )
        return run_in(background, lambda: self._prewarmed(listed, progress, cancel))

    def _prewarmed(
        self, shapes: Sequence[Any], told: ProgressCallback | None, cancel: CancelToken | None
    ) -> int:
        made = 0
        with watching(told, cancel):
            for at, one in enumerate(shapes):
                arrays, contents = stand_ins(self._source, one)
                before = self._kept.get(self._key(arrays))
                found = self._compiled(arrays, contents)
                made += found is not before
                with found.clones.one() as compiled:
                    compiled.warm()
                tell((at + 1) / len(shapes), "shapes")
        return made

    def clone(self) -> Model:
        """Another model of the same file on the same device, that compiles for itself."""
        found = object.__new__(Model)
        found._on_lost, found._watch = self._on_lost, self._watch
        found._begin(self._file, self._session, self._capacity)
        return found

    # --- without waiting ---------------------------------------------------------------------------

    async def run_async(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MOST_PENDING
    ) -> list[Array]:
        """``run`` for asyncio: it runs in another thread, and the event loop goes on.

        Arrays are read when their turn comes: leave them as they are until then. A task that is cancelled takes its
        call out of the queue; one that runs already is made to the end, and its results are dropped.

        Args:
            inputs: As ``run`` takes them.
            max_pending: While so many calls wait or run, this one waits before it joins them.

        Raises:
            RlxError: As ``run``.
        """
        return await self._queued().run(inputs, max_pending=max_pending)

    def submit(
        self, inputs: Mapping[str, Any] | Any, max_pending: int = MOST_PENDING
    ) -> Future[list[Array]]:
        """``run`` in another thread.

        Args:
            inputs: As ``run`` takes them. Arrays are read when their turn comes.
            max_pending: While so many calls wait or run, this one waits.

        Returns:
            A future of the outputs. To cancel it takes the call out of the queue.
        """
        return self._queued().submit(inputs, max_pending=max_pending)

    def _queued(self) -> Queue[list[Array]]:
        with self._compiling:
            self._open()
            if self._queue is None:
                self._queue = Queue(self.run, _WORKERS, self._source.label)
            return self._queue

    # --- life --------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Lets go of everything on the device, and compiles again when it is next run.

        ``run`` does so by itself when the device is lost, unless ``on_lost`` is "raise".
        """
        with self._compiling:
            self._open()
            self._forget()

    def close(self) -> None:
        """Frees what was compiled. Calls under way end first. Closing twice does nothing."""
        with self._compiling:
            queue, self._queue, self._closed = self._queue, None, True
        if queue is not None:
            queue.close()
        with self._compiling:
            self._forget()

    def __enter__(self) -> Model:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        ports = ", ".join(map(str, self.inputs))
        return f"rlx.onnx.Model({self._source.label!r} on {self.device or 'auto'}: {ports})"

    def _open(self) -> None:
        if self._closed:
            raise InputError(describe(f"{self._source.label} is closed", hint="make a new Model"))

    def _forget(self) -> None:
        """Closes all executables, those in use when their calls end. The caller holds the lock."""
        kept, self._last = self._kept.values(), None
        self._kept.clear()
        for one in kept:
            one.clones.close()

    def _replace(self, session: Session, error: DeviceLostError) -> None:
        """Goes on after a lost device: once for all calls that it was lost under."""
        with self._compiling:
            if self._session is not session or self._closed:
                return
            where = self.device
            to_cpu = self._on_lost == "cpu"
            again = "the CPU" if to_cpu else f"{where}, which is opened again"
            first = str(error).splitlines()[0]
            warnings.warn(
                f"{where} was lost ({first}): {self._source.label} goes on on {again}",
                RuntimeWarning,
                stacklevel=users_level(),
            )
            device = HOST_DEVICE if to_cpu else session.device or "auto"
            self._session = Session(device, options=session.options)
            self._forget()

    # --- from inputs to an executable ---------------------------------------------------------------

    def _run(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        self._open()
        last = self._last
        if last is not None and type(inputs) is dict:
            compiled = last.clones.take()
            try:
                again = compiled._runs.run_fitting(inputs)
            finally:
                last.clones.give(compiled)
            if again is not None:
                return again
        arrays = arrays_of(self._source, inputs)
        found = self._compiled(arrays)
        lowered = found.lowered
        self._last = found if found.plain else None
        given = {name: _carried(arrays[name]) for name in lowered.graph.input_names}
        with found.clones.one() as compiled:
            made = compiled.run(given)
        return [
            array if array.dtype == element.numpy else array.astype(element.numpy)
            for array, element in zip(made, lowered.elements, strict=True)
        ]

    def _is_plain(self, lowered: Lowered) -> bool:
        """Whether a graph takes and gives the model's arrays as they are."""
        graph = lowered.graph
        ports = {port.name: port.element.numpy for port in self.inputs}
        held = {name: graph.named(name).dtype.numpy for name in graph.input_names}
        made = zip(graph.outputs, lowered.elements, strict=True)
        same = all(node.dtype.numpy == element.numpy for node, element in made)
        return same and held == ports and not self._fixed

    def _compiled(
        self, arrays: Mapping[str, Array], contents: Container[str] | None = None
    ) -> _Compiled:
        """What runs on such inputs; one thread at a time compiles.

        Args:
            arrays: The inputs.
            contents: Those that have the contents of runs to come; None for all.

        Raises:
            InputError: The contents of another input decide shapes.
        """
        found = self._kept.get(self._key(arrays))
        if found is not None:
            return found
        with self._compiling, watching(*self._watch):
            self._open()
            while True:
                self._check_contents(contents)
                key = self._key(arrays)  # another thread may have compiled it
                found = self._kept.get(key)
                if found is not None:
                    return found
                shapes = {n: a.shape for n, a in arrays.items() if n not in self._fixed}
                values = {n: a for n, a in arrays.items() if n in self._fixed}
                try:
                    lowered = self._file.lowered(shapes, values)
                except NeedsValueError as error:
                    self._fixed |= error.names
                    continue
                compiled = self._session.compile(lowered.graph)
                self.choice = compiled.choice
                found = _Compiled(lowered, Clones(compiled, _KEPT), self._is_plain(lowered))
                self._kept.put(key, found)
                return found

    def _check_contents(self, contents: Container[str] | None) -> None:
        unknown = [
            name for name in sorted(self._fixed) if contents is not None and name not in contents
        ]
        if unknown:
            raise InputError(
                describe(
                    f"the contents of {', '.join(map(repr, unknown))} decide shapes",
                    where=self._source.label,
                    hint="give an array in the place of its shape",
                )
            )

    def _key(self, arrays: Mapping[str, Array]) -> Hashable:
        """What tells inputs for one executable from others."""
        fixed = self._fixed
        return tuple(
            (name, array.shape, array.tobytes() if name in fixed else None)
            for name, array in arrays.items()
        )


@dataclass(frozen=True)
class _Compiled:
    """What runs on inputs of some shapes.

    Attributes:
        lowered: The graph, as it was made of the file.
        clones: Its executables.
        plain: Whether it takes and gives the model's arrays as they are.
    """

    lowered: Lowered
    clones: Clones
    plain: bool


def _carried(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An input as graphs hold it: numbers of uint64 as the bits of int64."""
    return array.view(np.int64) if array.dtype == np.uint64 else array
