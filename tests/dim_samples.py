"""Samples of all operations with axes as dims."""

from dataclasses import replace

from samples import ALL

import rlx
from rlx.ops.conformance_cases import cases

# Axes that are dims, by way.
WAYS = {
    "leading": lambda axis, rank: axis == 0,
    "last": lambda axis, rank: axis == rank - 1,
    "all": lambda axis, rank: True,
}
LARGEST = 300
# Builders that refuse some dims or other sizes: more than two axes of ``resize``, entries of ``unique``, the diagonal of an
# ``einsum``, the frames of ``istft``.
REFUSED = {"resize", "einsum", "istft", "unique"}
# Builders that ask whether an axis is broadcast: a graph is built for one of both answers.
ASKING = {"rope", "sample"}
# Operations with kernels whose texts need some axes as numbers, and those that may run on the host.
ALONE = {
    "conv1d", "conv2d", "conv3d", "fused_conv1d", "fused_conv2d", "fused_conv3d", "turned_conv1d", "turned_conv2d",
    "turned_conv3d", "conv_transpose1d", "conv_transpose2d", "conv_transpose3d", "frame_peaks", "find_peaks", "scan",
    "recurrence", "rounded_recurrence", "lstm", "gru", "rnn", "while_", "custom", "partial_grouped_matmul",
    "half_matmul", "rounded_matmul", "resize", "selective_scan",
}  # fmt: skip


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
