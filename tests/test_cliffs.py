"""The search for slow shapes: a seed repeats its cases, every family can be drawn, wrong results are found."""

import json
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python

BENCHMARKS = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def cliffs(benchmark_modules):
    """The benchmark's module; it goes when the test ends."""
    import cliffs

    return cliffs


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
    program, few = BENCHMARKS / "cliffs.py", ("--cases", 4, "--threads", 1, "--seconds", 0.01)
    done = run_python(program, *few, "--json", path, timeout=300)
    assert "geometric mean" in done.stdout
    assert len(json.loads(path.read_text())) == 4
    assert "geometric mean" in run_python(program, "--from-json", path).stdout
