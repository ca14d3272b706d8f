"""A graph for a range of shapes: runs pad their inputs, and the graph masks the padding."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from rlx.dataclasses import dataclass
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.ir.shape import Shape
from rlx.ir.spans import phase
from rlx.lru import Lru
from rlx.passes.masking.dim_sizes import LENGTHS, Axes, UnmaskableError, cut

if TYPE_CHECKING:
    from rlx.passes.masking.analysis import Study

# Sets of shapes whose lengths are remembered.
_MAX_FITS = 4096


@dataclass(frozen=True)
class BucketFit:
    """The requirements of a run of some shapes on a bucket.

    Attributes:
        lengths: How many elements are valid.
        outputs: For each output, the shape of what is valid, and the axes it lies along.
    """

    lengths: Array
    outputs: tuple[tuple[Shape, Axes], ...]


class Bucket:
    """The graph of a bucket.

    Args:
        largest: The graph for the largest shapes of the bucket.
        smallest: The graph for the smallest ones: it tells what varies.
        asked: The graph for shapes that a run has.

    Attributes:
        graph: The masked graph.

    Raises:
        UnmaskableError: Padding would change results. The text says which node sees it.
    """

    def __init__(self, largest: Graph, smallest: Graph, asked: Graph) -> None:
        # The rules of all operations: a program whose lengths do not vary needs none of them.
        from rlx.passes.masking.mask_rewrite import masked

        self._largest, self._smallest = largest, smallest
        result = self._studied(asked)
        self._signature = result.signature()
        with phase("mask"):
            self.graph = masked(result)
        self._shapes = {node.name: node.shape for node in largest.nodes if node.op == "input"}
        self._fits: Lru[Hashable, BucketFit] = Lru(_MAX_FITS)

    def known(self, key: Hashable) -> BucketFit | None:
        """Returns the known requirements of runs of some shapes; None if they are unknown."""
        return self._fits.get(key)

    def fit(self, key: Hashable, build: Callable[[], Graph]) -> BucketFit:
        """Returns the requirements of runs of some shapes; their graph is built once, to check that it fits.

        Args:
            key: The key of the shapes.
            build: Gives the graph for them.

        Raises:
            UnmaskableError: It does not fit.
            RlxError: As ``build``.
        """
        result = self._fits.get(key)
        if result is None:
            exact = build()
            studied = self._studied(exact)
            if studied.signature() != self._signature:
                raise UnmaskableError("the graph computes something else for these shapes")
            shapes = [node.shape for node in exact.outputs]
            result = BucketFit(studied.values, tuple(zip(shapes, studied.outputs, strict=True)))
            self._fits.put(key, result)
        return result

    @property
    def fits(self) -> int:
        """Sets of shapes that are known to fit."""
        return len(self._fits)

    def _studied(self, exact: Graph) -> Study:
        from rlx.passes.masking.analysis import study

        with phase("mask"):
            return study([self._largest, self._smallest, exact])

    def given(self, fit: BucketFit, arrays: Mapping[str, Array]) -> dict[str, Array]:
        """Inputs of the masked graph, in its order.

        Args:
            fit: The need of the shapes.
            arrays: The inputs of the graph that is not padded.
        """
        results = {name: _padded(arrays[name], shape) for name, shape in self._shapes.items()}
        results[LENGTHS] = fit.lengths
        return results


def valid(fit: BucketFit, results: Sequence[Array]) -> list[Array]:
    """Returns the valid part of a masked graph's outputs; an output with padding is copied."""
    outputs = []
    for array, (shape, axes) in zip(results, fit.outputs, strict=True):
        part = cut(array, axes, shape)
        outputs.append(part if part is array else np.array(part, order="C"))
    return outputs


def _padded(array: Array, shape: Shape) -> Array:
    if array.shape == shape:
        return array
    result = np.zeros(shape, array.dtype)
    result[tuple(slice(size) for size in array.shape)] = array
    return result
