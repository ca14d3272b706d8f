"""The loop over samples loses no failure."""

import pytest
import samples
from samples import by_op, each, grouped, looped

from rlx.ops.conformance_cases import cases


def odd(number):
    assert number % 2, f"{number} is even"


def test_every_failure_is_reported():
    each([1, 3, 5], odd)
    with pytest.raises(AssertionError) as caught:
        each(range(6), odd)
    text = str(caught.value)
    assert text.startswith("3 of 6 samples failed")
    assert "- 0: AssertionError: 0 is even" in text
    assert "- 4: AssertionError: 4 is even" in text
    assert len(caught.value.__cause__.exceptions) == 3


def test_any_exception_is_a_failure_of_its_sample():
    def check(number):
        if number == 2:
            pytest.fail("said so")
        return 1 / number

    with pytest.raises(AssertionError, match="2 of 4 samples failed") as caught:
        each(range(4), check)
    assert "- 0: ZeroDivisionError" in str(caught.value)
    assert "- 2: Failed: said so" in str(caught.value)


def test_no_samples_are_a_failure():
    with pytest.raises(AssertionError, match="no samples"):
        each([], odd)


def test_a_test_that_is_looped():
    seen = []

    @looped("a", [1, 2], ids=["one", "two"])
    @looped(("b", "c"), [(3, 4), pytest.param(5, 6, id="last")])
    def run(a, b, c, fixture):
        seen.append((a, b, c, fixture))
        assert (a, b) != (2, 5)

    with pytest.raises(AssertionError, match="1 of 4 samples failed") as caught:
        run(fixture="f")
    assert "- last-two: AssertionError" in str(caught.value)
    assert sorted(seen) == [(1, 3, 4, "f"), (1, 5, 6, "f"), (2, 3, 4, "f"), (2, 5, 6, "f")]


def test_slow_samples_run_with_all(monkeypatch):
    values = [1, pytest.param(2, marks=pytest.mark.slow)]
    for everything, expected in ((False, [1]), (True, [1, 2])):
        monkeypatch.setattr(samples, "ALL", everything)
        seen = []
        looped("a", values)(lambda a, seen=seen: seen.append(a))(seen=seen)
        assert seen == expected


def test_groups_hold_every_sample_once():
    result = by_op(cases())
    stored = [str(case) for group in result for case in group.values[0]]
    assert sorted(stored) == sorted(map(str, cases()))
    assert [group.id for group in grouped("abca", str)] == ["a", "b", "c"]
