"""Resize against the onnx package's reference evaluator and ONNX Runtime, and what it refuses."""

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import reference
from samples import looped

import rlx
from rlx._ext import cpu
from rlx.backends.base import CompileOptions
from rlx.backends.cpu import split
from rlx.ops.resize.taps import COORDINATES, MODES, NEAREST

pytestmark = pytest.mark.by_program


def firsts(x, size):
    """The elements of x that are read where ``pytorch_half_pixel`` gives a single result along an axis: the first.

    The standard says 0 for that place. The reference evaluator takes another one.
    """
    return x[tuple(slice(1) if count == 1 else slice(None) for count in size)]


def onnx_resize(x, size=None, scales=None, roi=None, runtime=False, **attrs):
    """Computes ONNX's Resize (version 19) by the reference evaluator, or by ONNX Runtime."""
    helper = onnx.helper
    node = helper.make_node("Resize", ["x", "roi", "scales", "sizes"], ["y"], **attrs)
    names, kinds = ("x", "roi", "scales", "sizes"), (1, 1, 1, 7)
    graph = helper.make_graph(
        [node],
        "resize",
        [helper.make_tensor_value_info(n, k, None) for n, k in zip(names, kinds, strict=True)],
        [helper.make_tensor_value_info("y", 1, None)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    feeds = {
        "x": x,
        "roi": np.array([] if roi is None else roi, np.float32),
        "scales": None if scales is None else np.array(scales, np.float32),
        "sizes": None if size is None else np.array(size, np.int64),
    }
    if not runtime:
        return reference.ReferenceEvaluator(model).run(None, feeds)[0]
    inputs = {name: value for name, value in feeds.items() if value is not None}
    # Operands that are left out have no names.
    node.input[:] = [name if name in inputs else "" for name in names]
    model.graph.node[0].CopyFrom(node)
    del model.graph.input[:]
    for name, value in inputs.items():
        kind = helper.np_dtype_to_tensor_dtype(value.dtype)
        model.graph.input.append(helper.make_tensor_value_info(name, kind, value.shape))
    providers = ["CPUExecutionProvider"]
    session = onnxruntime.InferenceSession(model.SerializeToString(), providers=providers)
    return session.run(None, inputs)[0]


def run(device, x, **attrs):
    g = rlx.Graph("resize")
    g.set_outputs(g.resize(g.input("x", x.shape, x.dtype), **attrs))
    with rlx.compile(g, device=device) as cg:
        return cg.run({"x": x})[0]


SIZES = ((2, 3, 9, 4), (2, 3, 3, 11), (2, 3, 1, 1), (1, 3, 7, 7))


@looped("mode", MODES)
@looped("coordinates", COORDINATES)
@looped("size", SIZES)
def test_against_onnx(rng, device, mode, coordinates, size):
    x = rng.standard_normal((2, 3, 7, 6)).astype(np.float32)
    roi = (0, 0, 0.2, -0.3, 1, 1, 1.1, 0.8) if coordinates == "tf_crop_and_resize" else None
    attrs = {"extrapolation_value": -7.5}
    got = run(device, x, size=size, mode=mode, coordinates=coordinates, roi=roi, **attrs)
    attrs["coordinate_transformation_mode"] = coordinates
    read = firsts(x, size) if coordinates == "pytorch_half_pixel" else x
    expected = onnx_resize(read, size=size, roi=roi, mode=mode, **attrs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


@looped("mode", MODES)
@looped("coordinates", COORDINATES[:-1])
@looped("scales", [(1.6, 2.3), (0.4, 0.7), (0.15, 1.3)])
def test_scales(rng, mode, coordinates, scales):
    x = rng.standard_normal((1, 2, 8, 9)).astype(np.float32)
    scales = np.array([1, 1, *scales], np.float32)
    form = {"mode": mode, "coordinate_transformation_mode": coordinates}
    read, by = x, scales
    if coordinates == "pytorch_half_pixel":
        size = [int(n * scale) for n, scale in zip(x.shape, scales, strict=True)]
        read, by = firsts(x, size), np.where(np.array(size) == 1, 1, scales)
    # The evaluator takes a fractional length for the resized one; rlx reads the standard as ONNX Runtime does.
    runtime = coordinates == "align_corners"
    expected = onnx_resize(read, scales=by, runtime=runtime, **form)
    attrs = {"mode": mode, "coordinates": coordinates, "scales": tuple(map(float, scales))}
    got = run("cpu", x, size=expected.shape, **attrs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


@looped("n", [4, 5, 7, 17])
@looped("scale", [0.5, 1.5, 1.7, 2.6])
def test_corners_stay_where_a_scale_gives_a_fractional_size(device, rng, n, scale):
    """The last result is the last element, as PyTorch's align_corners promises."""
    x, size = rng.standard_normal((1, 1, n)).astype(np.float32), (1, 1, int(n * scale))
    attrs = {"mode": "linear", "coordinates": "align_corners", "scales": (1.0, 1.0, scale)}
    got = run(device, x, size=size, **attrs)
    places = np.linspace(0, n - 1, size[2])
    np.testing.assert_allclose(got[0, 0], np.interp(places, np.arange(n), x[0, 0]), 0, 2e-6)


@looped("mode", ["linear", "cubic"])
@looped("exclude", [False, True])
@looped("antialias", [False, True])
@looped("size", SIZES)
def test_filters(rng, mode, exclude, antialias, size):
    x = rng.standard_normal((2, 3, 7, 6)).astype(np.float32)
    attrs = {"mode": mode, "antialias": antialias, "exclude_outside": exclude}
    got = run("cpu", x, size=size, cubic_coeff_a=-0.5, **attrs)
    attrs = {"mode": mode, "antialias": int(antialias), "exclude_outside": int(exclude)}
    expected = onnx_resize(x, size=size, cubic_coeff_a=-0.5, **attrs)
    np.testing.assert_allclose(got, expected, rtol=0, atol=2e-5)


@looped("nearest_mode", NEAREST)
@looped("coordinates", ["half_pixel", "asymmetric", "align_corners"])
@looped("size", [(2, 16), (2, 5), (3, 4)])
def test_nearest_of_integers(device, nearest_mode, coordinates, size):
    x = np.arange(2 * 8, dtype=np.int32).reshape(2, 8)
    attrs = {"nearest_mode": nearest_mode}
    got = run(device, x, size=size, coordinates=coordinates, **attrs)
    attrs["coordinate_transformation_mode"] = coordinates
    expected = onnx_resize(x.astype(np.float32), size=size, mode="nearest", **attrs)
    np.testing.assert_array_equal(got, expected)


def test_errors():
    g = rlx.Graph("resize")
    x = g.input("x", (2, 3))
    with pytest.raises(rlx.ShapeError, match="size does not fit"):
        g.resize(x, (2, 3, 4))
    with pytest.raises(rlx.ShapeError, match="scales does not fit"):
        g.resize(x, (2, 6), scales=(2.0,))
    with pytest.raises(rlx.ShapeError, match="not a scale"):
        g.resize(x, (2, 6), mode="linear", scales=(1.0, -2.0))
    with pytest.raises(rlx.UnknownNameError, match="linear"):
        g.resize(x, (2, 6), mode="linaer")
    with pytest.raises(rlx.UnknownNameError, match="coordinates"):
        g.resize(x, (2, 6), coordinates="half")
    with pytest.raises(rlx.ShapeError, match="nothing to interpolate"):
        g.resize(g.input("e", (2, 0)), (2, 3), mode="linear")


@looped("isa", [name for name in ("plain", "neon", "avx2", "avx512") if name in cpu.isas()])
@looped("dtype", ["f32", "f64"])
def test_planes_of_nearest_entries(isa, dtype, monkeypatch):
    """Rows of every length and scale: what a vector stores behind a row is written over, and threads agree."""
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    monkeypatch.setattr(split, "_WORTH", 1e-9)
    rng = np.random.default_rng(5)
    for _ in range(60):
        shape = tuple(int(n) for n in rng.integers(1, [3, 4, 9, 40]))
        size = (*shape[:2], *(int(n) for n in rng.integers(1, [14, 70])))
        x = rng.normal(size=shape).astype({"f32": np.float32, "f64": np.float64}[dtype])
        x.reshape(-1)[rng.integers(0, x.size, 2)] = np.nan, np.inf
        g = rlx.Graph()
        attrs = {"mode": "nearest", "nearest_mode": "floor", "coordinates": "asymmetric"}
        g.set_outputs(g.resize(g.input("x", shape, dtype), size, **attrs))
        with rlx.compile(g, "reference") as exact:
            (expected,) = exact.run({"x": x})
        for threads in (1, 3):
            with rlx.compile(g, "cpu", options=CompileOptions(threads=threads)) as compiled:
                np.testing.assert_array_equal(
                    compiled.run({"x": x})[0], expected, f"{shape} {size}"
                )
