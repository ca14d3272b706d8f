"""The measured cases: graphs with inputs. Each has a digest that stays the same from release to release."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.dataclasses import dataclass
from rlx.errors import InputError, did_you_mean
from rlx.files import UnfitFileError, digest_of_file
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.opdef import REGISTRY, Array, Sample
from rlx.model_files import load
from rlx.ops.conformance_cases import Case, cases
from rlx.regress import pipelines, small_models
from rlx.regress.record_schema import COLD
from rlx.runtime.device_bench import made_up

_USUAL = CompileOptions()
Make = Callable[[], tuple[Graph, list[Array]]]


@dataclass(frozen=True)
class Subject:
    """A graph, its inputs, and the identity of both.

    Attributes:
        suite: The suite that it belongs to.
        name: For people.
        op: The operation, pipeline or model.
        shapes: Shapes of the inputs.
        dtypes: dtypes of the inputs.
        attributes: All else that decides the result, as text.
        make: Gives the graph and the inputs.
        tolerance: The largest ``Difference.relative`` that passes; None where nothing says.
        timed: Whether its time tells anything; small cases are there for their numbers.
        seed: Seed of the inputs.
        options: How the graph is compiled.
    """

    suite: str
    name: str
    op: str
    shapes: tuple[tuple[int, ...], ...]
    dtypes: tuple[str, ...]
    attributes: str
    make: Make
    tolerance: float | None = None
    timed: bool = True
    seed: int = 0
    options: CompileOptions = _USUAL

    @property
    def digest(self) -> str:
        """The identity: the same whatever other subjects there are."""
        said = [self.suite, self.op, self.shapes, self.dtypes, self.attributes, self.seed]
        return hashlib.sha256(json.dumps(said).encode()).hexdigest()[:16]

    @staticmethod
    def of(
        suite: str,
        name: str,
        op: str,
        graph: Graph,
        attributes: str,
        make: Make,
        tolerance: float | None = None,
    ) -> Subject:
        """A subject whose inputs are those of a graph."""
        nodes = [graph.named(each) for each in graph.input_names]
        shapes, dtypes = (
            tuple(node.shape for node in nodes),
            tuple(str(node.dtype) for node in nodes),
        )
        return Subject(suite, name, op, shapes, dtypes, attributes, make, tolerance)


def stated(value: Any) -> str:
    """An attribute as text: arrays by dtype, shape and digest, tables in the order of their names."""
    if isinstance(value, np.ndarray):
        digest = hashlib.sha256(np.ascontiguousarray(value).tobytes()).hexdigest()[:16]
        return f"{value.dtype}{list(value.shape)}:{digest}"
    if isinstance(value, Graph):
        return hashlib.sha256(str(value).encode()).hexdigest()[:16]
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{k}: {stated(value[k])}" for k in sorted(value)) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(stated, value)) + "]"
    if callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return str(value)


def subjects(suites: Sequence[str], quick: bool = False) -> list[Subject]:
    """The subjects of some suites, each once.

    Args:
        suites: Names of ``SUITES``, and files that hold models.
        quick: Fewer of them.

    Raises:
        InputError: There is no such suite, or a file holds no model.
        OSError: A file can't be read.
    """
    results: dict[str, Subject] = {}
    for suite in suites:
        if suite in SUITES:
            result = SUITES[suite](quick)
        elif Path(suite).suffix:
            result = iter([_model(suite)])
        else:
            hint = did_you_mean(suite, tuple(SUITES)) or f"{', '.join(SUITES)}, or a model's file"
            raise InputError(f"no suite is named {suite!r}", hint=hint)
        for item in result:
            known = results.setdefault(item.digest, item)
            assert (known.name, known.suite) == (item.name, item.suite), f"{known} and {item}"
    return list(results.values())


def _ops(quick: bool) -> Iterator[Subject]:
    """The samples that are large enough to be timed, then small ones of every dtype for their numbers."""
    seen: set[tuple[str, tuple[DType, ...]]] = set()
    for case in cases(bench=True):
        if not (quick and (case.opdef.name, ()) in seen):
            yield _of_case(case, timed=True)
        seen.add((case.opdef.name, ()))
    for case in cases():
        key = case.opdef.name, case.dtypes[:1]
        empty = any(0 in shape for shape in case.sample.shapes)
        plain = all(dtype is DType.F32 for dtype in case.dtypes[:1])
        if empty or key in seen or case.wide or (quick and not plain):
            continue
        seen.add(key)
        yield _of_case(case, timed=False)
    yield from _numbers()


# Folding would compute an operation whose operands are constants by the reference, instead of the kernel. On one thread a
# kernel is what is measured; how threads wake up and where they run differs from process to process, and is measured by
# the other suites.
_ALONE = CompileOptions(fold=False, threads=1)


def _of_case(case: Case, timed: bool) -> Subject:
    sample = case.sample
    # A case's number decides its inputs; others before it would change them.
    case = replace(case, number=0)
    attributes = {**sample.attrs, "range": [sample.low, sample.high]}
    if sample.values is not None:
        attributes["values"] = [np.asarray(value) for value in sample.values]

    def make() -> tuple[Graph, list[Array]]:
        graph = case.graph()
        graph.name = case.opdef.name
        return graph, case.operands()

    shapes = "x".join("-".join(map(str, shape)) or "0d" for shape in sample.shapes)
    name = f"{case.opdef.name} {shapes} {'-'.join(dict.fromkeys(map(str, case.dtypes)))}"
    bound = case.opdef.bound is not None
    dtype = next((d for d in case.dtypes if d.is_float), None)
    return Subject(
        "ops",
        name if timed else f"{name} small",
        case.opdef.name,
        tuple(sample.shapes),
        tuple(map(str, case.dtypes)),
        stated(attributes),
        make,
        None if bound or dtype is None else case.opdef.tolerance_for(dtype),
        timed,
        options=_ALONE,
    )


# Numbers where drivers differ: zeros, subnormal numbers, the ends of the range, infinity and NaN.
_EDGES = [0.0, 1e-45, 1e-40, 1.1754942e-38, 1.17549435e-38, 1e-30, 1e-5, 0.5, 1.0, 1.5, 3.0]
_EDGES += [89.0, 1e5, 16777217.0, 1e30, 3.4028235e38, float("inf"), float("nan")]


def _numbers() -> Iterator[Subject]:
    """Elementwise operations on every pair of edges; what is subnormal may be flushed, and is seen."""
    line = np.array([sign * x for x in _EDGES for sign in (1, -1)], np.float32)
    pairs = np.repeat(line, len(line)), np.tile(line, len(line))
    for opdef in REGISTRY.values():
        count = len(opdef.operands)
        if not opdef.elementwise or opdef.internal or opdef.expand or count not in (1, 2):
            continue
        if DType.F32 not in opdef.dtypes or opdef.name == "cast" or opdef.free:
            continue
        values = pairs[:count] if count == 2 else (line,)
        sample = Sample(tuple(v.shape for v in values), values=values)
        subject = _of_case(Case(opdef, sample, (DType.F32,) * count, 0), False)
        # No tolerance: a GPU may flush subnormal numbers and may be wrong about NaN.
        yield replace(subject, name=f"{opdef.name} edges", tolerance=None)


# Tolerances of pipelines and models in f32, and of a model with activations in eight bits.
_TOLERANCE, _STEPS = 1e-4, 2e-2


def _built(suite: str, name: str, build: Callable[[Graph], Sequence[Array]]) -> Subject:
    """A graph that a table's function builds. The name identifies it: nodes may be others in other releases."""

    def make() -> tuple[Graph, list[Array]]:
        graph = Graph(name)
        return graph, list(build(graph))

    tolerance = _STEPS if name == "eight_bits" else _TOLERANCE
    return Subject.of(suite, name, name, make()[0], "", make, tolerance)


_TABLES = {"signal": pipelines.TABLE, "models": small_models.TABLE}


def _tabled(suite: str, quick: bool) -> Iterator[Subject]:
    return (_built(suite, name, build) for name, build in _TABLES[suite].items())


def _cold(quick: bool) -> Iterator[Subject]:
    """One pipeline and one model; only the first result of a new process counts."""
    for table, name in (("signal", "welch_peaks"), ("models", "convolutions")):
        yield replace(_built(COLD, name, _TABLES[table][name]), timed=False)


SUITES: Mapping[str, Callable[[bool], Iterator[Subject]]] = {
    "ops": _ops,
    **{name: partial(_tabled, name) for name in _TABLES},
    COLD: _cold,
}


def _model(path: str) -> Subject:
    """A model's file, on made-up inputs."""
    try:
        digest = digest_of_file(path)
    except UnfitFileError as error:
        raise InputError(str(error)) from error

    def make() -> tuple[Graph, list[Array]]:
        graph, _ = load(path, {})
        return graph, [made_up(graph.named(name)) for name in graph.input_names]

    graph, notes = load(path, {})
    name = Path(path).name
    return Subject.of("model", name, name, graph, "; ".join([digest, *notes]), make)
