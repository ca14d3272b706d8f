"""A graph that an application compiled itself, as a case: its identity, its reference, and checks of its results."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.dataclasses import dataclass
from rlx.errors import InputError
from rlx.ir.content import OpaqueError, content_hash
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.regress import measure
from rlx.regress.exact import difference
from rlx.regress.record_schema import Difference
from rlx.regress.regress_cases import Subject
from rlx.runtime.bind_inputs import bind_all
from rlx.runtime.compiled import CompiledGraph

SUITE = "application"
"""The suite of such cases."""

# The largest difference of an output's element from the reference that passes, in parts of the output's largest
# element, by dtype. Rounding adds up over a graph's operations. Integers have to be equal.
_TOLERANCES = {DType.F64: 1e-9, DType.F32: 1e-4, DType.F16: 1e-2, DType.BF16: 5e-2}
# Names in a record file are not longer.
_MAX_NAME = 400


@dataclass(frozen=True)
class OwnGraph:
    """A compiled graph after one run.

    Attributes:
        subject: The identity of the case.
        loaded: The graph, its inputs in storage, and copies of its outputs.
        tolerances: The largest difference that passes, by output.
    """

    subject: Subject
    loaded: measure.LoadedCase
    tolerances: tuple[float, ...]

    @property
    def device(self) -> str:
        """The device's name."""
        return str(self.loaded.compiled.device)

    @property
    def options(self) -> CompileOptions:
        """The options that the graph was compiled with."""
        return self.loaded.compiled._state.target.options

    @property
    def complete(self) -> bool:
        """True if the graph has its weights, so that it can be computed elsewhere."""
        graph = self.loaded.graph
        return set(graph.param_names) <= set(graph.param_values)

    @cached_property
    def expected(self) -> list[Array] | None:
        """The outputs in float64; None without the weights."""
        if not self.complete:
            return None
        return measure.reference(self.loaded.graph, self.loaded.inputs)

    @cached_property
    def differences(self) -> list[tuple[str, Difference]]:
        """The differences of the outputs from the reference; none without the weights."""
        if self.expected is None:
            return []
        nodes = self.loaded.graph.outputs
        return [
            (node.name or f"output_{i}", difference(got, node.dtype, want))
            for i, (node, got, want) in enumerate(
                zip(nodes, self.loaded.outputs, self.expected, strict=True)
            )
        ]

    def wrong(self) -> list[str]:
        """Lists the faults of the results: a line for each output that is too far off."""
        results = []
        for (name, item), tolerance in zip(self.differences, self.tolerances):
            if item.relative is None:
                text = f"{item.nan} NaN ({item.nan_expected} expected), {item.inf} infinite ({item.inf_expected} expected)"
            elif item.relative > tolerance:
                text = f"{item.relative:.3g} of its largest element off, tolerance {tolerance:.3g}"
            else:
                continue
            results.append(f"{self.subject.name}: output {name!r} on {self.device}: {text}")
        return results


def own_graph(
    name: str, compiled: CompiledGraph, inputs: Sequence[Any], tolerance: float | None
) -> OwnGraph:
    """Runs a graph once.

    Args:
        name: Names the case, together with the graph and the inputs.
        compiled: The graph.
        inputs: Every input in declaration order, or one table of them by name.
        tolerance: The largest difference that passes; None for that of each output's dtype.

    Raises:
        InputError: ``compiled`` is no compiled graph, or the inputs do not fit.
    """
    if not isinstance(compiled, CompiledGraph):
        raise InputError(
            "[rlx_regress] not a compiled graph",
            got=type(compiled).__name__,
            expected="a result of rlx.compile",
        )
    state = compiled._state
    graph: Graph = state.graph
    named = _by_name(graph, inputs)
    outputs = compiled.run(named)
    # The inputs of the graph, converted to their dtypes; later runs compute from the views.
    views = compiled.input_views
    for index, array in zip(state.arguments, state.lock.call(bind_all, state, named), strict=True):
        views[index][...] = array
    stored = [np.array(view) for view in views]
    single = measure.LoadedCase(graph, compiled, stored, outputs, 0, 0)
    default = [_TOLERANCES.get(node.dtype, 0.0) for node in graph.outputs]
    tolerances = tuple(default if tolerance is None else [tolerance] * len(default))
    return OwnGraph(_subject(name, single, max(tolerances, default=0.0)), single, tolerances)


def _by_name(graph: Graph, inputs: Sequence[Any]) -> Mapping[str, Any]:
    names = graph.input_names
    if len(inputs) == 1 and isinstance(inputs[0], Mapping):
        return inputs[0]
    if len(inputs) != len(names):
        raise InputError(
            "[rlx_regress] not one array for each input",
            got=len(inputs),
            expected=f"{len(names)}: {', '.join(names)}",
        )
    return dict(zip(names, inputs))


def _subject(name: str, item: measure.LoadedCase, tolerance: float) -> Subject:
    graph = item.graph
    try:
        content = content_hash(graph)
    except OpaqueError:
        # The text names the operations that are defined outside of rlx; what they do is not known.
        content = hashlib.sha256(str(graph).encode()).hexdigest()
    read = hashlib.sha256(b"".join(map(np.ndarray.tobytes, item.inputs))).hexdigest()
    attributes = f"{name}; graph {content}; inputs {read}"
    called, op = name[:_MAX_NAME], graph.name[:_MAX_NAME]
    return Subject.of(
        SUITE, called, op, graph, attributes, lambda: (graph, list(item.inputs)), tolerance
    )
