"""Differences between two measurements of a case apart from time: bits, errors, kernels, bytes.

None of it is noise. The same binary on the same device gives the same bits and the same schedule in each run, so
one process on each side is enough.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from itertools import zip_longest

from rlx.dataclasses import dataclass
from rlx.regress.record_schema import CaseLine, Difference, Kernel, Output
from rlx.regress.recording import Measured


@dataclass(frozen=True)
class FindingKind:
    """A kind of finding.

    Attributes:
        title: In a few words.
        changed: Whether it means that results have changed (exit status 4), or is reported only.
        reason: Why.
    """

    title: str
    changed: bool
    reason: str


KINDS: Mapping[str, FindingKind] = {
    "failure": FindingKind("fails", True, "there is no result any more"),
    "outputs": FindingKind("other outputs", True, "programs rely on dtypes and shapes"),
    "not-finite": FindingKind("NaN or infinity", True, "a value that was a number is none, or the other way round"),
    "tolerance": FindingKind("beyond the tolerance", True, "the operation promises less error than that"),
    "error": FindingKind("larger error", True, "an error more than twice as large is no other order of sums"),
    "bits": FindingKind("other bits", True, "the same kernel on the same hardware rounds the same way"),
    "other-hardware": FindingKind("other bits", False, "other hardware may add up in another order"),
    "not-deterministic": FindingKind(
        "bits differ between processes", False, "no change can be told from what always varies"
    ),
    "mended": FindingKind("mended", False, "it is better than it was"),
    "host": FindingKind("left to the host", False, "the result is the same; the time shows what it costs"),
    "kernels": FindingKind("other kernels", False, "a release may choose others; the bits show whether it matters"),
    "wgsl": FindingKind("other WGSL", False, "as for kernels"),
    "schedule": FindingKind("other schedule", False, "as for kernels"),
    "bytes": FindingKind("other memory traffic", False, "the time shows what it costs"),
    "memory": FindingKind("other memory", False, "results do not depend on it"),
    "allocations": FindingKind("more memory left behind", False, "results do not depend on it"),
}  # fmt: skip
"""The kinds of findings, with their weight."""

EPSILON: Mapping[str, float] = {"f64": 2.0**-52, "f32": 2.0**-23, "f16": 2.0**-10, "bf16": 2.0**-7}
"""A unit in the last place of 1, by dtype."""

GROWTH = 2.0
"""An error that grows by more than this factor is a finding."""

# Errors below this many units in the last place are ordinary rounding, however they grow.
_LEAST_ULP = 4.0


@dataclass(frozen=True)
class Finding:
    """Something that differs.

    Attributes:
        kind: A key of ``KINDS``.
        text: The difference, with both values.
    """

    kind: str
    text: str

    @property
    def changed(self) -> bool:
        """True if results have changed."""
        return KINDS[self.kind].changed


def findings(base: Measured, new: Measured, same_hardware: bool) -> list[Finding]:
    """Compares everything except times.

    Args:
        base: The case before.
        new: The case now.
        same_hardware: Whether the same bits are to be expected.
    """
    results = list(_failures(base, new))
    if base.case is not None and new.case is not None:
        results += _outputs(base, new, same_hardware)
        results += _programs(base.case, new.case)
    return results


def _failures(base: Measured, new: Measured) -> Iterator[Finding]:
    if new.failures and not base.failures:
        error = next(iter(new.failures.values())).error
        every = len(new.failures) + len(new.times)
        yield Finding("failure", f"fails in {len(new.failures)} of {every} processes: {error}")
    elif base.failures and not new.failures:
        yield Finding("mended", f"failed before: {next(iter(base.failures.values())).error}")


def _outputs(base: Measured, new: Measured, same_hardware: bool) -> Iterator[Finding]:
    assert base.case is not None
    assert new.case is not None
    tolerance = new.case.tolerance
    for i, (first, other) in enumerate(zip_longest(base.case.outputs, new.case.outputs)):
        if first is None or other is None:
            missing = first or other
            there = "there is no output" if other is None else "there is a new output"
            yield Finding("outputs", f"{there} {missing.name!r}")
        elif (first.dtype, first.shape) != (other.dtype, other.shape):
            was, now = (f"{x.dtype}{x.shape}" for x in (first, other))
            yield Finding("outputs", f"output {other.name!r} is {now}, was {was}")
        else:
            yield from _bits(base, new, i, same_hardware)
            yield from _errors(first, other, tolerance)


def _bits(base: Measured, new: Measured, pos: int, same_hardware: bool) -> Iterator[Finding]:
    assert base.case is not None
    assert new.case is not None
    first, other = base.case.outputs[pos], new.case.outputs[pos]
    before, now = (
        {x.case.outputs[pos].bits} | {t.bits[pos] for t in x.times.values() if pos < len(t.bits)}
        for x in (base, new)
        if x.case is not None
    )
    name = f"output {other.name!r}"
    varying = [which for which, bits in (("before", before), ("now", now)) if len(bits) > 1]
    if varying:
        text = f"{name}: processes compute different bits ({' and '.join(varying)})"
        yield Finding("not-deterministic", text)
    elif before != now:
        samples = [
            f"[{i}] {was} became {value}"
            for i, (was, value) in enumerate(zip(first.sample, other.sample))
            if was != value
        ]
        seen = f"; of the sample {', '.join(samples[:2])}" if samples else ""
        kind = "bits" if same_hardware else "other-hardware"
        was_off, is_off = _error_of(first), _error_of(other)
        far = f"{is_off} as before" if was_off == is_off else f"{is_off}, before {was_off}"
        yield Finding(kind, f"{name}: {far}{seen}")


def _error_of(output: Output) -> str:
    far = output.difference
    if far is None:
        return "no reference"
    if far.max_ulp is not None:
        return f"at most {far.max_ulp:.3g} ULP off"
    return "infinitely far off" if far.max_abs is None else f"at most {far.max_abs:.3g} off"


def _errors(first: Output, other: Output, tolerance: float | None) -> Iterator[Finding]:
    was, now = first.difference, other.difference
    if was is None or now is None:
        return
    name = f"output {other.name!r}"
    for what, had, has, expected in (
        ("NaN", was.nan, now.nan, now.nan_expected),
        ("infinity", was.inf, now.inf, now.inf_expected),
    ):
        if had != has:
            kind = "mended" if has == expected else "not-finite"
            yield Finding(
                kind, f"{name}: {has} elements are {what}, {had} before, {expected} expected"
            )
    if tolerance is not None and size(now.relative) > tolerance >= size(was.relative):
        text = f"{_figure(now.relative)}, {_figure(was.relative)} before, tolerance {tolerance:.3g}"
        yield Finding("tolerance", f"{name}: relative error {text}")
    if grown := growth(was, now, other.dtype):
        yield Finding("error", f"{name}: {grown}")
    elif shrunk := growth(now, was, other.dtype):
        yield Finding("mended", f"{name}: the error is smaller; the other way round: {shrunk}")


def growth(was: Difference, now: Difference, dtype: str) -> str:
    """Describes how an error has grown by more than ``GROWTH``; empty for less, or for ordinary rounding.

    Units in the last place count only where the absolute error grows as well: next to 0 they are large by nature.
    """
    results = []
    epsilon = EPSILON.get(dtype, 0.0)
    absolute = _grows(was.max_abs, now.max_abs, 0.0)
    if was.max_ulp is not None and now.max_ulp is not None:
        if absolute and _grows(was.max_ulp, now.max_ulp, _LEAST_ULP):
            results.append(f"{now.max_ulp:.3g} ULP, {was.max_ulp:.3g} before")
    elif absolute and not epsilon:
        results.append(f"largest difference {_figure(now.max_abs)}, {_figure(was.max_abs)} before")
    if _grows(was.relative, now.relative, _LEAST_ULP * epsilon):
        results.append(f"relative error {_figure(now.relative)}, {_figure(was.relative)} before")
    return "; ".join(results)


def _grows(was: float | None, now: float | None, least: float) -> bool:
    return size(now) > GROWTH * size(was) and size(now) > least


def size(value: float | None) -> float:
    """A figure of ``Difference``, whose None stands for infinity."""
    return math.inf if value is None else value


def _figure(value: float | None) -> str:
    return "infinite" if value is None else f"{value:.3g}"


def _programs(base: CaseLine, new: CaseLine) -> Iterator[Finding]:
    """Compares the compiled programs of a case."""
    was, now = (_counts(case.kernels) for case in (base, new))
    if was != now:
        changes = [
            f"{name} {was.get(name, 0)} -> {now.get(name, 0)}"
            for name in sorted({*was, *now})
            if was.get(name, 0) != now.get(name, 0)
        ]
        text = ", ".join(changes[:8]) + (", ..." if len(changes) > 8 else "")
        yield Finding("kernels", f"{sum(now.values())} calls, {sum(was.values())} before: {text}")
    texts, others = ({k.text for k in case.kernels if k.text} for case in (base, new))
    if texts != others and texts and others:
        names = sorted({k.name for k in new.kernels if k.text and k.text not in texts})
        yield Finding("wgsl", ", ".join(names) if names else "fewer texts")
    if base.schedule != new.schedule:
        yield Finding("schedule", f"{new.schedule[:12]}, {base.schedule[:12]} before")
    for kind, fields in (
        ("bytes", ("bytes", "uploaded", "read_back")),
        ("memory", ("arena", "params", "peak")),
    ):
        changes = [
            f"{name.replace('_', ' ')} {after:,} bytes, {before:,} before"
            for name in fields
            if (before := getattr(base, name)) != (after := getattr(new, name))
            and None not in (before, after)
        ]
        if changes:
            yield Finding(kind, "; ".join(changes))
    if new.allocations > base.allocations:
        text = f"{new.allocations} blocks of memory after each run, {base.allocations} before"
        yield Finding("allocations", text)
    if base.on_the_host != new.on_the_host:
        now_there = [text for text in new.on_the_host if text not in base.on_the_host]
        gone = [f"no longer {text}" for text in base.on_the_host if text not in new.on_the_host]
        yield Finding("host", "; ".join([*now_there, *gone]) or "in another order")


def _counts(kernels: list[Kernel]) -> dict[str, int]:
    results: dict[str, int] = {}
    for kernel in kernels:
        results[kernel.name] = results.get(kernel.name, 0) + kernel.count
    return results
