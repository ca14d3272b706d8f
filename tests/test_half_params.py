"""Weights that are multiplied as halves: which they are, and that numbers beyond a half are refused."""

from dataclasses import replace

import numpy as np
import pytest

import rlx
from rlx.ir.dtype import DType, store
from rlx.runtime.half_params import check_half, rounded_params

pytestmark = pytest.mark.by_program

F32, BF16 = DType.F32, DType.BF16


@pytest.fixture
def graph():
    """A graph with weights of every kind."""
    g = rlx.Graph()
    x = g.input("x", (4, 8))
    y = x @ g.param("w", (8, 8)) + g.param("b", (8,))
    y = y @ g.transpose(g.param("t", (8, 8)), (1, 0))
    y = y @ g.cast(g.param("bf", (8, 8), "bf16"), "f32")
    y = y @ g.cast(g.param("half", (8, 8), "f16"), "f32")
    image = g.reshape(y, (1, 8, 4, 1))
    g.set_outputs([g.conv2d(image, g.param("k", (8, 8, 1, 1)))])
    return g


def test_weights_of_products_that_are_wider_than_halves(graph):
    assert set(rounded_params(graph)) == {"w", "t", "bf", "k"}


@pytest.mark.parametrize("kernel_set", ["", "cpu", "webgpu", "webgpu-f16"])
def test_elsewhere_nothing_is_rounded(graph, kernel_set):
    with rlx.compile(graph, "cpu") as cg:
        cg._state.target = replace(cg._state.target, kernel_set=kernel_set)
        cg.set_param("w", np.full((8, 8), 1e6))


def test_a_weight_that_is_rounded_is_checked_when_it_is_set(graph):
    with rlx.compile(graph, "cpu") as cg:
        cg._state.target = replace(cg._state.target, kernel_set="webgpu-units")
        with pytest.raises(rlx.InputError, match="param 'w' holds a number that f16 can't hold"):
            cg.set_params({"b": np.full(8, 1e6), "w": np.full((8, 8), 1e6)})
        cg.set_param("b", np.full(8, 1e6))


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("shape", [(), (0, 3), (3, 5)])
def test_numbers_of_a_half_are_taken(dtype, shape):
    for value in (0.0, -65504.0, 1e-30, np.inf, -np.inf, np.nan):
        # bf16 has no 65504: the number below is taken.
        value = -65280.0 if dtype is BF16 and value == -65504.0 else value
        check_half(store(np.full(shape, value, np.float32), dtype), dtype, "w")


@pytest.mark.parametrize("dtype", [F32, BF16])
@pytest.mark.parametrize("value", [65537.0, -1e6, 3e38])
def test_larger_ones_are_refused(dtype, value):
    array = np.full((3, 5), np.inf, np.float32)
    array[1, 2] = value
    with pytest.raises(
        rlx.InputError, match=r"(?s)param 'w' holds a number that f16 can't hold.*precision='f32'"
    ):
        check_half(store(array, dtype), dtype, "param 'w'")
