"""``com.microsoft``: forms that ONNX Runtime's CPU kernels lack, and what is refused."""

import numpy as np
import pytest
from contrib_attention_samples import MS
from node_samples import bytes_of, normal
from onnx_oracle import node_model, run_model
from samples import looped

import rlx

pytestmark = pytest.mark.by_program

F = np.float32


def run(op, inputs, attrs, device, outputs=1, weights=()):
    data, feeds = node_model(op, inputs, attrs, outputs, domain=MS, weights=weights)
    with rlx.onnx.Model(data, device=device) as model:
        return model.run(feeds)


def oracle(op, inputs, attrs, outputs=1):
    return run_model(*node_model(op, inputs, attrs, outputs, domain=MS))


def close(result, wanted):
    for f, w in zip(result, wanted, strict=True):
        np.testing.assert_allclose(f, w, rtol=2e-5, atol=2e-5)


@pytest.fixture
def heads(rng):
    """Queries, keys and values of 2 batch entries, 5 rows, 3 heads of 4."""
    return [normal(rng, 2, 5, 12) for _ in range(3)]


def test_packed_queries_keys_and_values(heads, device):
    wanted = oracle("MultiHeadAttention", heads, {"num_heads": 3})
    apart = [x.reshape(2, 5, 3, 1, 4) for x in heads]
    close(run("MultiHeadAttention", [np.concatenate(apart, 3)], {"num_heads": 3}, device), wanted)
    both = np.concatenate(apart[1:], 3)
    close(run("MultiHeadAttention", [heads[0], both], {"num_heads": 3}, device), wanted)


def test_a_bias_of_packed_operands_goes_by_columns(heads, rng, device):
    bias = normal(rng, 36)
    wanted = oracle("MultiHeadAttention", [*heads, bias], {"num_heads": 3})
    packed = np.concatenate([x.reshape(2, 5, 3, 1, 4) for x in heads], 3)
    close(run("MultiHeadAttention", [packed, None, None, bias], {"num_heads": 3}, device), wanted)


@pytest.mark.parametrize("op", ["Attention", "MultiHeadAttention"])
def test_a_past_with_room_for_more(op, heads, rng, device):
    """Room for 9 keys, of which 3 count: the same as a past of 3, and the results stand in the room."""
    past = normal(rng, 2, 2, 3, 9, 4)
    attrs = {"num_heads": 3, "unidirectional": 1}
    if op == "Attention":
        first = [normal(rng, 2, 5, 6), normal(rng, 6, 36), normal(rng, 36), None]
        short = [*first, past[:, :, :, :3]]
        room = [*first, past, None, np.array([3], "i4")]
        y, present = oracle(op, short, attrs, 2)
        result = run(op, room, {**attrs, "past_present_share_buffer": 1}, device, 2, weights=(6,))
        wanted = [y, np.concatenate([present, past[:, :, :, 8:]], 3)]
    else:
        first = [*heads, None, None, None]
        y, *present = oracle(op, [*first, past[0, :, :, :3], past[1, :, :, :3]], attrs, 3)
        result = run(
            op, [*first, past[0], past[1], np.array([3], "i4")], attrs, device, 3, weights=(8,)
        )
        wanted = [
            y,
            *(np.concatenate([p, q[:, :, 8:]], 2) for p, q in zip(present, past, strict=True)),
        ]
    close(result, wanted)


def test_a_mask_for_all_positions(rng, device):
    """The rows of the queries count of a mask with four axes."""
    inputs = [normal(rng, 2, 4, 6), normal(rng, 6, 24), normal(rng, 24)]
    mask = np.tril(np.ones((2, 1, 9, 9), "i4"))
    mask[1, :, :, 0] = 0
    past = normal(rng, 2, 2, 2, 3, 4)
    wanted = oracle("Attention", [*inputs, mask[:, 0, 3:7, :7].copy(), past], {"num_heads": 2}, 2)
    close(run("Attention", [*inputs, mask, past], {"num_heads": 2}, device, 2), wanted)


def test_a_hiding_value_that_half_precision_does_not_hold(rng, device):
    """A value of f32 files, in a model that was made half as wide."""
    full = [normal(rng, 1, 4, 6), normal(rng, 6, 24) * F(0.3), normal(rng, 24)]
    mask, attrs = np.array([3], "i4"), {"num_heads": 2, "mask_filter_value": -3.4028234663852886e38}
    (wanted,) = oracle("Attention", [*full, mask], attrs)
    (result,) = run("Attention", [*(x.astype("f2") for x in full), mask], attrs, device)
    np.testing.assert_allclose(result, wanted, rtol=1e-2, atol=1e-2)


def test_only_padding_is_hidden_with_causal_off(rng, device):
    """The second of two prompts is shorter: its last key is padding."""
    q, k, v = (normal(rng, 2, 4, 32) for _ in range(3))
    attrs = {"num_heads": 2, "kv_num_heads": 2, "causal": 0}
    inputs = [q, k, v, None, None, np.int32([3, 2]), np.int32(4)]
    y = run("GroupQueryAttention", inputs, attrs, device, weights=(6,))
    wanted = oracle("MultiHeadAttention", [q, k, v, None, np.int32([4, 3])], {"num_heads": 2})
    close(y, wanted)


def test_norms_of_queries_and_keys(rng, device):
    q, k, v = normal(rng, 1, 3, 32), normal(rng, 1, 3, 16), normal(rng, 1, 3, 16)
    a, b = normal(rng, 16), normal(rng, 16)

    def normed(x, weight):
        apart = x.reshape(1, 3, -1, 16).astype("f8")
        rms = np.sqrt((apart**2).mean(-1, keepdims=True) + 1e-6)
        return (apart / rms * weight).reshape(x.shape).astype("f4")

    attrs = {"num_heads": 2, "kv_num_heads": 1}
    rest = [None, None, np.int32([2]), np.int32(3)]
    wanted = oracle("GroupQueryAttention", [normed(q, a), normed(k, b), v, *rest], attrs)
    arguments = [q, k, v, *rest, *[None] * 7, a, b]
    close(run("GroupQueryAttention", arguments, attrs, device, weights=(6,)), wanted)


def test_the_weights_of_attention_are_shown(rng, device):
    q, k, v = (normal(rng, 1, 4, 32) for _ in range(3))
    rest = [None, None, np.int32([3]), np.int32(4)]
    for shown in (1, 2):
        attrs = {"num_heads": 2, "kv_num_heads": 2, "qk_output": shown, "softcap": 3.0}
        names = [True, True, True, "f4"]
        result = run("GroupQueryAttention", [q, k, v, *rest], attrs, device, names, weights=(6,))
        wanted = oracle("GroupQueryAttention", [q, k, v, *rest], attrs, names)
        seen = np.tril(np.ones((4, 4), bool))
        close([result[0], result[3][..., seen]], [wanted[0], wanted[3][..., seen]])


def test_weights_stay_packed(rng):
    """The graph holds the bytes of the file, and no decoded weights."""
    inputs = [normal(rng, 3, 64), bytes_of(rng, 5, 2, 16), np.ones((5, 2), F)]
    data, _ = node_model(
        "MatMulNBits", inputs, {"K": 64, "N": 5, "block_size": 32}, domain=MS, weights=(1, 2)
    )
    graph = rlx.onnx.load(data)
    assert [n.op for n in graph.nodes].count("dequant_matmul") == 1
    packed = graph.param_values["x1"]
    assert (packed.dtype, packed.nbytes) == (np.uint8, 5 * 32)


X, W = np.ones((1, 2, 4), F), np.ones((4, 12), F)
QKV = [np.ones((1, 2, 32), F)] * 3
REST = [None, None, np.int32([1]), np.int32(2)]
GQA = {"num_heads": 2, "kv_num_heads": 2}
PACKED = [np.ones((2, 32), F), np.zeros((3, 1, 16), "u1"), np.ones((3, 1), F)]
NBITS = {"K": 32, "N": 3, "block_size": 32}


@looped(
    ("op", "inputs", "attrs", "says"),
    [
        ("Gelu", [X], {"fast": 1}, "attribute 'fast' is not supported"),
        ("Gelu", [X, X], {}, "input 1 is not supported"),
        ("FusedGemm", [X[0], W], {"activation": "Sine"}, "activation 'Sine'"),
        ("Attention", [X, W], {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ("Attention", [X, W, None, np.ones(5, "i4")], {"num_heads": 2}, r"a mask of shape \(5,\)"),
        ("QAttention", [X, W], {"num_heads": 2, "do_rotary": 1}, "do_rotary"),
        ("MultiHeadAttention", [*QKV, *[None] * 6, np.ones((1, 1, 2), "i4")], {"num_heads": 2}, "input 9"),
        ("MultiHeadAttention", [*QKV, None, np.ones(5, "i4")], {"num_heads": 2}, "a mask of shape"),
        ("GroupQueryAttention", [*QKV, *REST], {**GQA, "k_quant_type": "PER_TENSOR"}, "k_quant_type"),
        ("GroupQueryAttention", [*QKV, *REST], {**GQA, "sliding_window_cache": 1}, "sliding_window_cache"),
        ("GroupQueryAttention", [*QKV, *REST, *[None] * 5, np.ones(1, F)], GQA, "input 12"),
        ("RotaryEmbedding", [X, np.array([0]), X[0, :, :2], X[0, :, :2]], {"is_packed_batching": 1}, "packed"),
        ("MatMulNBits", PACKED, {**NBITS, "bits": 2}, "weights of 2 bits"),
        ("MatMulNBits", PACKED, {**NBITS, "weight_prepacked": 1}, "weight_prepacked"),
        ("MatMulNBits", [*PACKED, None, np.zeros(32, "i4")], NBITS, "input 4"),
        ("QLinearAdd", [np.ones(3, "u1"), np.ones(3, F), np.ones(3, "u1")] * 2, {}, "one scale"),
        ("CDist", [X[0], X[0]], {"metric": "cosine"}, "cosine"),
        ("Nonsense", [X], {}, "no such operator"),
    ],
)  # fmt: skip
def test_what_is_refused(op, inputs, attrs, says):
    inputs = [*inputs, F(1), np.uint8(0)] if op == "QLinearAdd" else inputs
    weights = (6,) if op == "GroupQueryAttention" else ()
    data, _ = node_model(op, inputs, attrs, domain=MS, weights=weights)
    with pytest.raises(rlx.UnsupportedOpError, match=says) as caught:
        rlx.onnx.load(data)
    assert f"com.microsoft.{op}" in str(caught.value)


@looped(
    ("op", "inputs", "attrs", "says"),
    [
        ("Attention", [X, W], {"num_heads": 0}, "num_heads"),
        ("Attention", [X, W], {"num_heads": 2, "unidirectional": 2}, "unidirectional"),
        ("Attention", [X, W], {"num_heads": 2, "qkv_hidden_sizes": [4, 4, 5]}, "columns"),
        (
            "FusedConv",
            [np.ones((1, 1, 3, 3), F), np.ones((1, 1, 2, 2), F)],
            {"pads": [-1] * 4},
            "pads",
        ),
        ("MatMulNBits", PACKED, {**NBITS, "N": 4}, "4 rows of 16 bytes"),
        (
            "GroupQueryAttention",
            [*QKV, None, None, np.int32([0]), np.int32(1)],
            GQA,
            "1 keys for 2",
        ),
        ("Inverse", [np.ones((2, 3), F)], {}, "an inverse of"),
        ("CDist", [np.ones((2, 3), F), np.ones((2, 4), F)], {}, "rows of"),
        ("SkipLayerNormalization", [X[:, :1], X, X[0, 0]], {}, "a skipped operand"),
    ],
)
def test_what_makes_no_sense(op, inputs, attrs, says):
    data, _ = node_model(
        op, inputs, attrs, domain=MS, weights=(6,) if op == "GroupQueryAttention" else ()
    )
    with pytest.raises(rlx.ImportModelError, match=says):
        rlx.onnx.load(data)


def test_an_output_that_is_not_given_is_refused():
    data, _ = node_model(
        "SkipSimplifiedLayerNormalization", [X, X, X[0, 0]], {}, [True, "f4"], domain=MS
    )
    with pytest.raises(rlx.UnsupportedOpError, match="output 1 is not supported"):
        rlx.onnx.load(data)
