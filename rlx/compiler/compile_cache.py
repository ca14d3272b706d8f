"""The compile cache: graphs that were compiled before, in this process or by another one.

An entry on disk carries this user's seal and is used as it is. Plans in model files are not trusted: they say what was
decided; ``derive`` checks it and writes the kernel calls anew. A model file's plan serves the graph of that file alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import sys
import warnings
import weakref
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np

from rlx import flags
from rlx.backends.base import CompileOptions
from rlx.backends.registry import backend
from rlx.build_digest import build_digest
from rlx.compiler.cache_stats import count
from rlx.compiler.disk import disk_cache
from rlx.compiler.loading import LoadedGraph, load
from rlx.compiler.lowered_module import Decisions, LoweredModule
from rlx.compiler.plan_codec import KIND, MalformedError, pack, sources_of, unpack
from rlx.compiler.signed_cache import sealed_entries
from rlx.compiler.target import Target
from rlx.dataclasses import dataclass
from rlx.errors import MALFORMED, RlxError, users_level
from rlx.ir import container
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.spans import phase
from rlx.lru import ON_DEVICES, Lru

# Graphs kept in memory, and bytes of their constants and kernel sources.
MAX_GRAPHS = 64
MAX_BYTES = 256 << 20
T = TypeVar("T")
_PLAIN = (type(None), int, float, str, bool)


# Lowered graphs, each with the source lines that its notes and messages name.
_Kept = Lru[str, tuple[LoweredModule, tuple[str, ...]]]


class _Plans:
    """The plans of a model file, by name, and what became of them: the loaded graph's own."""

    def __init__(self, raw: Mapping[str, Array]) -> None:
        self.raw = raw
        self.kept: _Kept = Lru(MAX_GRAPHS, MAX_BYTES)


_kept: _Kept = Lru(MAX_GRAPHS, MAX_BYTES)
_of_files: weakref.WeakKeyDictionary[Graph, _Plans] = weakref.WeakKeyDictionary()


def clear_cache() -> int:
    """Forgets every compiled graph: in this process, on its devices, and in the cache folder for all processes.

    Graphs in use stay as they are, with the kernels that they use. Nothing happens on disk with ``RLX_CACHE=off``.

    Returns:
        How many bytes that freed in the cache folder.

    Example:
        >>> import rlx
        >>> rlx.clear_cache() >= 0
        True
    """
    _kept.clear()
    for on_device in list(ON_DEVICES):
        on_device.clear()
    for plans in list(_of_files.values()):
        plans.kept.clear()
    wanted = flags.CACHE.get()
    return 0 if wanted == "off" else disk_cache(wanted).clear()


def lowered_for(graph: Graph, target: Target) -> LoweredModule:
    """Lowers a graph, or finds what an equal one became for such a target; nothing is loaded.

    What is lowered here is not kept: ``build`` takes it, and keeps it with what loading adds.

    Args:
        graph: A verified graph; it is not changed.
        target: The device and its options.

    Raises:
        UnsupportedOpError: The target has no kernel for an op.
        DeviceMemoryError: The graph is above a limit.
    """
    if flags.CACHE.get() != "off" and target.reads_kernels:
        try:
            key = f"{content_hash(graph)} {target_text(target)}"
        except OpaqueError:
            return _lower(graph, target)
        result = _in_memory(graph, target, key, tuple(sources_of(graph)))
        if result is not None:
            return result
    return _lower(graph, target)


def build(graph: Graph, target: Target, ready: LoweredModule | None = None) -> LoadedGraph:
    """Lowers and loads a graph, or only loads it where an equal one was lowered for such a target.

    Args:
        graph: A verified graph; it is not changed.
        target: The device and its options.
        ready: The result of ``lowered_for`` for the two, if there is one.

    Returns:
        The lowered graph, which others may share and nobody may change, with its executable.

    Raises:
        UnsupportedOpError: The target has no kernel for an op.
        CompileError: A kernel does not compile.
        DeviceMemoryError: The graph is above a limit.
    """
    wanted = flags.CACHE.get()
    # A backend without kernels gets the graph nearly as it is: there is nothing to gain by a cache.
    if wanted == "off" or not target.reads_kernels:
        return _fresh(graph, target, ready)
    try:
        with phase("hash"):
            key = f"{content_hash(graph)} {target_text(target)}"
    except OpaqueError as error:
        result = _fresh(graph, target, ready)
        return result._replace(lowered=_refused(result.lowered, error))
    plans = _of_files.get(graph)
    with phase("cache"):
        sources = tuple(sources_of(graph))
        name = unsealed_name(key, target)
        output = _in_memory(graph, target, key, sources)
    if output is not None:
        return load(output, target)
    if name is None:
        result = _fresh(graph, target, ready)
        text = "nothing is kept on disk, rlx was packaged without a digest"
        result = result._replace(lowered=result.lowered.noted("cache", text))
        count("unidentified")
        _kept.put(key, (result.lowered, sources), _nbytes(result.lowered))
        return result
    request = _Request(graph, target, name, sources)
    raw = None if plans is None else plans.raw.get(name)
    if plans is not None and raw is not None:
        stored = _planned(request, raw)
        if stored is not None:
            # Kept for this file's graph alone: the plan may compute something else on purpose.
            plans.kept.put(key, (stored.lowered, sources), _nbytes(stored.lowered))
            return stored
    stored = _unsealed(request)
    if stored is None:
        stored = _fresh(graph, target, ready)
        with phase("store"):
            stored = stored._replace(lowered=_sealed(request, stored.lowered))
    _kept.put(key, (stored.lowered, sources), _nbytes(stored.lowered))
    return stored


def unsealed_name(key: str, target: Target) -> str | None:
    """The name of an entry on disk; None for a build of rlx without a digest."""
    build = build_id(target.info.backend)
    return None if build is None else hashlib.sha256(f"{key} {build}".encode()).hexdigest()


@dataclass(frozen=True)
class CacheEntry:
    """An entry of a cache.

    Attributes:
        name: The name under which it is stored.
        raw: Its container.
    """

    name: str
    raw: bytes


def packed(graph: Graph, target: Target, lowered: LoweredModule) -> CacheEntry:
    """Packs a lowered graph as a plan that ``offer`` takes.

    Raises:
        OpaqueError: It can't be stored.
    """
    name = unsealed_name(f"{content_hash(graph)} {target_text(target)}", target)
    if name is None:
        raise OpaqueError("an rlx that was packaged without its digest")
    data, arrays = pack(lowered, sources_of(graph))
    return CacheEntry(name, container.dump(KIND, {"name": name, "lowered": data}, arrays))


def offer(graph: Graph, plans: Mapping[str, Array], build: object) -> None:
    """Lets a graph be loaded from the plans in the model file that it came from.

    Args:
        graph: The graph; equal graphs don't use these plans.
        plans: The results of ``packed`` by name: the bytes in the file.
        build: The ``build_digest`` of the rlx that made them; None if the file does not say.
    """
    here = build_digest()
    if plans and here is not None and build != here:
        count("refused")
        text = "were built by another version of rlx; they are made again"
        warnings.warn(f"the compiled plans of the model {text}", RuntimeWarning, stacklevel=3)
        return
    _of_files[graph] = _Plans(dict(plans))


@dataclass(frozen=True)
class _Request:
    """A compile: the graph, its target, the name of its cache entry, and its source lines."""

    graph: Graph
    target: Target
    name: str
    sources: tuple[str, ...]


def _planned(request: _Request, raw: Array) -> LoadedGraph | None:
    """Checks and loads a plan of a model file; None where it is not usable."""
    where = "the model's plan"

    def make() -> LoadedGraph:
        with phase("cache"):
            if raw.nbytes > container.MAX_BYTES:
                text = f"it has {raw.nbytes} bytes, at most {container.MAX_BYTES} are read"
                raise MalformedError(text)
            # Copied, so that later changes of the file have no effect.
            result = container.load(raw.tobytes(), where)
            # A plan under another plan's name is one of another graph.
            if result.kind != KIND or result.data["name"] != request.name:
                raise MalformedError("the entry belongs to another name")
            decisions = unpack(result.data["lowered"], result.arrays, request.sources)
            lowered = _derive(request.graph, request.target, decisions)
        return load(lowered, request.target)

    result = _usable(where, make)
    if result is not None:
        count("model_hits")
    return result


def _usable(where: str, make: Callable[[], T]) -> T | None:
    """Calls a function that reads a file; gives None, after a warning, where the contents fail a check."""
    try:
        return make()
    except (RlxError, *MALFORMED) as error:
        count("damaged" if isinstance(error, container.ContainerError) else "refused")
        said = error if isinstance(error, RlxError) else f"{type(error).__name__}: {error}"
        text = f"{where}, a compiled graph, is not used and is made again: {said}"
        warnings.warn(text, RuntimeWarning, stacklevel=users_level())
        return None


def _unsealed(request: _Request) -> LoadedGraph | None:
    """Reads and loads an entry of the cache folder; None where there is no usable one."""
    entries = sealed_entries()
    if entries is None:
        return None
    name = entries.name("lowered", request.name)

    def make() -> LoweredModule | None:
        result = entries.get(name)
        if result is None:
            return None
        lowered, sources, packed = result
        retained = lowered, sources
        lowered = _with_lines(request.graph, request.target, retained, request.sources)
        return lowered if packed is None else _with_program(lowered, request.target, packed)

    with phase("cache"):
        try:
            lowered = _usable(name, make)
        except OpaqueError:
            return None
    if lowered is None:
        return None
    result = load(lowered, request.target)
    count("disk_hits")
    return result


def _with_program(lowered: LoweredModule, target: Target, packed: Any) -> LoweredModule:
    """A lowered graph with the program that a plug-in makes of what it packed."""
    graph, schedule, plan = lowered.graph, lowered.schedule, lowered.plan
    program = target.backend.unpacked(packed, target.info, graph, schedule, plan, target.options)
    return dataclasses.replace(lowered, program=program)


def _with_lines(
    graph: Graph,
    target: Target,
    results: tuple[LoweredModule, tuple[str, ...]],
    sources: tuple[str, ...],
) -> LoweredModule:
    """Returns the lowered form of an equal graph, with the source lines of this graph.

    Raises:
        OpaqueError: It holds something that is more than data.
    """
    lowered, lines = results
    return (
        lowered
        if lines == sources
        else _derive(graph, target, unpack(*pack(lowered, lines), sources))
    )


def _lower(graph: Graph, target: Target) -> LoweredModule:
    """Lowers a graph. The first graph that no cache holds imports the passes and the scheduler."""
    from rlx.compiler.lowering import lower

    return lower(graph, target)


def _derive(graph: Graph, target: Target, decisions: Decisions) -> LoweredModule:
    """Lowers a graph again from its decisions; see ``_lower`` for the import."""
    from rlx.compiler.lowering import derive

    return derive(graph, target, decisions)


def _fresh(graph: Graph, target: Target, ready: LoweredModule | None) -> LoadedGraph:
    lowered = ready or _lower(graph, target)
    count("lowered")
    return load(lowered, target)


def _in_memory(
    graph: Graph, target: Target, key: str, sources: tuple[str, ...]
) -> LoweredModule | None:
    plans = _of_files.get(graph)
    result = _kept.get(key) or (plans and plans.kept.get(key))
    if not result:
        return None
    try:
        lowered = _with_lines(graph, target, result, sources)
    except OpaqueError:
        return None
    count("memory_hits")
    return lowered


def _sealed(request: _Request, lowered: LoweredModule) -> LoweredModule:
    """Writes an entry where there is a key to seal it. Returns the lowered graph, with a note where it can't be stored."""
    entries = sealed_entries()
    if entries is None:
        return lowered
    stored, packed = lowered, None
    ours = type(request.target.backend.plain).__module__.startswith("rlx.")
    if lowered.program is not None and not ours:
        # A plug-in's program may hold addresses; what it packs is data.
        stored, packed = dataclasses.replace(lowered, program=None), lowered.program.pack()
    try:
        if entries.put(entries.name("lowered", request.name), (stored, request.sources, packed)):
            count("stored")
    except OpaqueError as error:
        return _refused(lowered, error)
    return lowered


def _refused(lowered: LoweredModule, error: OpaqueError) -> LoweredModule:
    count("refused")
    return lowered.noted("cache", f"the compiled graph is not stored, because of {error}")


def _nbytes(lowered: LoweredModule) -> int:
    """Bytes of the large parts of a lowered graph: constants and the backend's program."""
    values = lowered.schedule.values if lowered.schedule is not None else ()
    arrays = {id(value.array): value.array.nbytes for value in values if value.array is not None}
    return sum(arrays.values()) + (lowered.program.nbytes if lowered.program is not None else 0)


def target_text(target: Target) -> str:
    """A text of everything in a target that lowering depends on, for use in keys.

    Raises:
        OpaqueError: An option is an object that does not say what it is.
    """
    info, runs_on = target.info, type(target.backend.plain)
    return repr(
        (
            (runs_on.__module__, runs_on.__qualname__, target.kernel_set),
            (info.backend, info.adapter, info.api, info.driver),
            sorted(info.limits.items()),
            sorted(info.features),
            _options_text(target.options),
            target.choices.text(),
        )
    )


def _options_text(options: CompileOptions) -> str:
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        listed = [value]
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            listed = [getattr(value, inner.name) for inner in dataclasses.fields(value)]
        if not all(isinstance(item, _PLAIN) for item in listed):
            raise OpaqueError(f"option {field.name}")
    return repr(options)


def build_id(name: str) -> str | None:
    """Identifies this build: a digest of rlx's sources, and versions of what it depends on.

    Entries of one build are never read by another.

    Args:
        name: Name of the backend, which says what else its programs depend on.

    Returns:
        None where rlx was packaged without its digest.
    """
    digest = build_digest()
    if digest is None:
        return None
    versions = [np.__version__, sys.byteorder, backend(name).build_id()]
    return hashlib.sha256(repr((digest, versions)).encode()).hexdigest()
