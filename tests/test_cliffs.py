"""The search for slow shapes: a seed repeats its cases, every family can be drawn, wrong results are found."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def cliffs(monkeypatch):
    """The benchmark's module; it goes when the test ends."""
    before = set(sys.modules)
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    monkeypatch.setenv("RLX_CACHE", "off")
    import cliffs

    yield cliffs
    for name in set(sys.modules) - before:
        if str(getattr(sys.modules[name], "__file__", "")).startswith(str(BENCHMARKS)):
            del sys.modules[name]


def test_a_seed_repeats_its_cases(cliffs):
    first, other = list(cliffs.cases(3, 8)), list(cliffs.cases(3, 12))
    assert [case.name for case in first] == [case.name for case in other[:8]]
    assert {case.name for case in first} != {case.name for case in cliffs.cases(4, 8)}
    for case, again in zip(first, other, strict=False):
        for name, value in case.feeds.items():
            np.testing.assert_array_equal(value, again.feeds[name])


@pytest.mark.parametrize("threads", [1, 2])
def test_every_family_is_right(cliffs, threads):
    for index, family in enumerate(sorted(set(cliffs.FAMILIES), key=lambda item: item.__name__)):
        for seed in range(3):
            case = family(cliffs.Draw(97 * index + seed))
            _, calls, errors, _ = cliffs.contestants(case, "cpu", threads)
            assert calls.keys() == errors.keys() != set()
            assert min(errors.values()) <= case.tolerance, (case.name, errors)


def test_wrong_results_are_found(cliffs):
    good = np.ones((3, 4), np.float32)
    bad = good.copy()
    bad[1, 2] = np.nan
    assert cliffs.error_of([good], [good]) == 0
    assert cliffs.error_of([bad], [bad]) == 0
    assert cliffs.error_of([bad], [good]) == np.inf
    assert cliffs.error_of([good], [good[:2]]) == np.inf


def test_the_program_prints_a_distribution_and_writes_json(tmp_path):
    path = tmp_path / "found.json"
    command = [sys.executable, str(BENCHMARKS / "cliffs.py"), "--cases", "4", "--threads", "1"]
    done = subprocess.run(
        [*command, "--seconds", "0.01", "--json", path], capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "geometric mean" in done.stdout
    assert len(json.loads(path.read_text())) == 4
    again = [sys.executable, str(BENCHMARKS / "cliffs.py"), "--from-json", path]
    assert "geometric mean" in subprocess.run(again, capture_output=True, text=True).stdout
