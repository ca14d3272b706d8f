"""Convolutions and pools against onnxruntime, and what they refuse."""

import numpy as np
import pytest
from onnx_oracle import run_node
from samples import looped

import rlx

pytestmark = pytest.mark.by_program


def run(device, op, *arrays, **attrs):
    g = rlx.Graph(op)
    nodes = [None if a is None else g.input(f"x{index}", a.shape) for index, a in enumerate(arrays)]
    g.set_outputs(getattr(g, op)(*nodes, **attrs))
    feeds = {f"x{index}": a for index, a in enumerate(arrays) if a is not None}
    with rlx.compile(g, device=device) as cg:
        return cg.run(feeds)[0]


def close(got, expected):
    assert got.shape == expected.shape
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5 * max(1, np.abs(expected).max()))


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def flat(pads):
    """Padding as ONNX lists it: all of the begins, then all of the ends."""
    return [before for before, _ in pads] + [after for _, after in pads]


CONVOLUTIONS = [
    # x, w, stride, dilation, pads, groups
    ((2, 3, 20), (5, 3, 4), (2,), (3,), ((1, 4),), 1),
    ((2, 8, 33), (8, 1, 3), (1,), (2,), ((2, 2),), 8),
    ((1, 3, 30, 31), (16, 3, 7, 7), (2, 2), (1, 1), ((3, 3), (3, 3)), 1),
    ((2, 16, 14, 14), (24, 16, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 1),
    ((2, 16, 13, 15), (24, 8, 3, 2), (3, 2), (2, 1), ((0, 2), (3, 1)), 2),
    ((1, 12, 17, 9), (24, 1, 5, 3), (2, 1), (1, 3), ((2, 1), (0, 5)), 12),
    ((3, 40, 6, 7), (50, 40, 1, 1), (1, 1), (1, 1), ((0, 0), (0, 0)), 1),
    ((3, 40, 6, 7), (50, 40, 1, 1), (2, 3), (1, 1), ((0, 0), (0, 0)), 1),
    ((1, 300, 5, 5), (70, 300, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), 1),
    ((1, 4, 7, 8, 9), (6, 2, 3, 2, 3), (2, 1, 2), (1, 2, 1), ((1, 0), (1, 1), (0, 2)), 2),
]


@looped("case", CONVOLUTIONS, ids=lambda case: f"{case[0]}-{case[1]}")
@looped("with_bias", [False, True])
def test_convolution(rng, device, case, with_bias):
    x_shape, w_shape, stride, dilation, pads, groups = case
    x, w = normal(rng, *x_shape), normal(rng, *w_shape)
    bias = normal(rng, w_shape[0]) if with_bias else None
    attrs = {"strides": stride, "dilations": dilation, "pads": flat(pads), "group": groups}
    (expected,) = run_node("Conv", [x, w, bias], **attrs)
    attrs = {"stride": stride, "dilation": dilation, "padding": pads, "groups": groups}
    close(run(device, f"conv{len(stride)}d", x, w, bias, **attrs), expected)


@looped("mode", ["same_upper", "same_lower"])
@looped("stride", [1, 2, 3])
def test_same_padding(rng, mode, stride):
    x, w = normal(rng, 1, 3, 10, 11), normal(rng, 4, 3, 4, 3)
    attrs = {"auto_pad": mode.upper(), "strides": (stride, stride)}
    (expected,) = run_node("Conv", [x, w], **attrs)
    close(run("cpu", "conv2d", x, w, stride=stride, padding=mode), expected)
    (expected,) = run_node("MaxPool", [x], kernel_shape=(4, 3), **attrs)
    close(run("cpu", "max_pool", x, kernel=(4, 3), stride=stride, padding=mode), expected)
    w = normal(rng, 3, 4, 4, 3)
    (expected,) = run_node("ConvTranspose", [x, w], **attrs)
    close(run("cpu", "conv_transpose2d", x, w, stride=stride, padding=mode), expected)


TRANSPOSED = [
    # x, w, stride, dilation, pads, output padding, groups
    ((2, 3, 9), (3, 5, 4), (2,), (1,), ((1, 1),), (0,), 1),
    ((1, 6, 9), (6, 2, 3), (3,), (2,), ((0, 2),), (2,), 3),
    ((2, 8, 7, 8), (8, 6, 4, 4), (2, 2), (1, 1), ((1, 1), (1, 1)), (0, 0), 1),
    ((1, 8, 5, 6), (8, 3, 3, 2), (3, 1), (1, 2), ((1, 0), (0, 1)), (1, 0), 2),
    ((1, 70, 5, 6), (70, 33, 3, 3), (1, 1), (1, 1), ((1, 1), (1, 1)), (0, 0), 1),
]


@looped("case", TRANSPOSED, ids=lambda case: f"{case[0]}-{case[1]}")
def test_transposed(rng, device, case):
    x_shape, w_shape, stride, dilation, pads, extra, groups = case
    x, w = normal(rng, *x_shape), normal(rng, *w_shape)
    bias = normal(rng, w_shape[1] * groups)
    attrs = {"strides": stride, "dilations": dilation, "pads": flat(pads), "group": groups}
    (expected,) = run_node("ConvTranspose", [x, w, bias], output_padding=extra, **attrs)
    attrs = {"stride": stride, "dilation": dilation, "padding": pads, "groups": groups}
    name = f"conv_transpose{len(stride)}d"
    close(run(device, name, x, w, bias, output_padding=extra, **attrs), expected)


POOLS = [
    # x, kernel, stride, pads
    ((2, 3, 17), (3,), (2,), ((1, 0),)),
    ((1, 2, 13, 14), (3, 2), (2, 3), ((1, 1), (0, 1))),
    ((1, 2, 13, 14), (4, 4), (3, 3), ((2, 3), (1, 2))),
    ((1, 2, 7, 8, 9), (2, 3, 3), (2, 2, 1), ((0, 1), (1, 1), (1, 0))),
]


@looped("case", POOLS, ids=lambda case: f"{case[0]}-{case[1]}")
@looped("ceil", [False, True])
@looped("dilation", [1, 2])
def test_max_pool(rng, device, case, ceil, dilation):
    shape, kernel, stride, pads = case
    x, dilations = normal(rng, *shape), (dilation,) * len(kernel)
    attrs = {"kernel_shape": kernel, "strides": stride, "pads": flat(pads)}
    (expected,) = run_node("MaxPool", [x], ceil_mode=int(ceil), dilations=dilations, **attrs)
    attrs = {"kernel": kernel, "stride": stride, "padding": pads, "dilation": dilation}
    np.testing.assert_array_equal(run(device, "max_pool", x, ceil_mode=ceil, **attrs), expected)


@looped("case", POOLS, ids=lambda case: f"{case[0]}-{case[1]}")
@looped("ceil", [False, True])
@looped("padded", [False, True])
def test_avg_pool(rng, device, case, ceil, padded):
    shape, kernel, stride, pads = case
    x = normal(rng, *shape)
    attrs = {"kernel_shape": kernel, "strides": stride, "pads": flat(pads), "ceil_mode": int(ceil)}
    (expected,) = run_node("AveragePool", [x], count_include_pad=int(padded), **attrs)
    attrs = {"kernel": kernel, "stride": stride, "padding": pads, "ceil_mode": ceil}
    close(run(device, "avg_pool", x, count_include_pad=padded, **attrs), expected)


@looped("p", [1, 2, 3])
def test_norms(rng, device, p):
    x = normal(rng, 2, 3, 9, 10)
    attrs = {"kernel_shape": (3, 2), "strides": (2, 1), "pads": (1, 0, 1, 1)}
    (expected,) = run_node("LpPool", [x], p=p, **attrs)
    attrs = {"kernel": (3, 2), "stride": (2, 1), "padding": ((1, 1), (0, 1))}
    close(run(device, "lp_pool", x, p=p, **attrs), expected)
    (expected,) = run_node("GlobalLpPool", [x], opset=21, p=p)
    close(run(device, "global_lp_pool", x, p=p), expected)


def test_whole_planes(rng, device):
    x = normal(rng, 2, 3, 9, 10)
    close(run(device, "global_avg_pool", x), run_node("GlobalAveragePool", [x])[0])
    close(run(device, "global_max_pool", x), run_node("GlobalMaxPool", [x])[0])


def test_nan_reaches_only_its_windows(device):
    x = np.ones((1, 5, 9, 9), np.float32)
    x[0, 0, 4, 4] = np.nan
    w, seen = np.ones((5, 1, 3, 3), np.float32), np.zeros((1, 5, 9, 9), bool)
    seen[0, 0, 3:6, 3:6] = True
    for y in (
        run(device, "conv2d", x, w, padding=1, groups=5),
        run(device, "max_pool", x, kernel=3, stride=1, padding=1),
        run(device, "avg_pool", x, kernel=3, stride=1, padding=1),
    ):
        np.testing.assert_array_equal(np.isnan(y), seen)
    y = run(device, "conv2d", x, np.ones((6, 5, 3, 3), np.float32), padding=1)
    np.testing.assert_array_equal(np.isnan(y), np.broadcast_to(seen[:, :1], y.shape))


def test_errors():
    g = rlx.Graph("refused")
    x, w = g.input("x", (1, 4, 8, 8)), g.input("w", (6, 4, 3, 3))
    with pytest.raises(rlx.ShapeError, match="wrong rank"):
        g.conv1d(x, w)
    with pytest.raises(rlx.ShapeError, match="groups do not fit"):
        g.conv2d(x, w, groups=2)
    with pytest.raises(rlx.ShapeError, match="bias has the wrong shape"):
        g.conv2d(x, w, g.input("b", (4,)))
    with pytest.raises(rlx.ShapeError, match="larger than the padded operand"):
        g.conv2d(x, w, dilation=4)
    with pytest.raises(rlx.ShapeError, match="stride does not fit"):
        g.conv2d(x, w, stride=0)
    with pytest.raises(rlx.ShapeError, match="padding does not fit"):
        g.conv2d(x, w, padding=-1)
    with pytest.raises(rlx.ShapeError, match="no such padding"):
        g.conv2d(x, w, padding="valid")
    with pytest.raises(rlx.ShapeError, match="would be empty"):
        g.conv_transpose2d(x, g.input("t", (4, 6, 3, 3)), padding=9)
    with pytest.raises(rlx.ShapeError, match="only padding"):
        g.max_pool(x, 2, padding=2)
    with pytest.raises(rlx.ShapeError, match="no axes to pool"):
        g.global_avg_pool(g.input("m", (3, 4)))
    with pytest.raises(rlx.GraphError, match="no norm"):
        g.lp_pool(x, 2, p=0)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("threads", [1, 3])
def test_transposed_with_weights_that_stay(rng, dtype, threads):
    """Short rows, whose places are listed, and long ones; weights as params, set twice, and as inputs."""
    for dims, channels, filters, groups, stride, padding in (
        ((2, 3), 6, 8, 2, (2, 3), 1),
        ((4, 4), 5, 7, 1, (1, 1), 0),
        ((5, 11), 4, 6, 1, (2, 2), 2),
        ((3, 40), 6, 4, 2, (2, 1), 1),
        ((30, 11), 3, 32, 1, (3, 2), 0),
    ):
        x = rng.standard_normal((2, channels, *dims)).astype(dtype)
        w, other = rng.standard_normal((2, channels, filters // groups, 4, 5)).astype(dtype)
        g = rlx.Graph("transposed")
        weight = g.param("w", w.shape, dtype)
        y = g.conv_transpose2d(
            g.input("x", x.shape, dtype), weight, stride=stride, padding=padding, groups=groups
        )
        g.set_outputs([y])
        options = rlx.CompileOptions(threads=threads)
        with rlx.compile(g, "cpu", {"w": w}, options) as cg:
            for value in (w, other):
                cg.set_param("w", value)
                (result,) = cg.run({"x": x})
                r = rlx.Graph("reference")
                r.set_outputs(
                    [
                        r.conv_transpose2d(
                            r.input("x", x.shape, dtype),
                            r.input("w", w.shape, dtype),
                            stride=stride,
                            padding=padding,
                            groups=groups,
                        )
                    ]
                )
                (expected,) = rlx.compile(r, "reference").run({"x": x, "w": value})
                np.testing.assert_allclose(result, expected, rtol=0, atol=2e-5)


@looped("seed", range(40))
def test_depthwise_of_any_geometry(seed):
    rng = np.random.default_rng(seed)
    kernel = tuple(int(n) for n in rng.integers(1, 9, 2))
    dilation = tuple(int(n) for n in rng.integers(1, 4, 2))
    dims = tuple(
        (n - 1) * d + int(rng.integers(1, 24)) for n, d in zip(kernel, dilation, strict=True)
    )
    channels, each = int(rng.integers(1, 9)), int(rng.integers(1, 3))
    x, w = normal(rng, 2, channels, *dims), normal(rng, channels * each, 1, *kernel)
    finite = seed % 4
    if (
        not finite
    ):  # 0 times infinity is no number, in padding too; kernels of WebGPU may leave padding out
        w[0, 0, 0, 0], x[0, 0, 0, 0] = np.inf, np.nan
    attrs = {
        "stride": tuple(int(n) for n in rng.integers(1, 4, 2)),
        "padding": tuple((int(a), int(b)) for a, b in rng.integers(0, 5, (2, 2))),
        "dilation": dilation,
        "groups": channels,
    }
    bias = normal(rng, channels * each)
    with np.errstate(invalid="ignore"):
        expected = run("reference", "conv2d", x, w, bias, **attrs)
    for device in ("cpu", "webgpu") if finite else ("cpu",):
        got = run(device, "conv2d", x, w, bias, **attrs)
        np.testing.assert_allclose(got, expected, 1e-5, 1e-4)
