"""Samples of ``com.microsoft``: attention in all its forms, positions, and a recurrent layer with 8-bit weights."""

import numpy as np
from contrib_samples import MS, TYPES, scale_of
from node_samples import NodeSample, bytes_of, normal, of

# Batch, queries, heads, head size.
SIZES = [(1, 4, 2, 8), (2, 5, 1, 4), (3, 1, 4, 16), (2, 9, 3, 2), (1, 17, 2, 32)]


def trimmed(inputs):
    while inputs[-1] is None:
        inputs.pop()
    return inputs


def padding(rng, b, sq, sk, form):
    """A mask in one of its forms; every query sees a key."""
    ends = rng.integers(max(1, sk // 2), sk + 1, b).astype("i4")
    if form == "ends":
        return ends
    if form == "both":
        return np.concatenate([ends, rng.integers(0, max(1, sk // 2), b)]).astype("i4")
    raw = (rng.random((b, sq, sk)) > 0.3).astype("i4")
    raw[:, :, 0] = 1
    return raw if form == "each" else raw[:, 0] if form == "keys" else None


@of(MS, "Attention")
def attention(rng, index):
    b, s, h, d = SIZES[index]
    past = 3 if index in (1, 4) else 0
    form = ["keys", "ends", None, "both", "each"][index]
    sizes = [h * d, h * d, 2 * h * d] if index == 3 else [h * d] * 3
    width = 6 + index
    inputs = [
        normal(rng, b, s, width), normal(rng, width, sum(sizes)) * 0.3, normal(rng, sum(sizes)),
        padding(rng, b, s, past + s, form) if form else None,
        normal(rng, 2, b, h, past, d) if past else None,
        normal(rng, 1 if index == 2 else b, h, s, past + s) if index in (0, 2) else None,
    ]  # fmt: skip
    attrs = {"num_heads": h, "unidirectional": int(index in (1, 2, 4))}
    if index == 3:
        attrs["qkv_hidden_sizes"] = sizes
    if index == 4:
        attrs |= {"scale": 0.3, "mask_filter_value": -500.0}
    return NodeSample(trimmed(inputs), outputs=2 if past else 1, weights=(1, 2), attrs=attrs)


@of(MS, "QAttention")
def quantized_attention(rng, index):
    b, s, h, d = SIZES[index]
    past = 3 if index == 1 else 0
    form = ["ends", "keys", None, "ends", "each"][index]
    t, width, columns = TYPES[index], 6 + index, 3 * h * d
    each = index in (2, 4)
    inputs = [
        bytes_of(rng, b, s, width), bytes_of(rng, width, columns, dtype=t), normal(rng, columns),
        scale_of(rng), (rng.random(columns) * 0.02 + 0.001).astype("f4") if each else np.float32(0.01),
        padding(rng, b, s, past + s, form) if form else None, bytes_of(rng).reshape(()),
        np.zeros(columns, t) if each else bytes_of(rng, dtype=t).reshape(()),
        normal(rng, 2, b, h, past, d) if past else None,
    ]  # fmt: skip
    attrs = {"num_heads": h, "unidirectional": int(index == 2)}
    return NodeSample(
        trimmed(inputs), outputs=2 if past else 1, weights=(1, 2, 3, 4, 6, 7), attrs=attrs, rtol=1e-4
    )  # fmt: skip


@of(MS, "MultiHeadAttention")
def multi_head(rng, index):
    b, s, h, d = SIZES[index]
    w, t = h * d, s + 2 if index == 3 else s
    past = 4 if index == 4 else 0
    inputs = [normal(rng, b, s, w), normal(rng, b, s, w), normal(rng, b, s, w)]
    if index == 3:
        inputs[1:] = [normal(rng, b, h, t, d), normal(rng, b, h, t, d)]
    mask = {0: "keys", 3: "ends"}.get(index)
    inputs += [
        normal(rng, 3 * w) if index == 0 else None,
        padding(rng, b, s, t, mask) if mask else None,
        normal(rng, 1, h, s, past + t) if index in (2, 4) else None,
        normal(rng, b, h, past, d) if past else None,
        normal(rng, b, h, past, d) if past else None,
    ]
    attrs = {"num_heads": h, "unidirectional": int(index in (0, 4))}
    outputs = {0: [True, False, False, "f4"], 4: 3}.get(index, 1)
    if index == 2:
        attrs["scale"] = 0.2
    return NodeSample(trimmed(inputs), outputs=outputs, attrs=attrs)


# Batch, queries, keys of before that count for each, room for keys, heads, key-value heads, head size.
GROUPS = [
    (1, 5, [0], 0, 4, 2, 8), (1, 1, [6], 6, 4, 1, 16), (2, 1, [3, 5], 8, 2, 2, 16), (1, 3, [4], 12, 6, 3, 16),
    (2, 6, [0, 0], 0, 2, 1, 16),
]  # fmt: skip


@of(MS, "GroupQueryAttention")
def group_query(rng, index):
    b, s, before, room, h, groups, d = GROUPS[index]
    total = max(before) + s
    packed = index == 3
    q, k, v = normal(rng, b, s, h * d), normal(rng, b, s, groups * d), normal(rng, b, s, groups * d)
    rotary = index in (1, 2, 3)
    angle = rng.random((32, d // 2)).astype("f4") * 6
    inputs = [
        *([np.concatenate([q, k, v], 2), None, None] if packed else [q, k, v]),
        normal(rng, b, groups, room, d) if room else None, normal(rng, b, groups, room, d) if room else None,
        np.array([n + s - 1 for n in before], "i4"), np.array(total, "i4"),
        np.cos(angle) if rotary else None, np.sin(angle) if rotary else None,
        None, normal(rng, 1, h, s, total) if index == 0 else None, normal(rng, h) if index == 4 else None,
    ]  # fmt: skip
    attrs = [
        {}, {"do_rotary": 1, "local_window_size": 4}, {"do_rotary": 1, "rotary_interleaved": 1, "softcap": 5.0},
        {"do_rotary": 1, "scale": 0.4}, {"local_window_size": 3},
    ][index]  # fmt: skip
    keep = (slice(None), slice(None), slice(0, total if b == 1 else min(before) + s))
    return NodeSample(
        trimmed(inputs), outputs=3, attrs={"num_heads": h, "kv_num_heads": groups, **attrs},
        weights=(6, *((7, 8) if rotary else ())), valid=(None, keep, keep), rtol=5e-5,
    )  # fmt: skip


@of(MS, "RotaryEmbedding")
def rotary(rng, index):
    b, s, h, d = [(1, 4, 2, 8), (2, 5, 1, 4), (3, 1, 4, 16), (2, 9, 3, 8), (1, 17, 2, 32)][index]
    part = d // 2 if index == 3 else d
    angle = rng.random((32, part // 2)).astype("f4") * 6
    places = np.array([3]) if index in (1, 4) else rng.integers(0, 20, (b, s))
    x = normal(rng, b, h, s, d) if index == 2 else normal(rng, b, s, h * d)
    attrs = {"interleaved": index % 2}
    if index == 3:
        attrs |= {"rotary_embedding_dim": part, "num_heads": h}
    return NodeSample([x, places, np.cos(angle), np.sin(angle)], weights=(2, 3), attrs=attrs)


@of(MS, "DynamicQuantizeLSTM")
def dynamic_lstm(rng, index):
    steps, b, width, hidden = [
        (3, 1, 4, 8),
        (5, 2, 8, 4),
        (1, 1, 2, 2),
        (7, 3, 16, 16),
        (4, 2, 5, 3),
    ][index]
    both = 2 if index in (1, 3) else 1
    t, each = TYPES[index], index in (0, 3)
    scale = lambda: np.full((both, 4 * hidden) if each else both, 0.5 / 128, "f4")  # noqa: E731
    zero = np.full((both, 4 * hidden) if each else both, 128 if t == "u1" else 0, t)
    inputs = [
        normal(rng, steps, b, width), bytes_of(rng, both, width, 4 * hidden, dtype=t),
        bytes_of(rng, both, hidden, 4 * hidden, dtype=t), normal(rng, both, 8 * hidden) if index else None,
        np.full(b, steps, "i4") if index == 3 else None, normal(rng, both, b, hidden) if index == 1 else None,
        normal(rng, both, b, hidden) if index == 1 else None, None, scale(), zero, scale(), zero,
    ]  # fmt: skip
    attrs = {"hidden_size": hidden, "direction": "bidirectional" if both == 2 else "forward"}
    # ONNX Runtime rounds the operand of each product to 8 bits.
    return NodeSample(
        inputs,
        outputs=3,
        weights=(1, 2, 3, 8, 9, 10, 11) if index else (1, 2, 8, 9, 10, 11),
        attrs=attrs,
        rtol=3e-2,
    )


# ONNX Runtime has these on GPUs only: the results are NumPy's.


def bucket(ahead, count, farthest, both):
    """The bucket of one distance (arXiv:1910.10683)."""
    start = 0
    if both:
        count //= 2
        start = count if ahead > 0 else 0
        distance = abs(ahead)
    else:
        distance = max(-ahead, 0)
    near = count // 2
    if distance < near:
        return start + distance
    wide = near + int(
        np.float32(np.log(distance / near) / np.log(farthest / near) * (count - near))
    )
    return start + min(wide, count - 1)


@of(MS, "RelativePositionBias")
def relative(rng, index):
    rows, columns, count, farthest, heads = [
        (4, 4, 8, 16, 2), (1, 9, 32, 128, 4), (40, 40, 8, 20, 1), (3, 7, 4, 6, 3), (200, 200, 32, 128, 2),
    ][index]  # fmt: skip
    both = index % 2
    table = normal(rng, count, heads)
    wanted = np.zeros((1, heads, rows, columns), "f4")
    for i in range(rows):
        for j in range(columns):
            wanted[0, :, i, j] = table[bucket(j - i, count, farthest, both)]
    return NodeSample(
        [table, np.array(rows), np.array(columns)], weights=(1, 2), wanted=[wanted],
        attrs={"max_distance": farthest, "is_bidirectional": both},
    )  # fmt: skip


@of(MS, "GatedRelativePositionBias")
def gated(rng, index):
    b, s, h, d = SIZES[index]
    width = [8, 4, 2, 6, 8][index]
    q, bias, rel = normal(rng, b, s, h * d), normal(rng, h * d), normal(rng, 1, h, s, s)
    w, wb, a = normal(rng, d, width), normal(rng, width), normal(rng, 1, h, 1, 1)
    heads = (q.astype("f8") + bias).reshape(b, s, h, d).transpose(0, 2, 1, 3)
    sums = (heads @ w + wb).reshape(b, h, s, 2, width // 2).sum(-1)
    u, r = np.split(1 / (1 + np.exp(-sums)), 2, -1)
    wanted = (u * (r * a - 1) + 2) * rel
    return NodeSample(
        [q, bias, rel, w, wb, a], attrs={"num_heads": h}, wanted=[wanted.astype("f4")]
    )
