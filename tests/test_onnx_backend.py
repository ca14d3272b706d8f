"""The backend suite of onnx on the CPU and on WebGPU, less a committed list of what is left out and why."""

import pytest
from onnx_suite import excluded, exclusions, failures, file_cases, node_cases, run_case

import rlx

# The default run takes each case that ends a run of this many names, and every plain family's first.
STRIDE = 6


def test_the_list_names_cases_that_there_are():
    names = [*node_cases(), *file_cases()]
    for pattern, devices, reason in exclusions():
        assert any(pattern.fullmatch(name) for name in names), f"{pattern.pattern}: no such case"
        assert set(devices.split(",")) <= {"all", "cpu", "webgpu", "gpu", "cuda", "xla"}
        assert len(reason.split()) > 1 or reason == "strings", pattern.pattern


def test_few_node_cases_are_excluded():
    """A figure of its own, so that the list can't grow in silence."""
    cases = node_cases()
    assert len(cases) == 1884
    left = {d: sum(excluded(name, d) is None for name in cases) for d in ("cpu", "webgpu")}
    assert left["cpu"] >= 1804
    assert left["webgpu"] >= 0.998 * left["cpu"]


@pytest.mark.by_program
def test_a_part_of_the_node_cases(target_device):
    part = {
        name: case for index, (name, case) in enumerate(node_cases().items()) if index % STRIDE == 0
    }
    failed, passed = failures(part, target_device)
    assert not failed
    assert passed >= 250


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_all_node_cases(target_device):
    failed, passed = failures(node_cases(), target_device)
    assert not failed
    assert passed >= 1800


@pytest.mark.by_program
@pytest.mark.timeout(900)
def test_files_of_simple_and_converted_models(target_device):
    part = {name: case for name, case in file_cases().items() if not name.startswith("real")}
    failed, passed = failures(part, target_device)
    assert not failed
    assert passed >= 130


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_real_topologies(target_device):
    part = {name: case for name, case in file_cases().items() if name.startswith("real")}
    failed, passed = failures(part, target_device)
    assert not failed
    assert passed == (9 if target_device == "cpu" else 6)


@pytest.mark.parametrize("pattern", [row[0].pattern for row in exclusions() if row[1] == "all"])
def test_what_is_excluded_fails_with_a_typed_error_or_a_difference(pattern):
    """An entry whose cases pass again has to go; an entry that crashes is a fault, not an exclusion."""
    import re

    cases = {**node_cases(), **file_cases()}
    first = next(case for name, case in cases.items() if re.fullmatch(pattern, name))
    with pytest.raises((rlx.RlxError, AssertionError)):
        run_case(first, "cpu")
