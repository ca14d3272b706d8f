"""Every elementwise operation on integers, on all pairs of edges of their types: reference, CPU and WebGPU agree.

Division by zero, the least integer by -1 and shifts by the width are defined (docs/explanation/numerics.md), so there is
no accepted difference here.
"""

import itertools

import numpy as np
import pytest
from samples import looped

import rlx
from rlx.ir.dtype import INTEGERS, WIDER
from rlx.ir.opdef import lookup
from rlx.ops.elementwise.table import TABLE

pytestmark = pytest.mark.by_program

ROWS = [row for row in TABLE if "i" in row.kinds and hasattr(rlx.Graph, row.name)]


def edges(dtype):
    """The ends of a type's range, of half of it, powers of two and what stands beside them, and widths of shifts."""
    limits = np.iinfo(dtype.numpy)
    results = {0, 1, 2, 3, 7, 8, 15, 31, 32, 33, 63, 64, 65, 127, 128, 255}
    results |= {limits.max, limits.max - 1}
    results |= {limits.min, limits.min + 1, limits.max // 2, limits.max // 2 + 1}
    results |= {-value for value in list(results)}
    return np.array(sorted(v for v in results if limits.min <= v <= limits.max), dtype.numpy)


def columns(row, dtype):
    """All combinations of edges as one array for each operand."""
    values = edges(dtype)
    if row.operands == 3:
        values = values[:: max(1, len(values) // 12)]
    grid = itertools.product(values, repeat=row.operands)
    return [np.array(column, dtype.numpy) for column in zip(*grid, strict=True)]


def found(row, dtype, device):
    arrays = columns(row, dtype)
    g = rlx.Graph()
    inputs = [g.input(f"x{index}", a.shape, dtype) for index, a in enumerate(arrays)]
    g.set_outputs([getattr(g, row.name)(*inputs)])
    return rlx.compile(g, device).run({f"x{index}": a for index, a in enumerate(arrays)})[0], arrays


CASES = [
    (row, dtype)
    for row in ROWS
    for dtype in sorted(INTEGERS, key=str)
    if dtype in lookup(row.name).dtypes or dtype in WIDER
]


@pytest.mark.parametrize("device", ["cpu", pytest.param("webgpu", marks=pytest.mark.webgpu)])
@looped("row,dtype", CASES)
def test_integers(device, row, dtype, request):
    where = request.getfixturevalue("webgpu") if device == "webgpu" else device
    want, arrays = found(row, dtype, "reference")
    got, _ = found(row, dtype, where)
    wrong = np.flatnonzero(want != got)
    shown = [(*(a[index] for a in arrays), want[index], got[index]) for index in wrong[:5]]
    assert not len(wrong), f"{row.name} of {dtype}: operands, wanted, got: {shown}"


@looped("name", ["add", "sub", "mul", "minimum", "maximum", "bit_xor", "lt", "ge"])
def test_the_reference_is_numpy(name):
    """The reference is NumPy's function if NumPy defines the operation on all operands."""
    row = next(row for row in ROWS if row.name == name)
    names = {
        "sub": "subtract",
        "mul": "multiply",
        "bit_xor": "bitwise_xor",
        "lt": "less",
        "ge": "greater_equal",
    }
    for dtype in sorted(INTEGERS, key=str):
        got, arrays = found(row, dtype, "reference")
        with np.errstate(all="ignore"):
            np.testing.assert_array_equal(got, getattr(np, names.get(name, name))(*arrays))
