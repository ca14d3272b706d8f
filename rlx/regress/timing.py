"""The verdict on the time of each case: same, slower, faster, inconclusive, or explained by the machine."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from statistics import median

import numpy as np

from rlx.dataclasses import dataclass
from rlx.regress.pairing import DevicePair
from rlx.regress.record_schema import COLD, CaseLine, Times
from rlx.regress.recording import Measured, Recording
from rlx.regress.statistics import (
    FALSE_DISCOVERIES,
    FEWEST,
    MAX_PROCESSES,
    Effect,
    adjusted,
    differences,
    effect,
    noise_floor,
    prior_of,
    processes_to_decide,
    ratio_of,
)

CONTENDED = 0.1
"""A process is left out where other programs took this share of the cores that it may use."""

FLOORS = 2.0
"""The least change of a case's time that counts is this many of its noise floors."""

COARSEST = math.log(1.25)
"""A case whose noise hides a change of a quarter is inconclusive, not the same."""


class TimeVerdict(StrEnum):
    """The verdict on a time. ``MACHINE``: slower, but by no more than the hardware itself."""

    SAME = "same"
    SLOWER = "slower"
    FASTER = "faster"
    MACHINE = "machine"
    INCONCLUSIVE = "inconclusive"


def _median(values: Sequence[int]) -> float | None:
    return float(median(values)) or None if values else None


@dataclass(frozen=True)
class Metric:
    """A kind of time.

    Attributes:
        title: Its name.
        of: A process's figure in nanoseconds; None where it was not measured.
    """

    title: str
    of: Callable[[Times], float | None]


METRICS: Mapping[str, Metric] = {
    "gpu": Metric("kernels on the GPU", lambda times: _median(times.gpu_ns)),
    "run": Metric("a run", lambda times: _median(times.ns)),
    "compile": Metric("compile", lambda times: float(times.compile_ns) or None),
    "first": Metric("first run", lambda times: float(times.first_ns) or None),
}
"""Every kind of time. ``judged`` says which of them decide about a case."""


def judged(case: CaseLine, metrics: Iterable[str]) -> tuple[str, ...]:
    """Selects the measured times that decide: timestamps rather than calls, and in suite "cold" the start."""
    if not case.timed:
        return ()
    if case.suite == COLD:
        return ("compile", "first")
    return ("gpu",) if "gpu" in metrics else ("run",)


@dataclass(frozen=True)
class Timing:
    """One kind of time of a case in two recordings.

    Attributes:
        metric: A key of ``METRICS``.
        judged: Whether it decides about the case.
        base_ns: Median of the quiet processes before, or of all where none was quiet.
        new_ns: The same now.
        effect: How they differ; None with too few processes.
        q: Its p-value, adjusted for the number of cases; 1 where there is none.
        threshold: The least |log ratio| that counts.
        verdict: The verdict.
        reason: Why it is inconclusive, or that the machine explains it; else empty.
        processes: How many on each side would probably decide an inconclusive one; None where that is unknown.
    """

    metric: str
    judged: bool
    base_ns: float
    new_ns: float
    effect: Effect | None
    q: float
    threshold: float
    verdict: TimeVerdict
    reason: str = ""
    processes: int | None = None

    @property
    def size(self) -> float:
        """The |log ratio|; 0 where there is none."""
        return abs(self.effect.log_ratio) if self.effect else 0.0

    @property
    def note(self) -> str:
        """The reason, and how many processes would decide; empty where there is nothing to say."""
        more = f"about {self.processes} processes would decide" if self.processes else ""
        return "; ".join(text for text in (self.reason, more) if text)


@dataclass
class _Samples:
    """Logarithms of one kind of time of one case: those of quiet processes, and how many there were in all.

    Where the recordings took turns, the quiet processes are pairs: entries of equal index measured one after the other.
    """

    case: CaseLine
    metric: str
    quiet: tuple[list[float], list[float]]
    every: tuple[list[float], list[float]]
    paired: bool
    judged: bool = False
    effect: Effect | None = None
    q: float = 1.0
    threshold: float = 0.0
    coarse: bool = False

    @property
    def noisy(self) -> list[list[float]]:
        """The groups that show the noise: of each side, or the differences of pairs."""
        return [differences(*self.quiet)] if self.paired else list(self.quiet)


def busy(recording: Recording, times: Times) -> bool:
    """Returns whether other programs disturbed a process.

    A process that can't tell is judged by the load before and after it.
    """
    if times.contention is not None:
        return times.contention >= CONTENDED
    loads = [recording.run.load, *([recording.end.load] if recording.end else [])]
    return any(load.busy >= CONTENDED for load in loads)


def floors(recording: Recording) -> dict[str, float]:
    """The noise floor of each device of a recording, by how its own processes differ (``noise_floor``)."""
    results: dict[str, float] = {}
    for device in recording.devices:
        groups: list[list[float]] = []
        for measured in recording.cases(device).values():
            groups += deciding(measured).values()
        floor = noise_floor(groups)
        if floor is not None:
            results[device] = floor
    return results


def deciding(measured: Measured) -> dict[str, list[float]]:
    """The logarithms of the processes' times that decide about a case, by kind."""
    if measured.case is None:
        return {}
    logs = {metric: _logs(measured.times.values(), metric) for metric in METRICS}
    present = [metric for metric, values in logs.items() if values]
    return {metric: logs[metric] for metric in judged(measured.case, present) if logs[metric]}


def slowest(measured: Iterable[Measured]) -> list[tuple[str, float, float]]:
    """Cases by the time that decides: name, nanoseconds, standard deviation of the processes' logarithms."""
    results = []
    for item in measured:
        logs = next(iter(deciding(item).values()), None)
        if item.case is not None and logs is not None:
            results.append((item.case.name, math.exp(float(np.median(logs))), spread(logs)))
    return sorted(results, key=lambda row: -row[1])


def spread(logs: Sequence[float]) -> float:
    """The standard deviation of the processes' logarithms; 0 for one process."""
    return float(np.std(logs, ddof=1)) if len(logs) > 1 else 0.0


def _logs(times: Iterable[Times], metric: str) -> list[float]:
    result = (METRICS[metric].of(time) for time in times)
    return [math.log(value) for value in result if value]


def timings(
    base: Recording,
    new: Recording,
    pair: DevicePair,
    cases: Mapping[str, tuple[Measured, Measured]],
    min_effect: float,
) -> dict[str, list[Timing]]:
    """Judges the times of all cases of a device.

    Args:
        base: The recording before.
        new: The recording now.
        pair: The device of both.
        cases: By digest what was measured in both.
        min_effect: The least change of a time that counts, as a part of it (0.05).

    Returns:
        For each case what is said of each kind of time that both have.
    """
    results: dict[str, list[Timing]] = {}
    for metric in METRICS:
        samples = {
            digest: single
            for digest, (was, now) in cases.items()
            if (single := _samples(base, new, was, now, metric)) is not None
        }
        for digest, single in samples.items():
            earlier = [timing.metric for timing in results.get(digest, [])]
            single.judged = metric in judged(single.case, [*earlier, metric])
        # A time that decides is compared with the noise of those that decide, not with that of the others.
        for decides in (True, False):
            chosen = {k: sample for k, sample in samples.items() if sample.judged is decides}
            _compare(list(chosen.values()), min_effect)
            for digest, single in chosen.items():
                results.setdefault(digest, []).append(_timing(single, pair))
    return results


def _samples(
    base: Recording, new: Recording, was: Measured, now: Measured, metric: str
) -> _Samples | None:
    sides = ((base, was), (new, now))
    every = [_logs(measured.times.values(), metric) for _, measured in sides]
    if was.case is None or not all(every):
        return None
    calm = [
        {n: t for n, t in measured.times.items() if not busy(recording, t) and _logs([t], metric)}
        for recording, measured in sides
    ]
    paired = base.run.turns is not None and base.run.turns == new.run.turns
    if paired:
        both = sorted(calm[0].keys() & calm[1].keys())
        calm = [{number: times[number] for number in both} for times in calm]
    quiet = [_logs(times.values(), metric) for times in calm]
    return _Samples(was.case, metric, (quiet[0], quiet[1]), (every[0], every[1]), paired)


def _compare(samples: Sequence[_Samples], min_effect: float) -> None:
    """Fills in effects, adjusted p-values and the least changes that count."""
    ready = [sample for sample in samples if min(map(len, sample.quiet)) >= FEWEST]
    prior = prior_of(group for item in ready for group in item.noisy)
    for item in ready:
        item.effect = effect(*item.quiet, prior, item.paired)
        item.threshold = FLOORS * (noise_floor(item.noisy, prior, item.paired) or 0.0)
    wanted = math.log1p(min_effect)
    for item in samples:
        item.coarse = item.threshold > max(wanted, COARSEST)
        item.threshold = max(item.threshold, wanted)
    p_values = [item.effect.p for item in ready if item.effect]
    for item, q in zip(ready, adjusted(p_values), strict=True):
        item.q = q


def _timing(item: _Samples, pair: DevicePair) -> Timing:
    shown = item.quiet if all(item.quiet) else item.every
    base_ns, new_ns = (math.exp(float(np.median(values))) for values in shown)
    verdict, reason = _verdict(item, pair)
    processes = None
    if verdict is TimeVerdict.INCONCLUSIVE and item.effect:
        processes = processes_to_decide(item.effect, item.threshold)
        if item.coarse:
            # Noise falls with the root of their number.
            fewest = min(map(len, item.quiet)) * (item.threshold / COARSEST) ** 2
            processes = max(math.ceil(fewest), processes or 0)
            processes = processes if processes <= MAX_PROCESSES else None
    figures = item.metric, item.judged, base_ns, new_ns, item.effect, item.q, item.threshold
    return Timing(*figures, verdict, reason, processes)


def _verdict(item: _Samples, pair: DevicePair) -> tuple[TimeVerdict, str]:
    result, threshold = item.effect, item.threshold
    if result is None:
        every, quiet = min(map(len, item.every)), min(map(len, item.quiet))
        if every < FEWEST:
            return TimeVerdict.INCONCLUSIVE, f"{every} processes; {FEWEST} decide at the earliest"
        return (
            TimeVerdict.INCONCLUSIVE,
            f"the machine was busy: {quiet} of {every} processes were left alone",
        )
    certain = item.q <= FALSE_DISCOVERIES
    for sign, verdict, machine in (
        (1.0, TimeVerdict.SLOWER, pair.slower_by),
        (-1.0, TimeVerdict.FASTER, pair.faster_by),
    ):
        size = sign * result.log_ratio
        nearest = result.low if sign > 0 else -result.high
        if size >= threshold and nearest > 0 and certain:
            if not machine or size - machine >= threshold:
                return verdict, ""
            times = f"{ratio_of(sign * machine):.2f} times as long"
            reason = f"no more than the machine itself: its peaks take {times}"
            return verdict if sign < 0 else TimeVerdict.MACHINE, reason
    if item.coarse:
        percent = 100 * (ratio_of(threshold) - 1)
        return TimeVerdict.INCONCLUSIVE, f"the noise hides changes of up to {percent:.0f} %"
    if -threshold < result.least and result.most < threshold:
        return TimeVerdict.SAME, ""
    return (
        TimeVerdict.INCONCLUSIVE,
        "the interval holds both no change and one that counts"
        if result.low <= 0 <= result.high
        else "not certain enough among so many cases"
        if abs(result.log_ratio) >= threshold
        else "the interval reaches past the least change that counts",
    )
