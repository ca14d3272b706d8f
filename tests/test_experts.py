"""Mixtures of experts: residency, capture and counts on a model of four layers of eight experts."""

import numpy as np
import pytest

import rlx

LAYERS, EXPERTS, TOP, TOKENS, WIDTH, HIDDEN = 4, 8, 2, 12, 16, 24
MASK = np.array([True, False, True, True, False, False, True, False])


def mixture(g, x, index):
    """A router that chooses two of eight experts for each token, and their gated products."""
    logits = x @ g.param(f"router{index}", (WIDTH, EXPERTS))
    best, chosen = g.topk(logits, TOP)
    weights = g.softmax(best, axis=-1)
    flat = g.reshape(chosen, (TOKENS * TOP,))
    rows = g.reshape(
        g.expand(g.reshape(x, (TOKENS, 1, WIDTH)), (TOKENS, TOP, WIDTH)), (TOKENS * TOP, WIDTH)
    )
    up = g.grouped_matmul(rows, g.param(f"up{index}", (EXPERTS, WIDTH, HIDDEN)), flat)
    gate = g.grouped_matmul(rows, g.param(f"gate{index}", (EXPERTS, WIDTH, HIDDEN)), flat)
    down = g.param(f"down{index}", (EXPERTS, HIDDEN, WIDTH))
    y = g.grouped_matmul(g.silu(gate) * up, down, flat)
    y = g.reshape(y, (TOKENS, TOP, WIDTH)) * g.reshape(weights, (TOKENS, TOP, 1))
    return x + g.sum(y, [1])


def model():
    g = rlx.Graph("mixture")
    x = g.input("x", (TOKENS, WIDTH))
    for index in range(LAYERS):
        x = mixture(g, x, index)
    g.set_outputs([x, g.sum(x)])
    return g


@pytest.fixture(scope="module")
def params():
    rng = np.random.default_rng(0)
    shapes = {node.name: node.shape for node in model().nodes if node.op == "param"}
    return {n: (rng.normal(size=s) / np.sqrt(s[-2])).astype("f4") for n, s in shapes.items()}


X = np.random.default_rng(1).normal(size=(TOKENS, WIDTH)).astype(np.float32)


@pytest.fixture(scope="module")
def expected(params):
    """Outputs of the reference, and what its routers choose."""
    with rlx.compile(model(), "reference", params) as compiled:
        outputs = compiled.run({"x": X})
        assert compiled.enable_moe_topk_capture(EXPERTS)
        compiled.run({"x": X})
        return outputs, compiled.take_moe_topk_capture()


def close(got, want):
    for a, b in zip(got, want, strict=True):
        np.testing.assert_allclose(a, b, 1e-4, 1e-4)


def test_outputs_do_not_depend_on_the_placement(device, params, expected):
    masks = [MASK, ~MASK, np.ones(EXPERTS, bool), np.zeros(EXPERTS, bool)]
    with rlx.compile(model(), device, params) as compiled:
        whole = compiled.memory()["params"]
        compiled.set_moe_resident_experts_per_layer(masks)
        for _ in range(2):
            close(compiled.run({"x": X}), expected[0])
        close(compiled.run_slots(X), expected[0])
        close(compiled.run_read_outputs({"x": X}, [1]), expected[0][1:])
        for item in compiled.run_pipelined([{"x": X}] * 3):
            close(item, expected[0])
        compiled.commit_no_wait({"x": X})
        compiled.sync_pending()
        close([compiled.read_output_row(0, 3)], [expected[0][0][3]])
        close(compiled.clone().run({"x": X}), expected[0])
        if device == "webgpu":
            # The halves of two layers, one whole layer and nothing of the last are on the device.
            experts = 3 * EXPERTS * WIDTH * HIDDEN * 4
            assert whole - compiled.memory()["params"] >= 2 * experts - 4096
            assert "experts on the host" in compiled.as_text("schedule")
        compiled.set_moe_resident_experts(None)
        close(compiled.run({"x": X}), expected[0])
        assert compiled.take_moe_residency_stats() is None
        assert compiled.memory()["params"] == whole


def test_the_routers_choices(device, params, expected):
    with rlx.compile(model(), device, params) as compiled:
        assert not compiled.enable_moe_topk_capture(EXPERTS + 1)
        assert compiled.take_moe_topk_capture() is None
        assert compiled.enable_moe_topk_capture(EXPERTS)
        assert compiled.take_moe_topk_capture() is None
        assert len(compiled.run({"x": X})) == 2
        result = compiled.take_moe_topk_capture()
        assert [item.shape for item in result] == [(TOKENS, TOP)] * LAYERS
        assert {item.dtype for item in result} == {np.dtype(np.int32)}
        for got, want in zip(result, expected[1], strict=True):
            np.testing.assert_array_equal(got, want)
        assert compiled.take_moe_topk_capture() is None


def test_tokens_are_counted(device, params, expected):
    chosen = [item.reshape(-1) for item in expected[1]]
    with rlx.compile(model(), device, params) as compiled:
        compiled.set_moe_resident_experts(MASK)
        for _ in range(3):
            compiled.run_slots(X)
        compiled.run_pipelined([{"x": X}] * 2)
        stats = compiled.take_moe_residency_stats()
        assert stats.runs == 5
        here = tuple(5 * int(MASK[item].sum()) for item in chosen)
        assert stats.resident_tokens == here
        assert stats.host_tokens == tuple(5 * TOKENS * TOP - n for n in here)
        assert stats.hit_rate == pytest.approx(sum(here) / (5 * TOKENS * TOP * LAYERS))
        for count, item in zip(stats.tokens_per_expert, chosen, strict=True):
            np.testing.assert_array_equal(count, 5 * np.bincount(item, minlength=EXPERTS))
        assert compiled.take_moe_residency_stats().runs == 0
        compiled.run_slots(X)
        assert compiled.enable_moe_topk_capture(EXPERTS)
        compiled.run_slots(X)
        assert compiled.take_moe_residency_stats().runs == 2


def test_a_weight_set_later_reaches_both_sides(device, params, expected):
    with rlx.compile(model(), device) as compiled:
        compiled.set_moe_resident_experts(MASK)
        with pytest.raises(rlx.InputError, match="never set"):
            compiled.run({"x": X})
        for name, value in params.items():
            compiled.set_param(name, value)
        close(compiled.run({"x": X}), expected[0])
        compiled.set_moe_resident_experts(~MASK)  # the weights change sides
        close(compiled.run({"x": X}), expected[0])
        compiled.recover()
        close(compiled.run({"x": X}), expected[0])


def test_refused(device, params):
    with rlx.compile(model(), device, params) as compiled:
        for masks in ([MASK] * 3, [MASK[:4]] * 4, [MASK.astype(int)] * 4):
            with pytest.raises(rlx.InputError, match="masks do not fit"):
                compiled.set_moe_resident_experts_per_layer(masks)
    g = rlx.Graph()
    g.set_outputs([g.input("x", (3,)) + 1.0])
    with rlx.compile(g, device) as compiled:
        with pytest.raises(rlx.InputError, match="no mixture of experts"):
            compiled.set_moe_resident_experts(MASK)
        assert not compiled.enable_moe_topk_capture(8)


@pytest.mark.webgpu
def test_weights_that_can_not_be_parted(webgpu):
    g = rlx.Graph()
    x, idx = g.input("x", (4, 3)), g.input("idx", (4,), "i32")
    w = g.param("w", (2, 3, 3))
    g.set_outputs([g.grouped_matmul(x, w, idx), g.sum(w)])
    with rlx.compile(g, webgpu) as compiled:
        with pytest.raises(rlx.GraphError, match="can't be split between devices"):
            compiled.set_moe_resident_experts([True, False])
