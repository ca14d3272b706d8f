"""Every sample of every operation on a device, against the float64 reference."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import rlx.ops.all_ops  # noqa: F401 - every record is registered by its module
from rlx.backends.base import CompileOptions
from rlx.device.names import DeviceLike
from rlx.errors import RlxError, UnknownNameError, UnsupportedOpError, did_you_mean, first_line
from rlx.ir.opdef import REGISTRY
from rlx.ops.conformance_cases import Case
from rlx.ops.conformance_cases import cases as _all_cases
from rlx.runtime.session import Session

# The outcomes of a case, in the order of reports.
OUTCOMES = ("right", "host", "refused", "wrong", "failed")


class Verdict(NamedTuple):
    """The outcome of a case on a device.

    Attributes:
        case: The case.
        outcome: "right"; "host" where the result is right, but came from the host; "refused" by an
            ``UnsupportedOpError``; "wrong" where the error is above the tolerance; "failed" with another error.
        detail: The error and the tolerance, the reason, or the message.
    """

    case: Case
    outcome: str
    detail: str = ""

    def __str__(self) -> str:
        return f"{self.case}: {self.outcome}{f', {self.detail}' if self.detail else ''}"


class Report(NamedTuple):
    """The outcomes of all cases on a device.

    Attributes:
        device: Its name.
        verdicts: One for each case.
    """

    device: str
    verdicts: tuple[Verdict, ...]

    @property
    def faults(self) -> tuple[Verdict, ...]:
        """Cases that are wrong or failed."""
        return tuple(verdict for verdict in self.verdicts if verdict.outcome in ("wrong", "failed"))

    def counts(self) -> dict[str, int]:
        """Cases by outcome."""
        results = Counter(verdict.outcome for verdict in self.verdicts)
        return {outcome: results[outcome] for outcome in OUTCOMES}

    def by_op(self) -> dict[str, dict[str, int]]:
        """The same for each operation."""
        results: dict[str, Counter[str]] = {}
        for verdict in self.verdicts:
            results.setdefault(verdict.case.opdef.name, Counter())[verdict.outcome] += 1
        return {op: {kind: count[kind] for kind in OUTCOMES} for op, count in results.items()}

    def __str__(self) -> str:
        counts = ", ".join(f"{count} {kind}" for kind, count in self.counts().items())
        reasons: dict[str, list[str]] = {}
        for verdict in self.verdicts:
            if verdict.outcome in ("refused", "host"):
                reasons.setdefault(
                    f"{verdict.case.opdef.name}: {verdict.outcome}, {verdict.detail}", []
                ).append("")
        lines = [f"{self.device}: {counts}"]
        lines += [f"  {reason} ({len(listed)}x)" for reason, listed in reasons.items()]
        return "\n".join([*lines, *(f"  {fault}" for fault in self.faults)])


def cases(
    ops: Iterable[str] | None = None, most: int | None = None, dtypes: Iterable[str] | None = None
) -> Iterator[Case]:
    """Samples of operations as runnable cases.

    Args:
        ops: Names of operations; None for all of them.
        most: At most so many of each, spread over its dtypes; None for all of them.
        dtypes: Only cases whose operands are all of these; None for any.

    Raises:
        UnknownNameError: There is no operation of a name.

    Example:
        >>> [str(case) for case in cases(["relu"], most=2)]
        ['relu-0-bf16', 'relu-0-f16']
    """
    wanted = list(REGISTRY) if ops is None else list(ops)
    retained = None if dtypes is None else set(dtypes)
    for op in wanted:
        if op not in REGISTRY:
            hint = did_you_mean(op, REGISTRY)
            raise UnknownNameError(f"no op is named {op!r}", hint=hint)
        listed = [
            case
            for case in _all_cases(only=op)
            if retained is None or {str(dtype) for dtype in case.dtypes} <= retained
        ]
        yield from _spread(listed, most)


def _spread(listed: Sequence[Case], limit: int | None) -> Sequence[Case]:
    """Some of the cases of an operation: of each combination of dtypes the first, then the second, and so on."""
    if limit is None or len(listed) <= limit:
        return listed
    seen: Counter[tuple[object, ...]] = Counter()
    ranked = []
    for i, case in enumerate(listed):
        ranked.append((seen[case.dtypes], i, case))
        seen[case.dtypes] += 1
    chosen = sorted(ranked, key=lambda item: item[:2])[:limit]
    return [case for _, _, case in sorted(chosen, key=lambda item: item[1])]


def verdict_of(case: Case, device: DeviceLike, options: CompileOptions | None = None) -> Verdict:
    """Compiles a case and runs it twice: the second run finds what the first one left in memory.

    Args:
        case: The case.
        device: Where it runs.
        options: How it is compiled; without constant folding by default, which would compute composites of
            constants by the reference itself.
    """
    chosen = options or CompileOptions(fold=False)
    graph, operands = case.graph(), case.operands()
    try:
        with Session(device, options=chosen).compile(graph) as compiled:
            expected = case.expected(graph, operands)
            for _ in range(2):
                error, allowed = case.difference(graph, compiled.run_slots(*operands), expected)
                if not error <= allowed:
                    return Verdict(case, "wrong", f"error {error:.3g}, allowed {allowed:.3g}")
            reasons = [text.partition(": ")[2] for text in compiled.host_fallbacks]
    except UnsupportedOpError as error:
        return Verdict(case, "refused", _reason(error))
    except (RlxError, AssertionError, RuntimeError, ValueError, TypeError) as error:
        return Verdict(case, "failed", f"{type(error).__name__}: {first_line(error)}")
    return Verdict(case, "host" if reasons else "right", "; ".join(dict.fromkeys(reasons)))


def _reason(error: UnsupportedOpError) -> str:
    """The reason in the message of a refusal."""
    lines = [line.strip() for line in str(error).splitlines()]
    got = next((line for line in lines if line.startswith("got")), lines[0])
    return got.partition(":")[2].strip() or got


def conformance(
    device: DeviceLike,
    ops: Iterable[str] | None = None,
    most: int | None = None,
    dtypes: Iterable[str] | None = None,
    options: CompileOptions | None = None,
    told: Callable[[Verdict], None] | None = None,
) -> Report:
    """Runs the samples of operations on a device.

    All 8,600 cases take a minute on the CPU, and an hour on a backend that compiles each of them separately: ``most=4``
    is a fair sample.

    Args:
        device: The device.
        ops: Names of operations; None for all.
        most: At most so many cases of each operation.
        dtypes: Only cases whose operands are all of these.
        options: See ``verdict_of``.
        told: Called with each verdict, as it is known.

    Raises:
        UnknownNameError: There is no operation of a name.

    Example:
        >>> conformance("cpu", ["gelu", "softmax"], most=3).counts()
        {'right': 6, 'host': 0, 'refused': 0, 'wrong': 0, 'failed': 0}
    """
    results = []
    for case in cases(ops, most, dtypes):
        results.append(verdict_of(case, device, options))
        if told is not None:
            told(results[-1])
    return Report(str(device), tuple(results))
