"""Products that share their left operand: gated ones, and several results in one kernel."""

import numpy as np
import pytest
from fused_graphs import (
    ANY,
    close,
    fed,
    geglu_with_bias,
    made,
    qkv,
    qkv_with_bias,
    qkv_with_known_bias,
    schedule,
    silu_written_out,
    swiglu,
    swiglu_of_one_row,
    values,
)

import rlx
from rlx.backends.base import CompileOptions
from rlx.device.names import info_of

pytestmark = pytest.mark.by_program


def test_a_gated_product_is_one_call(device):
    if device == "reference":
        device = "cpu"
    for build in (swiglu, swiglu_of_one_row, geglu_with_bias, silu_written_out):
        assert schedule(made(build), device).count(" = ") == 1


@pytest.mark.webgpu
def test_products_of_one_input_are_one_call(webgpu):
    for build in (qkv, qkv_with_bias, qkv_with_known_bias):
        text = schedule(made(build), webgpu)
        assert text.startswith("schedule: 1 calls"), text


def test_halves_that_differ_are_no_gated_product(device):
    def one_bias(g, x, a, b):
        return g.silu(x @ a + g.param("c", (16,))) * (x @ b)

    def other_input(g, x, a, b):
        return g.silu(x @ a) * (g.input("y", (5, 24)) @ b)

    def same_product(g, x, a, b):
        return g.sigmoid(x @ a) * (x @ a)

    def read_elsewhere(g, x, a, b):
        gate = x @ a
        return g.silu(gate) * (x @ b) + gate

    for build in (one_bias, other_input, same_product, read_elsewhere):
        g = rlx.Graph(build.__name__)
        a, b = g.param("a", (24, 16)), g.param("b", (24, 16))
        g.set_outputs([build(g, g.input("x", (5, 24)), a, b)])
        arguments, params, expected = fed(g)
        with rlx.compile(g, device, params, CompileOptions(io_gate=ANY)) as compiled:
            close(compiled.run(arguments), expected)
            assert "gated product" not in compiled.as_text("fused")


@pytest.mark.webgpu
def test_groups_of_products(webgpu):
    """Five of one input are three and two; a weight that an input has a part in stays apart."""
    g = rlx.Graph()
    x, y = g.input("x", (3, 8)), g.input("y", (8, 8))
    results = [x @ g.param(f"w{index}", (8, 4 + index)) for index in range(5)]
    results += [x @ y, x @ g.exp(y), g.relu(x @ g.param("v", (8, 8)) + g.param("b", (8,)))]
    g.set_outputs(results)
    arguments, params, expected = fed(g)
    with rlx.compile(g, webgpu, params, CompileOptions(io_gate=ANY)) as compiled:
        close(compiled.run(arguments), expected)
        text = compiled.as_text("schedule")
        assert text.count(" shared_products") == 2, text
        assert compiled.as_text("fused").count("took products of one input") == 2


@pytest.mark.webgpu
def test_weights_that_wait_for_a_product_are_not_joined_with_it(webgpu):
    g = rlx.Graph()
    x = g.input("x", (8, 8))
    first = x @ g.param("w", (8, 8))
    g.set_outputs([first, x @ first])
    arguments = values(g)
    params = {"w": arguments.pop("w")}
    with rlx.compile(g, webgpu, params, CompileOptions(io_gate=ANY)) as compiled:
        want = arguments["x"] @ params["w"]
        close(compiled.run(arguments), (want, arguments["x"] @ want))
        assert "products of one input" not in compiled.as_text("fused")


@pytest.mark.webgpu
@pytest.mark.parametrize("m", [1, 70])
def test_half_precision_of_joined_products(webgpu, m):
    session = rlx.Session(webgpu, precision="f16")
    g = rlx.Graph()
    x = g.input("x", (m, 64), "f16")
    weights = [g.param(name, (64, 36), "f16") for name in ("wg", "wu", "wq", "wk", "wv")]
    a, b, q, k, v = (x @ w for w in weights)
    g.set_outputs([g.silu(a) * b, q, k, v])
    if "shader-f16" not in info_of(rlx.Device.parse(webgpu)).features:
        with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
            session.compile(g)
        return
    inputs = {name: 0.2 * value for name, value in values(g).items()}
    inputs = {name: value.astype(np.float16) for name, value in inputs.items()}
    data = inputs.pop("x")
    compiled = session.compile(g, inputs)
    text = compiled.as_text("schedule")
    assert text.startswith("schedule: 2 calls"), text
    wide = {name: value.astype(np.float32) for name, value in inputs.items()}
    a, b, q, k, v = (data.astype(np.float32) @ value for value in wide.values())
    for got, want in zip(compiled(x=data), (a / (1 + np.exp(-a)) * b, q, k, v), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-3, atol=2e-3)


def test_params_that_are_read_again_and_again():
    """Looking whether weights depend on inputs takes each node once."""
    g = rlx.Graph()
    w = g.param("w", (4, 4))
    for _ in range(60):
        w = g.maximum(w, w * 0.5 + w * 0.5)
    x = g.input("x", (2, 4))
    g.set_outputs([x @ g.transpose(w), x @ w])
    with rlx.compile(g, "null") as compiled:
        assert compiled.as_text("fused")
    with rlx.compile(g, "cpu", {"w": np.eye(4, dtype=np.float32)}) as compiled:
        np.testing.assert_allclose(compiled.run({"x": np.ones((2, 4), "f4")})[0], 1.0, 1e-5)
