"""ONNX models that were read before: their graphs, kept in the cache folder under a digest of the file.

What reads the messages of a file is imported by the first file that is not there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.compiler.cache_stats import count
from rlx.compiler.precomputed_params import use_weight_cache
from rlx.compiler.signed_cache import Sealed, sealed_entries
from rlx.dataclasses import dataclass
from rlx.importers.onnx.source import LoweredModel, ModelBytes, ModelSource
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.opdef import Array
from rlx.ir.spans import phase
from rlx.threads import mapped

# Files above it are read anew each time: a ResNet-50 of 100 MB is digested in 50 ms, and read and lowered in as many.
MAX_BYTES = 32 << 20
# Bytes of a file that a thread digests at a time.
_PIECE = 4 << 20


def digest_of(view: memoryview) -> str:
    """A digest of the bytes of a file; large ones are digested by several threads."""
    pieces = [view[i : i + _PIECE] for i in range(0, len(view), _PIECE)]
    if len(pieces) <= 2:
        return hashlib.sha256(view).hexdigest()
    result = mapped(lambda piece: hashlib.sha256(piece).digest(), pieces, len(view))
    return hashlib.sha256(b"pieces" + b"".join(result)).hexdigest()


@dataclass(frozen=True)
class ModelFile:
    """A model with its entries in the cache folder.

    Attributes:
        source: The model.
        entries: The cache; None where nothing is kept, because it is off, has no key, or the model is large or has
            weights in other files.
        digest: That of the file's bytes.
    """

    source: ModelSource
    entries: Sealed | None
    digest: str

    def lowered(
        self,
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, Array],
        hints: Mapping[str, int],
    ) -> LoweredModel:
        """Returns the result of ``lower``, or an earlier process's result for the same file, shapes and values.

        Raises:
            RlxError: See ``lower``.
        """
        if self.entries is None:
            return imported(self.source, shapes, values, hints)
        args = [(n, a.dtype.str, a.shape, _digest(a)) for n, a in sorted(values.items())]
        asked = [(port, list(map(str, shape))) for port, shape in sorted(shapes.items())]
        name = self.entries.name("import", self.digest, self.source.label, asked, args)
        with phase("cache"):
            result = self.entries.get(name, self.source.file.array_at)
        if result is None or not _holds(result, hints):
            result = self._build_model(self.entries, name, shapes, values, hints)
        else:
            count("import_hits")
        lowered: LoweredModel = result[0]
        if result[1]:
            lowered.graph.verified_hash = result[1]
            use_weight_cache(lowered.graph, _Prepared(self.entries, name))
        return lowered

    def _build_model(
        self,
        entries: Sealed,
        name: str,
        shapes: Mapping[str, tuple[int, ...]],
        values: Mapping[str, Array],
        hints: Mapping[str, int],
    ) -> tuple[LoweredModel, str]:
        """Returns the result of ``lower`` with the graph's content hash, and caches it."""
        lowered = imported(self.source, shapes, values, hints)
        with phase("verify"):
            lowered.graph.verify()
        try:
            with phase("hash"):
                results = lowered, content_hash(lowered.graph)
        except OpaqueError:
            return lowered, ""
        places = {key: origin for key, (_, origin) in lowered.origins.items()}
        retained = LoweredModel(lowered.graph, lowered.elements)
        with phase("store"):
            _put(entries, name, (retained, results[1]), lambda array: places.get(id(array)))
        return results


def open_kept(file: ModelBytes) -> ModelFile:
    """Opens a model. Where the cache folder knows the file, its messages are read when they are needed.

    Raises:
        RlxError: See ``open_model``.
    """
    with phase("read"):
        entries = sealed_entries()
        if entries is None or len(file.view) > MAX_BYTES:
            return ModelFile(_read(file), None, "")
        digest = digest_of(file.view)
        name = entries.name("ports", digest, file.label)
        result = entries.get(name)
        if result is not None:
            return ModelFile(ModelSource(file, *result), entries, digest)
        from rlx.importers.onnx.external import has_external

        source = _read(file)
        if has_external(source):
            return ModelFile(source, None, "")
        _put(entries, name, (source.inputs, source.outputs, source.defaults))
        return ModelFile(source, entries, digest)


def _read(file: ModelBytes) -> ModelSource:
    from rlx.importers.onnx.load import check_operators, read_model

    source = read_model(file)
    check_operators(source)
    return source


def _holds(result: Any, hints: Mapping[str, int]) -> bool:
    """Returns whether a model of the cache was lowered for sizes like these, which become its hints."""
    assumptions = result[0].graph.assumptions
    if assumptions is None:
        return True
    assumptions.hints.update(hints)
    return bool(assumptions.hold(hints))


def imported(
    source: ModelSource,
    shapes: Mapping[str, tuple[int, ...]],
    values: Mapping[str, Array],
    hints: Mapping[str, int],
) -> LoweredModel:
    """``lower`` of a model, counted and timed; nothing is kept of it."""
    from rlx.importers.onnx.load import lower

    count("imported")
    with phase("nodes"):
        return lower(source, shapes, values, hints)


@dataclass(frozen=True)
class _Prepared:
    """Prepared params of a model's weights; see ``rlx.compiler.precomputed_params.WeightCache``."""

    entries: Sealed
    model: str

    def get(self, target: str, names: Sequence[str]) -> Mapping[str, Array] | None:
        results: Mapping[str, Array] | None = self.entries.get(self._name(target, names))
        return results

    def put(self, target: str, values: Mapping[str, Array]) -> None:
        _put(self.entries, self._name(target, list(values)), dict(values))

    def _name(self, target: str, names: Sequence[str]) -> str:
        return self.entries.name("prepared", self.model, target, list(names))


def _put(entries: Sealed, name: str, record: Any, elsewhere: Any = None) -> None:
    try:
        entries.put(name, record, elsewhere)
    except OpaqueError:
        pass  # too large, most of all: it is made again the next time


def _digest(array: Array) -> str:
    return hashlib.sha256(array.tobytes()).hexdigest()
