"""The parts of a workload: operands, a graph, a float64 reference, and its two floors."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import rlx

F32 = np.float32
# Rows that are compared where the whole takes long in float64.
SAMPLED_ROWS = 48
# Sums of up to 16,384 products rounded to f32 one after the other stay below; a wrong element does not.
SUMS = 1e-5


def noise(rng, *shape, dtype=F32):
    """Random numbers of size one."""
    return rng.standard_normal(shape, F32).astype(dtype)


@dataclass(frozen=True)
class Workload:
    """One workload at one size.

    Attributes:
        values: The operands by name.
        build: Adds the workload to a graph: ``(graph, nodes by name) -> outputs``.
        reference: From the outputs to ``(found, expected)``: the part of them that is compared, and
            its values computed in float64.
        flops: Floating-point operations.
        nbytes: Bytes that must be read and written; 0 for all operands and outputs.
        weights: Operands that are params.
        peer: What peers run: the name of its kind, and settings.
        tolerance: The largest ||out - ref|| / ||ref||.
        options: How it is compiled.
    """

    values: dict[str, np.ndarray]
    build: Callable[[Any, dict[str, Any]], list[Any]]
    reference: Callable[[list[np.ndarray]], tuple[np.ndarray, np.ndarray]]
    flops: float
    nbytes: float = 0.0
    weights: tuple[str, ...] = ()
    peer: tuple[str, dict[str, Any]] = ("", {})
    tolerance: float = 1e-5
    options: rlx.CompileOptions = field(default_factory=rlx.CompileOptions)


@dataclass(frozen=True)
class BenchmarkRow:
    """A line of the table.

    Attributes:
        name: What it is called.
        family: Makes the work: ``family(rng, **size)``.
        size: The size that is timed.
        small: Sizes that are only checked, awkward ones among them.
        quick: Whether ``--quick`` runs it.
    """

    name: str
    family: Callable[..., Workload]
    size: dict[str, Any]
    small: tuple[dict[str, Any], ...]
    quick: bool = False

    def work(self, size):
        """The workload at a size, with the same data whoever asks."""
        return self.family(np.random.default_rng(7), **size)


def relative_error(result, expected):
    """||found - expected|| / ||expected||; infinite when anything is not finite."""
    if result.shape != expected.shape or not np.isfinite(result).all():
        return float("inf")
    wide = expected.astype(np.float64)
    norm = float(np.linalg.norm(wide.ravel()))
    off = float(np.linalg.norm((result.astype(np.float64) - wide).ravel()))
    return off / norm if norm else off


def error_of(work, outputs):
    """The relative error of a run; infinite when an output holds a NaN anywhere."""
    for output in outputs:
        if output.dtype.kind == "f" and not np.isfinite(output).all():
            return float("inf")
    return relative_error(*work.reference(outputs))


def wide(*arrays):
    """The same numbers in float64."""
    return [array.astype(np.float64) for array in arrays]


def rows_of(count, limit=SAMPLED_ROWS):
    """Rows spread over all, the first and the last among them."""
    return np.unique(np.linspace(0, count - 1, min(count, limit)).astype(int))


def by_rows(x, reference):
    """A reference that computes a sample of the rows of ``x``; outputs have the same rows."""

    def compare(outputs):
        chosen = rows_of(len(x))
        return outputs[0][chosen], reference(x[chosen].astype(np.float64))

    return compare


def graph_of(work):
    """The graph of a workload; weights are params, everything else is an input."""
    g = rlx.Graph("benchmark")
    nodes = {
        name: (g.param if name in work.weights else g.input)(name, value.shape, value.dtype.name)
        for name, value in work.values.items()
    }
    g.set_outputs(work.build(g, nodes))
    return g


def touched(work):
    """Bytes of all operands and outputs."""
    outputs = sum(node.type.nbytes for node in graph_of(work).outputs)
    return float(outputs + sum(value.nbytes for value in work.values.values()))
