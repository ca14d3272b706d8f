"""Fusion by pattern, and the gate that every fusion has to pass."""

import math

import numpy as np
import pytest
from fused_graphs import (
    ANY,
    NEVER,
    fed,
    geglu_with_bias,
    half_cache,
    half_rows_product,
    half_table,
    made,
    packed_biases,
    packed_cache,
    packed_gate,
    packed_heads,
    packed_heads_of_a_cache,
    packed_norm,
    packed_sum,
    product,
    qkv,
    qkv_with_bias,
    qkv_with_known_bias,
    silu_written_out,
    swiglu,
    swiglu_of_one_row,
    values,
    weights,
)
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.passes.patterns import PATTERNS

pytestmark = pytest.mark.by_program


def product_without_activation(g):
    return [g.param("b", (6,)) + g.input("x", (2, 5, 7)) @ g.param("w", (7, 6))]


def products_in_a_row(g):
    y = g.input("x", (3, 7))
    for index in range(3):
        y = g.relu(y @ g.param(f"w{index}", (7, 7)) + g.param(f"b{index}", (7,)))
    return [y]


def attention(g):
    q, k, v = (g.input(name, (2, 3, 5, 8)) for name in "qkv")
    scores = q @ g.transpose(k, (0, 1, 3, 2)) * (1 / math.sqrt(8))
    return [g.softmax(scores + g.input("mask", (5, 5))) @ v]


def attention_of_a_scaled_query(g):
    q, k, v = (g.input(name, (1, 2, 4, 8)) for name in "qkv")
    return [g.softmax((q / 2.0) @ g.transpose(k, (0, 1, 3, 2)), -1) @ v]


def attention_of_turned_operands(g):
    q, k, v = (g.input(name, (2, 5, 3, 8)) for name in "qkv")
    q, v = (g.transpose(item, (0, 2, 1, 3)) for item in (q, v))
    scores = (q * 0.3) @ g.transpose(k, (0, 2, 3, 1)) + g.input("mask", (2, 1, 1, 5))
    return [g.transpose(g.softmax(scores) @ v, (0, 2, 1, 3))]


def attention_of_turned_keys(g):
    q, v = (g.input(name, (2, 3, 5, 8)) for name in "qv")
    scores = q @ g.transpose(g.input("k", (2, 5, 3, 8)), (0, 2, 3, 1))
    return [g.softmax(scores) @ v]


def conv_bias(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)), padding=1)
    return [g.exp(y + g.param("b", (4, 1, 1)))]


def batch_norm(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)), g.param("b", (4,)))
    names = ("scale", "shift", "mean", "var")
    return [g.exp(g.batch_norm(y, *(g.param(name, (4,)) for name in names)))]


def conv_relu(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)), g.param("b", (4,)))
    return [g.relu(y)]


def conv_silu(g):
    y = g.conv2d(g.input("x", (2, 3, 6, 6)), g.param("w", (4, 3, 3, 3)))
    return [y * g.sigmoid(y)]


def conv_residual(g):
    x, w, b = g.input("x", (2, 4, 6, 6)), g.param("w", (4, 4, 3, 3)), g.param("b", (4,))
    return [g.exp(g.conv2d(x, w, b, padding=1) + x)]


def conv_residual_relu(g):
    x, w = g.input("x", (2, 4, 9)), g.param("w", (4, 4, 3))
    return [g.relu(x + g.conv1d(x, w, padding=1))]


def depthwise_residual_silu(g):
    x, w = g.input("x", (2, 4, 9, 7)), g.param("w", (4, 1, 3, 3))
    return [g.silu(g.conv2d(x, w, padding=1, groups=4) + x)]


def batch_norm_1d(g):
    y = g.conv1d(g.input("x", (2, 3, 9)), g.param("w", (5, 3, 3)), stride=2)
    names = ("scale", "shift", "mean", "var")
    return [g.batch_norm(y, *(g.param(name, (5,)) for name in names))]


def transposed(g):
    x, y = g.input("x", (2, 5, 7)), g.input("y", (2, 6, 7))
    return [g.exp(x @ g.transpose(y, (0, 2, 1)))]


def transposed_left(g):
    x, y = g.input("x", (2, 7, 5)), g.input("y", (2, 7, 6))
    return [g.exp(g.transpose(x, (0, 2, 1)) @ y)]


def both_transposed(g):
    x, y = g.input("x", (20, 33)), g.input("y", (36, 20))
    return [g.transpose(x, (1, 0)) @ g.transpose(y, (1, 0))]


def bytes_scaled(g):
    a, b = g.input("a", (2, 5, 8), "i8"), g.input("b", (8, 12), "u8")
    return [g.exp(g.qmatmul(a, b, 1e-6, g.param("scale", (12,))))]


def bytes_scaled_by_one(g):
    a, b = g.input("a", (20, 36), "u8"), g.input("b", (36, 70), "u8")
    return [g.qmatmul(a, b, 0.5, 0.125)]


def half_weights(g):
    x, w, b = g.input("x", (3, 40)), g.param("w", (40, 36), "f16"), g.param("b", (36,))
    return [g.gelu(x @ g.cast(w, "f32") + b)]


def half_weights_of_one_row(g):
    x, w = g.input("x", (1, 40)), g.param("w", (40, 36), "bf16")
    return [g.exp(x @ g.cast(w, "f32"))]


def coarse(g, *shape):
    codes, scales = g.param("codes", shape, "i8"), g.param("scales", shape[:-1])
    return g.add_node("coarse_weights", [codes, scales])


def coarse_weights(g):
    return [g.exp(g.input("x", (3, 40)) * 1e-3 @ g.transpose(coarse(g, 36, 40)))]


def coarse_weights_and_bias(g):
    w = g.reshape(coarse(g, 2, 18, 40), (36, 40))
    return [g.exp(g.input("x", (1, 40)) * 1e-3 @ g.transpose(w) + g.param("b", (36,)))]


def coarse_recurrence(g):
    attrs = {"cell": "tanh", "reverse": (0,), "clip": 0.0, "input_forget": False, "present": ()}
    r = coarse(g, 1, 20, 20)
    node = g.add_node("recurrence", [g.input("x", (3, 2, 20)), r], attrs)
    return [g.add_node("part", [node], {"index": index}) for index in range(2)]


def swiglu_of_many_rows(g):
    return swiglu(g, 70, shape=(40, 72))


def gated_by_a_sigmoid(g):
    return swiglu(g, 3, "sigmoid")


def gate_on_the_right(g):
    x = g.input("x", (5, 24))
    return [(x @ g.param("wu", (24, 16))) * g.tanh(x @ g.param("wg", (24, 16)))]


def qkv_of_grouped_queries(g, m=70):
    x = g.input("x", (m, 24))
    q, k, v = (x @ g.param(f"w{n}", (24, n + index)) for index, n in enumerate((128, 30, 32)))
    return [q, g.exp(k), v * 2.0]


def qkv_of_one_row(g):
    return qkv_of_grouped_queries(g, 1)


def welch_peaks(g):
    """Eight segments a signal, continued with zeros, one-sided power per Hz, the strongest bins."""
    return [*g.topk(rlx.signal.welch(g.input("x", (3, 288)), fs=64, nperseg=64, nfft=80), 5)]


def welch_peaks_of_frames(g):
    """Builds the peaks of the whole transform, as (bin, power) pairs, for an odd number of segments."""
    frames = rlx.signal.frame(g.input("x", (3, 160)), 40, 20)
    rows = g.reshape(frames * g.constant(np.hanning(40).astype(np.float32)), (21, 40))
    spec = g.fft(g.concat([rows, g.constant(np.zeros((21, 40), np.float32))], -1))
    return [g.welch_peaks(spec, 3, 7)]


def powers_of_frames(g):
    return [rlx.signal.welch(g.input("x", (2, 2, 300)), fs=64, nperseg=50, detrend=False)]


def spectra_of_frames(g):
    return [rlx.signal.stft(g.input("x", (2, 301)), 60, 13)]


def spectra_of_odd_frames(g):
    return [rlx.signal.stft(g.input("x", (2, 301)), 63, 14, center=True)]


def peaks_of_one_segment(g):
    """Builds the peaks of the whole transform, without segments, and the bins alone."""
    spec = g.fft(g.input("x", (2, 3, 40)))
    re, im = spec[..., :11], spec[..., 20:31]
    return [g.topk((im * im + g.pow(re, 2.0)) / 20.0, 4)[1]]


def log_mel(g):
    signal = g.input("x", (1, 1600))
    return [rlx.signal.log_mel(signal, 16000, 400, 160, 20, log="whisper")]


def log_mel_per_frame(g):
    """Builds the mel spectrum of whole transforms, with filters that are a param and a floor for each frame."""
    x, f = g.input("x", (2, 5, 16)), g.param("var", (4, 5))
    power = g.pow(x[..., :5], 2.0) + g.pow(x[..., 8:13], 2.0)
    level = g.log(g.maximum(power @ g.transpose(f), 1e-10)) / math.log(10)
    return [(g.maximum(level, g.max(level, -1, keepdims=True) - 8.0) + 4.0) / 4.0]


def sum_normed(g):
    x, r = g.input("x", (5, 9)), g.input("r", (5, 9))
    return [g.tanh(g.layer_norm(x + r, **weights(g, 9, "weight", "bias")))]


def sum_normed_and_read(g):
    """Two blocks of a pre-norm transformer: each sum goes on as the next residual."""
    h = g.input("x", (2, 5, 7))
    r = g.input("r", (2, 5, 7))
    for index in range(2):
        h = r + h
        y = g.layer_norm(h, g.param(f"scale{index}", (7,)), g.param(f"shift{index}", (7,)) * 2.0)
        r = y @ g.param(f"w{index}", (7, 7))
    return [r + h]


def sum_normed_and_an_output(g):
    total = g.input("x", (4, 300)) + g.input("r", (4, 300))
    return [total, g.layer_norm(total, None, g.param("bias", (300,)), eps=1e-3)]


def sum_rms_normed(g):
    x, r = g.input("x", (1, 6)), g.input("r", (1, 6))
    return [g.rms_norm(x + r, **weights(g, 6, "weight"))]


def sum_rms_normed_and_read(g):
    h = g.input("x", (2, 3, 8)) + g.input("r", (2, 3, 8))
    return [g.rms_norm(h) * h]


def sum_normed_without_weights(g):
    x = g.input("x", (2, 4, 10))
    return [g.layer_norm(g.relu(x) @ g.param("w", (10, 10)) + x)]


def sum_of_squares(g):
    x = g.input("x", (3, 40, 5))
    return [g.sqrt(g.sum(x * x, axes=(1,)))]


def sum_of_sizes(g):
    return [g.sum(g.abs(g.input("x", (6, 33)) + 1.0), axes=(-1,), keepdims=True)]


# Each pattern by the name in the table, and how many nodes of which op are left.
CASES = {
    product: ("product, bias and activation", "fused_matmul_bias_act"),
    product_without_activation: ("product, bias and activation", "fused_matmul_bias_act"),
    products_in_a_row: ("product, bias and activation", "fused_matmul_bias_act"),
    attention: ("attention", "attention"),
    attention_of_a_scaled_query: ("attention", "attention"),
    attention_of_turned_operands: ("attention between transposes", "attention"),
    attention_of_turned_keys: ("attention", "attention"),
    conv_bias: ("convolution and bias", "conv2d"),
    batch_norm: ("convolution and batch norm", "conv2d"),
    batch_norm_1d: ("convolution and batch norm", "conv1d"),
    conv_relu: ("convolution and what follows", "fused_conv2d"),
    conv_silu: ("convolution and what follows", "fused_conv2d"),
    conv_residual: ("convolution and what follows", "fused_conv2d"),
    conv_residual_relu: ("convolution and what follows", "fused_conv1d"),
    depthwise_residual_silu: ("convolution and what follows", "fused_conv2d"),
    transposed: ("product and transpose", "matmul"),
    transposed_left: ("product and transpose", "matmul"),
    both_transposed: ("product and transpose", "matmul"),
    bytes_scaled: ("product of bytes and scale", "matmul_integer"),
    bytes_scaled_by_one: ("product of bytes and scale", "matmul_integer"),
    half_weights: ("product of weights in 16 bits", "half_matmul"),
    half_weights_of_one_row: ("product of weights in 16 bits", "half_matmul"),
    half_rows_product: ("product of rows in 16 bits", "half_matmul"),
    half_table: ("rows of a table in 16 bits", "half_rows"),
    packed_gate: ("packed products and gate", "packed_products"),
    packed_sum: ("packed product and sum", "packed_products"),
    packed_norm: ("norm and packed products", "packed_products"),
    packed_biases: ("packed products and biases", "packed_products"),
    packed_heads: ("turned heads", "packed_products"),
    packed_heads_of_a_cache: ("packed products and casts", "packed_products"),
    half_cache: ("attention over narrow keys and values", "narrow_attention"),
    packed_cache: ("attention over narrow keys and values", "narrow_attention"),
    coarse_weights: ("product of weights in 8 bits", "rounded_matmul"),
    coarse_weights_and_bias: ("product of weights in 8 bits", "rounded_matmul"),
    coarse_recurrence: ("recurrence of weights in 8 bits", "rounded_recurrence"),
    swiglu: ("gated product", "gated_product"),
    swiglu_of_one_row: ("gated product", "gated_product"),
    swiglu_of_many_rows: ("gated product", "gated_product"),
    gated_by_a_sigmoid: ("gated product", "gated_product"),
    geglu_with_bias: ("gated product", "gated_product"),
    gate_on_the_right: ("gated product", "gated_product"),
    silu_written_out: ("gated product", "gated_product"),
    qkv: ("products of one input", "shared_products"),
    qkv_of_grouped_queries: ("products of one input", "shared_products"),
    qkv_of_one_row: ("products of one input", "shared_products"),
    qkv_with_bias: ("products of one input", "shared_products"),
    qkv_with_known_bias: ("products of one input", "shared_products"),
    welch_peaks: ("spectrum and peaks", "spectrum_peaks"),
    welch_peaks_of_frames: ("frames and peaks", "frame_peaks"),
    powers_of_frames: ("frames and powers", "frame_spectra"),
    spectra_of_frames: ("frames and spectrum", "frame_spectra"),
    spectra_of_odd_frames: ("frames and spectrum", "frame_spectra"),
    peaks_of_one_segment: ("spectrum and peaks", "spectrum_peaks"),
    log_mel: ("spectrum and log-mel", "spectrum_mel"),
    log_mel_per_frame: ("spectrum and log-mel", "log_mel"),
    sum_normed: ("residual and norm", "residual_norm"),
    sum_normed_and_read: ("residual and norm", "residual_norm"),
    sum_normed_and_an_output: ("residual and norm", "residual_norm"),
    sum_rms_normed: ("residual and norm", "residual_norm"),
    sum_rms_normed_and_read: ("residual and norm", "residual_norm"),
    sum_normed_without_weights: ("residual and norm", "residual_norm"),
    sum_of_squares: ("squares or sizes and their sum", "sum_squares"),
    sum_of_sizes: ("squares or sizes and their sum", "sum_abs"),
}
# A CPU calls a kernel for each of them anyway, or copies frames at the speed at which it would read them.
NOT_ON_THE_CPU = {
    "product of bytes and scale",
    "products of one input",
    "frames and peaks",
    "product of rows in 16 bits",
    "rows of a table in 16 bits",
    "packed products and gate",
    "packed product and sum",
    "norm and packed products",
    "packed products and biases",
    "turned heads",
    "packed products and casts",
}
# On a GPU it is another pass anyway, or a product widens no weights.
NOT_ON_A_GPU = {
    "convolution and what follows",
    "product of weights in 16 bits",
    "product of weights in 8 bits",
    "recurrence of weights in 8 bits",
    "squares or sizes and their sum",
}


# Where nothing is joined, these find nothing: they continue another pattern.
CONTINUED = {"turned heads", "packed products and biases", "packed products and casts"}
# Of devices with matrix units alone: tests/test_fragments.py.
ELSEWHERE = {"convolution by taps"}


def test_every_pattern_has_a_case():
    cases = {name for name, _ in CASES.values()}
    assert cases | ELSEWHERE == {pattern.name for pattern in PATTERNS}


@looped("build", CASES, ids=lambda build: build.__name__)
@looped("gate,takes", [(None, True), (ANY, True), (NEVER, False)], ids=["own", "any", "never"])
def test_pattern(build, gate, takes, device):
    graph, (name, op) = made(build), CASES[build]
    arguments, params, expected = fed(graph)
    with rlx.compile(graph, device, params, CompileOptions(io_gate=gate)) as compiled:
        for got, want in zip(compiled.run(arguments), expected, strict=True):
            np.testing.assert_allclose(got, want, 1e-4, 1e-4)
        if device == "reference":
            return
        text = compiled.as_text("fused")
        other = NOT_ON_THE_CPU if device == "cpu" else NOT_ON_A_GPU
        if (
            name in other
            or (name in CONTINUED and not takes)
            or (device == "cpu" and build is transposed_left)
        ):
            assert name not in text
            return
        assert f"fuse: {'took' if takes else 'refused'} {name}" in text, text
        assert " ns" in text
        names = {op, "conv_last"} if device == "cpu" and "conv" in op else {op}
        schedule = compiled.as_text("schedule")
        assert not takes or any(f" {each}" in schedule for each in names)


@pytest.mark.webgpu
@pytest.mark.parametrize("build", [transposed, transposed_left, both_transposed])
def test_transposed_operands_are_not_copied(build, webgpu):
    text = rlx.compile(made(build), webgpu).as_text("schedule")
    assert "strided_copy" not in text, text


@pytest.mark.webgpu
@pytest.mark.parametrize("hole", [None, np.nan, np.inf])
def test_welch_in_one_kernel(hole, webgpu, rng):
    """From the signal to its peaks nothing is written; what is no number stays in its own signal."""
    g = rlx.Graph("welch")
    x = g.input("x", (2, 3, 1152))
    g.set_outputs([*g.topk(rlx.signal.welch(x, fs=64), 9)])
    signal = rng.standard_normal((2, 3, 1152)).astype(np.float32)
    if hole is not None:
        signal[1, 1, 700] = hole
    with rlx.compile(g, "reference") as exact:
        want = exact.run_slots(signal)
    with rlx.compile(g, webgpu) as compiled:
        got = compiled.run_slots(signal)
        assert compiled.as_text("schedule").startswith("schedule: 1 calls")
    np.testing.assert_allclose(got[0], want[0], 1e-4, 1e-6)
    np.testing.assert_array_equal(got[1], want[1])


@looped("build", CASES, ids=lambda build: build.__name__)
def test_what_is_an_output_stays(build, device):
    """Every node that the pattern would swallow is declared an output."""
    graph = made(build)
    leaves = ("input", "param", "constant")
    inner = [n for n in graph.nodes if n.op not in leaves and len(n.types) == 1]
    graph.set_outputs(inner)
    arguments, params, expected = fed(graph)
    with rlx.compile(graph, device, params) as compiled:
        result = compiled.run(arguments)
    assert len(result) == len(inner)
    for got, want in zip(result, expected, strict=True):
        np.testing.assert_allclose(got, want, 1e-4, 1e-4)


def test_the_kernels_of_a_pre_norm_block(device):
    """Two kernels a block, and one for the last sum, which nothing normalises."""
    if device == "reference":
        device = "cpu"
    graph = made(sum_normed_and_read)
    arguments = values(graph)
    params = {k: arguments.pop(k) for k in graph.param_names}
    with rlx.compile(graph, device, params) as compiled:
        text = compiled.as_text("schedule")
    assert text.count("residual_norm") == text.count(" matmul '") == 2, text
    assert text.count(" = ") == 5, text
