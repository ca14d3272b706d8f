"""Every op's benchmark samples on every device present; the result is checked before it is timed.

usage: pytest benchmarks --benchmark-json=out.json
"""

import pytest

import rlx
from rlx.backends.base import backend
from rlx.ops.cases import cases
from rlx.passes.schedule import kernel_blocker


def runs():
    for case in cases(bench=True):
        _, node = case.graph()
        for device in rlx.available_devices():
            kernel_set = backend(device.backend).kernel_set
            if not kernel_set or kernel_blocker(kernel_set)(node) is None:
                yield pytest.param(case, str(device), id=f"{case}-{device}")


@pytest.mark.parametrize(("case", "device"), list(runs()))
def test_op(benchmark, case, device):
    graph, node = case.graph()
    operands = case.operands()
    with rlx.compile(graph, device) as compiled:
        (got,) = compiled.run_slots(*operands)
        error, allowed = case.error(node, got, operands)
        assert error <= allowed
        benchmark.extra_info.update(device=device, flops=node.opdef.flops(node))
        benchmark(compiled.run_slots)
