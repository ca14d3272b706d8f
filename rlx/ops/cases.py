"""The records' samples as runnable cases: what the conformance tests and the benchmarks share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import REGISTRY, Array, OpDef, Sample
from rlx.ops.record import evaluate


@dataclass(frozen=True)
class Case:
    """One op on one set of operands.

    Attributes:
        opdef: The record.
        sample: The sample it comes from.
        dtypes: dtype of each operand.
        number: Position among the op's samples.
    """

    opdef: OpDef
    sample: Sample
    dtypes: tuple[DType, ...]
    number: int

    def __str__(self) -> str:
        dtypes = "-".join(dict.fromkeys(map(str, self.dtypes)))
        return f"{self.opdef.name}-{self.number}-{dtypes}"

    def graph(self) -> tuple[Graph, Node]:
        """A graph of this one op, its operands as inputs."""
        g = Graph(str(self))
        inputs = [
            g.input(f"x{at}", shape, dtype)
            for at, (shape, dtype) in enumerate(zip(self.sample.shapes, self.dtypes, strict=True))
        ]
        op, attrs = self.opdef, dict(self.sample.attrs)
        if op.internal:
            node = g.add_node(op, inputs, attrs)
        elif op.operands[-1].endswith("*"):
            node = getattr(g, op.name)(inputs, **attrs)
        else:
            names = [text.rstrip("?*") for text in op.operands]
            # An optional operand that a sample leaves out stands among its attributes as None.
            absent = [name for name in names if name in attrs]
            given = [name for name in names if name not in absent]
            for name in absent:
                attrs.pop(name)
            node = getattr(g, op.name)(**dict(zip(given, inputs, strict=False)), **attrs)
        g.set_outputs([node])
        return g, node

    def operands(self, seed: int = 0) -> list[Array]:
        """The operands: the sample's own, or random ones of its range."""
        if self.sample.values is not None:
            return [
                np.asarray(value, dtype.numpy, order="C")
                for value, dtype in zip(self.sample.values, self.dtypes, strict=True)
            ]
        rng = np.random.default_rng([seed, self.number])
        low, high = self.sample.low, self.sample.high
        made = []
        for at, (shape, dtype) in enumerate(zip(self.sample.shapes, self.dtypes, strict=True)):
            a = low[at] if isinstance(low, tuple) else low
            b = high[at] if isinstance(high, tuple) else high
            if dtype is DType.BOOL:
                made.append(rng.integers(0, 2, shape).astype(np.bool_))
                continue
            if dtype is DType.U32:
                a = max(0.0, a)
            made.append(np.asarray(rng.uniform(a, b, shape), dtype.numpy))
        return made

    def error(self, node: Node, got: Array, operands: list[Array]) -> tuple[float, float]:
        """The error of a result against the reference, and the largest that is allowed."""
        expected = evaluate(node, operands)
        if got.shape != expected.shape or got.dtype != expected.dtype:
            raise AssertionError(
                f"{self}: got {got.dtype}{got.shape}, expected {expected.dtype}{expected.shape}"
            )
        if got.size == 0:
            return 0.0, 0.0
        if expected.dtype.kind != "f":
            return float(np.count_nonzero(got != expected)), 0.0
        wide, ref = got.astype(np.float64), expected.astype(np.float64)
        if not np.array_equal(np.isnan(wide), np.isnan(ref)):
            return float("inf"), 0.0
        finite = np.isfinite(ref)
        if not np.array_equal(wide[~finite & ~np.isnan(ref)], ref[~finite & ~np.isnan(ref)]):
            return float("inf"), 0.0
        difference, ref = np.abs(wide - ref)[finite], ref[finite]
        if ref.size == 0:
            return 0.0, 0.0
        if self.opdef.bound is not None:
            norm = float(np.linalg.norm(ref)) or 1.0
            return float(np.linalg.norm(difference)) / norm, self.opdef.bound(node)
        largest = float(np.max(np.abs(ref))) or 1.0
        return float(np.max(difference)) / largest, self.opdef.tolerance_for(node.dtype)


def cases(*, bench: bool = False) -> Iterator[Case]:
    """Every sample of every record, over the dtypes that the record takes.

    Args:
        bench: Only those large enough to be timed, in f32; otherwise only the others.
    """
    for opdef in list(REGISTRY.values()):
        for number, sample in enumerate(opdef.samples):
            if sample.bench != bench:
                continue
            if sample.dtypes is not None:
                choices = [sample.dtypes]
            else:
                taken = sorted(opdef.dtypes, key=str)
                if bench:
                    taken = [d for d in taken if d is DType.F32] or taken[:1]
                choices = [(dtype,) * len(sample.shapes) for dtype in taken]
            for dtypes in choices:
                yield Case(opdef, sample, dtypes, number)
