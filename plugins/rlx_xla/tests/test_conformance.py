"""Samples of every operation against the float64 reference: one of each, or all with RLX_TEST_ALL."""

import pytest
from conftest import DEVICE, EVERYTHING
from random_graphs import random_graph
from rlx_xla.hand import BY_HAND
from test_random_graphs import check

import rlx.testing
from rlx.plugin import OPS

# Each case is compiled by XLA, which takes a tenth of a second.
FEW = None if EVERYTHING else 1
OPERATIONS = sorted(op for op, record in OPS.items() if record.samples)
HOSTED = {"custom": "a custom operation"}
SEEDS = range(300 if EVERYTHING else 5)


@pytest.mark.timeout(1200)
@pytest.mark.parametrize("op", OPERATIONS)
def test_operation(op):
    report = rlx.testing.conformance(DEVICE, [op], FEW)
    outcomes = {verdict.outcome for verdict in report.verdicts}
    assert outcomes == {"host" if op in HOSTED else "right"}, str(report)


@pytest.mark.parametrize("op", sorted(BY_HAND))
def test_what_is_written_by_hand_is_an_operation(op):
    assert op in OPS


@pytest.mark.parametrize("seed", SEEDS)
def test_random_graph(seed):
    random_graph(seed)
    check(seed, DEVICE)
