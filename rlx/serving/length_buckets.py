"""Functions that are called with arrays of many lengths: buckets of them, as models have."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Hashable

from rlx.errors import RlxError
from rlx.ir.graph import Graph
from rlx.ir.shape import Shape
from rlx.lru import Lru
from rlx.passes.masking.dim_sizes import UnmaskableError
from rlx.serving.bucket_padding import Bucket, BucketFit
from rlx.serving.model_buckets import EXACT, TRIES, bucket_of

Shapes = tuple[Shape, ...]

# A set of shapes that was called so often is compiled as it is: it will come again.
_OFTEN = 32
# Buckets of a function, and sets of shapes whose calls are counted.
_MAX_BUCKETS = 16
_MAX_SHAPES = 1024


class Lengths:
    """The operands of one function's calls that share ranks, types and settings.

    Used by one thread at a time.
    """

    def __init__(self) -> None:
        self._seen: list[Shapes] = []
        self._calls: Lru[Shapes, int] = Lru(_MAX_SHAPES)
        self._buckets: Lru[Shapes, Bucket] = Lru(_MAX_BUCKETS)
        self._failed = 0

    def place(
        self, shapes: Shapes, build: Callable[[Shapes], Graph]
    ) -> tuple[Hashable, Bucket, BucketFit] | None:
        """The bucket for a call, what tells it from others, and how the call fits; None to compile the shapes as they are.

        Args:
            shapes: Those of the operands.
            build: Makes the graph for shapes.
        """
        calls = (self._calls.get(shapes) or 0) + 1
        self._calls.put(shapes, calls)
        first, last = self._bounds(shapes)
        if len(self._seen) < EXACT or self._failed >= TRIES or first == last or calls > _OFTEN:
            if len(self._seen) < EXACT and shapes not in self._seen:
                self._seen.append(shapes)
            return None
        bucket = self._buckets.get(last)
        if bucket is not None and (fit := bucket.known(shapes)) is not None:
            return last, bucket, fit
        asked = build(shapes)
        if bucket is None:
            bucket = _build(first, last, asked, build)
            if bucket is None:
                self._failed += 1
                return None
            self._buckets.put(last, bucket)
        try:
            return last, bucket, bucket.fit(shapes, lambda: asked)
        except UnmaskableError:
            return None

    def _bounds(self, shapes: Shapes) -> tuple[Shapes, Shapes]:
        """The smallest and the largest shapes of the bucket: axes whose sizes have differed are padded."""
        ranges = [
            [
                bucket_of(size)
                if size and any(seen[i][axis] != size for seen in self._seen)
                else (size, size)
                for axis, size in enumerate(shape)
            ]
            for i, shape in enumerate(shapes)
        ]
        first = tuple(tuple(low for low, _ in shape) for shape in ranges)
        return first, tuple(tuple(high for _, high in shape) for shape in ranges)


def _build(
    first: Shapes, last: Shapes, asked: Graph, build: Callable[[Shapes], Graph]
) -> Bucket | None:
    """A bucket; None where masks don't help, or the function is not for all of its shapes."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about shapes that nobody has
            return Bucket(build(last), build(first), asked)
    except (RlxError, UnmaskableError):
        return None
