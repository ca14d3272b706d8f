"""The cost of rows in estimates: which work has them, and how threads share them."""

import pytest
from calibrations import figures

import rlx
from rlx.cost import CalibratedModel, Curve
from rlx.cost.op_classes import FREE, more_rows


def calibrated(**changes):
    return CalibratedModel("cpu", figures(**changes))


@pytest.mark.parametrize(
    ("reduce", "shape", "rows"),
    [
        (lambda g, x: g.mean(x, -1), (512, 16), 512 - 32),
        # A sum over an axis in the middle reads what lies inside of it with it.
        (lambda g, x: g.mean(x, 1), (16, 4, 64), 0),
        (lambda g, x: g.argmax(x, 0), (32, 256), 1 - 32),
        (lambda g, x: g.max(x, (0, 2)), (2, 4, 64), 1 - 2),
        (lambda g, x: g.sum(x), (64, 64), 1 - 16),
    ],
)
def test_rows_of_a_reduction(reduce, shape, rows):
    g = rlx.Graph()
    g.set_outputs([reduce(g, g.input("x", shape))])
    (node,) = [node for node in g.nodes if node.op not in FREE]
    assert more_rows(node) == rows


def test_threads_share_rows_as_they_share_elements():
    """A row costs what it was measured to with all threads at work; with one thread it costs more."""
    curve = Curve(((1e4, 1e4), (1e6, 1e5)))  # ten threads
    figures = calibrated(kernel_ns_by_work={"softmax": curve}, row_ns_by_kind={"softmax": 2.0})
    assert figures.kernel_ns("softmax", 1e6, 1000) == pytest.approx(1e5 + 2_000)
    assert figures.kernel_ns("softmax", 1e4, 100) == pytest.approx(1e4 + 10 * 200)
    gpu = calibrated(
        kernel_ns_by_work={"softmax": curve}, row_ns_by_kind={"softmax": 2.0}, unified_memory=False
    )
    assert gpu.kernel_ns("softmax", 1e4, 100) == pytest.approx(1e4 + 200)
