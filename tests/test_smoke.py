"""Every op once on each device: what an installation has to do, whatever kind it is.

``script/test`` runs this file on an editable install as well, where modules and shaders are read from the checkout.
"""

import pytest
from samples import each

import rlx
from rlx.ops.conformance_cases import cases


def first_cases():
    """The first case of each op that computes something."""
    results = {}
    for case in cases():
        if not any(0 in shape for shape in case.sample.shapes):
            results.setdefault(case.opdef.name, case)
    return list(results.values())


def test_every_op_once(device):
    def check(case):
        graph, operands = case.graph(), case.operands()
        with rlx.compile(graph, device) as compiled:
            error, allowed = case.error(graph, compiled.run_slots(*operands), operands)
        assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(first_cases(), check)


@pytest.mark.webgpu
def test_library_functions_are_found(webgpu):
    """Elementwise kernels include functions of the shader library, which packaging must not change."""
    g = rlx.Graph()
    x = g.input("x", (8,))
    g.set_outputs([g.gelu(x), g.tanh(x), g.erf(x), g.softplus(x)])
    with rlx.compile(g, webgpu) as compiled:
        compiled.run_slots()
