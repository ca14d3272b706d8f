"""An ONNX model that runs on arrays of any shape: lowered and compiled once for all sizes of its dimensions."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, Never

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import STEP, CancelToken, ProgressCallback, watching
from rlx.device.names import HOST_DEVICE, Device, DeviceLike
from rlx.errors import (
    ClosedError,
    DeviceLostError,
    ImportModelError,
    InputError,
    SizesError,
    did_you_mean,
    first_line,
    users_level,
)
from rlx.importers.onnx.source import Port, open_file
from rlx.ir.opdef import Array
from rlx.ir.spans import progress as tell
from rlx.runtime.closing import Closing
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.executor import CallQueue, run_in
from rlx.runtime.run import QueuedRuns
from rlx.runtime.session import Session
from rlx.serving.import_cache import ModelFile, open_kept
from rlx.serving.model_executables import Executables, ShapeRunner, sizes_of, without
from rlx.serving.model_inputs import arrays_of, stand_ins, values_of
from rlx.serving.model_report import ModelReport
from rlx.threads import usable_cores

if TYPE_CHECKING:
    from concurrent.futures import Future

ON_LOST = ("recover", "cpu", "raise")
_OPTIONS = ("device", "capacity", "values", "options", "on_lost", "progress", "cancel")
# The counterparts of the options of onnxruntime.InferenceSession.
_DEVICES = 'device="auto", "cpu", "webgpu" or another of rlx.available_devices() takes the place of providers'
_ELSEWHERE = {
    "providers": _DEVICES,
    "provider_options": _DEVICES,
    "sess_options": "options=rlx.CompileOptions(threads=...) takes its place",
    "buckets": "a model takes any size of its dimensions without them",
}
# Times that a run is repeated on a device that is lost under it.
_TRIES = 3
# Calls of ``run_async`` and ``submit`` that run at a time.
_WORKERS = max(2, min(8, usable_cores()))


# How many executables are kept, who watches compiles, and inputs that are fixed.
_How = tuple[int, tuple[ProgressCallback | None, CancelToken | None], Mapping[str, Array]]


class Model(QueuedRuns, Closing):
    """An ONNX model on a device, for any number of threads.

    It is lowered and compiled once, when it is first run, for all sizes of its symbolic dimensions. It is compiled again for
    a dimension of size 0 or 1, and for sizes of which something in the model is decided otherwise: ``report`` tells.
    A dimension that an operator needs as a number is compiled for each of its sizes. Shapes may depend on the contents of
    inputs (the target of a Reshape, the number of trips of a Loop, the boxes that a detector keeps). Calls from several
    threads run side by side, each on an executable of its own; these share the weights, and there are as many as there were
    calls at a time.

    Args:
        path: The file, its contents, or a binary file object, which is read to its end.
        device: A device, its name, or "auto"; or a ``wgpu.GPUDevice`` of the program.
        capacity: Executables that are kept.
        values: Inputs that are fixed, by name: ``run`` takes none for them. Inputs whose contents decide axes or attributes
            (the ``axes`` of a ReduceSum) need it.
        options: How graphs are compiled.
        on_lost: The reaction of a run to the loss of its GPU: "recover" opens it again, "cpu" goes on
            on the CPU for good, each with a ``RuntimeWarning``; "raise" raises ``DeviceLostError``.
        progress: Called while the model is compiled; see ``rlx.compile``.
        cancel: Ends a compile that is under way; see ``rlx.compile``.
        **others: Nothing: an option that there is not is refused with what takes its place.

    Attributes:
        inputs: The arguments of ``run``: name, element type and dimensions of each.
        defaults: Inputs that have a value in the file. ``run`` may be given another one, which is compiled for anew.
        output_names: Names of what it returns.
        device: Where it runs: the device that was asked for, or, with "auto", the choice for the last compiled shapes;
            None before the first compile.
        choice: Why, for the last compiled shapes: an ``rlx.Choice``.

    Raises:
        ImportModelError: It is no ONNX model; ``ModelFileError`` where the file can't be read.
        UnsupportedOpError: An input is of a type that rlx lacks, or operators are not known; all of them are listed.
        DeviceError: There is no such device here.
        InputError: ``on_lost`` is none of these, or a value does not fit its input.
        UnknownNameError: ``values`` names no input.

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
        capacity: int = 32,
        values: Mapping[str, Any] | None = None,
        options: CompileOptions | None = None,
        on_lost: str = "recover",
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
        **others: Never,
    ) -> None:
        for name in others:
            hint = _ELSEWHERE.get(name) or did_you_mean(name, _OPTIONS)
            raise InputError(f"rlx.onnx.Model has no option {name!r}", hint=hint)
        if on_lost not in ON_LOST:
            hint = did_you_mean(on_lost, ON_LOST)
            raise InputError("option on_lost", got=repr(on_lost), hint=hint)
        self._on_lost = on_lost
        file = open_file(path)
        # The session first: it opens a GPU in a thread, while the model is read.
        session = Session(device, options=options)
        opened = open_kept(file)
        fixed = values_of(opened.source, values or {})
        self._begin(opened, session, (capacity, (progress, cancel), fixed))

    def _begin(self, file: ModelFile, session: Session, how: _How) -> None:
        self._file, self._source, self._how = file, without(file.source, how[2]), how
        self._executables = Executables(file, session, *how)
        # The last executable, if the inputs and outputs of its graph are just the model's.
        self._last: ShapeRunner | None = None
        self._queue: CallQueue[list[Array]] | None = None
        self._closed = False

    @property
    def inputs(self) -> tuple[Port, ...]:
        """The inputs of ``run``."""
        return self._source.inputs

    @property
    def defaults(self) -> tuple[Port, ...]:
        """Inputs that have a value in the file, which ``run`` takes in the place of another one."""
        return self._source.defaults

    @property
    def output_names(self) -> tuple[str, ...]:
        """Names of the results of ``run``."""
        return self._source.outputs

    @property
    def device(self) -> Device | None:
        """The device; None before "auto" has chosen."""
        if self._executables.session.device is not None:
            return self._executables.session.device
        return None if self.choice is None else self.choice.device

    @property
    def choice(self) -> Choice | None:
        """Why the device was chosen, for the last compiled shapes; None before the first of them."""
        return self._executables.choice

    @property
    def closed(self) -> bool:
        """True if ``close`` was called."""
        return self._closed

    def run(self, inputs: Mapping[str, Any] | Any, *others: Never) -> list[Array]:
        """Runs the model. Any thread may call it at any time.

        Args:
            inputs: An array for every input, of any shape that the model takes, and for each of ``defaults`` whose
                value in the file it replaces in this run. A model of one input may be given its array alone.
            *others: Nothing: all outputs are returned, and no list of them is taken.

        Returns:
            The outputs in the file's order, in the model's own types. Those that NumPy lacks (bfloat16, floats of 8 and
            4 bits, integers of 4 and 2 bits) are arrays of ml_dtypes where that package is installed; else bfloat16 is
            its bits in uint16, floats are their codes in uint8, and integers are int8 and uint8. Inputs are taken in
            either form.

        Raises:
            InputError: An input is missing, or does not fit the model.
            ClosedError: The model is closed.
            UnknownNameError: There is no such input.
            ImportModelError: The model makes no sense for these shapes.
            UnsupportedOpError: Nodes can't be imported; all of them are listed.
            DeviceLostError: The GPU was lost, and ``on_lost`` is "raise"; or it was lost again and again.
        """
        if others:
            raise InputError(
                "run takes the inputs alone, and returns all outputs",
                got=f"{len(others) + 1} arguments",
                expected="model.run({name: array, ...})",
                hint="one output of several is outputs[model.output_names.index(name)]",
            )
        for _ in range(_TRIES):
            session = self._executables.session
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
        return self._compiled(arrays_of(self._source, inputs), exact=True).pool.lend()

    def prewarm(
        self,
        shapes: Iterable[Mapping[str, Any] | Any],
        *,
        background: bool = False,
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
    ) -> Future[int]:
        """Compiles for shapes of later runs, and prepares their first runs.

        Args:
            shapes: Sets of shapes. Each is a dict of sizes of symbolic dimensions, ``{"batch": 4}``, of shapes of
                inputs, ``{"x": (4, 3, 64, 64)}``, or of both; of a model of one input also its shape alone.
            background: Whether it is done in a thread of its own, while this one goes on. Runs of shapes that are
                compiled already do not wait for it. At its end a program waits for it, unless it is cancelled or the
                model is closed.
            progress: Called in the thread that compiles, as by ``rlx.compile``, and with the phase "shapes" after
                each set.
            cancel: Ends it.

        Returns:
            A future of the number of sets that had to be compiled; without ``background`` it is done.

        Raises:
            InputError: A shape is missing or does not fit.
                With ``background`` the future has this and what follows.
            UnknownNameError: There is no such input or dimension.
            CancelledError: ``cancel`` was cancelled.
            RlxError: As ``run``.
        """
        listed = list(shapes)
        return run_in(background, lambda: self._prewarmed(listed, progress, cancel))

    def _prewarmed(
        self, shapes: Sequence[Any], told: ProgressCallback | None, cancel: CancelToken | None
    ) -> int:
        result = 0
        with watching(told, cancel, len(shapes)):
            for i, shape in enumerate(shapes):
                self._open()
                arrays = stand_ins(self._source, shape)
                before = self._executables.compiles
                runner = self._compiled(arrays)
                result += self._executables.compiles - before
                with runner.pool.lease() as compiled:
                    if runner.open:
                        compiled.set_sizes(**runner.dims(sizes_of(self._source, arrays)))
                    # Zeros may make the model compute sizes that there are not. Then it is compiled all the same.
                    with suppress(SizesError):
                        compiled.warm()
                tell((i + 1) / len(shapes), STEP)
        return result

    def report(self) -> ModelReport:
        """Reports the compiled executables, with the sizes that they serve, the reasons and compile times."""
        return self._executables.report()

    def clone(self, device: DeviceLike | None = None) -> Model:
        """Another model of the same file, that compiles for itself.

        Args:
            device: Where it runs; None for the same device.

        Raises:
            DeviceError: There is no such device here.
        """
        result = object.__new__(Model)
        result._on_lost = self._on_lost
        session = self._executables.session
        if device is not None:
            session = Session(device, options=session.options)
        result._begin(self._file, session, self._how)
        return result

    # --- without waiting ---------------------------------------------------------------------------

    def _queued(self) -> CallQueue[list[Array]]:
        with self._executables.lock:
            self._open()
            if self._queue is None or self._queue.forked:
                self._queue = CallQueue(_WORKERS, self._source.label)
            return self._queue

    # --- life --------------------------------------------------------------------------------------

    def recover(self) -> None:
        """Lets go of everything on the device, and compiles again when it is next run.

        ``run`` does so by itself when the device is lost, unless ``on_lost`` is "raise".
        """
        with self._executables.lock:
            self._open()
            self._forget()

    def close(self) -> None:
        """Frees the compiled graphs. Calls under way end first. Closing twice does nothing."""
        self._closed = True  # at once, so that prewarm ends after the shape that it compiles
        with self._executables.lock:
            queue, self._queue = self._queue, None
        if queue is not None:
            queue.close()
        with self._executables.lock:
            self._forget()

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickles by the file's path, or by its bytes where it was given those; with the device that was asked for.

        Where it is read, the model compiles for itself. Callbacks of ``progress`` and ``cancel`` stay behind.

        Raises:
            DeviceError: The device is one of the program (a ``wgpu.GPUDevice``).
            ClosedError: It is closed.
        """
        self._open()
        capacity, _, values = self._how
        session, file = self._executables.session, self._source.file
        how = {
            "capacity": capacity,
            "values": values,
            "options": session.options,
            "on_lost": self._on_lost,
        }
        args = bytes(file.view) if file.path is None else file.path
        return _restored, (args, len(file.view), session.device or "auto", how)

    def __repr__(self) -> str:
        ports = ", ".join(map(str, self.inputs))
        return f"rlx.onnx.Model({self._source.label!r} on {self.device or 'auto'}: {ports})"

    def _open(self) -> None:
        if self._closed:
            raise ClosedError(f"{self._source.label} is closed", hint="make a new Model")

    def _forget(self) -> None:
        """Closes all executables, those in use when their calls end. The caller holds the lock."""
        self._last = None
        self._executables.forget()

    def _replace(self, session: Session, error: DeviceLostError) -> None:
        """Continues after a lost device: once for all calls that it was lost under."""
        with self._executables.lock:
            if self._executables.session is not session or self._closed:
                return
            where = self.device
            to_cpu = self._on_lost == "cpu"
            again = "the CPU" if to_cpu else f"{where}, which is opened again"
            first = first_line(error)
            warnings.warn(
                f"{where} was lost ({first}): {self._source.label} continues on {again}",
                RuntimeWarning,
                stacklevel=users_level(),
            )
            device = HOST_DEVICE if to_cpu else session.device or "auto"
            self._executables.session = Session(device, options=session.options)
            self._forget()

    # --- from inputs to an executable ---------------------------------------------------------------

    def _run(self, inputs: Mapping[str, Any] | Any) -> list[Array]:
        self._open()
        last = self._last
        if last is not None and type(inputs) is dict:
            compiled = last.pool.take()
            try:
                again = compiled._run_dict(inputs)
            finally:
                last.pool.give(compiled)
            if again is not None:
                return again
        arrays = arrays_of(self._source, inputs)
        result = self._compiled(arrays)
        self._last = result if result.plain else None
        return result.run(arrays)

    def _compiled(self, arrays: Mapping[str, Array], exact: bool = False) -> ShapeRunner:
        """Returns the runner of such inputs; one thread at a time compiles."""
        result = self._executables.known(arrays, exact)
        if result is not None:
            return result
        with self._executables.lock:
            self._open()
            return self._executables.of(arrays, exact)


def _restored(file: Path | bytes, size: int, device: DeviceLike, how: Mapping[str, Any]) -> Model:
    """The model of a pickle.

    Raises:
        ImportModelError: The file is not there, or has another size.
    """
    result = Model(file, device, **how)
    got = len(result._source.file.view)
    if got != size:
        raise ImportModelError(
            "the file of the pickled model was replaced",
            where=str(file),
            got=f"{got} bytes",
            expected=f"{size} bytes",
        )
    return result
