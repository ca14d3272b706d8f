"""Convolutions by long filters through Fourier transforms: against float64 on every instruction set."""

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.ops.windows.fft_conv import block

RNG = np.random.default_rng(11)


def exactly(x, w, bias, groups, padding):
    """The sums in float64, by NumPy's correlation of lines."""
    x = np.pad(x.astype(np.float64), ((0, 0), (0, 0), padding))
    outputs, each = w.shape[0] // groups, w.shape[1]
    y = np.zeros((x.shape[0], w.shape[0], x.shape[2] - w.shape[2] + 1))
    for n, o, c in np.ndindex(x.shape[0], w.shape[0], each):
        line = x[n, o // outputs * each + c]
        y[n, o] += np.correlate(line, w[o, c].astype(np.float64), "valid")
    return y if bias is None else y + bias[:, None]


def made(x, w, *, groups=1, padding=(0, 0), bias=None, fixed=True, threads=1, after=None):
    """A graph of one convolution on the CPU, which has to be made through transforms."""
    g = rlx.Graph()
    weight = (g.param if fixed else g.input)("w", w.shape)
    b = g.constant(bias) if bias is not None else None
    y = g.conv1d(g.input("x", x.shape), weight, b, padding=[padding], groups=groups)
    g.set_outputs([after(g, y) if after else y])
    params = {"w": w} if fixed else {}
    compiled = rlx.compile(g, "cpu", params, CompileOptions(threads=threads))
    assert "conv_long" in compiled.as_text("schedule")
    return compiled


def values(*shape):
    return RNG.normal(size=shape).astype(np.float32)


def close(got, expected):
    assert got.shape == expected.shape
    assert np.abs(got - expected).max() <= 1e-5 * np.abs(expected).max()


# batch, channels, outputs, length, taps, groups, padding
CASES = (
    (1, 1, 1, 600, 100, 1, (0, 0)),
    (1, 1, 1, 1500, 64, 1, (63, 0)),
    (3, 1, 1, 1111, 257, 1, (128, 131)),
    (1, 1, 1, 9000, 4097, 1, (4096, 4096)),
    (1, 1, 3, 2500, 129, 1, (7, 1)),
    (2, 4, 4, 1601, 300, 4, (0, 150)),
    (2, 6, 9, 999, 65, 3, (32, 32)),
    (1, 3, 40, 700, 128, 1, (0, 0)),
    (1, 1, 1, 40, 64, 1, (500, 700)),
)


@looped("fixed", [True, False])
@looped("case", CASES, ids=str)
def test_is_the_sum_that_defines_it(case, fixed, isa):
    batch, channels, outputs, length, taps, groups, padding = case
    x, w = values(batch, channels, length), values(outputs, channels // groups, taps)
    bias = values(outputs) if length % 2 else None
    how = {"groups": groups, "padding": padding, "bias": bias, "fixed": fixed}
    with made(x, w, **how) as compiled:
        feeds = {"x": x} if fixed else {"x": x, "w": w}
        close(compiled.run(feeds)[0], exactly(x, w, bias, groups, padding))


def test_taps_and_lengths_in_turn():
    """Results of every remainder of a vector, and blocks that end at, before and behind the line."""
    for taps in (96, 97, 111, 128, 129, 255, 256, 257):
        for length in range(taps + 600, taps + 2000, 131):
            x, w = values(1, 1, length), values(1, 1, taps)
            with made(x, w) as compiled:
                close(compiled.run({"x": x})[0], exactly(x, w, None, 1, (0, 0)))


def test_what_follows_is_part_of_the_kernel(isa):
    x, w, bias, more = values(2, 2, 1000), values(2, 1, 200), values(2), values(2, 2, 801)

    def after(g, y):
        return g.relu(y + g.constant(more))

    with made(x, w, groups=2, bias=bias, after=after) as compiled:
        assert compiled.as_text("schedule").count("conv_long") == 1
        close(compiled.run({"x": x})[0], np.maximum(exactly(x, w, bias, 2, (0, 0)) + more, 0))


@looped("special", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_where_windows_meet_it(special, isa):
    """A transform spreads it over a block."""
    x, w = values(1, 2, 3000), 0.1 * values(2, 1, 100)
    x[0, 0, 1400] = special
    with made(x, w, groups=2) as compiled:
        got = compiled.run({"x": x})[0]
    expected = exactly(x, w, None, 2, (0, 0))
    met = np.zeros(got.shape, bool)
    met[0, 0, 1301:1401] = True
    close(got[~met], expected[~met])
    np.testing.assert_allclose(got[met], expected[met].astype(np.float32), 1e-5)


def test_sums_that_do_not_overflow_though_a_spectrum_does(isa):
    x, w = 1e36 * values(1, 1, 3000) + np.float32(1e38), 1e-3 * values(1, 1, 100)
    with made(x, w) as compiled:
        close(compiled.run({"x": x})[0], exactly(x, w, None, 1, (0, 0)))


def test_filters_that_are_not_finite():
    x, w = values(1, 2, 2000), values(2, 1, 100)
    w[1, 0, 50] = np.inf
    with made(x, w, groups=2) as compiled:
        got = compiled.run({"x": x})[0]
    assert np.isinf(got[0, 1]).all()
    close(got[0, 0], exactly(x, w, None, 2, (0, 0))[0, 0])


@pytest.mark.parametrize("fixed", [True, False])
def test_threads_do_not_change_a_bit(fixed):
    x, w = values(2, 6, 20000), values(6, 2, 700)
    feeds = {"x": x} if fixed else {"x": x, "w": w}
    results = []
    for threads in (1, 2, 3):
        with made(x, w, groups=3, fixed=fixed, threads=threads) as compiled:
            results.append(compiled.run(feeds)[0].tobytes())
    assert results[0] == results[1] == results[2]


def test_new_filters_and_clones():
    x, first, second = values(1, 1, 3000), values(1, 1, 300), values(1, 1, 300)
    with made(x, first) as compiled, compiled.clone() as other:
        compiled.set_param("w", second)
        for left in (compiled, other):
            close(left.run({"x": x})[0], exactly(x, second, None, 1, (0, 0)))


def test_one_filter_over_lines_of_two_lengths():
    """The spectra are kept over one block; where another is used they are made in the call."""
    g = rlx.Graph()
    w = g.param("w", (1, 1, 300))
    lines = [g.input("a", (1, 1, 700)), g.input("b", (1, 1, 30000))]
    g.set_outputs([g.conv1d(line, w) for line in lines])
    assert block(300, 401, 1, 1)[0] != block(300, 29701, 1, 1)[0]
    a, b, taps = values(1, 1, 700), values(1, 1, 30000), values(1, 1, 300)
    with rlx.compile(g, "cpu", {"w": taps}) as compiled:
        assert compiled.as_text("schedule").count("conv_long") == 2
        for got, line in zip(compiled.run({"a": a, "b": b}), (a, b), strict=True):
            close(got, exactly(line, taps, None, 1, (0, 0)))


def test_fewer_lines_than_were_compiled():
    x, w = values(6, 2, 1500), values(2, 1, 128)
    with made(x, w, groups=2) as compiled:
        whole = compiled.run({"x": x})[0].copy()
        compiled.set_active_extent((2, 6))
        np.testing.assert_array_equal(compiled.run({"x": x})[0][:2], whole[:2])


def test_few_taps_and_other_types_are_summed():
    for taps, stride, dtype in ((9, 1, "f32"), (200, 2, "f32"), (200, 1, "f64")):
        g = rlx.Graph()
        x, w = g.input("x", (1, 1, 4000), dtype), g.input("w", (1, 1, taps), dtype)
        g.set_outputs([g.conv1d(x, w, stride=stride)])
        with rlx.compile(g, "cpu") as compiled:
            assert "conv_long" not in compiled.as_text("schedule")


@looped("fixed", (True, False))
@looped("sizes", ((1e20, 1.3e-38), (1.3e-38, 1e20), (1e-30, 1e-3), (1e12, 1e-6), (3e38, 1e-6)))
def test_normal_numbers_of_any_size(isa, fixed, sizes):
    """Transforms of tiny samples and tiny filters lose no digits where results are normal numbers."""
    x, w = (
        (RNG.choice([-1.0, 1.0], shape) * RNG.uniform(0.5, 1, shape) * size).astype(np.float32)
        for shape, size in zip(((1, 4, 4096), (4, 4, 256)), sizes, strict=True)
    )
    x, w = (np.copysign(np.maximum(np.abs(item), np.float32(1.2e-38)), item) for item in (x, w))
    wanted = exactly(x, w, None, 1, (0, 0))
    with made(x, w, fixed=fixed) as cg:
        (got,) = cg.run({"x": x} if fixed else {"x": x, "w": w})
    assert np.abs(got - wanted).max() <= 2e-6 * np.abs(wanted).max()
