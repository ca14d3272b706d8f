"""NaN, infinities, zeros of both signs, large and tiny numbers, through every op and against NumPy."""

import zlib

import numpy as np
import pytest
from samples import ALL, each, grouped, looped

import rlx
from rlx.ir.dtype import DType
from rlx.ops.conformance_cases import cases

pytestmark = [pytest.mark.per_op, pytest.mark.by_program]

VALUES = {
    "nan": [np.nan],
    "inf": [np.inf, -np.inf],
    "zero": [0.0, -0.0],
    "large": [1e4, -1e4],
    "tiny": [1e-30, -1e-30],
}
# A Fourier transform, a recursion or a skipped zero (padding, a mask) spreads NaN and infinities as its
# algorithm does; these ops are only tested to keep them from other rows.
SPREADS = {
    "fft", "rfft", "stft", "istft", "attention", "conv1d", "conv2d", "conv3d", "conv_transpose1d",
    "conv_transpose2d", "lfilter", "sosfilt", "selective_scan", "lstm", "gru", "rnn", "log_mel_backward",
    "einsum", "batch_norm", "resize",
}  # fmt: skip
EXCLUDED = {
    # A NaN or an infinity has no integer; SciPy's peaks of NaN are unspecified.
    "nan": {"cast", "sample", "find_peaks", *SPREADS},
    # A product that passes 0 and infinity depends on the order.
    "inf": {"cast", "sample", "find_peaks", "log_mel", "prod", *SPREADS},
    "zero": set(),
    # An exponential of 1e4 has no digits in f32, nor has a cast's integer; recurrences amplify.
    "large": {"cast", "pow", "selective_scan", "lstm", "gru", "rnn"},
    # Squares of 1e-30 are below what f32 holds, on every device.
    # And WGSL divides with remainder up to a quotient of 2^64.
    "tiny": {"mod", "fmod", "l2", "lp_pool", "global_lp_pool", "l2_normalize", "selective_scan"},
}
# The error is measured against the largest operand too, as a sum may cancel; large values lose digits.
TIMES = {"nan": 1, "inf": 1, "zero": 4, "large": 50, "tiny": 4}


CASES = list(cases())


def special_cases(kind):
    for case in CASES:
        if case.opdef.internal or case.sample.values is not None or DType.F32 not in case.dtypes:
            continue
        if case.opdef.name in EXCLUDED[kind] or any(0 in shape for shape in case.sample.shapes):
            continue
        if sum(int(np.prod(shape)) for shape in case.sample.shapes) <= 100_000:
            yield case


def operands_of(case, kind):
    operands, rng = case.operands(), np.random.default_rng(zlib.crc32(f"{case}{kind}".encode()))
    for array, dtype in zip(operands, case.dtypes, strict=True):
        if dtype is DType.F32:
            places = rng.integers(0, array.size, max(1, min(3, array.size // 8)))
            array.reshape(-1)[places] = rng.choice(VALUES[kind], places.size)
    return operands


def check(case, kinds, device):
    """A case with values of some kinds, by one executable."""
    graph = case.graph()
    with np.errstate(all="ignore"), rlx.Session(device).compile(graph) as compiled:
        for kind in kinds:
            operands = operands_of(case, kind)
            got = [item.copy() for item in compiled.run_slots(*operands)]
            compare(case, kind, graph, operands, got)


def compare(case, kind, graph, operands, got):
    expected = case.expected(graph, operands)
    with np.errstate(all="ignore"):
        sizes = [np.abs(a[np.isfinite(a)]) for a in operands if a.dtype.kind == "f"]
    largest = max((float(np.max(a, initial=0.0)) for a in sizes), default=0.0)
    for node, x, y in zip(graph.outputs, got, expected, strict=True):
        if not node.dtype.is_float:
            assert np.array_equal(x, y), kind
            continue
        x, y = x.astype(np.float64), y.astype(np.float64)
        assert np.array_equal(np.isnan(x), np.isnan(y)), kind
        infinite = np.isinf(y)
        assert np.array_equal(x[infinite], y[infinite]), kind
        retained = np.isfinite(y)
        if retained.any():
            scale = max(float(np.max(np.abs(y[retained]))), largest if kind != "large" else 0.0)
            allowed = TIMES[kind] * max(case.opdef.tolerance_for(node.dtype), 2e-6) * scale
            if case.opdef.bound is not None:
                allowed = TIMES[kind] * 1e-5 * scale
            assert np.max(np.abs(x[retained] - y[retained])) <= allowed, kind


def by_case(pairs):
    """Each case of some pairs, with its kinds."""
    kinds = {}
    for kind, case in pairs:
        kinds.setdefault(id(case), (case, []))[1].append(kind)
    return list(kinds.values())


# A parameter for each op: (kind, case) of everything that it is tested with.
PAIRS = [(kind, case) for kind in VALUES for case in special_cases(kind)]
GROUPS = grouped(PAIRS, lambda pair: pair[1].opdef.name)
# On WebGPU the normal run takes every third of each op.
FEWER = GROUPS if ALL else [pytest.param(group.values[0][::3], id=group.id) for group in GROUPS]


def check_group(group, device):
    each(by_case(group), lambda item: check(*item, device), lambda item: str(item[0]))


@pytest.mark.parametrize("group", GROUPS)
def test_cpu(group):
    check_group(group, "cpu")


@pytest.mark.webgpu
@pytest.mark.parametrize("group", FEWER)
def test_webgpu(group, webgpu):
    check_group(group, webgpu)


ROWS = [c for c in CASES if c.opdef.name in ("fft", "rfft", "layer_norm", "softmax", "sosfilt")]
ROWS = [
    c for c in ROWS if c.dtypes[0] is DType.F32 and c.sample.shapes[0][:1] not in ((), (0,), (1,))
]


@looped("case", [c for c in ROWS if len(c.sample.shapes[0]) == 2], ids=str)
@looped("value", [np.nan, np.inf])
def test_a_row_keeps_its_special_values(case, value, device):
    if case.sample.attrs.get("axis", -1) not in (-1, 1):
        return
    graph, operands = case.graph(), case.operands()
    if operands[-1].dtype == np.int32 and operands[-1][0] == 0:
        return  # a filter of the first 0 samples reads none of them
    compiled = rlx.Session(device).compile(graph)
    clean = compiled.run_slots(*operands)[0].copy()
    operands[0][0, 0] = value
    with np.errstate(all="ignore"):
        got = compiled.run_slots(*operands)[0]
    assert not np.isfinite(got[0]).all()
    assert np.array_equal(got[1:], clean[1:])


# --- pow ----------------------------------------------------------------------------------------------

FLT_MAX = np.finfo(np.float32).max
BASES = np.float32([
    0.0, 1.0, 1e-45, 1e-40, 1.17e-38, 1e-20, 0.5, 0.9, 0.999, 1.001, 1.5, 2.0, 3.0, 10.0, 1e20, 3.4e38, FLT_MAX, np.inf,
])  # fmt: skip
EXPONENTS = np.float32([
    0.0, 1e-45, 1e-20, 0.001, 0.5, 0.99, 1.0, 1.5, 2.0, 3.0, 7.0, 100.0, 2**23 + 1, 8388607.5, 2**24 - 1, 2**24, 2**24 + 2,
    2**31, 2**32, 1e20, FLT_MAX, np.inf,
])  # fmt: skip


def test_pow_of_extremes(device):
    """Signs, zeros, infinities and NaN of every pair are NumPy's; numbers are as near as exp2(y * log2(x))."""
    bases = np.concatenate([BASES, -BASES, np.float32([np.nan])])
    exponents = np.concatenate([EXPONENTS, -EXPONENTS, np.float32([np.nan])])
    x, y = (a.ravel().copy() for a in np.meshgrid(bases, exponents, indexing="ij"))
    g = rlx.Graph()
    g.set_outputs([g.pow(g.input("x", x.shape), g.input("y", y.shape))])
    with rlx.compile(g, device) as compiled:
        got = compiled.run_slots(x, y)[0]
    with np.errstate(all="ignore"):
        expected = np.power(x.astype(np.float64), y.astype(np.float64)).astype(np.float32)
        # The error of log2 is within 2^-21 near 1, and relative elsewhere; the exponent multiplies it.
        power = np.abs(y * np.log2(np.abs(x.astype(np.float64))))
        allowed = 1e-5 + 1e-6 * np.where(np.isfinite(power), np.minimum(power, 200), 0)
    for a, b, item, wanted, error in zip(x, y, got, expected, allowed, strict=True):
        where = f"pow({a}, {b}) = {item}, not {wanted}"
        assert np.isnan(item) == np.isnan(wanted), where
        if np.isnan(wanted):
            continue
        assert np.signbit(item) == np.signbit(wanted), where
        if np.isinf(wanted) or abs(wanted) < 1.2e-38:  # a device may take subnormals for 0
            assert item == wanted or abs(item) < 1.2e-38 > abs(wanted), where
        else:
            assert abs(item / np.float64(wanted) - 1) <= error, where
