"""The records' samples as runnable cases: what the conformance tests and the benchmarks share."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import REGISTRY, Array, OpDef, Sample
from rlx.ops.declare import call_with, evaluate_reference
from rlx.ops.interpret import interpret

# Where i64 wraps, changes its sign, or needs its second word.
EDGES = (
    *(
        sign * (1 << bits) + more
        for bits in (0, 16, 31, 32, 53, 62)
        for sign in (1, -1)
        for more in (-1, 0, 1)
    ),
    2**63 - 1,
    -(2**63),
    -(2**63) + 1,
)


@dataclass(frozen=True)
class Case:
    """One op on one set of operands.

    Attributes:
        opdef: The record.
        sample: The sample it comes from.
        dtypes: dtype of each operand.
        number: Position among the op's samples.
        wide: Operands of i64 that are no indices take values of all its 64 bits.
    """

    opdef: OpDef
    sample: Sample
    dtypes: tuple[DType, ...]
    number: int
    wide: bool = False

    def __str__(self) -> str:
        dtypes = "-".join(dict.fromkeys(map(str, self.dtypes)))
        return f"{self.opdef.name}-{self.number}-{dtypes}{'-wide' if self.wide else ''}"

    def graph(self) -> Graph:
        """A graph of this one op, its operands as inputs and its results as outputs."""
        g = Graph(str(self))
        inputs = [
            g.input(f"x{i}", shape, dtype)
            for i, (shape, dtype) in enumerate(zip(self.sample.shapes, self.dtypes, strict=True))
        ]
        op, attrs = self.opdef, dict(self.sample.attrs)
        if op.internal:
            result: Any = g.add_node(op, inputs, attrs)
            if len(result.types) > 1:
                result = [
                    g.add_node(PART, [result], {"index": i}) for i in range(len(result.types))
                ]
        else:
            result = call_with(getattr(g, op.name), op.signature, self._arguments(inputs))
        g.set_outputs(result)
        return g

    def _arguments(self, operands: Sequence[Any]) -> dict[str, Any]:
        """The builder's arguments: operands by name, then attributes.

        An optional operand that a sample leaves out stands among its attributes as None.
        """
        attrs = dict(self.sample.attrs)
        names = [text for text in self.opdef.operands if text.rstrip("?*") not in attrs]
        results: dict[str, Any] = {}
        for i, text in enumerate(names):
            name = text.rstrip("?*")
            if text.endswith("*"):
                results[name] = list(operands[i:])
            elif i < len(operands):
                results[name] = operands[i]
        return {**results, **attrs}

    def operands(self, seed: int = 0) -> list[Array]:
        """The operands: the sample's own, or random ones of its range."""
        rng = np.random.default_rng([seed, self.number])
        result = self._make_operands(rng)
        if not self.wide:
            return result
        names = _names(self.opdef, self.sample)
        return [
            _whole(rng, array.shape)
            if array.dtype == np.int64 and name not in self.opdef.free
            else array
            for name, array in zip(names, result, strict=True)
        ]

    def _make_operands(self, rng: np.random.Generator) -> list[Array]:
        """The operands as the sample says."""
        if self.sample.values is not None:
            return [
                np.asarray(value, dtype.numpy, order="C")
                for value, dtype in zip(self.sample.values, self.dtypes, strict=True)
            ]
        low, high = self.sample.low, self.sample.high
        results = []
        for i, (shape, dtype) in enumerate(zip(self.sample.shapes, self.dtypes, strict=True)):
            a = low[i] if isinstance(low, tuple) else low
            b = high[i] if isinstance(high, tuple) else high
            if dtype is DType.BOOL:
                results.append(rng.integers(0, 2, shape).astype(np.bool_))
                continue
            if dtype in (DType.U32, DType.U8):
                a = max(0.0, a)
            results.append(store(rng.uniform(a, b, shape), dtype))
        return results

    def expected(self, graph: Graph, operands: Sequence[Array]) -> list[Array]:
        """Computes the reference's results for the graph that ``graph`` gave."""
        if self.opdef.expand is None:
            return interpret(graph, {f"x{i}": array for i, array in enumerate(operands)})
        signature = self.opdef.signature
        args = self._arguments(operands)
        named = {name: args[name] for name in signature.parameters if name in args}
        bound = inspect.BoundArguments(signature, named)
        bound.apply_defaults()
        listed = {text.rstrip("?*") for text in self.opdef.operands}
        attrs = {k: v for k, v in bound.arguments.items() if k not in listed or v is None}
        present = tuple(
            n for n in bound.arguments if n in listed and bound.arguments[n] is not None
        )
        types = [node.type for node in graph.outputs]
        attrs = {"present": present, **attrs}
        return list(evaluate_reference(self.opdef, attrs, self.dtypes, operands, types))

    def error(
        self, graph: Graph, got: Sequence[Array], operands: Sequence[Array]
    ) -> tuple[float, float]:
        """The error of the results against the reference, and the largest that is allowed.

        Of several results it is the result closest to its limit, or furthest beyond it.
        """
        return self.difference(graph, got, self.expected(graph, operands))

    def difference(
        self, graph: Graph, got: Sequence[Array], expected: Sequence[Array]
    ) -> tuple[float, float]:
        """``error``, for results that are known to be expected."""
        pairs = [
            self._error(node, item, wanted)
            for node, item, wanted in zip(graph.outputs, got, expected, strict=True)
        ]
        return max(pairs, key=lambda pair: pair[0] / pair[1] if pair[1] else pair[0] * np.inf)

    def _error(self, node: Node, got: Array, expected: Array) -> tuple[float, float]:
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise AssertionError(
                f"{self}: got {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
            )
        if got.size == 0:
            return 0.0, 0.0
        if not node.dtype.is_float:
            return float(np.count_nonzero(got != expected)), 0.0
        allowed = self.opdef.tolerance_for(node.dtype)
        wide, ref = widen(got, node.dtype), widen(expected, node.dtype)
        if not np.array_equal(np.isnan(wide), np.isnan(ref)):
            return float("inf"), 0.0
        finite = np.isfinite(ref)
        if not np.array_equal(wide[~finite & ~np.isnan(ref)], ref[~finite & ~np.isnan(ref)]):
            return float("inf"), 0.0
        ref = ref[finite]
        difference = np.abs(wide[finite] - ref)
        if ref.size == 0:
            return 0.0, allowed
        if self.opdef.bound is not None:
            norm = float(np.linalg.norm(ref)) or 1.0
            return float(np.linalg.norm(difference)) / norm, self.opdef.bound(node)
        largest = float(np.max(np.abs(ref))) or 1.0
        return float(np.max(difference)) / largest, allowed


def _whole(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Values of i64: half of them edges, half random numbers of any magnitude."""
    random = rng.integers(-(2**63), 2**63, shape) >> rng.integers(0, 63, shape)
    return np.where(rng.integers(0, 2, shape) == 0, rng.choice(EDGES, shape), random)


def _names(opdef: OpDef, sample: Sample) -> list[str]:
    """The parameter of each operand of a sample; what it leaves out stands among its attributes."""
    names = [text.rstrip("?*") for text in opdef.operands if text.rstrip("?*") not in sample.attrs]
    names = names[: len(sample.shapes)]
    return names + names[-1:] * (len(sample.shapes) - len(names))


def _widened(case: Case) -> Case | None:
    """The case with i64 of all 64 bits in place of its main operands; None for an op without such."""
    names = _names(case.opdef, case.sample)
    main = [name not in case.opdef.free for name in names]
    # A composite's sample may state dtypes because only they fit its attributes.
    stated = case.opdef.expand is not None and case.sample.dtypes is not None
    if not any(main) or DType.I64 not in case.opdef.dtypes or stated:
        return None
    dtypes = tuple(
        DType.I64 if own else dtype for own, dtype in zip(main, case.dtypes, strict=True)
    )
    return replace(case, dtypes=dtypes, wide=True)


def cases(*, bench: bool = False, only: str | None = None) -> Iterator[Case]:
    """Every sample of every record, over the dtypes that the record takes.

    Args:
        bench: Only those large enough to be timed, in f32; otherwise only the others.
        only: Only those of the op of that name.
    """
    for opdef in list(REGISTRY.values()):
        if only not in (None, opdef.name):
            continue
        seen: set[tuple[Any, str]] = set()
        for number, sample in enumerate(opdef.samples):
            if sample.bench != bench:
                continue
            if sample.dtypes is not None:
                choices = [sample.dtypes]
            else:
                # Types that are computed in a wider one need no more than a look at the casts.
                wanted = opdef.accepts if number < 2 else opdef.dtypes
                taken = sorted(wanted, key=str)
                if bench:
                    taken = [d for d in taken if d is DType.F32] or taken[:1]
                choices = [(dtype,) * len(sample.shapes) for dtype in taken]
            for dtypes in choices:
                yield Case(opdef, sample, dtypes, number)
            wide = _widened(Case(opdef, sample, choices[0], number))
            # Samples may differ in nothing but the dtypes that are replaced.
            key = sample.shapes, str(sample.attrs)
            if wide is not None and not bench and key not in seen:
                seen.add(key)
                yield wide
