"""Samples of ``com.microsoft``: activations, norms, products, quantised operators, distances."""

import numpy as np
from node_samples import NodeSample, bytes_of, normal, of

MS = "com.microsoft"
SHAPES = [(2, 3, 8), (1, 1, 5), (3, 7, 16), (2, 0, 4), (4, 33)]
ROWS = [(2, 3, 8), (1, 1, 5), (3, 7, 16), (2, 9, 32), (1, 33, 64)]
TYPES = ["u1", "i1", "u1", "i1", "u1"]


@of(MS, "Gelu", "QuickGelu", "FastGelu")
def one(rng, index, op):
    attrs = {"alpha": 0.5 + index} if op == "QuickGelu" and index else {}
    return NodeSample([normal(rng, *SHAPES[index], scale=3)], attrs=attrs)


@of(MS, "BiasGelu")
def biased(rng, index):
    return NodeSample([normal(rng, *ROWS[index]), normal(rng, ROWS[index][-1])])


@of(MS, "FusedConv")
def fused_conv(rng, index):
    act, params = [
        ("Relu", None), ("LeakyRelu", [0.2]), ("Tanh", None), ("HardSigmoid", [0.3, 0.4]), ("Clip", [-0.5, 0.7]),
    ][index]  # fmt: skip
    n, c, o, size = [(1, 3, 4, 9), (2, 4, 4, 6), (1, 8, 16, 7), (1, 2, 2, 5), (2, 3, 5, 11)][index]
    x, w = normal(rng, n, c, size, size + 1), normal(rng, o, c, 3, 3)
    added = normal(rng, n, o, size, size + 1) if act == "Relu" else None
    inputs = [x, w, normal(rng, o), added] if added is not None else [x, w, normal(rng, o)]
    return NodeSample(
        inputs, weights=(1, 2), attrs={"activation": act, "activation_params": params, "pads": [1] * 4}
    )  # fmt: skip


@of(MS, "FusedGemm")
def fused_gemm(rng, index):
    m, k, n = [(2, 3, 4), (1, 8, 5), (7, 16, 3), (4, 1, 1), (33, 17, 9)][index]
    turn = index % 2
    b = normal(rng, n, k) if turn else normal(rng, k, n)
    extra = {"activation": ["Relu", "LeakyRelu", "Sigmoid", "Elu", "Tanh"][index]}
    if index in (1, 3):
        extra["activation_alpha"] = 0.3
    return NodeSample(
        [normal(rng, m, k), b, normal(rng, n)] if index != 3 else [normal(rng, m, k), b],
        attrs={"transB": turn, "alpha": 0.5 + index, "beta": 1.0 if index < 3 else 0.25, **extra},
    )


@of(MS, "FusedMatMul", "TransposeMatMul")
def fused_matmul(rng, index, op):
    a, b, attrs = [
        ((2, 3), (3, 4), {}),
        ((2, 3), (4, 3), {"transB": 1, "alpha": 0.5}),
        ((5, 3, 2), (5, 3, 4), {"transA": 1}),
        ((2, 5, 3, 2), (5, 4, 3), {"transA": 1, "transB": 1, "alpha": -2.0}),
        ((6, 4, 3), (6, 3, 5), {"alpha": 3.0}),
    ][index]
    if index == 4 and op == "FusedMatMul":
        # Four rows of six matrices.
        a, attrs = (4, 6, 3), {**attrs, "transBatchA": 1}
    return NodeSample([normal(rng, *a), normal(rng, *b)], attrs=attrs)


@of(MS, "SkipLayerNormalization", "SkipSimplifiedLayerNormalization")
def skip_norm(rng, index, op):
    simple = op != "SkipLayerNormalization"
    shape = ROWS[index]
    n = shape[-1]
    skip = normal(rng, *(shape[1:] if index == 3 else shape))
    if index == 4:
        skip = normal(rng, 1, *shape[1:])
    inputs = [normal(rng, *shape), skip, normal(rng, n)]
    if not simple:
        inputs.append(normal(rng, n) if index % 2 else None)
    inputs.append(normal(rng, n) if index > 1 else None)
    while inputs[-1] is None:
        inputs.pop()
    outputs = [True, False, False, True] if index % 2 else 1
    return NodeSample(
        inputs, outputs=outputs, attrs={"epsilon": [1e-12, 1e-5, 1e-3, 1e-6, 1e-5][index]}
    )


@of("", "SimplifiedLayerNormalization")
def simplified(rng, index):
    shape = ROWS[index]
    axis = 1 if index == 2 else -1
    return NodeSample(
        [normal(rng, *shape), normal(rng, *shape[axis:])], outputs=1 + index % 2,
        attrs={"axis": axis, "epsilon": 1e-5},
    )  # fmt: skip


@of(MS, "EmbedLayerNormalization")
def embedded(rng, index):
    b, s, h, words = [(1, 3, 8, 11), (2, 5, 16, 7), (3, 1, 4, 5), (2, 8, 32, 50), (1, 16, 8, 3)][
        index
    ]
    ids = rng.integers(0, words, (b, s)).astype("i4")
    segments = rng.integers(0, 2, (b, s)).astype("i4") if index != 2 else None
    mask = (np.arange(s) < rng.integers(1, s + 1, (b, 1))).astype("i4") if index in (1, 3) else None
    places = rng.integers(0, s, (b, s)).astype("i4") if index == 4 else None
    inputs = [
        ids, segments, normal(rng, words, h), normal(rng, s + 3, h),
        normal(rng, 2, h) if segments is not None else None, normal(rng, h), normal(rng, h), mask, places,
    ]  # fmt: skip
    while inputs[-1] is None:
        inputs.pop()
    return NodeSample(
        inputs, outputs=[True, True, index == 3][: 3 if index == 3 else 2], attrs={"epsilon": 1e-6}
    )


@of(MS, "QEmbedLayerNormalization")
def embedded_in_8_bits(rng, index):
    b, s, h, words = [(1, 3, 8, 11), (2, 5, 16, 7), (3, 1, 4, 5), (2, 8, 32, 50), (1, 16, 8, 3)][
        index
    ]
    ids = rng.integers(0, words, (b, s)).astype("i4")
    two = index != 2
    segments = rng.integers(0, 2, (b, s)).astype("i4") if two else None
    mask = (np.arange(s) < rng.integers(1, s + 1, (b, 1))).astype("i4") if index in (1, 3) else None
    rows = [(words, h), (s + 3, h), (2, h), (h,), (h,)]
    tables = [bytes_of(rng, *shape) if two or n != 2 else None for n, shape in enumerate(rows)]
    scales = [scale_of(rng) if t is not None else None for t in tables]
    zeros = [bytes_of(rng).reshape(()) if t is not None else None for t in tables]
    inputs = [ids, segments, *tables, mask, *scales, *zeros]
    weights = tuple(n for n, a in enumerate(inputs) if n not in (0, 1, 7) and a is not None)
    return NodeSample(inputs, outputs=2, weights=weights, attrs={"epsilon": 1e-6}, rtol=1e-4)


@of(MS, "MatMulNBits")
def nbits(rng, index):
    m, k, n, block, bits = [
        (1, 32, 8, 32, 4), (3, 64, 5, 16, 4), (2, 40, 7, 32, 4), (5, 128, 16, 64, 8), (4, 96, 9, 32, 4),
    ][index]  # fmt: skip
    count = -(-k // block)
    packed = bytes_of(rng, n, count, block * bits // 8)
    scales = (rng.random((n, count)) * 0.1 + 0.01).astype("f4")
    zeros = None
    if index in (1, 2):
        zeros = bytes_of(rng, n, -(-count // 2))
    elif index == 3:
        zeros = bytes_of(rng, n, count)
    bias = normal(rng, n) if index == 4 else None
    inputs = [
        normal(rng, m, k) if index else normal(rng, 2, m, k),
        packed,
        scales,
        zeros,
        None,
        bias,
    ]
    while inputs[-1] is None:
        inputs.pop()
    attrs = {"K": k, "N": n, "block_size": block, "bits": bits}
    weights = tuple(p for p, a in enumerate(inputs) if p and a is not None)
    return NodeSample(inputs, weights=weights, attrs=attrs, rtol=1e-4)


def scale_of(rng):
    return np.float32(rng.random() * 0.05 + 0.005)


def points(rng, dtype):
    """A scale and a zero point."""
    return [scale_of(rng), bytes_of(rng, dtype=dtype).reshape(())]


@of(MS, "QLinearAdd", "QLinearMul")
def quantized_two(rng, index, op):
    a, b = [
        ((2, 3, 8), (2, 3, 8)), ((4, 5), (5,)), ((1, 3, 1), (2, 1, 7)), ((6,), ()), ((3, 16, 5, 5), (1, 16, 1, 1)),
    ][index]  # fmt: skip
    t = TYPES[index]
    last = points(rng, t)
    if op == "QLinearMul":
        last[0] = np.float32(0.1)
    return NodeSample(
        [bytes_of(rng, *a, dtype=t), *points(rng, t), bytes_of(rng, *b, dtype=t), *points(rng, t), *last],
        steps=1, weights=(1, 2, 4, 5, 6, 7),
    )  # fmt: skip


@of(MS, "QLinearSigmoid", "QLinearLeakyRelu", "QLinearSoftmax")
def quantized_one(rng, index, op):
    t = TYPES[index]
    shape = [(2, 3, 8), (1, 5), (3, 7, 16), (4, 2), (2, 40)][index]
    attrs, last = {}, points(rng, t)
    if op == "QLinearLeakyRelu":
        attrs = {"alpha": 0.1 * index}
    if op == "QLinearSoftmax":
        attrs = {"axis": [-1, 1, 1, 0, -1][index], "opset": [13, 13, 11, 13, 12][index]}
        last = [np.float32(1 / 256), np.zeros((), t)]
    return NodeSample(
        [bytes_of(rng, *shape, dtype=t), *points(rng, t), *last], attrs=attrs, steps=1, weights=(1, 2, 3, 4)
    )  # fmt: skip


@of(MS, "QLinearAveragePool", "QLinearGlobalAveragePool")
def quantized_pool(rng, index, op):
    t = TYPES[index]
    last = index in (1, 4)
    whole = op == "QLinearGlobalAveragePool"
    side = 1 if whole else 12
    n, c, h, w = [(1, 3, 8, 9), (2, 4, 7, 7), (1, 8, 5, 6), (1, 1, side, side), (2, 3, 6, 5)][index]
    shape = (n, h, w, c) if last else (n, c, h, w)
    attrs = (
        {}
        if whole
        else [
            {"kernel_shape": [2, 2]},
            {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
            {"kernel_shape": [3, 2], "pads": [1, 0, 1, 1], "count_include_pad": 1},
            {"kernel_shape": [5, 5], "strides": [3, 3], "ceil_mode": 1},
            {"kernel_shape": [6, 5]},
        ][index]
    )
    return NodeSample(
        [bytes_of(rng, *shape, dtype=t), *points(rng, t), *points(rng, t)],
        attrs={**attrs, "channels_last": int(last)}, steps=1, weights=(1, 2, 3, 4),
    )  # fmt: skip


@of(MS, "QLinearConcat")
def quantized_concat(rng, index):
    t = TYPES[index]
    axis, shapes = [
        (1, [(2, 3), (2, 4)]), (0, [(2, 3), (1, 3), (4, 3)]), (-1, [(1, 2, 3), (1, 2, 1)]),
        (1, [(1, 4, 2, 2)]), (2, [(2, 1, 5), (2, 1, 6), (2, 1, 7), (2, 1, 1)]),
    ][index]  # fmt: skip
    inputs = [*points(rng, t)]
    for shape in shapes:
        inputs += [bytes_of(rng, *shape, dtype=t), *points(rng, t)]
    weights = tuple(p for p in range(len(inputs)) if p < 2 or (p - 2) % 3)
    return NodeSample(inputs, attrs={"axis": axis}, steps=1, weights=weights)


@of(MS, "QLinearWhere")
def quantized_where(rng, index):
    t = TYPES[index]
    c, x, y = [
        ((4, 5), (4, 5), (4, 5)), ((5,), (4, 5), (4, 1)), ((1,), (3,), (3,)), ((2, 1, 3), (2, 4, 3), (1, 4, 3)),
        ((7, 7), (7, 7), (7,)),
    ][index]  # fmt: skip
    return NodeSample(
        [
            rng.random(c) > 0.5, bytes_of(rng, *x, dtype=t), *points(rng, t), bytes_of(rng, *y, dtype=t),
            *points(rng, t), *points(rng, t),
        ],
        steps=1, weights=(2, 3, 5, 6, 7, 8),
    )  # fmt: skip


def operands_of_product(rng, index, batched):
    """Two shapes, of which the third pair is ``batched``; the type, and the scale and zero point of the right operand."""
    shapes = [
        ((2, 8), (8, 4)),
        ((1, 3, 16), (16, 5)),
        batched,
        ((1, 1), (1, 1)),
        ((33, 64), (64, 17)),
    ]
    (a, b), t, each = shapes[index], TYPES[index], index in (1, 4)
    scale = (rng.random(b[-1]) * 0.1 + 0.01).astype("f4") if each else scale_of(rng)
    zero = bytes_of(rng, b[-1], dtype=t) if each else bytes_of(rng, dtype=t).reshape(())
    return a, b, t, scale, zero


@of(MS, "MatMulIntegerToFloat")
def to_float(rng, index):
    a, b, t, scale, zero = operands_of_product(rng, index, ((2, 3, 7), (2, 7, 6)))
    inputs = [
        bytes_of(rng, *a, dtype="u1" if t == "u1" else "i1"), bytes_of(rng, *b, dtype=t), scale_of(rng), scale,
        bytes_of(rng, dtype=t).reshape(()), zero, *([normal(rng, b[-1])] if index % 2 else []),
    ]  # fmt: skip
    return NodeSample(inputs, weights=(1, 3, 5))


@of(MS, "DynamicQuantizeMatMul")
def dynamic(rng, index):
    a, b, t, scale, zero = operands_of_product(rng, index, ((2, 3, 7), (7, 6)))
    inputs = [normal(rng, *a), bytes_of(rng, *b, dtype=t), scale, zero]
    inputs += [normal(rng, b[-1])] if index % 2 else []
    return NodeSample(inputs, weights=(1, 2, 3))


@of(MS, "QGemm")
def quantized_gemm(rng, index):
    m, k, n = [(2, 8, 4), (1, 3, 5), (7, 16, 3), (4, 4, 1), (33, 64, 17)][index]
    t = TYPES[index]
    a = bytes_of(rng, *((k, m) if index == 2 else (m, k)), dtype=t)
    b = bytes_of(rng, *((n, k) if index % 2 else (k, n)), dtype=t)
    each = index == 4
    scale = (rng.random(n) * 0.02 + 0.01).astype("f4") if each else scale_of(rng)
    zero = bytes_of(rng, n, dtype=t) if each else bytes_of(rng, dtype=t).reshape(())
    c = rng.integers(-9999, 9999, n).astype("i4") if index in (0, 4) else None
    y = [np.float32(2.5), bytes_of(rng, dtype=t).reshape(())] if index in (0, 1, 3) else []
    inputs = [a, *points(rng, t), b, scale, zero, c, *y]
    while inputs[-1] is None:
        inputs.pop()
    return NodeSample(
        inputs, attrs={"transA": int(index == 2), "transB": index % 2, "alpha": 1.0}, steps=1,
        weights=tuple(p for p, x in enumerate(inputs) if p in (1, 2, 4, 5, 6, 7, 8) and x is not None),
    )  # fmt: skip


@of(MS, "NhwcMaxPool")
def nhwc(rng, index):
    shape = [(1, 8, 9, 3), (2, 7, 7, 4), (1, 5, 6, 8), (1, 12, 12, 1), (2, 6, 5, 3)][index]
    attrs = [
        {"kernel_shape": [2, 2]},
        {"kernel_shape": [3, 3], "strides": [2, 2], "pads": [1, 1, 1, 1]},
        {"kernel_shape": [3, 2], "dilations": [2, 1]},
        {"kernel_shape": [5, 5], "strides": [3, 3], "ceil_mode": 1},
        {"kernel_shape": [6, 5]},
    ][index]
    return NodeSample([bytes_of(rng, *shape, dtype=TYPES[index])], attrs=attrs)


@of(MS, "Inverse")
def inverse(rng, index):
    shape = [(3, 3), (2, 4, 4), (1, 1), (2, 3, 5, 5), (20, 20)][index]
    x = normal(rng, *shape)
    if index == 0:
        x[0, 0] = 0  # a first pivot that has to be looked for
    return NodeSample([x], rtol=2e-3)


@of(MS, "CDist")
def cdist(rng, index):
    m, k, n = [(2, 3, 4), (1, 1, 1), (7, 5, 2), (16, 16, 16), (3, 33, 9)][index]
    metric = "euclidean" if index % 2 else "sqeuclidean"
    return NodeSample([normal(rng, m, n), normal(rng, k, n)], attrs={"metric": metric}, rtol=1e-4)


@of(MS, "Trilu")
def trilu(rng, index):
    shape = [(3, 3), (2, 4, 5), (1, 1), (6, 2), (2, 2, 7, 7)][index]
    inputs = [normal(rng, *shape)] + ([np.array(index - 2)] if index else [])
    return NodeSample(inputs, weights=(1,) if index else (), attrs={"upper": index % 2})


@of(MS, "Unique")
def unique(rng, index):
    return NodeSample([rng.integers(0, 4, [1, 5, 9, 16, 40][index]).astype("f4")], outputs=3)


@of(MS, "ExpandDims")
def expand_dims(rng, index):
    return NodeSample([normal(rng, 2, 3), np.array([0, 1, 2, -1, -2][index], "i4")], weights=(1,))


@of(MS, "GatherND")
def gather_nd(rng, index):
    shape, places = [
        ((2, 3), [[0, 1], [1, 2]]), ((4, 2, 3), [[3], [0]]), ((5,), [[[0], [4]]]), ((2, 2, 2), [[1, 0, 1]]), ((3, 7), [[2]]),
    ][index]  # fmt: skip
    return NodeSample([normal(rng, *shape), np.array(places)], weights=(1,))


@of(MS, "QuantizeLinear", "DequantizeLinear")
def linear(rng, index, op):
    t = ["u1", "i1", "u2", "i2", "u1"][index]
    shape, axis = [((2, 3), 1), ((4, 5, 6), 1), ((7,), 0), ((3, 8), 0), ((2, 3, 4), 2)][index]
    n = shape[axis] if index in (1, 4) else 1
    scale = (rng.random(n) * 0.05 + 0.01).astype("f4")
    scale, zero = (
        (scale, bytes_of(rng, n, dtype=t))
        if n > 1
        else (scale[0], bytes_of(rng, dtype=t).reshape(()))
    )
    x = normal(rng, *shape, scale=3) if op == "QuantizeLinear" else bytes_of(rng, *shape, dtype=t)
    return NodeSample([x, scale, zero], attrs={"axis": axis}, steps=1, weights=(1, 2))


@of(MS, "QLinearConv")
def quantized_conv(rng, index):
    n, c, o, size = [(1, 3, 4, 9), (2, 4, 4, 6), (1, 8, 16, 7), (1, 2, 2, 5), (2, 3, 5, 11)][index]
    last, t = index in (1, 4), TYPES[index]
    x = bytes_of(rng, *((n, size, size + 1, c) if last else (n, c, size, size + 1)))
    w, each = bytes_of(rng, o, c, 3, 3, dtype=t), index in (0, 3)
    scale = (rng.random(o) * 0.01 + 0.01).astype("f4") if each else np.float32(0.02)
    zero = np.zeros(o, t) if each else np.zeros((), t)
    bias = rng.integers(-2000, 2000, o).astype("i4")
    y, point = [np.float32(0.5), bytes_of(rng).reshape(())], points(rng, "u1")
    # With weights of i8 ONNX Runtime saturates sums of two products on processors without VNNI.
    shift = 128 if t == "i1" else 0
    peer_w, peer_zero = ((item.astype("i4") + shift).astype("u1") for item in (w, zero))
    return NodeSample(
        [x, *point, w, scale, zero, *y, bias], weights=(1, 2, 3, 4, 5, 6, 7, 8), steps=1,
        attrs={"pads": [1] * 4, "channels_last": int(last)},
        peer=[x, *point, peer_w, scale, peer_zero, *y, bias],
    )  # fmt: skip


# ONNX Runtime has these on GPUs only: the results are NumPy's.


def erf_gelu(x):
    from scipy.special import erf

    return x * 0.5 * (1 + erf(x / np.sqrt(2)))


@of(MS, "BiasAdd")
def bias_add(rng, index):
    shape = ROWS[index]
    x, b, skip = normal(rng, *shape), normal(rng, shape[-1]), normal(rng, *shape)
    return NodeSample([x, b, skip], wanted=[x + b + skip])


@of(MS, "BiasSplitGelu")
def bias_split_gelu(rng, index):
    shape = (*ROWS[index][:2], 2 * ROWS[index][2])
    x, b = normal(rng, *shape), normal(rng, shape[-1])
    left, right = np.split(x.astype("f8") + b, 2, -1)
    return NodeSample([x, b], wanted=[(left * erf_gelu(right)).astype("f4")])


@of(MS, "BiasSoftmax")
def bias_softmax(rng, index):
    shape, bias, axis, inner = [
        ((2, 3, 4), (2, 1, 4), 2, 1), ((2, 3, 4), (3, 4), 2, 0), ((5, 6), (6,), 1, 0), ((2, 3, 4, 5), (2, 1, 1, 5), 3, 1),
        ((2, 3, 4, 5), (1, 3, 4, 5), 2, 0),
    ][index]  # fmt: skip
    x, b = normal(rng, *shape), normal(rng, *bias)
    e = np.exp(x.astype("f8") + b)
    axes = tuple(range(axis, len(shape)))
    return NodeSample(
        [x, b], attrs={"axis": axis, "is_inner_broadcast": inner},
        wanted=[(e / e.sum(axes, keepdims=True)).astype("f4")],
    )  # fmt: skip
