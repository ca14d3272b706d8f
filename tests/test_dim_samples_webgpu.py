"""Samples of all operations with axes as dims on WebGPU: one program gives for each size what the reference gives."""

import warnings
from functools import partial

import numpy as np
import pytest
from dim_samples import ALONE, ASKING, REFUSED, WAYS, dims_of, other_sizes, small, with_shapes
from samples import ALL, SIZED_BY_DATA, by_op, each

import rlx
from rlx.compiler import sized

pytestmark = pytest.mark.per_op


def magnitude(arrays):
    """The largest finite number of arrays of floats."""
    floats = (np.abs(a[np.isfinite(a)]) for a in arrays if a.dtype.kind == "f")
    return max((float(a.max(initial=0)) for a in floats), default=0.0)


def check_webgpu(case, ways, steady=False):
    """One program gives for each of several sizes what the reference gives.

    ``steady``: it is the only program, too.
    """
    for shapes, way in {dims_of(case, way): way for way in WAYS}.items():
        if way not in ways or all(isinstance(size, int) for shape in shapes for size in shape):
            continue
        try:
            graph = with_shapes(case, shapes).graph()
        except rlx.GraphError:
            continue  # ``check`` says which may refuse dims
        own = 0.0  # the largest result so far
        with rlx.compile(graph, device="webgpu") as compiled:
            sizes = list(other_sizes(case, shapes))
            # A program that was made for few elements is right for more, too.
            for at in reversed(sizes) if steady else sizes:
                static = with_shapes(case, at)
                operands = static.operands()
                try:
                    wanted = static.graph()
                    with warnings.catch_warnings():
                        # NumPy warns of means of nothing.
                        warnings.simplefilter("ignore", RuntimeWarning)
                        expected = static.expected(wanted, operands)
                    got = compiled.run({f"x{i}": array for i, array in enumerate(operands)})
                except rlx.SizesError:
                    few = min(size for shape in at for size in shape) < 2
                    assert case.opdef.name in (REFUSED | ASKING if few else REFUSED)
                    continue
                except (rlx.GraphError, rlx.InputError):
                    continue  # an operation, or a dim, takes no such sizes
                error, allowed = static.difference(wanted, got, expected)
                # Terms of a single sum may cancel each other: no result next to it says how large they are.
                largest = magnitude(expected)
                if 0 < largest < np.finfo(np.float32).tiny:
                    continue  # a GPU may take subnormal numbers for 0
                own = max(own, largest)
                error *= largest / own if 0 < largest < own else 1
                assert error <= allowed, f"{way} {at}: error {error:.3g} > {allowed:.3g}"
            if case.opdef.name in SIZED_BY_DATA:
                continue  # it has several programs
            programs = compiled._state.sized
            small = any(size in (0, 1) for shape in case.sample.shapes for size in shape)
            alone = case.opdef.name in ALONE or "a part on the host" in programs._why  # such as f64
            assert programs._ranges or small or alone, f"{way}: {programs._why}"
            most = 1 if steady and not (ALL or small or alone) else len(programs._ranges)
            assert len(programs._ranges) <= most, f"{way}: {len(programs._ranges)} programs"


@pytest.mark.parametrize("way", WAYS if ALL else ["all"])
@pytest.mark.parametrize("group", by_op(small()))
def test_webgpu(group, way, webgpu):
    each(group if ALL else group[:1], lambda case: check_webgpu(case, [way]))


@pytest.mark.parametrize("group", by_op(small()))
def test_steady(group, webgpu, monkeypatch):
    """The programs of graphs that compute sizes, which are not made anew for the sake of speed."""
    steady = partial(sized.load_sized, steady=True)
    monkeypatch.setattr(sized, "load_sized", steady)
    each(
        group if ALL else group[-1:],
        lambda case: check_webgpu(case, WAYS if ALL else ["all"], True),
    )
