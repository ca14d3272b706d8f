"""A comparison for other programs: JSON with a version, and the XML of JUnit that CI systems show."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from typing import Any
from xml.etree import ElementTree

import msgspec

from rlx.regress.compare import CHANGED, FAIL_ON, CaseResult, Comparison
from rlx.regress.pairing import DevicePair, Peak
from rlx.regress.statistics import Effect, ratio_of
from rlx.regress.timing import TimeVerdict, Timing

JSON_VERSION = 1
"""The version of ``as_json``; it grows when a field changes its meaning or goes."""

# Characters that XML 1.0 can't hold.
_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def as_json(comparison: Comparison, fail_on: Collection[str] = FAIL_ON) -> dict[str, Any]:
    """A comparison as a tree that JSON can hold; times in nanoseconds, ratios new by base.

    Args:
        comparison: The comparison.
        fail_on: The outcomes that make the exit status (``Comparison.exit_code``).
    """
    return {
        "version": JSON_VERSION,
        "headline": comparison.headline,
        "exit_code": comparison.exit_code(fail_on),
        "fail_on": list(fail_on),
        "why_not": comparison.why_not or None,
        "min_effect": comparison.min_effect,
        "base": msgspec.to_builtins(comparison.base.run),
        "new": msgspec.to_builtins(comparison.new.run),
        "differences": [
            {"what": what, "base": base, "new": new} for what, base, new in comparison.differences
        ],
        "verdicts": dict(comparison.verdicts),
        "findings": dict(comparison.kinds),
        "devices": [_device(pair) for pair in comparison.pairs],
        "cases": [_case(item) for item in comparison.cases],
        "only_base": list(comparison.only_base),
        "only_new": list(comparison.only_new),
    }


def _device(pair: DevicePair) -> dict[str, Any]:
    return {
        "base": pair.base.device,
        "new": pair.new.device,
        "base_adapter": pair.base.adapter,
        "new_adapter": pair.new.adapter,
        "same_hardware": pair.same_hardware,
        "peaks": [_peak(peak) for peak in pair.peaks],
    }


def _peak(peak: Peak) -> dict[str, Any]:
    results = {"what": peak.title, "base": peak.base, "new": peak.new, "hardware": peak.hardware}
    return {**results, "slowdown": peak.slowdown and _effect(peak.slowdown)}


def _effect(effect: Effect) -> dict[str, Any]:
    return {name: getattr(effect, name) for name in ("log_ratio", "low", "high", "p", "spread")}


def _case(case: CaseResult) -> dict[str, Any]:
    return {
        "case": case.case,
        "name": case.name,
        "suite": case.suite,
        "op": case.op,
        "base_device": case.pair.base.device,
        "new_device": case.pair.new.device,
        "adapter": case.pair.new.adapter,
        "changed": case.changed,
        "verdict": case.verdict and str(case.verdict),
        "findings": [
            {"kind": finding.kind, "changed": finding.changed, "text": finding.text}
            for finding in case.findings
        ],
        "times": [_time(timing) for timing in case.timings],
    }


def _time(timing: Timing) -> dict[str, Any]:
    return {
        "what": timing.metric,
        "judged": timing.judged,
        "base_ns": timing.base_ns,
        "new_ns": timing.new_ns,
        "effect": timing.effect and _effect(timing.effect),
        "q": timing.q,
        "threshold": timing.threshold,
        "verdict": str(timing.verdict),
        "reason": timing.reason or None,
        "processes": timing.processes,
    }


def as_junit(comparisons: Sequence[Comparison], fail_on: Collection[str] = FAIL_ON) -> str:
    """Comparisons as XML of JUnit: a suite for each device, a test for each case.

    A case fails by the findings in ``fail_on``. An inconclusive case that does not fail is skipped. Two
    recordings that can't be compared are one failed test.

    Args:
        comparisons: The comparisons.
        fail_on: The findings that fail (``Comparison.exit_code``).
    """
    root = ElementTree.Element("testsuites", name="rlx regress")
    for comparison in comparisons:
        for pair in comparison.pairs:
            suite = _element(root, "testsuite", name=f"{pair.title} ({pair.new.adapter})")
            for case in comparison.cases:
                if case.pair is pair:
                    _test(suite, case, fail_on)
            _count(suite)
        if comparison.why_not:
            suite = _element(root, "testsuite", name="comparison")
            test = _element(suite, "testcase", classname="rlx.regress", name="comparable")
            _element(test, "failure", message=comparison.headline, type="not comparable")
            _count(suite)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _element(parent: ElementTree.Element, tag: str, **attributes: str) -> ElementTree.Element:
    clean = {
        name: _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text) for name, text in attributes.items()
    }
    return ElementTree.SubElement(parent, tag, clean)


def _count(suite: ElementTree.Element) -> None:
    for name, tag in (
        ("tests", "testcase"),
        ("failures", "testcase/failure"),
        ("skipped", "testcase/skipped"),
    ):
        suite.set(name, str(len(suite.findall(tag))))
    suite.set("errors", "0")


def _test(suite: ElementTree.Element, case: CaseResult, fail_on: Collection[str]) -> None:
    decisive = case.decisive
    seconds = f"{decisive.new_ns / 1e9:.9f}" if decisive else "0"
    classname = f"{case.suite}.{case.op}"
    test = _element(suite, "testcase", classname=classname, name=case.name, time=seconds)
    for finding in case.findings:
        if finding.kind in fail_on or (finding.changed and CHANGED in fail_on):
            _element(test, "failure", message=finding.text, type=finding.kind)
    if decisive is None:
        return
    text = said(decisive)
    if decisive.verdict in fail_on:
        _element(test, "failure", message=text, type=str(decisive.verdict))
    elif decisive.verdict in (TimeVerdict.INCONCLUSIVE, TimeVerdict.MACHINE):
        _element(test, "skipped", message=text)


def said(timing: Timing) -> str:
    """A verdict in a line: the ratio, its interval, the reason, how many processes would decide."""
    result = timing.effect
    text = f"{timing.new_ns / timing.base_ns:.3f} times as long"
    if result is not None:
        low, high = ratio_of(result.low), ratio_of(result.high)
        text = f"{result.ratio:.3f} times as long ({low:.3f} to {high:.3f})"
    return "; ".join(filter(None, (f"{timing.verdict}: {text}", timing.note)))
