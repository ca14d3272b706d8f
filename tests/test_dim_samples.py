"""Samples of all operations with axes as dims: one executable gives for each size what a graph of that size gives."""

import warnings
from dataclasses import replace

import numpy as np
import pytest
from samples import ALL, by_op, each

import rlx
from rlx.ops.conformance_cases import cases

pytestmark = pytest.mark.per_op

# Axes that are dims, by way.
WAYS = {
    "leading": lambda axis, rank: axis == 0,
    "last": lambda axis, rank: axis == rank - 1,
    "all": lambda axis, rank: True,
}
LARGEST = 300
# Builders that refuse some dims or other sizes: more than two axes of ``resize``, the diagonal of an
# ``einsum``, the frames of ``istft``.
REFUSED = {"resize", "einsum", "istft"}
# Builders that ask whether an axis is broadcast: a graph is built for one of both answers.
ASKING = {"rope", "sample"}


def small():
    """One case of each sample that is small."""
    seen = set()
    for case in cases():
        key = case.opdef.name, case.number
        sizes = [dim for shape in case.sample.shapes for dim in shape]
        if key not in seen and not case.sample.bench and max(sizes, default=0) <= LARGEST:
            seen.add(key)
            yield case


def dims_of(case, way):
    """The shapes of a case with dims in the place of axes; equal sizes are one dim, sizes of 1 stay."""

    def dim(size):
        return rlx.Dim(f"d{size}", max=size) if size <= 64 else rlx.Dim(f"d{size}", min=0)

    return tuple(
        tuple(
            dim(size) if WAYS[way](axis, len(shape)) and size != 1 else size
            for axis, size in enumerate(shape)
        )
        for shape in case.sample.shapes
    )


def with_shapes(case, shapes):
    return replace(case, sample=replace(case.sample, shapes=shapes))


def results(run, *arguments):
    """Returns the results of a function, or the type of its error."""
    try:
        return run(*arguments)
    except rlx.RlxError as error:
        return type(error)


def other_sizes(case, shapes):
    """The shapes of the case, and others that its dims may have."""
    dims = sorted({str(size) for shape in shapes for size in shape if not isinstance(size, int)})
    own = {name: int(name[1:]) for name in dims}
    few = (
        [own]
        if case.sample.values is not None
        else [own, {n: max(v - 1, 0) for n, v in own.items()}]
    )
    if ALL and case.sample.values is None:
        few += [dict.fromkeys(dims, 0), {name: min(size, 1) for name, size in own.items()}]
        few += [{**own, name: min(own[name], 1)} for name in dims if len(dims) > 1]
    for values in few:
        yield tuple(
            tuple(size if isinstance(size, int) else values[str(size)] for size in shape)
            for shape in shapes
        )


def check(case, device):
    for way in WAYS:
        shapes = dims_of(case, way)
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
            expected = results(
                lambda c, o: rlx.compile(c.graph(), device=device).run(o), static, operands
            )
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


# Operations with kernels whose texts need some axes as numbers, and those that may run on the host.
ALONE = {
    "conv1d", "conv2d", "conv3d", "fused_conv1d", "fused_conv2d", "fused_conv3d", "turned_conv1d", "turned_conv2d",
    "turned_conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "frame_peaks", "find_peaks", "scan",
    "recurrence", "rounded_recurrence", "lstm", "gru", "rnn", "while_", "custom", "partial_grouped_matmul",
    "half_matmul", "rounded_matmul", "resize", "selective_scan",
}  # fmt: skip


def check_webgpu(case, ways):
    """One program gives for each of several sizes what the reference gives."""
    for way in ways:
        shapes = dims_of(case, way)
        if all(isinstance(size, int) for shape in shapes for size in shape):
            continue
        try:
            graph = with_shapes(case, shapes).graph()
        except rlx.GraphError:
            continue  # ``check`` says which may refuse dims
        with rlx.compile(graph, device="webgpu") as sized:
            for at in other_sizes(case, shapes):
                static = with_shapes(case, at)
                operands = static.operands()
                try:
                    wanted = static.graph()
                    with warnings.catch_warnings():
                        # NumPy warns of means of nothing.
                        warnings.simplefilter("ignore", RuntimeWarning)
                        expected = static.expected(wanted, operands)
                    got = sized.run({f"x{i}": array for i, array in enumerate(operands)})
                except rlx.SizesError:
                    assert case.opdef.name in REFUSED
                    continue
                except (rlx.GraphError, rlx.InputError):
                    continue  # an operation, or a dim, takes no such sizes
                error, allowed = static.difference(wanted, got, expected)
                assert error <= allowed, f"{way} {at}: error {error:.3g} > {allowed:.3g}"
            programs = sized._state.sized
            small = any(size in (0, 1) for shape in case.sample.shapes for size in shape)
            alone = case.opdef.name in ALONE or "a part on the host" in programs._why  # such as f64
            assert programs._ranges or small or alone, f"{way}: {programs._why}"


@pytest.mark.parametrize("group", by_op(small()))
def test_webgpu(group, webgpu):
    if ALL:
        each(group, lambda case: check_webgpu(case, WAYS))
    else:
        each(group[:1], lambda case: check_webgpu(case, ["all"]))


@pytest.mark.parametrize("group", by_op(small()))
def test_cpu(group):
    each(group, lambda case: check(case, "cpu"))


@pytest.mark.parametrize("group", by_op(small()))
def test_reference(group):
    each(group[:3], lambda case: check(case, "reference"))
