"""Sums, norms and chains that are computed in one pass, by the gate's decisions."""

import numpy as np
from fused_graphs import ANY, NEVER, close, fed
from samples import looped

import rlx
from rlx.backends.base import CompileOptions


def test_peaks_read_the_spectrum_again_only_where_it_is_small(device):
    """A power spectrum that is wanted as well: its peaks are found in it, unless a kernel costs more."""
    if device == "reference":
        return  # nothing is fused there
    g = rlx.Graph()
    power = rlx.signal.welch(g.input("x", (3, 4096)), nperseg=64)
    g.set_outputs([power, *g.topk(power, 5)])
    x = np.random.default_rng(0).normal(size=(3, 4096)).astype(np.float32)
    results = {}
    for gate, verdict in ((None, "refused"), (ANY, "took")):
        with rlx.compile(g, device, options=CompileOptions(io_gate=gate)) as compiled:
            assert f"fuse: {verdict} spectrum and peaks" in compiled.as_text("fused")
            results[verdict] = [item.copy() for item in compiled.run({"x": x})]
    for first, other in zip(*results.values(), strict=True):
        np.testing.assert_allclose(first, other, 1e-4, 1e-6)


@looped("reads", [1, 2])
def test_a_sum_that_joins_a_chain_stays_in_it(reads, device):
    """One pass makes the chain with its sum; with the norm instead there would be no kernel less."""
    if device == "reference":
        device = "cpu"
    g = rlx.Graph()
    x, r = g.input("x", (4, 8)), g.input("r", (4, 8))
    total = g.gelu(x) * 0.5 + r
    normed = g.layer_norm(total)
    g.set_outputs([normed, total][:reads])
    arguments, _, expected = fed(g)
    with rlx.compile(g, device) as compiled:
        close(compiled.run(arguments), expected)
        assert "residual_norm" not in compiled.as_text("schedule")
        assert compiled.as_text("schedule").count(" = ") == 2


def test_elementwise_chains_are_gated(device):
    if device == "reference":
        device = "cpu"
    g = rlx.Graph()
    x = g.input("x", (64, 64))
    g.set_outputs([g.tanh(x * 2.0) + x])
    counts = {}
    for gate in (None, NEVER):
        with rlx.compile(g, device, options=CompileOptions(io_gate=gate)) as compiled:
            counts[gate] = compiled.as_text("schedule").count(" = ")
            assert "fuse: " + ("took" if gate is None else "refused") in compiled.as_text("fused")
    assert counts[None] == 1
    assert counts[NEVER] == 3
