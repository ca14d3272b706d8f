"""The compiled executables of a model: one for each set of shapes, or for a bucket of them."""

from __future__ import annotations

import time
from collections.abc import Container, Hashable, Mapping, Sequence
from typing import Protocol

from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback, watching
from rlx.dataclasses import dataclass
from rlx.errors import (
    CancelledError,
    DeviceLostError,
    InputError,
    RlxError,
    first_line,
    listed,
)
from rlx.importers.onnx.elements import Element
from rlx.importers.onnx.source import LoweredModel
from rlx.importers.onnx.values import NeedsValueError
from rlx.ir.extended import as_extended, dtype_of
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.locks import Lock
from rlx.lru import Lru
from rlx.passes.masking.dim_sizes import UnmaskableError
from rlx.runtime.session import Session
from rlx.serving.bucket_padding import Bucket, BucketFit, valid
from rlx.serving.executable_pool import ExecutablePool
from rlx.serving.import_cache import ModelFile, imported
from rlx.serving.model_buckets import Buckets, BucketsLike, Range, dims_of, shapes_with
from rlx.serving.model_inputs import carried
from rlx.serving.model_report import ModelReport, ShapesReport

# Executables of a graph that stay while nobody uses them.
_KEPT = 16
# Sets of shapes whose bucket is remembered.
_MAX_PLACES = 4096

Shapes = Mapping[str, Shape]


class ShapeRunner(Protocol):
    """An object that runs inputs of some shapes."""

    @property
    def pool(self) -> ExecutablePool:
        """The executables."""

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """The outputs, in the model's own types."""


@dataclass(frozen=True)
class Exact:
    """Runs inputs of just the shapes that it was compiled for.

    Attributes:
        lowered: The graph, as it was made of the file.
        clones: Its executables.
        plain: Whether it takes and gives the model's arrays as they are.
        report: Its row in the model's report.
    """

    lowered: LoweredModel
    pool: ExecutablePool
    plain: bool
    report: ShapesReport

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """See ``ShapeRunner``."""
        inputs = {name: carried(arrays[name]) for name in self.lowered.graph.input_names}
        with self.pool.lease() as compiled:
            result = compiled.run(inputs)
        return _stored(result, self.lowered.elements)


@dataclass(frozen=True)
class Padded:
    """Runs inputs of any shapes of a bucket.

    Attributes:
        bucket: Its graph.
        clones: The executables of that.
        elements: Element type of each output.
        report: Its row in the model's report.
    """

    bucket: Bucket
    pool: ExecutablePool
    elements: Sequence[Element]
    report: ShapesReport


@dataclass(frozen=True)
class Fitted:
    """Runs inputs of some shapes in their bucket.

    Attributes:
        padded: The bucket.
        fit: The need of the shapes.
    """

    padded: Padded
    fit: BucketFit

    @property
    def pool(self) -> ExecutablePool:
        """The executables of the bucket."""
        return self.padded.pool

    def run(self, arrays: Mapping[str, Array]) -> list[Array]:
        """See ``ShapeRunner``."""
        inputs = {name: carried(array) for name, array in arrays.items()}
        inputs = self.padded.bucket.given(self.fit, inputs)
        with self.pool.lease() as compiled:
            result = compiled.run(inputs)
        return _stored(valid(self.fit, result), self.padded.elements)


class Executables:
    """The executables of one model on one device at a time.

    Args:
        file: The model.
        session: The device.
        capacity: The maximum number of executables.
        buckets: The sizes that share an executable.
        watch: The callback and the token of compiles.

    Attributes:
        session: The device. A loss replaces it.
        choice: The reason for the device, from the last compile.
        fixed: Inputs whose contents decide shapes, found by lowering so far.
        lock: Held by the thread that compiles.
        compiles: Executables compiled so far.
    """

    def __init__(
        self,
        file: ModelFile,
        session: Session,
        capacity: int,
        buckets: BucketsLike,
        watch: tuple[ProgressCallback | None, CancelToken | None],
    ) -> None:
        self.session = session
        self.choice: Choice | None = None
        self.fixed: frozenset[str] = frozenset()
        self.lock = Lock()
        self._file, self._source, self._watch = file, file.source, watch
        self._buckets = Buckets(file.source, buckets)
        self._kept: Lru[Hashable, Exact | Padded] = Lru(capacity)
        # For inputs that are padded, the key of their bucket.
        self._bucket_of: Lru[Hashable, Hashable] = Lru(_MAX_PLACES)
        self.compiles = self._fits = 0

    def known(self, arrays: Mapping[str, Array]) -> ShapeRunner | None:
        """Returns the existing runner of such inputs; None without one."""
        return self._known(self._key(arrays))

    def _known(self, key: Hashable) -> ShapeRunner | None:
        result = self._kept.get(key)
        if isinstance(result, Exact):
            return result
        padded = self._kept.get(self._bucket_of.get(key))
        if not isinstance(padded, Padded):
            return None
        fit = padded.bucket.known(key)
        return None if fit is None else Fitted(padded, fit)

    def of(
        self,
        arrays: Mapping[str, Array],
        contents: Container[str] | None = None,
        exact: bool = False,
    ) -> ShapeRunner:
        """Returns the runner of such inputs; the caller holds the lock.

        Args:
            arrays: The inputs.
            contents: Those that have the contents of runs to come; None for all.
            exact: Whether they are not to be padded.

        Raises:
            InputError: The contents of another input decide shapes.
            RlxError: See ``rlx.onnx.Model.run``.
        """
        with watching(*self._watch):
            while True:
                self._check_contents(arrays, contents)
                key = self._key(arrays)  # another thread may have compiled it
                result = self._known(key)
                if isinstance(result, Exact) or (result is not None and not exact):
                    return result
                try:
                    return self._build(key, arrays, exact)
                except NeedsValueError as error:
                    self.fixed |= error.names

    def forget(self) -> None:
        """Closes all executables, those in use when their calls end."""
        cached = self._kept.values()
        self._kept.clear()
        for item in cached:
            item.pool.close()

    def report(self) -> ModelReport:
        """Reports the compiled executables."""
        listed = []
        for value in self._kept.values():
            report = value.report
            if isinstance(value, Padded):
                report = ShapesReport(report.dims, True, value.bucket.fits, report.seconds)
            listed.append(report)
        return ModelReport(tuple(listed), self.compiles, self._fits)

    def _build(self, key: Hashable, arrays: Mapping[str, Array], exact: bool) -> ShapeRunner:
        dims = dims_of(self._source, arrays)
        if exact or dims is None:
            reason = (
                "asked for" if exact else "the model does not say how many dimensions there are"
            )
            return self._exact(key, arrays, dims or {}, reason)
        ranges, reason = self._buckets.ranges(dims)
        if ranges:
            try:
                return self._in_bucket(key, arrays, ranges)
            except UnmaskableError as error:
                reason = str(error)
        return self._exact(key, arrays, dims, reason)

    def _exact(
        self, key: Hashable, arrays: Mapping[str, Array], dims: Mapping[str, int], reason: str
    ) -> Exact:
        began = time.perf_counter()
        lowered = self._lowered({name: array.shape for name, array in arrays.items()}, arrays)
        pool = self._compiled(lowered.graph)
        self._buckets.compiled(dims)
        report = _report({name: (size, size) for name, size in dims.items()}, began, reason)
        result = Exact(lowered, pool, self._is_plain(lowered, arrays), report)
        self._kept.put(key, result)
        return result

    def _in_bucket(
        self, key: Hashable, arrays: Mapping[str, Array], ranges: Mapping[str, Range]
    ) -> Fitted:
        """Returns the runner of such inputs in their bucket. The first inputs of a bucket compile it.

        Raises:
            UnmaskableError: Padding would change results.
        """
        began = time.perf_counter()
        shapes = {name: array.shape for name, array in arrays.items()}
        last = shapes_with(self._source, arrays, {name: high for name, (_, high) in ranges.items()})
        if any(last[name] != shapes[name] for name in self.fixed.intersection(shapes)):
            raise UnmaskableError("an input that decides shapes has dimensions that vary")
        indices = "bucket", tuple(last.items()), self._values_key(arrays)
        asked = self._looked_at(shapes, arrays)
        padded = self._kept.get(indices)
        if not isinstance(padded, Padded):
            try:
                padded = self._new_bucket(arrays, last, ranges, asked, began)
            except UnmaskableError as error:
                self._buckets.failed(ranges, str(error))
                raise
            self._kept.put(indices, padded)
        fit = padded.bucket.fit(key, lambda: asked)
        self._bucket_of.put(key, indices)
        return Fitted(padded, fit)

    def _new_bucket(
        self,
        arrays: Mapping[str, Array],
        last: Shapes,
        ranges: Mapping[str, Range],
        asked: Graph,
        began: float,
    ) -> Padded:
        """The bucket of some sizes, compiled.

        Raises:
            UnmaskableError: It can't be: padding would change results, the model is not for all of its sizes, or the
                device can't run its graph.
        """
        # In the lower half, what depends on a size differs from what it is at its end. A bucket that
        # begins below may hold sizes for which the model makes no sense.
        first = {name: max(low, high // 2 + 1) for name, (low, high) in ranges.items()}
        try:
            smallest = self._lowered(shapes_with(self._source, arrays, first), arrays)
            largest = self._lowered(last, arrays)
            bucket = Bucket(largest.graph, smallest.graph, asked)
            pool = self._compiled(bucket.graph)
        except (CancelledError, DeviceLostError, NeedsValueError):
            raise
        except RlxError as error:
            said = first_line(error)
            raise UnmaskableError(f"a bucket of {_named(ranges)} can't be made: {said}") from error
        dims = dims_of(self._source, arrays) or {}
        report = _report({n: (size, size) for n, size in dims.items()} | dict(ranges), began)
        return Padded(bucket, pool, largest.elements, report)

    def _lowered(self, shapes: Shapes, arrays: Mapping[str, Array]) -> LoweredModel:
        return self._file.lowered(*self._split(shapes, arrays))

    def _looked_at(self, shapes: Shapes, arrays: Mapping[str, Array]) -> Graph:
        """The model for shapes that it is not compiled for: it is not kept on disk."""
        self._fits += 1
        return imported(self._source, *self._split(shapes, arrays)).graph

    def _split(
        self, shapes: Shapes, arrays: Mapping[str, Array]
    ) -> tuple[dict[str, Shape], dict[str, Array]]:
        """Shapes of the inputs that stay inputs, and values of the others."""
        return (
            {name: shape for name, shape in shapes.items() if name not in self.fixed},
            {name: array for name, array in arrays.items() if name in self.fixed},
        )

    def _compiled(self, graph: Graph) -> ExecutablePool:
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

    def _check_contents(self, arrays: Mapping[str, Array], contents: Container[str] | None) -> None:
        decide = sorted(self.fixed.intersection(arrays))
        unknown = [name for name in decide if contents is not None and name not in contents]
        if unknown:
            raise InputError(
                f"the contents of {', '.join(map(repr, unknown))} decide shapes",
                where=self._source.label,
                hint="give an array instead of its shape",
            )

    def _key(self, arrays: Mapping[str, Array]) -> Hashable:
        """Returns the key of the executable for inputs."""
        shapes = tuple((name, array.shape) for name, array in arrays.items())
        return shapes, self._values_key(arrays)

    def _values_key(self, arrays: Mapping[str, Array]) -> Hashable:
        decide = sorted(self.fixed.intersection(arrays))
        return tuple((name, arrays[name].tobytes()) for name in decide)


def _stored(arrays: Sequence[Array], elements: Sequence[Element]) -> list[Array]:
    """Outputs in the model's own types."""
    return [
        as_extended(array.astype(element.numpy, copy=False), element.extended)
        for array, element in zip(arrays, elements, strict=True)
    ]


def _named(ranges: Mapping[str, Range]) -> str:
    return listed(f"{name} {low} to {high}" for name, (low, high) in ranges.items())


def _report(dims: Mapping[str, Range], began: float, reason: str = "") -> ShapesReport:
    listed = tuple((name, low, high) for name, (low, high) in dims.items())
    return ShapesReport(listed, not reason, 1, time.perf_counter() - began, reason)
