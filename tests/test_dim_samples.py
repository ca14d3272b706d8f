"""Samples of all operations with axes as dims: one executable gives for each size what a graph of that size gives."""

import numpy as np
import pytest
from dim_samples import ASKING, REFUSED, WAYS, dims_of, other_sizes, small, with_shapes
from samples import by_op, each

import rlx

pytestmark = pytest.mark.per_op


def results(run, *arguments):
    """Returns the results of a function, or the type of its error."""
    try:
        return run(*arguments)
    except rlx.RlxError as error:
        return type(error)


def check(case, device):
    expected_of = {}  # by shapes of the operands: the ways have some in common
    by_shapes = {dims_of(case, way): way for way in WAYS}
    for shapes, way in by_shapes.items():
        if all(isinstance(size, int) for shape in shapes for size in shape):
            continue
        try:
            graph = with_shapes(case, shapes).graph()
        except rlx.UnknownSizeError:
            assert case.opdef.name in REFUSED
            continue
        except rlx.GraphError:
            assert (
                max(size for shape in case.sample.shapes for size in shape) > 64
                or case.opdef.name in REFUSED
            )
            continue
        if case.opdef.name != "custom":
            assert str(rlx.Graph.from_json(graph.to_json())) == str(graph)
        sized = rlx.compile(graph, device=device)
        for at in other_sizes(case, shapes):
            static = with_shapes(case, at)
            operands = {f"x{i}": array for i, array in enumerate(static.operands())}
            if at not in expected_of:
                expected_of[at] = results(
                    lambda c, o: rlx.compile(c.graph(), device=device).run(o), static, operands
                )
            expected = expected_of[at]
            got = results(sized.run, operands)
            if case.opdef.name == "leading" and at[0][0] < case.sample.attrs["rows"]:
                continue  # rows behind those of the operand hold anything
            few = min(size for shape in at for size in shape) < 2
            if got is rlx.SizesError and case.opdef.name in (REFUSED | ASKING if few else REFUSED):
                continue
            if isinstance(expected, type):
                assert isinstance(got, type), f"{way} {at}: {expected.__name__} expected"
                continue
            assert not isinstance(got, type), f"{way} {at}: {got}"
            for a, b in zip(got, expected, strict=True):
                np.testing.assert_array_equal(a, b, err_msg=f"{way} {at}", strict=True)


@pytest.mark.parametrize("group", by_op(small()))
def test_cpu(group):
    each(group, lambda case: check(case, "cpu"))


@pytest.mark.parametrize("group", by_op(small()))
def test_reference(group):
    each(group[:3], lambda case: check(case, "reference"))
