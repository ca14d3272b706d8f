"""Chains of operations in f16: f32 between them, whatever they are written with and whichever outputs are asked for."""

import numpy as np
import onnx
import onnxruntime
import pytest
from half_networks import RandomNetwork
from onnx.reference import ReferenceEvaluator

import rlx
from rlx.ir.dtype import DType, store, widen
from rlx.ir.opdef import REGISTRY

pytestmark = pytest.mark.by_program


def exact(seed):
    """Computes the network's results in f64."""
    model, feeds = RandomNetwork(seed, np.float64).model()
    wide = {name: value.astype(np.float64) for name, value in feeds.items()}
    with np.errstate(all="ignore"):
        return ReferenceEvaluator(onnx.load_from_string(model)).run(None, wide)


def by_onnx_runtime(model, feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    return session.run(None, feeds)


def furthest(result, wanted, finite):
    """The largest difference, beside the largest value; beside 1 where all values are less."""
    scale = np.abs(wanted[finite]).max(initial=1.0)
    return np.abs(np.float64(result)[finite] - wanted[finite]).max(initial=0) / scale


def check_networks(device, seeds, slack=5e-5):
    """Random networks: finite wherever ONNX Runtime is, and at most as far from f64, but for some slack."""
    compared = 0
    for seed in seeds:
        model, feeds = RandomNetwork(seed, np.float16).model()
        results = rlx.onnx.Model(model, device=device).run(feeds)
        for result, peer, wanted in zip(
            results, by_onnx_runtime(model, feeds), exact(seed), strict=True
        ):
            assert result.dtype == np.float16
            assert np.isfinite(result[np.isfinite(peer)]).all(), seed
            finite = np.isfinite(peer) & np.isfinite(wanted)
            if not finite.any():
                continue
            compared += 1
            far, limit = (furthest(item, wanted, finite) for item in (result, peer))
            # Half a unit of f16 is 2.4e-4 to 4.9e-4. Where ONNX Runtime is farther, f32 itself has lost digits.
            assert far <= limit + slack or (limit > 1e-3 and far <= 2 * limit), (seed, far, limit)
    assert compared >= len(seeds)


def test_networks(device):
    check_networks(device, range(2000, 2024 if device == "cpu" else 2006))


@pytest.mark.slow
def test_a_thousand_networks(device, request):
    # A GPU's quotients are not exact: the mean of equal numbers may be another one, which a norm enlarges. 2e-3 is the
    # tolerance of f16 in the tests of operations.
    on_a_gpu = device == "webgpu" and request.getfixturevalue("hardware")
    check_networks(device, range(1000), 2e-3 if on_a_gpu else 5e-5)


def norm(g, x, form):
    """A norm as programs write it."""
    if form == "power":
        square = g.pow(x, 2.0)
    elif form == "product":
        square = x * x
    elif form == "centred":
        x = x - g.mean(x, (-1,), True)
        square = x * x
    else:
        square = g.abs(x) * g.abs(x)
    deviation = g.sqrt(g.mean(square, (-1,), True) + 1e-3)
    return x * g.reciprocal(deviation) if form == "absolute" else x / deviation


@pytest.mark.parametrize("dtype", ["f16", "bf16"])
def test_written_out_norms(device, dtype, rng):
    """Squares above 65,504 stay finite in every form; the square may be an output as well."""
    kind = DType.parse(dtype)
    x = store(rng.standard_normal((4, 96)) * 3000, kind)
    wide = widen(x, kind)
    for form in ("power", "product", "centred", "absolute"):
        for shown in (False, True):
            g = rlx.Graph()
            a = g.input("x", x.shape, dtype)
            y = norm(g, a, form)
            g.set_outputs([y, a * a] if shown else [y])
            with rlx.compile(g, device) as cg:
                result = widen(cg.run({"x": x})[0], kind)
            middle = wide - wide.mean(-1, keepdims=True) if form == "centred" else wide
            wanted = middle / np.sqrt((middle**2).mean(-1, keepdims=True) + 1e-3)
            # Half a unit in the last place of the type, for numbers up to 4.
            np.testing.assert_allclose(
                result, wanted, 0, 2 * float(2.0 ** (-10 if dtype == "f16" else -7)), str(form)
            )


def test_attention_and_its_weights(device, rng):
    """The result is the same when the weights are an output, too; scores pass 65,504 before they are scaled."""
    q, k, v = (rng.standard_normal((1, 2, 8, 64)).astype(np.float16) for _ in "qkv")
    q, k = q * np.float16(120), k * np.float16(120)
    scores = np.float64(q) @ np.float64(k).swapaxes(-1, -2) * 0.001
    assert np.abs(scores).max() * 1000 > 65504
    weights = np.exp(scores - scores.max(-1, keepdims=True))
    weights /= weights.sum(-1, keepdims=True)
    for shown in (False, True):
        g = rlx.Graph()
        a, b, c = (
            g.input(name, item.shape, "f16") for name, item in zip("qkv", (q, k, v), strict=True)
        )
        p = g.softmax((a @ g.transpose(b, (0, 1, 3, 2))) * 0.001)
        g.set_outputs([p @ c, p] if shown else [p @ c])
        with rlx.compile(g, device) as cg:
            result = cg.run({"q": q, "k": k, "v": v})
        for item, wanted in zip(result, (weights @ np.float64(v), weights), strict=False):
            np.testing.assert_allclose(np.float64(item), wanted, 0, 2e-3)


def test_casts_of_the_user_round(device, rng):
    """A cast to f16 and back is no promotion: it rounds, between operations of f16, too."""
    x = rng.uniform(-1000, 1000, 257).astype(np.float32)
    g = rlx.Graph()
    a = g.input("x", x.shape)
    half = g.cast(a, "f16")
    g.set_outputs([g.cast(half, "f32"), g.cast(half * half, "f32")])
    with rlx.compile(g, device) as cg:
        back, square = cg.run({"x": x})
    with np.errstate(over="ignore"):
        rounded = x.astype(np.float16).astype(np.float32)
    assert np.array_equal(back, rounded)
    # The product is not rounded: it never leaves the graph as f16.
    assert np.array_equal(square, rounded * rounded)


def test_moved_halves_stay_halves():
    """Weights and inputs that are only moved take no more memory."""
    g = rlx.Graph()
    table, ids = g.param("table", (50, 8), "f16"), g.input("ids", (3,), "i32")
    g.set_outputs([g.transpose(g.gather(table, ids, 0))])
    with rlx.compile(g, "cpu", {"table": np.ones((50, 8), np.float16)}) as cg:
        assert "f32" not in cg.as_text("schedule").lower()
        assert cg.memory()["params"] == 50 * 8 * 2


def test_a_memory_limit_keeps_halves():
    """Values stay in 16 bits if f32 takes more than the limit, and the compiler says so."""
    g = rlx.Graph()
    x = g.input("x", (256, 256), "f16")
    parts = g.concat([g.transpose(g.tanh(x * float(index))) for index in range(1, 9)], 0)
    g.set_outputs([g.exp(parts)])
    with rlx.compile(g, "cpu") as cg:
        whole = cg.memory()["peak"]
        assert "left out" not in cg.as_text("fused")
    options = rlx.CompileOptions(memory_limit=whole - (1 << 18))
    with rlx.compile(g, "cpu", options=options) as cg:
        assert "promote: left out: f32 takes more memory than there is" in cg.as_text("fused")


def attention_of(g, x):
    q, k, v = (g.reshape(x, (2, 8, 2, 16)) * factor for factor in (1.5, 0.5, 2.0))
    q, v = (g.transpose(item, (0, 2, 1, 3)) for item in (q, v))
    scores = (q @ g.transpose(k, (0, 2, 3, 1))) * 0.25 + g.param("mask", (1, 1, 8, 8), x.dtype)
    return g.reshape(g.transpose(g.softmax(scores) @ v, (0, 2, 1, 3)), (2, 8, 32))


def block_of(g, x):
    x = x @ g.param("first", (32, 32), x.dtype)
    y = g.layer_norm(
        x + attention_of(g, x), g.param("s", (32,), x.dtype), g.param("b", (32,), x.dtype)
    )
    return y + g.gelu(y @ g.param("w", (32, 32), x.dtype) + g.param("c", (32,), x.dtype))


def convolutions_of(g, x):
    x = g.reshape(x, (2, 4, 8, 8))
    y = g.relu(
        g.conv2d(x, g.param("w", (8, 4, 3, 3), x.dtype), g.param("b", (8,), x.dtype), padding=1)
    )
    scale, shift = (g.param(name, (8, 1, 1), x.dtype) for name in ("scale", "shift"))
    return g.max_pool(y * scale + shift, 2)


# The product of weights in 16 bits has a name of its own.
PRODUCTS = {"matmul", "fused_matmul_bias_act", "half_matmul"}


def _is_small(op):
    return op in ("input", "param", "constant", "region") or REGISTRY[op].elementwise


@pytest.mark.parametrize("build", [attention_of, block_of, convolutions_of])
@pytest.mark.parametrize("device", ["cpu", "webgpu"])
def test_patterns_are_found_as_in_f32(build, device, request):
    """A graph in f16 becomes the operations that it becomes in f32, and casts of its inputs and outputs."""
    if device == "webgpu":
        request.getfixturevalue("webgpu")
    results = []
    for dtype in ("f32", "f16"):
        g = rlx.Graph()
        g.set_outputs([build(g, g.input("x", (2, 8, 32), dtype))])
        nodes = [g.named(name) for name in g.param_names]
        params = {node.name: np.ones(node.shape, node.dtype.numpy) for node in nodes}
        with rlx.compile(g, device, params) as cg:
            lines = [line for line in cg.as_text("fused").splitlines() if " = " in line]
        ops = [line.split(" = ")[1].split()[0] for line in lines]
        ops = ["product" if op in PRODUCTS else op for op in ops]
        # Elementwise operations may be joined with casts.
        results.append(sorted(op for op in ops if op == "product" or not _is_small(op)))
    assert results[0] == results[1]
