"""Compares two recordings: changed results, changed times, and the exit status of both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import field

from rlx.dataclasses import dataclass
from rlx.errors import InputError, did_you_mean
from rlx.regress.findings import KINDS, Finding, findings
from rlx.regress.pairing import DevicePair, machine_differences, pairs
from rlx.regress.recording import Measured, Recording
from rlx.regress.timing import TimeVerdict, Timing, timings

NOT_COMPARABLE = 5
"""The exit status of two recordings without a case in common."""

CHANGED = "changed"
"""The name in ``fail_on`` of any finding that means that results have changed."""

# Exit status of what can fail, the most important first: a wrong result is worse than a slow one.
_EXITS: tuple[tuple[str, int], ...] = (
    (CHANGED, 4),
    *((kind, 4) for kind in KINDS),
    (TimeVerdict.SLOWER, 1),
    (TimeVerdict.INCONCLUSIVE, 3),
    (TimeVerdict.MACHINE, 3),
)
FAIL_ON = (CHANGED, TimeVerdict.SLOWER, TimeVerdict.INCONCLUSIVE, TimeVerdict.MACHINE)
"""The findings that fail unless ``--fail-on`` says otherwise."""

# The verdict on a case is the first of these that a time which decides has.
_WORST = (
    TimeVerdict.SLOWER,
    TimeVerdict.INCONCLUSIVE,
    TimeVerdict.MACHINE,
    TimeVerdict.FASTER,
    TimeVerdict.SAME,
)
# The order in which verdicts are counted for people.
_SAID = (
    TimeVerdict.SLOWER,
    TimeVerdict.FASTER,
    TimeVerdict.MACHINE,
    TimeVerdict.INCONCLUSIVE,
    TimeVerdict.SAME,
)


@dataclass(frozen=True)
class CaseResult:
    """A case on a device in two recordings.

    Attributes:
        pair: The device of both.
        case: The case's digest.
        name: The case for people.
        suite: Its suite.
        op: Its operation, pipeline or model.
        base: The earlier measurement.
        new: The new measurement.
        findings: The differences apart from time.
        timings: The verdict on each kind of time.
    """

    pair: DevicePair
    case: str
    name: str
    suite: str
    op: str
    base: Measured = field(repr=False)
    new: Measured = field(repr=False)
    findings: tuple[Finding, ...]
    timings: tuple[Timing, ...]

    @property
    def changed(self) -> bool:
        """True if results have changed."""
        return any(finding.changed for finding in self.findings)

    @property
    def decisive(self) -> Timing | None:
        """The time that gives the verdict; None where none was measured in both."""
        deciding = [timing for timing in self.timings if timing.judged]
        return min(deciding, key=lambda item: _WORST.index(item.verdict), default=None)

    @property
    def verdict(self) -> TimeVerdict | None:
        """The verdict on the time; None where none was measured in both."""
        return None if self.decisive is None else self.decisive.verdict

    @property
    def flagged(self) -> bool:
        """True if results have changed, or the time has."""
        return self.changed or self.verdict in (TimeVerdict.SLOWER, TimeVerdict.FASTER)


@dataclass(frozen=True)
class Comparison:
    """Two recordings compared.

    Attributes:
        base: The recording before.
        new: The recording now.
        min_effect: The least change of a time that counts, as a part of it.
        pairs: Devices that are in both.
        cases: Cases that are in both.
        only_base: Names of cases, with their devices, that are only in the first.
        only_new: Names of cases, with their devices, that are only in the second.
        differences: The differences between the machines: name, before, now.
    """

    base: Recording = field(repr=False)
    new: Recording = field(repr=False)
    min_effect: float
    pairs: tuple[DevicePair, ...]
    cases: tuple[CaseResult, ...]
    only_base: tuple[str, ...]
    only_new: tuple[str, ...]
    differences: tuple[tuple[str, str, str], ...]

    @property
    def verdicts(self) -> Mapping[str, int]:
        """The number of cases with each verdict."""
        return Counter(str(item.verdict) for item in self.cases if item.verdict is not None)

    @property
    def kinds(self) -> Mapping[str, int]:
        """The number of cases with each kind of finding."""
        return Counter(kind for item in self.cases for kind in {f.kind for f in item.findings})

    @property
    def why_not(self) -> str:
        """Why nothing can be compared; empty where something can."""
        if not self.pairs:
            return "no device of the one is like a device of the other"
        return "" if self.cases else "no case is in both recordings"

    @property
    def headline(self) -> str:
        """A summary of the whole, in one sentence."""
        if self.why_not:
            return f"Not comparable: {self.why_not}."
        changed = sum(item.changed for item in self.cases)
        verdicts = [f"{self.verdicts[v]} {v}" for v in _SAID if v in self.verdicts]
        results = f"Results changed in {changed}" if changed else "No result changed"
        return f"{results} of {len(self.cases)} cases. Times: {', '.join(verdicts) or 'none'}."

    def happened(self) -> Collection[str]:
        """Returns those findings of the comparison that ``fail_on`` can name."""
        changed = [CHANGED] if any(item.changed for item in self.cases) else []
        return {*changed, *self.kinds, *self.verdicts}

    def exit_code(self, fail_on: Collection[str] = FAIL_ON) -> int:
        """The exit status.

        Args:
            fail_on: The outcomes that fail: "changed", verdicts, or kinds of findings (``KINDS``).

        Returns:
            5 where nothing can be compared, else the first that there is of 4 (results changed), 1 (slower) and
            3 (inconclusive), else 0.
        """
        if self.why_not:
            return NOT_COMPARABLE
        happened = self.happened()
        return next((code for what, code in _EXITS if what in fail_on and what in happened), 0)


def worst(codes: Iterable[int]) -> int:
    """Returns the exit status of several comparisons: the most severe status."""
    order = (NOT_COMPARABLE, 4, 1, 3, 0)
    return min(codes, key=order.index, default=0)


def fail_on(text: str) -> tuple[str, ...]:
    """Parses the findings of ``--fail-on``, separated by commas.

    Raises:
        InputError: It names something else.
    """
    known = [str(what) for what, _ in _EXITS]
    named = tuple(part.strip() for part in text.split(",") if part.strip())
    for item in named:
        if item not in known:
            raise InputError("--fail-on", got=item, hint=did_you_mean(item, known))
    return named


def compare(
    base: Recording,
    new: Recording,
    min_effect: float = 0.05,
    devices: Mapping[str, str] | None = None,
) -> Comparison:
    """Compares two recordings.

    Args:
        base: The recording before.
        new: The recording now.
        min_effect: The least change of a time that counts, as a part of it. Where twice the noise floor is more,
            that counts instead.
        devices: Names of devices of ``base``, each with the device of ``new`` that it is compared with; by default
            all that fit.

    Returns:
        What differs. Two recordings without a common case give one whose exit status is 5.

    Raises:
        InputError: ``min_effect`` is no part, or a recording has no such device.

    Example:
        >>> from rlx.regress.compare import compare
        >>> from rlx.regress.recording import read
        >>> base, new = read(["before.rlxreg", "after.rlxreg"])  # doctest: +SKIP
        >>> compare(base, new).exit_code()  # doctest: +SKIP
        0
    """
    if not 0 <= min_effect < 10:
        raise InputError("min_effect", got=min_effect, expected="a fraction from 0 to 10")
    paired = pairs(base, new, devices or {})
    cases: list[CaseResult] = []
    only: tuple[list[str], list[str]] = ([], [])
    for pair in paired:
        before, now = base.cases(pair.base.device), new.cases(pair.new.device)
        both = {case: (measured, now[case]) for case, measured in before.items() if case in now}
        timed = timings(base, new, pair, both, min_effect)
        for case, (was, is_) in both.items():
            result = findings(was, is_, pair.same_hardware)
            named = is_.case or was.case
            cases.append(
                CaseResult(
                    pair,
                    case,
                    _name(is_),
                    named.suite if named else "",
                    named.op if named else "",
                    was,
                    is_,
                    tuple(result),
                    tuple(timed.get(case, [])),
                )
            )
        for found_only, first, other in ((only[0], before, now), (only[1], now, before)):
            found_only += [
                f"{_name(m)} on {pair.title}" for case, m in first.items() if case not in other
            ]
    return Comparison(
        base,
        new,
        min_effect,
        tuple(paired),
        tuple(cases),
        tuple(only[0]),
        tuple(only[1]),
        tuple(machine_differences(base, new, paired)),
    )


def _name(measured: Measured) -> str:
    if measured.case is not None:
        return measured.case.name
    return next((failure.name for failure in measured.failures.values()), "")
