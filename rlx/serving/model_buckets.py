"""Selects the buckets of a model's dimensions: the program lists them, or runs determine them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping, Sequence

import numpy as np

from rlx.errors import InputError, UnknownNameError, did_you_mean
from rlx.importers.onnx.source import ModelSource
from rlx.ir.opdef import Array

# The argument of ``rlx.onnx.Model(buckets=...)``.
BucketsLike = str | Mapping[str, Sequence[int]] | None
# The first and the last size of a bucket.
Range = tuple[int, int]

# Sets of shapes that are compiled as they are before a dimension that varies gets buckets of its own.
EXACT = 2
# Buckets from a power of two to the next: a run computes at most a quarter more along each axis than it has to.
_PER_OCTAVE = 4
# Buckets that can't be made, for as many reasons, before the dimensions are compiled for every size.
TRIES = 2


class Buckets:
    """The policy of one model.

    Args:
        source: The model.
        asked: "auto"; None for no buckets; or by the name of a dimension the last sizes of its buckets.

    Raises:
        InputError: It is none of these, or the sizes are not in order.
        UnknownNameError: The model has no such dimension.
    """

    def __init__(self, source: ModelSource, asked: BucketsLike) -> None:
        self._ends: dict[str, list[int]] | None = None
        self._auto = asked == "auto"
        self._seen: list[dict[str, int]] = []
        self._failed: dict[tuple[str, ...], int] = {}
        self._reasons: dict[tuple[str, ...], str] = {}
        if isinstance(asked, Mapping):
            self._ends = _checked(source, asked)
        elif asked is not None and not self._auto:
            raise InputError(
                "option buckets",
                got=repr(asked),
                expected='"auto", None, or last sizes by dimension, {"length": [64, 128]}',
            )

    def ranges(self, dims: Mapping[str, int]) -> tuple[dict[str, Range], str]:
        """The buckets of a set of sizes.

        Args:
            dims: The size of each dimension that is no fixed number.

        Returns:
            The bucket of each dimension that has one; and why there is none, where the sizes are compiled as they are.
        """
        result, reason = self._asked(dims)
        if self._failed.get(tuple(result), 0) >= TRIES:
            return {}, self._reasons[tuple(result)]
        return result, reason

    def _asked(self, dims: Mapping[str, int]) -> tuple[dict[str, Range], str]:
        """Returns the same as ``ranges``, without a check that such buckets are possible."""
        if self._ends is not None:
            return self._listed(dims)
        if not self._auto:
            return {}, "buckets=None"
        varying = self._varying(dims)
        if not varying or len(self._seen) < EXACT:
            return {}, "one of the first sets of shapes"
        results = {name: bucket_of(dims[name]) for name in varying}
        if all(low == high for low, high in results.values()):
            return {}, "small sizes have no buckets"
        return results, ""

    def _listed(self, dims: Mapping[str, int]) -> tuple[dict[str, Range], str]:
        assert self._ends is not None
        results: dict[str, Range] = {}
        for name, ends in self._ends.items():
            i = bisect_left(ends, dims[name])
            if i == len(ends) or dims[name] < 1:
                return {}, f"{name} of {dims[name]} is in no bucket"
            results[name] = (ends[i - 1] + 1 if i else 1, ends[i])
        return results, ""

    def _varying(self, dims: Mapping[str, int]) -> tuple[str, ...]:
        return tuple(
            name
            for name in dims
            if any(seen.get(name, dims[name]) != dims[name] for seen in self._seen)
            and dims[name] > 0
        )

    def compiled(self, dims: Mapping[str, int]) -> None:
        """Records sizes that were compiled exactly."""
        if len(self._seen) < EXACT:
            self._seen.append(dict(dims))

    def failed(self, ranges: Mapping[str, Range], reason: str) -> None:
        """Hears that a bucket can't be made."""
        names = tuple(ranges)
        self._failed[names] = self._failed.get(names, 0) + 1
        self._reasons[names] = reason


def bucket_of(size: int) -> Range:
    """The automatic bucket of a size: sizes up to 8 alone, then four buckets to each power of two.

    Example:
        >>> bucket_of(5), bucket_of(9), bucket_of(100)
        ((5, 5), (9, 10), (97, 112))
    """
    step = max(1, (1 << (size - 1).bit_length()) // (2 * _PER_OCTAVE)) if size > 1 else 1
    high = -(-size // step) * step
    return high - step + 1, high


def dims_of(source: ModelSource, arrays: Mapping[str, Array]) -> dict[str, int] | None:
    """The sizes of the dimensions that a model leaves open; None if it does not say how many there are."""
    results: dict[str, int] = {}
    for port in source.given(arrays):
        if port.dims is None:
            return None
        for dim, size in zip(port.dims, arrays[port.name].shape, strict=True):
            if isinstance(dim, str):
                results[dim] = size
    return results


def shapes_with(
    source: ModelSource, arrays: Mapping[str, Array], sizes: Mapping[str, int]
) -> dict[str, tuple[int, ...]]:
    """The shapes of the inputs with other sizes of some dimensions."""
    return {
        port.name: tuple(
            sizes.get(dim, size) if isinstance(dim, str) else size
            for dim, size in zip(port.dims or (), arrays[port.name].shape, strict=True)
        )
        for port in source.given(arrays)
    }


def _checked(source: ModelSource, asked: Mapping[str, Sequence[int]]) -> dict[str, list[int]]:
    known = {dim for port in source.inputs for dim in port.dims or () if isinstance(dim, str)}
    results: dict[str, list[int]] = {}
    for name, ends in asked.items():
        if name not in known:
            raise UnknownNameError(
                f"{source.label} has no dimension named {name!r}", hint=did_you_mean(name, known)
            )
        listed = list(ends) if isinstance(ends, Sequence) and not isinstance(ends, str) else []
        whole = all(isinstance(end, int | np.integer) and end >= 1 for end in listed)
        if not listed or not whole or sorted(set(listed)) != listed:
            raise InputError(
                f"the buckets of dimension {name!r}",
                got=repr(ends),
                expected="their last sizes, whole numbers >= 1, the least first",
            )
        results[name] = [int(end) for end in listed]
    return results
