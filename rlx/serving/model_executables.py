"""The compiled executables of a model: each serves all sizes of the dimensions that the model leaves open, or some of them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Mapping, Sequence

from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.dataclasses import dataclass
from rlx.errors import (
    CancelledError,
    DeviceLostError,
    InputError,
    LimitError,
    RlxError,
    UnknownSizeError,
    first_line,
)
from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.source import LoweredModel, ModelSource, Port, dims_of
from rlx.ir.extended import as_extended, dtype_of
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape, as_size
from rlx.locks import Lock
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session
from rlx.serving.import_cache import ModelFile
from rlx.serving.model_inputs import carried
from rlx.serving.model_report import ModelReport, ShapesReport
from rlx.sizes import Dim
from rlx.sizes.program import holds

# Executables of a graph that stay while nobody uses them.
_KEPT = 16
Sizes = dict[str, int]


class ExecutablePool:
    """A compiled graph and clones of it, each used by one caller at a time. Clones share its params.

    Args:
        first: The graph.
        kept: Most executables that are kept while nobody uses them; there are as many as callers at a time.

    Attributes:
        made: Executables made so far.
    """

    def __init__(self, first: CompiledGraph, kept: int) -> None:
        self.first = first
        self.made = 1
        self._kept = kept
        self._idle = [first]
        self._lock = Lock()
        self._closed = self._lent = False

    @contextlib.contextmanager
    def lease(self) -> Iterator[CompiledGraph]:
        """Returns an idle executable."""
        compiled = self.take()
        try:
            yield compiled
        finally:
            self.give(compiled)

    def take(self) -> CompiledGraph:
        """The executable that was used last, or a new one where all are in use."""
        try:
            return self._idle.pop()
        except IndexError:
            self.made += 1
            return self.first.clone()

    def give(self, compiled: CompiledGraph) -> None:
        """Returns an executable of ``take`` to the pool."""
        with self._lock:
            # All others are clones of the first one.
            first = compiled is self.first
            keeps = not self._closed and (first or len(self._idle) < self._kept)
            if first and self._lent:
                return
            if keeps:
                self._idle.append(compiled)
        if not keeps:
            _closed(compiled)

    def lend(self) -> CompiledGraph:
        """Returns the first executable; ``take`` no longer returns it."""
        with self._lock:
            self._lent = True
            if self.first in self._idle:
                self._idle.remove(self.first)
        return self.first

    def close(self) -> None:
        """Closes all executables; an executable in use is closed on its return."""
        with self._lock:
            self._closed = True
            idle, self._idle = self._idle, []
            if self._lent and self.first not in idle:
                idle.append(self.first)
        for compiled in idle:
            _closed(compiled)


def _closed(compiled: CompiledGraph) -> None:
    with contextlib.suppress(RlxError):  # what a lost device held can't be freed, and need not be
        compiled.close()


@dataclass(frozen=True)
class ShapeRunner:
    """Runs inputs of the sizes that it was compiled for.

    Attributes:
        inputs: The names of the inputs.
        fixed: The sizes of dimensions that it was compiled for.
        takes: Tells whether it serves values of the other dimensions.
        open: Their dims, by the dimensions' names in the order of the arguments of ``takes``.
        lowered: The graph, as it was made of the file.
        pool: Its executables.
        plain: Whether it takes and gives the model's arrays as they are.
        report: Its row in the model's report.
    """

    inputs: tuple[str, ...]
    fixed: Mapping[str, int]
    takes: Callable[..., bool]
    open: Mapping[str, Dim]
    lowered: LoweredModel
    pool: ExecutablePool
    plain: bool
    report: ShapesReport

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """The outputs, in the model's own types."""
        inputs = {name: carried(arrays[name]) for name in self.lowered.graph.input_names}
        with self.pool.lease() as compiled:
            result = compiled.run(inputs)
        return _stored(result, self.lowered.elements)

    def serves(self, sizes: Sizes) -> bool:
        """Returns whether it runs inputs of some sizes."""
        if any(sizes.get(name) != size for name, size in self.fixed.items()):
            return False
        values = [sizes.get(name, 0) for name in self.open]
        return all(value > 1 for value in values) and self.takes(*values)

    def dims(self, sizes: Sizes) -> dict[str, int]:
        """Returns the values of the dims of its graph for some sizes."""
        return {dim.name: sizes[name] for name, dim in self.open.items()}


class Executables:
    """The executables of one model on one device at a time.

    Args:
        file: The model.
        session: The device.
        capacity: The maximum number of executables.
        watch: The callback and the token of compiles.
        values: Inputs that are fixed, by name.

    Attributes:
        session: The device. A loss replaces it.
        choice: The reason for the device, from the last compile.
        lock: Held by the thread that compiles.
        compiles: Executables compiled so far.
    """

    def __init__(
        self,
        file: ModelFile,
        session: Session,
        capacity: int,
        watch: tuple[ProgressCallback | None, CancelToken | None],
        values: Mapping[str, Array],
    ) -> None:
        self.session = session
        self.choice: Choice | None = None
        self.lock = Lock()
        self._file, self._source, self._watch = file, without(file.source, values), watch
        self._values = values
        self._capacity = capacity
        # Threads read the list without the lock, so it is replaced and never changed.
        self._runners: list[ShapeRunner] = []
        # By the identity of a runner, the number of its last use.
        self._used: dict[int, int] = {}
        self._uses = 0
        # Dimensions that the model needs as numbers, and why.
        self._needed: dict[str, str] = {}
        self.compiles = 0

    def known(self, arrays: Mapping[str, Array], exact: bool = False) -> ShapeRunner | None:
        """Returns the existing runner of such inputs; None without one.

        Args:
            arrays: The inputs.
            exact: Whether it has to be compiled for their sizes alone.
        """
        names, sizes = tuple(arrays), sizes_of(self._source, arrays)
        for runner in reversed(self._runners):
            if runner.serves(sizes) and runner.inputs == names and not (exact and runner.open):
                self._uses += 1
                self._used[id(runner)] = self._uses
                return runner
        return None

    def of(self, arrays: Mapping[str, Array], exact: bool = False) -> ShapeRunner:
        """Returns the runner of such inputs; the caller holds the lock.

        Args:
            arrays: The inputs.
            exact: Whether it has to be compiled for their sizes alone.

        Raises:
            RlxError: See ``rlx.onnx.Model.run``.
        """
        with watching(*self._watch):
            # Another thread may have compiled it.
            return self.known(arrays, exact) or self._keep(self._build(arrays, exact))

    def forget(self) -> None:
        """Closes all executables, those in use when their calls end."""
        runners, self._runners = self._runners, []
        for runner in runners:
            runner.pool.close()

    def report(self) -> ModelReport:
        """Reports the compiled executables."""
        return ModelReport(tuple(runner.report for runner in self._by_use()), self.compiles)

    def _keep(self, runner: ShapeRunner) -> ShapeRunner:
        """Keeps a runner, in the place of the one that was used longest ago where there are too many.

        That one is dropped, not closed: another thread may be about to run it.
        """
        runners = self._by_use()
        self._runners = [*runners[max(0, len(runners) + 1 - self._capacity) :], runner]
        self._used = {id(kept): self._used.get(id(kept), 0) for kept in runners}
        self._uses += 1
        self._used[id(runner)] = self._uses
        return runner

    def _by_use(self) -> list[ShapeRunner]:
        """The runners, the one that was used longest ago first."""
        return sorted(self._runners, key=lambda runner: self._used.get(id(runner), 0))

    def _build(self, arrays: Mapping[str, Array], exact: bool) -> ShapeRunner:
        """Compiles for inputs: for all sizes of their dimensions that the model does not need as numbers.

        Dimensions of sizes 0 and 1 are fixed: an axis of size 1 may be broadcast.
        """
        sizes = sizes_of(self._source, arrays)
        dims = dims_of(self._source, {name: array.ndim for name, array in arrays.items()})
        while not exact:
            fixed = {n: s for n, s in sizes.items() if s < 2 or n in self._needed}
            if len(fixed) == len(sizes):
                break
            try:
                rest = {name: dims[name] for name in sizes if name not in fixed}
                return self._compiled(arrays, sizes, fixed, rest)
            except UnknownSizeError as error:
                names = {name for name in sizes.keys() - fixed if dims[name].name in error.names}
                self._needed |= dict.fromkeys(names or sizes.keys() - fixed, first_line(error))
            except (CancelledError, DeviceLostError, InputError, LimitError):
                raise
            except RlxError as error:
                # For these sizes alone the model may be right: a size may be broadcast to another one.
                result = self._compiled(arrays, sizes, sizes, {}, first_line(error))
                self._needed |= dict.fromkeys(sizes, first_line(error))
                return result
        return self._compiled(arrays, sizes, sizes, {}, "asked for" if exact else "")

    def _compiled(
        self,
        arrays: Mapping[str, Array],
        sizes: Sizes,
        fixed: Sizes,
        dims: Mapping[str, Dim],
        reason: str = "",
    ) -> ShapeRunner:
        """Compiles for some fixed sizes, and for any sizes of the other dimensions."""
        began = time.perf_counter()
        shapes = {
            port.name: _shape(port, arrays[port.name].shape, dims)
            for port in self._source.given(arrays)
        }
        hints = {dim.name: sizes[name] for name, dim in dims.items()}
        lowered = self._file.lowered(shapes, self._values, hints)
        assumed = lowered.graph.assumptions
        # Guards of sizes that the graph computes are checked when it runs.
        guards = [
            guard for guard in (assumed.guards if assumed else ()) if guard.names() <= hints.keys()
        ]
        pool = self._pool(lowered.graph)
        reasons = {name: self._needed[name] for name in fixed if name in self._needed}
        report = ShapesReport(
            tuple((name, fixed.get(name)) for name in sizes),
            time.perf_counter() - began,
            reason or "; ".join(dict.fromkeys(reasons.values())),
        )
        return ShapeRunner(
            tuple(arrays),
            dict(fixed),
            holds(guards, [dim.name for dim in dims.values()]),
            dims,
            lowered,
            pool,
            self._is_plain(lowered, arrays),
            report,
        )

    def _pool(self, graph: Graph) -> ExecutablePool:
        compiled = self.session.compile(graph)
        self.choice = compiled.choice
        self.compiles += 1
        return ExecutablePool(compiled, _KEPT)

    def _is_plain(self, lowered: LoweredModel, arrays: Mapping[str, Array]) -> bool:
        """Returns whether a graph takes and gives the model's arrays unchanged."""
        graph = lowered.graph
        ports = {port.name: port.element.numpy for port in self._source.given(arrays)}
        stored = {name: graph.named(name).dtype.numpy for name in graph.input_names}
        result = zip(graph.outputs, lowered.elements, strict=True)
        same = all(
            node.dtype.numpy == element.numpy and dtype_of(element.extended) is None
            for node, element in result
        )
        return same and stored == ports


def without(source: ModelSource, values: Mapping[str, Array]) -> ModelSource:
    """A model without some of its inputs, which are fixed."""
    inputs = tuple(port for port in source.inputs if port.name not in values)
    defaults = tuple(port for port in source.defaults if port.name not in values)
    return ModelSource(source.file, inputs, source.outputs, defaults)


def sizes_of(source: ModelSource, arrays: Mapping[str, Array]) -> Sizes:
    """The sizes of the dimensions that a model leaves open, by name; ``input[axis]`` where the file says none."""
    results: Sizes = {}
    for port in source.given(arrays):
        shape = arrays[port.name].shape
        for dim, size in zip(port.axes(len(shape)), shape, strict=True):
            if isinstance(dim, str):
                results[dim] = size
    return results


def _shape(port: Port, shape: Shape, dims: Mapping[str, Dim]) -> Shape:
    """The shape of an input with dims in the place of sizes."""
    pairs = zip(port.axes(len(shape)), shape, strict=True)
    return tuple(as_size(dims.get(str(name), size)) for name, size in pairs)


def _stored(arrays: Sequence[Array], elements: Sequence[Element]) -> list[Array]:
    """Outputs in the model's own types."""
    return [
        as_extended(array.astype(element.numpy, copy=False), element.extended)
        for array, element in zip(arrays, elements, strict=True)
    ]
