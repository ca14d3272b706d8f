"""ONNX models on MLX's device: the suite of the onnx package, its real topologies, and published models."""

import pytest
from conftest import EVERYTHING
from onnx_suite import failures, file_cases, node_cases
from package_models import MODELS, check

# The default run takes one case in so many of the suite.
STRIDE = 1 if EVERYTHING else 20
SHORT = ("pairs of detectors", "trees of traffic", "wake word, spectrogram")


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("part", range(4))
def test_node_cases(part):
    cases = list(node_cases().items())[part::4]
    failed, passed = failures(dict(cases[::STRIDE]), "mlx")
    assert not failed
    assert passed >= len(cases[::STRIDE]) // 2


@pytest.mark.timeout(1800)
def test_files_of_models():
    """Simple and converted models; with all of them, real topologies."""
    cases = [(name, case) for name, case in file_cases().items() if not name.startswith("real")]
    if EVERYTHING:
        cases = list(file_cases().items())
    failed, passed = failures(dict(cases[::STRIDE]), "mlx")
    assert not failed
    assert passed >= len(cases[::STRIDE]) // 2


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [name for name in MODELS if EVERYTHING or name in SHORT])
def test_published_model(name):
    check(name, "mlx")
