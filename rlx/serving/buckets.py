"""BucketedCompileCache: one compiled graph per range of sizes, run on inputs padded to its upper end."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from rlx._ext.locks import ReentrancyCheckedLock
from rlx.backends.arguments import as_array
from rlx.backends.base import CompileOptions
from rlx.compiler.device_picks import checked
from rlx.device.names import DeviceLike
from rlx.device.policy import DevicePolicy
from rlx.errors import InputError
from rlx.ir.graph import Graph
from rlx.ir.opdef import Array
from rlx.runtime.closing import Closing
from rlx.runtime.compiled import CompiledGraph
from rlx.runtime.session import Session
from rlx.serving.graph_devices import GraphDevices

Builder = Callable[[int], Graph]


class BucketedCompileCache(Closing):
    """Graphs for sizes that vary: each range of sizes shares the graph of its upper end.

    Shapes in a graph are fixed. Instead of compiling for every length that comes along, lengths are
    put into ranges, and a run pads its inputs to the upper end of theirs. Each bucket has an arena and
    params of its own, so weights are held once per compiled bucket.

    Args:
        device: A device or its name.
        ranges: ``(low, high)`` pairs, both ends belonging to the bucket; in order, without overlap.
        policy: Which devices may be used, and how "auto" picks one for each bucket; any device may
            without one.
        options: How graphs are compiled.

    Raises:
        DeviceParseError: ``device`` is not a device.
        DeviceUnavailableError: It is not on this machine.
        InputError: The ranges are empty, not positive, out of order or overlapping; or ``policy`` is
            not a policy.

    Example:
        >>> import numpy as np, rlx
        >>> def build(rows):
        ...     g = rlx.Graph()
        ...     g.set_outputs([g.input("x", (rows, 2)) * 2.0])
        ...     return g
        >>> cache = rlx.BucketedCompileCache("cpu", [(1, 8), (9, 32)])
        >>> upper, (y,) = cache.run_padded(3, 3, build, {"x": np.ones((3, 2), np.float32)})
        >>> upper, y.shape, cache.compiled_count, cache.total_buckets
        (8, (3, 2), 1, 2)
    """

    def __init__(
        self,
        device: DeviceLike,
        ranges: Iterable[tuple[int, int]],
        policy: DevicePolicy | None = None,
        options: CompileOptions | None = None,
    ) -> None:
        self._buckets = [_Bucket(low, high) for low, high in _checked(ranges)]
        self._session = Session(device, options=options)
        self._policy = policy if policy is None else checked(policy)

    @classmethod
    def power_of_two_ladder(
        cls,
        device: DeviceLike,
        min: int,
        max: int,
        policy: DevicePolicy | None = None,
        options: CompileOptions | None = None,
    ) -> BucketedCompileCache:
        """Buckets that end at the powers of two: ``(1, 8)`` gives 1, 2, 3-4 and 5-8.

        Args:
            device: A device or its name.
            min: Smallest size.
            max: Largest size: the end of the last bucket, also where it is no power of two.
            policy: As for the class.
            options: As for the class.

        Raises:
            InputError: ``min`` is below 1 or above ``max``.

        Example:
            >>> import rlx
            >>> rlx.BucketedCompileCache.power_of_two_ladder("cpu", 3, 20).buckets()
            [(3, 4), (5, 8), (9, 16), (17, 20)]
        """
        low, last = _whole(min, "min"), _whole(max, "max")
        if not 1 <= low <= last:
            raise InputError("not a ladder", got=f"{low} to {last}", expected="1 <= min <= max")
        ranges = []
        while low <= last:
            high = 1 << (low - 1).bit_length()
            ranges.append((low, high if high < last else last))
            low = high + 1
        return cls(device, ranges, policy, options)

    def buckets(self) -> list[tuple[int, int]]:
        """Every bucket as ``(low, high)``, both ends included."""
        return [(bucket.low, bucket.high) for bucket in self._buckets]

    def bucket_for(self, key: int) -> tuple[int, int]:
        """The bucket ``(low, high)`` that a size belongs to.

        Raises:
            InputError: None does; the message names them all.
        """
        single = self._bucket(key)
        return single.low, single.high

    @property
    def compiled_count(self) -> int:
        """Buckets that have been compiled."""
        return sum(bucket.compiled is not None for bucket in self._buckets)

    @property
    def total_buckets(self) -> int:
        """The number of buckets."""
        return len(self._buckets)

    def get_or_compile(self, key: int, builder: Builder) -> tuple[int, CompiledGraph]:
        """The graph of a size's bucket, compiled when it is asked for the first time.

        Args:
            key: The size.
            builder: Makes the graph for the bucket's upper end.

        Returns:
            The upper end, and the graph, which computes all of its rows.

        Raises:
            InputError: The size is in no bucket.
            RlxError: See ``Session.compile``.
        """
        bucket = self._bucket(key)

        def whole() -> CompiledGraph:
            compiled = self._compiled(bucket, builder)
            bucket.extend(None)
            return compiled

        return bucket.high, bucket.turns.call(whole)

    def run_padded(
        self,
        key: int,
        actual_rows: int,
        builder: Builder,
        inputs: Mapping[str, Any],
        params: Mapping[str, Any] | None = None,
    ) -> tuple[int, list[Array]]:
        """Runs the graph of a size's bucket on fewer rows than it was compiled for.

        The rows of the graph must not depend on each other: the padding is computed, or left out,
        beside them.

        Args:
            key: The size that chooses the bucket; usually ``actual_rows``.
            actual_rows: Rows of the inputs, at most the bucket's upper end.
            builder: Makes the graph for the bucket's upper end.
            inputs: Arrays by name. One whose leading axis is ``actual_rows``, where the graph's is
                the upper end, is padded with zeros.
            params: Values of the params. They are set when the bucket is compiled, and again when
                another array is given under the name; writing into an array goes unnoticed.

        Returns:
            The upper end, and fresh outputs; those whose leading axis is the upper end are cut to
            ``actual_rows``.

        Raises:
            InputError: The size is in no bucket, the rows do not fit into it, or an input does not
                fit the graph.
            UnknownNameError: There is no such input or param.
        """
        bucket, rows = self._bucket(key), _whole(actual_rows, "actual_rows")
        if not 1 <= rows <= bucket.high:
            raise InputError(
                "actual_rows does not fit the bucket",
                where=f"bucket {bucket.low} to {bucket.high}, chosen by key {key}",
                got=rows,
                expected=f"1 to {bucket.high}",
            )

        def run() -> list[Array]:
            compiled = self._compiled(bucket, builder)
            bucket.set_params(params or {})
            graph = compiled._state.graph
            shapes = {name: graph.named(name).shape for name in compiled._state.names}
            padded = {
                name: _padded(as_array(value), rows, shapes.get(name, ()), bucket.high)
                for name, value in inputs.items()
            }
            bucket.extend((rows, bucket.high) if rows < bucket.high else None)
            return [
                (view[:rows] if view.shape[:1] == (bucket.high,) else view).copy()
                for view in compiled.run_raw(padded)
            ]

        return bucket.high, bucket.turns.call(run)

    def close(self) -> None:
        """Closes every compiled graph; a bucket that is used again is compiled again."""
        for bucket in self._buckets:
            bucket.turns.call(bucket.close)

    def _bucket(self, key: int) -> _Bucket:
        size = _whole(key, "key")
        for bucket in self._buckets:
            if bucket.low <= size <= bucket.high:
                return bucket
        listed = ", ".join(f"{bucket.low} to {bucket.high}" for bucket in self._buckets)
        raise InputError("no bucket holds this size", got=size, expected=listed)

    def _compiled(self, bucket: _Bucket, builder: Builder) -> CompiledGraph:
        if bucket.compiled is None:
            graph, session = builder(bucket.high), self._session
            if self._policy is not None:
                picked = GraphDevices(graph, self._policy, session.options).resolve(session.device)
                session = Session(picked, options=session.options)
            bucket.compiled = session.compile(graph)
        return bucket.compiled


class _Bucket:
    """One range, its graph once it is compiled, and the params that were set on it."""

    def __init__(self, low: int, high: int) -> None:
        self.low, self.high = low, high
        self.turns = ReentrancyCheckedLock(f"the bucket {low} to {high}")
        self.compiled: CompiledGraph | None = None
        self._params: dict[str, Any] = {}

    def set_params(self, params: Mapping[str, Any]) -> None:
        """Sets the params that were not set from the same array before."""
        assert self.compiled is not None
        for name, value in params.items():
            if name not in self._params or self._params[name] is not value:
                self.compiled.set_param(name, value)
                self._params[name] = value

    def extend(self, extent: tuple[int, int] | None) -> None:
        """Sets the active extent where it is another."""
        assert self.compiled is not None
        if extent != self.compiled.active_extent:
            self.compiled.set_active_extent(extent)

    def close(self) -> None:
        """Closes the graph."""
        if self.compiled is not None:
            self.compiled.close()
        self.compiled, self._params = None, {}


def _checked(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges that are ranges.

    Raises:
        InputError: One is not, or they are out of order or overlap.
    """
    expected = "(low, high) pairs of whole numbers >= 1, in order, without overlap"
    results: list[tuple[int, int]] = []
    for item in ranges:
        try:
            low, high = item
        except (TypeError, ValueError):
            raise InputError("not a bucket", got=repr(item), expected=expected) from None
        pair = _whole(low, "low"), _whole(high, "high")
        after = results[-1][1] if results else 0
        if not after < pair[0] <= pair[1]:
            where = f"after {results[-1]}" if results else None
            raise InputError("not a bucket", where=where, got=pair, expected=expected)
        results.append(pair)
    if not results:
        raise InputError("there are no buckets", got="no ranges", expected=expected)
    return results


def _whole(value: Any, what: str) -> int:
    try:
        if isinstance(value, bool):
            raise TypeError
        return operator.index(value)
    except TypeError:
        raise InputError(f"{what} is not a whole number", got=repr(value)) from None


def _padded(array: Array, rows: int, shape: tuple[int, ...], upper: int) -> Array:
    """An array with zeros below it where the graph takes ``upper`` rows."""
    if rows == upper or array.shape[:1] != (rows,) or shape[:1] != (upper,):
        return array
    result = np.zeros((upper, *array.shape[1:]), array.dtype)
    result[:rows] = array
    return result
