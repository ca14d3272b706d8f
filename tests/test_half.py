"""Half precision: f16 and bf16 in memory on every device, half-precision kernels where there are some."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.device.names import info_of
from rlx.ir.dtype import DType, store, widen
from rlx.ops.conformance_cases import Case, cases

pytestmark = pytest.mark.by_program

# Products summed in f32 are closer than the record asks for; the activation's input is not rounded.
HALF = [
    Case(case.opdef, case.sample, (DType.F16,) * len(case.dtypes), case.number)
    for name in (
        "matmul",
        "fused_matmul_bias_act",
        "gated_product",
        "shared_products",
        "gelu",
        "layer_norm",
        "softmax",
    )
    for case in cases(only=name)
    if set(case.dtypes) == {DType.F32}
]


@pytest.mark.webgpu
@looped("case", HALF, ids=str)
@looped("fuse", [True, False])
def test_half_precision_kernels(case, fuse, webgpu):
    graph, operands = case.graph(), case.operands()
    info = info_of(rlx.Device.parse(webgpu))
    if "shader-f16" not in info.features:
        with pytest.raises(rlx.CompileError, match="no half-precision arithmetic"):
            rlx.Session(webgpu, precision="f16").compile(graph)
        return
    options = CompileOptions(fuse=fuse)
    compiled = rlx.Session(webgpu, precision="f16", options=options).compile(graph)
    error, allowed = case.error(graph, compiled.run_slots(*operands), operands)
    assert error <= allowed


def test_the_cpu_says_that_it_has_none():
    g = rlx.Graph()
    g.set_outputs([g.input("x", (2,), "f16") * 2.0])
    with pytest.raises(rlx.CompileError, match='precision="f32" keeps f16'):
        rlx.Session("cpu", precision="f16").compile(g)
    with pytest.raises(rlx.CompileError, match="no such precision"):
        rlx.Session("cpu", precision="f8")


@pytest.mark.webgpu
def test_products_bind_half_precision(webgpu):
    if "shader-f16" not in info_of(rlx.Device.parse(webgpu)).features:
        assert not rlx.compile(HALF[0].graph(), webgpu).capabilities.f16
        return
    g = rlx.Graph()
    x, w, b = (
        g.input("x", (8, 64), "f16"),
        g.param("w", (64, 32), "f16"),
        g.param("b", (32,), "f16"),
    )
    g.set_outputs([g.gelu(x @ w + b)])
    params = {"w": np.full((64, 32), 0.01, np.float16), "b": np.zeros(32, np.float16)}
    compiled = rlx.Session(webgpu, precision="f16").compile(g, params)
    assert "schedule: 1 calls" in compiled.as_text("schedule")
    assert "enable f16;" in compiled.as_text("kernels")
    plain = rlx.compile(g, webgpu, params)
    assert "enable f16;" not in plain.as_text("kernels")
    data = np.linspace(-1, 1, 512, dtype=np.float16).reshape(8, 64)
    np.testing.assert_allclose(compiled(x=data)[0], plain(x=data)[0], rtol=2e-3, atol=1e-3)


@looped("dtype", ["f16", "bf16"])
@looped("kept", [True, False])
def test_a_cpu_widens_weights_once(rng, dtype, kept):
    """Casts of weights are no part of a run, whether they are params or constants; products keep them in 16 bits."""

    def weight(g, name, shape):
        value = store(rng.standard_normal(shape) / 8, DType.parse(dtype))
        params[name] = value
        return g.constant(value, dtype) if kept else g.param(name, shape, dtype)

    g, params = rlx.Graph(), {}
    x = g.input("x", (2, 3, 20), dtype)
    y = g.conv1d(x, weight(g, "c", (5, 3, 3)), None, (1,), ((1, 1),))
    y, *_ = g.rnn(y, weight(g, "w", (1, 7, 20)), weight(g, "r", (1, 7, 7)))
    g.set_outputs([g.reshape(y, (2, 5, 7)) @ weight(g, "m", (7, 4))])
    inputs = {"x": store(rng.standard_normal((2, 3, 20)), DType.parse(dtype))}
    with rlx.compile(g, "reference", {} if kept else params) as exact:
        wanted = [widen(item, DType.parse(dtype)) for item in exact.run(inputs)]
    with rlx.compile(g, "cpu", {} if kept else params) as cg:
        for item, want in zip(cg.run(inputs), wanted, strict=True):
            np.testing.assert_allclose(widen(item, DType.parse(dtype)), want, 0, 2e-2)
        text = cg.as_text("schedule")
    assert "half_matmul" in text, text
    for shape in ("(5,3,3)", "(1,7,7)", "(20,7)", "(7,20)", "(1,7,20)", "(7,4)"):
        assert f"shape={shape}" not in text, text


@looped("turned", [False, True])
@looped("first", ["f16", "f32"])
def test_a_gate_of_weights_in_16_bits_keeps_them_so(turned, first):
    rng = np.random.default_rng(6)
    weights = [rng.standard_normal((24, 40)).astype(np.float16) for _ in range(2)]
    g = rlx.Graph()
    x = g.input("x", (3, 24))
    wide = []
    for dtype, w in zip((first, "f16"), weights, strict=True):
        value = w.T if turned else w
        value = value.astype(rlx.DType[dtype.upper()].numpy)
        stored = g.param(f"w{len(wide)}", value.shape, dtype, value)
        wide.append(g.cast(stored, "f32") if dtype == "f16" else stored)
    wide = [g.transpose(w) if turned else w for w in wide]
    g.set_outputs([g.silu(x @ wide[0]) * (x @ wide[1])])
    row = rng.standard_normal((3, 24)).astype(np.float32)
    with rlx.compile(g, "cpu") as cg, rlx.compile(g, "reference") as exact:
        assert cg.as_text("schedule").count("half_matmul") == (2 if first == "f16" else 1)
        np.testing.assert_allclose(cg.run({"x": row})[0], exact.run({"x": row})[0], 1e-4, 1e-4)
