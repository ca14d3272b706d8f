"""Many samples in one test: all of them run, and every failure is reported with its sample.

An item of pytest costs as much as computing a small operation twice, so what differs only in its data is a loop
inside one item. ``script/test --all`` sets ``RLX_TEST_ALL``, which adds the samples that are marked slow.
``RLX_TEST_SAMPLE=TEXT`` keeps the samples whose name holds the text, to look at one of them.
"""

from __future__ import annotations

import functools
import inspect
import itertools
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import pytest
from selection import SELECTION

from rlx.ir.fragments import FragmentVariant

ALL = bool(os.environ.get("RLX_TEST_ALL"))
# Operations whose results have as many entries as their data say: tests/test_random_data_sizes.py has graphs of them.
# Most have no plan of their own: the kernels that they are made of have samples, too.
SIZED_BY_DATA = {"compress", "non_max_suppression", "nonzero", "repeat_interleave", "unique"}
ONLY = os.environ.get("RLX_TEST_SAMPLE", "")
# Failures that are shown in full; the others are one line each.
SHOWN = 3


def each(samples: Iterable[Any], check: Callable[[Any], None], name=str) -> None:
    """Calls ``check`` with every sample; fails after the last one if any of them failed.

    Args:
        samples: The samples; none at all is a failure, too.
        check: Raises an exception when a sample is wrong.
        name: What a sample is called in the report.
    """
    failed, count, chosen = [], 0, 0
    for sample in samples:
        count += 1
        if ONLY not in name(sample):
            continue
        chosen += 1
        try:
            with SELECTION.sample(name(sample), sample):
                check(sample)
        except (Exception, pytest.fail.Exception) as error:
            failed.append((name(sample), error))
    assert count, "there are no samples"
    if not chosen:
        pytest.skip(f"no sample is named {ONLY!r}")
    if not failed:
        return
    lines = [f"{len(failed)} of {chosen} samples failed:"]
    for sample, error in failed:
        text = str(error).strip().splitlines() or [""]
        lines.append(f"- {sample}: {type(error).__name__}: {text[0]}")
    shown = [error for _, error in failed[:SHOWN]]
    if len(shown) == 1:
        raise AssertionError("\n".join(lines)) from shown[0]
    group = ExceptionGroup("the first of them", [e for e in shown if isinstance(e, Exception)])
    raise AssertionError("\n".join(lines)) from group


def looped(names: str | Sequence[str], values: Iterable[Any], ids: Any = None):
    """``pytest.mark.parametrize`` as a loop inside one item.

    Decorators that stand above each other make the product of their values. Fixtures are made once for all
    samples: a test whose fixture keeps what a sample did to it stays with ``parametrize``.
    """
    listed = names.split(",") if isinstance(names, str) else list(names)
    listed = [item.strip() for item in listed]
    rows = [row for index, value in enumerate(values) if (row := _row(listed, value, index, ids))]

    def decorate(function):
        axes = [*getattr(function, "axes", ()), rows]
        inner = getattr(function, "inner", function)
        taken = {name for axis in axes for _, value in axis for name in value}
        parameters = inspect.signature(inner).parameters
        assert taken <= parameters.keys(), f"{inner.__name__} has no {taken - parameters.keys()}"

        @functools.wraps(inner)
        def run(**fixtures):
            def check(sample):
                inner(**fixtures, **{k: v for _, value in sample for k, v in value.items()})

            each(
                itertools.product(*axes), check, lambda sample: "-".join(text for text, _ in sample)
            )

        remaining = [
            p.replace(kind=p.KEYWORD_ONLY) for n, p in parameters.items() if n not in taken
        ]
        run.__signature__ = inspect.Signature(remaining)
        run.axes, run.inner = axes, inner
        return run

    return decorate


def _row(
    names: Sequence[str], value: Any, index: int, ids: Any
) -> tuple[str, Mapping[str, Any]] | None:
    """Returns the id and the arguments of one value; None for a value that only ``--all`` runs."""
    text = None
    if isinstance(value, type(pytest.param())):
        if any(mark.name == "slow" for mark in value.marks) and not ALL:
            return None
        text, value = value.id, value.values if len(names) > 1 else value.values[0]
    values = list(value) if len(names) > 1 else [value]
    if text is None and ids is not None:
        text = ids(value) if callable(ids) else ids[index]
    if text is None:
        text = "-".join(getattr(value, "__name__", None) or str(value)[:40] for value in values)
    return str(text), dict(zip(names, values, strict=True))


def grouped(samples: Iterable[Any], key: Callable[[Any], str]) -> list[Any]:
    """Lists of samples as parameters of ``pytest.mark.parametrize``, one for each key."""
    results: dict[str, list[Any]] = {}
    for sample in samples:
        results.setdefault(key(sample), []).append(sample)
    return [pytest.param(group, id=name) for name, group in results.items()]


def by_op(cases: Iterable[Any]) -> list[Any]:
    """One parameter for each op: its cases."""
    return grouped(cases, lambda case: case.opdef.name)


def by_family(cases: Iterable[Any]) -> list[Any]:
    """One parameter for each file of ``rlx/ops``: the cases of its ops."""
    return grouped(cases, lambda case: case.opdef.reference.__module__.removeprefix("rlx.ops."))


def without_units(family):
    """A family's variants, but for those that need matrix units (tests/test_matrix_units.py)."""
    return [variant for variant in family.variants if not isinstance(variant, FragmentVariant)]
