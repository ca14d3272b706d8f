"""Every op's benchmark samples on every device present; the result is checked before it is timed.

usage: pytest benchmarks --benchmark-json=out.json
"""

import pytest

import rlx
from rlx.backends.registry import backend
from rlx.ops.conformance_cases import cases
from rlx.passes.schedule import host_nodes


def runs():
    for case in cases(bench=True):
        graph = case.graph()
        for device in rlx.available_devices():
            kernel_set = backend(device.backend).kernel_set
            if not kernel_set or not host_nodes(graph, kernel_set):
                yield pytest.param(case, str(device), id=f"{case}-{device}")


@pytest.mark.parametrize(("case", "device"), list(runs()))
def test_op(benchmark, case, device):
    graph = case.graph()
    operands = case.operands()
    with rlx.compile(graph, device) as compiled:
        error, allowed = case.error(graph, compiled.run_slots(*operands), operands)
        assert error <= allowed
        flops = sum(node.opdef.flops(node) for node in graph.nodes)
        benchmark.extra_info.update(device=device, flops=flops)
        benchmark(compiled.run_slots, *operands)
