"""Profiles of runs: kernel times summed by op and by node, beside the device's peaks."""

from __future__ import annotations

import io
import json
from collections import defaultdict, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict
from typing import Any

from rlx.backends.recorder import RecordedKernel, Recorder
from rlx.cost.estimate import NodeCost
from rlx.cost.model import BackendCostModel, CalibratedModel
from rlx.dataclasses import dataclass
from rlx.errors import printable
from rlx.ir.spans import KERNEL, PART

# Latest times kept per kernel; the median is computed from them.
_KEPT = 4096
# Size of the matrix product that gives a device's peak speed.
_LARGE = (4096, 4096, 4096)
PEAKS = "the cost model's figures for this kind of device, not measured on this one"
MEASURED = "measured on this device when it was calibrated"


@dataclass(frozen=True)
class ProfileRow:
    """The kernels of one op, or of one node; all figures are those of one run.

    Attributes:
        name: The op ("... on the host" for what a GPU's graph leaves to the CPU), or the node.
        calls: Kernel calls.
        us: Microseconds: the median time of each kernel, times its calls.
        share: The part of the time of all kernels, 0 to 1.
        nbytes: Bytes of the tensors that the kernels read and write.
        flops: Floating-point operations.
        gb_per_s: Bytes by time, in 1e9 bytes/s; None where the clock saw no time pass.
        gflop_per_s: Operations by time, in 1e9 flop/s; None likewise.
        bandwidth_share: ``gb_per_s`` by the device's peak; None likewise, and on the host. Above 1 data stays in
            caches, or the peak is higher than its figure.
        compute_share: ``gflop_per_s`` by the device's peak; None likewise.
        estimate_us: The cost model's estimate in microseconds, calls of the kernels included; None if a node inside of
            a subgraph or a part on the host is among them.
        bound: "memory" or "compute": the peak that it is nearer to; None where the shares are.
    """

    name: str
    calls: float
    us: float
    share: float
    nbytes: int
    flops: float
    gb_per_s: float | None
    gflop_per_s: float | None
    bandwidth_share: float | None
    compute_share: float | None
    estimate_us: float | None
    bound: str | None = None


@dataclass(frozen=True)
class Profile:
    """The result of ``CompiledGraph.profile``; ``str`` of it is a table by op.

    Attributes:
        device: The device of the run.
        runs: How many runs were timed.
        us: Microseconds of all kernels of a run; what lies between kernels is not in it.
        rows: By kind of op, the largest time first.
        nodes: By node, likewise.
        peak_gb_per_s: The memory bandwidth that ``bandwidth_share`` compares with.
        peak_gflop_per_s: The speed that ``compute_share`` compares with.
        peaks: Where the two come from.
    """

    device: str
    runs: int
    us: float
    rows: tuple[ProfileRow, ...]
    nodes: tuple[ProfileRow, ...]
    peak_gb_per_s: float
    peak_gflop_per_s: float
    peaks: str

    def to_json(self) -> str:
        """Everything as JSON, under the names of the attributes."""
        return json.dumps(asdict(self), indent=2)

    def __str__(self) -> str:
        return self.table()

    def table(self, of: str = "rows") -> str:
        """A table: by op for "rows", one row for each node for "nodes"."""
        title = f"{self.device}: {self.us:,.1f} us in kernels per run, median of {self.runs} runs"
        peaks = f"peak {self.peak_gb_per_s:,.0f} GB/s, {self.peak_gflop_per_s:,.0f} GFLOP/s"
        notes = [f"{peaks}: {self.peaks}"]
        shares = [(row.bandwidth_share or 0, row.compute_share or 0) for row in getattr(self, of)]
        if any(max(both) > 1 for both in shares):
            notes.append(
                "above: data that stays in caches, or a peak that is higher than its figure"
            )
        try:
            # Imported here to keep ``import rlx`` fast.
            from rich.console import Console
            from rich.table import Table
        except ImportError:  # a frozen program goes without
            return "\n".join(self._plain(of, title, notes))
        table = Table(title=title, title_justify="left")
        for heading, _ in _COLUMNS:
            table.add_column(heading, justify="left" if heading == "op" else "right")
        for row in getattr(self, of):
            table.add_row(*(shown(row) for _, shown in _COLUMNS))
        text = io.StringIO()
        console = Console(file=text, width=150, highlight=False, markup=False, emoji=False)
        console.print(table)
        for note in notes:
            console.print(note)
        return text.getvalue().rstrip()

    def _plain(self, of: str, title: str, notes: list[str]) -> list[str]:
        """The same as columns of text."""
        lines = [[heading for heading, _ in _COLUMNS]]
        lines += [[shown(row) for _, shown in _COLUMNS] for row in getattr(self, of)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = (
            "  ".join([first.ljust(widths[0]), *map(str.rjust, rest, widths[1:])])
            for first, *rest in lines
        )
        return [title, *rows, *notes]


_COLUMNS: tuple[tuple[str, Callable[[ProfileRow], str]], ...] = (
    ("op", lambda row: printable(row.name)),
    ("calls", lambda row: f"{row.calls:g}"),
    ("us", lambda row: f"{row.us:,.1f}"),
    ("estimate us", lambda row: "-" if row.estimate_us is None else f"{row.estimate_us:,.1f}"),
    ("share", lambda row: _percent(row.share)),
    ("bytes", lambda row: f"{row.nbytes:,}"),
    ("GB/s", lambda row: _number(row.gb_per_s)),
    ("of peak", lambda row: _part(row.bandwidth_share)),
    ("GFLOP/s", lambda row: _number(row.gflop_per_s)),
    ("of peak", lambda row: _part(row.compute_share)),
    ("bound", lambda row: row.bound or "-"),
)


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.2f}"


def _part(value: float | None) -> str:
    """A part of a peak. More than all of it is no speed of the memory, or of the arithmetic."""
    return "above" if value is not None and value > 1 else _percent(value)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


class Totals(Recorder):
    """A recorder that keeps kernel times only, in bounded memory."""

    def __init__(self) -> None:
        super().__init__()
        self._times: dict[tuple[RecordedKernel, str], _Times] = defaultdict(_Times)

    def add(self, name: str, kind: str, start: int, end: int, **args: Any) -> None:
        """Forgets a span."""

    def count(self, name: str, values: Mapping[str, int]) -> None:
        """Forgets counters."""

    def kernel(
        self, kernel: RecordedKernel, start: int, end: int, kind: str = KERNEL, **args: Any
    ) -> None:
        """Stores a kernel's time: the device's own measurement if there is one."""
        self._times[kernel, kind].add(args.get("device_ns", end - start))

    def profile(
        self, device: str, model: BackendCostModel, costs: Iterable[NodeCost] = ()
    ) -> Profile:
        """The times so far.

        Args:
            device: Its name.
            model: Its peaks.
            costs: The estimates of the nodes.
        """
        from statistics import median

        expected = {id(cost.node): cost.ns for cost in costs}
        peaks = model.memory_bw(), model.sgemm_gflops(*_LARGE)
        text = MEASURED if isinstance(model, CalibratedModel) else PEAKS
        runs = max(1, self.runs)
        parts = [
            _Part(kernel, kind, times.count / runs, median(times.newest) * times.count / runs)
            for (kernel, kind), times in self._times.items()
        ]
        total = sum(part.ns for part in parts)
        rows = [_row(_op, group, total, peaks, expected) for group in _grouped(parts, _op)]
        nodes = [_row(_node, group, total, peaks, expected) for group in _grouped(parts, _node)]
        return Profile(
            device, self.runs, total / 1e3, _sorted(rows), _sorted(nodes), *peaks, peaks=text
        )


class _Times:
    """Times of one kernel in ns: their number, and the latest of them."""

    def __init__(self) -> None:
        self.count = 0
        self.newest: deque[int] = deque(maxlen=_KEPT)

    def add(self, ns: int) -> None:
        self.count += 1
        self.newest.append(ns)


@dataclass(frozen=True)
class _Part:
    """One kernel, per run."""

    kernel: RecordedKernel
    kind: str
    calls: float
    ns: float


def _op(part: _Part) -> str:
    return f"{part.kernel.op} on the host" if part.kind == PART else part.kernel.op


def _node(part: _Part) -> str:
    return part.kernel.node.where()


def _grouped(parts: Iterable[_Part], name: Callable[[_Part], str]) -> Iterable[list[_Part]]:
    groups: dict[str, list[_Part]] = defaultdict(list)
    for part in parts:
        groups[name(part)].append(part)
    return groups.values()


def _sorted(rows: Iterable[ProfileRow]) -> tuple[ProfileRow, ...]:
    return tuple(sorted(rows, key=lambda row: -row.us))


def _row(
    name: Callable[[_Part], str],
    parts: list[_Part],
    total: float,
    peaks: tuple[float, float],
    expected: Mapping[int, float],
) -> ProfileRow:
    ns = sum(part.ns for part in parts)
    nbytes = round(sum(part.kernel.nbytes * part.calls for part in parts))
    flops = sum(part.kernel.flops * part.calls for part in parts)
    hosted = any(part.kind == PART for part in parts)
    # Bytes and operations per ns are 1e9 of them per second.
    speeds = (nbytes / ns, flops / ns) if ns else (None, None)
    bandwidth, compute = (
        None if speed is None or hosted else speed / peak
        for speed, peak in zip(speeds, peaks, strict=True)
    )
    return ProfileRow(
        name=name(parts[0]),
        calls=sum(part.calls for part in parts),
        us=ns / 1e3,
        share=ns / total if total else 0.0,
        nbytes=nbytes,
        flops=flops,
        gb_per_s=speeds[0],
        gflop_per_s=speeds[1],
        bandwidth_share=bandwidth,
        compute_share=compute,
        estimate_us=None if hosted else _expected(parts, expected),
        bound=_nearer(bandwidth, compute),
    )


def _nearer(bandwidth: float | None, compute: float | None) -> str | None:
    """Returns whether compute or memory is closer to its peak."""
    if bandwidth is None or compute is None:
        return None
    return "compute" if compute > bandwidth else "memory"


def _expected(parts: list[_Part], expected: Mapping[int, float]) -> float | None:
    """Microseconds expected of the nodes behind the kernels."""
    nodes = {id(part.kernel.node) for part in parts}
    if not nodes <= expected.keys():
        return None
    return sum(expected[node] for node in nodes) / 1e3
