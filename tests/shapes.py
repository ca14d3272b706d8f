"""Hypothesis strategies: operands of made shapes, as conformance cases of an op.

Shapes have rank 0 to 6, with dimensions of 0, 1 and odd sizes. Floats are whole multiples of 1/64 where an
op jumps or cancels, so that a rounding error can't decide the result.
"""

from __future__ import annotations

import math

import numpy as np
from hypothesis import strategies as st

from rlx.ir.dtype import DType, store
from rlx.ir.opdef import REGISTRY, Sample
from rlx.ops.conformance_cases import Case

DIMS = (0, 1, 1, 2, 3, 3, 4, 5, 7, 8, 9, 13, 16, 17, 31, 33, 64, 65, 127, 257)
MOST = 6000
NUMBERS = (DType.F32, DType.F32, DType.I32, DType.I64)
ANY = (DType.F32, DType.I32, DType.BOOL, DType.U8, DType.F16, DType.I64)


@st.composite
def shapes(draw, least=0, most=6, limit=MOST, empty=True):
    """A shape of at most ``limit`` elements, also when what is empty is filled."""
    results = []
    for _ in range(draw(st.integers(least, most))):
        # An empty dimension counts as one: an op may fill it or sum over it.
        left = limit // math.prod(d or 1 for d in results)
        fits = [d for d in DIMS if d <= left and (d or empty)]
        results.append(draw(st.sampled_from(fits)))
    return tuple(draw(st.permutations(results)))


@st.composite
def broadcast(draw, count, **limits):
    """Shapes that broadcast together."""
    whole = draw(shapes(**limits))
    results = []
    for _ in range(count):
        hidden = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        shape = [1 if item else d for d, item in zip(whole, hidden, strict=True)]
        results.append(tuple(shape[draw(st.integers(0, len(shape))) :]))
    return tuple(results)


def values(seed, shape, dtype, low=-2.0, high=2.0, exact=False):
    """Random values in storage."""
    rng = np.random.default_rng(seed)
    if dtype is DType.BOOL:
        return rng.integers(0, 2, shape).astype(np.bool_)
    if dtype in (DType.U8, DType.U32):
        low = max(0.0, low)
    result = rng.uniform(low, high, shape)
    return store(np.asarray(np.round(result * 64) / 64 if exact else result), dtype)


def case(name, operands, dtypes, attrs=None):
    """Operands as a conformance case."""
    sample = Sample(
        tuple(np.shape(operand) for operand in operands),
        attrs or {},
        tuple(dtypes),
        values=tuple(operands),
    )
    return Case(REGISTRY[name], sample, tuple(dtypes), 0)


seeds = st.integers(0, 2**32 - 1)


@st.composite
def filled(draw, name, made, dtypes=(DType.F32,), exact=False, low=-2.0, high=2.0, **attrs):
    """A case of operands of those shapes, all of one dtype."""
    dtype = draw(st.sampled_from(dtypes))
    seed = draw(seeds)
    operands = [values([seed, index], s, dtype, low, high, exact) for index, s in enumerate(made)]
    return case(name, operands, (dtype,) * len(made), attrs)


@st.composite
def elementwise(draw, row):
    """One row of the elementwise table on broadcasting operands."""
    kinds = {
        "f": (DType.F32, DType.F16),
        "i": (DType.I32, DType.U32, DType.I64, DType.I8),
        "b": (DType.BOOL,),
    }
    dtypes = [dtype for kind in row.kinds for dtype in kinds[kind]]
    result = draw(broadcast(row.operands))
    # A remainder jumps where the quotient is whole, unless the operands are exact.
    exact = row.name in ("mod", "fmod", "floor", "ceil", "round") or row.result == "bool"
    return draw(filled(row.name, result, dtypes, exact, row.low, row.high))


@st.composite
def where(draw):
    result = draw(broadcast(3))
    dtype, seed = draw(st.sampled_from(ANY)), draw(seeds)
    dtypes = DType.BOOL, dtype, dtype
    operands = [
        values([seed, index], *value)
        for index, value in enumerate(zip(result, dtypes, strict=True))
    ]
    return case("where", operands, dtypes)


@st.composite
def reduction(draw):
    name = draw(st.sampled_from(("sum", "mean", "max", "min", "logsumexp", "l1", "l2")))
    bounded = name in ("max", "min", "mean", "logsumexp")
    shape = draw(shapes(empty=not bounded))
    axes = (
        draw(st.none() | st.lists(st.sampled_from(range(len(shape))), unique=True))
        if shape
        else None
    )
    axes = axes and tuple(a - len(shape) if draw(st.booleans()) else a for a in axes)
    keepdims = draw(st.booleans())
    dtypes = NUMBERS if name in ("sum", "max", "min") else (DType.F32,)
    return draw(filled(name, (shape,), dtypes, axes=axes, keepdims=keepdims))


def axis_of(draw, shape):
    axis = draw(st.integers(0, len(shape) - 1))
    return axis - len(shape) if draw(st.booleans()) else axis


@st.composite
def softmax(draw):
    name = draw(st.sampled_from(("softmax", "log_softmax")))
    shape = draw(shapes(1))
    return draw(filled(name, (shape,), low=-9.0, high=9.0, axis=axis_of(draw, shape)))


@st.composite
def cumsum(draw):
    shape = draw(shapes(1))
    flags = {"exclusive": draw(st.booleans()), "reverse": draw(st.booleans())}
    return draw(filled("cumsum", (shape,), NUMBERS, axis=axis_of(draw, shape), **flags))


@st.composite
def argument(draw):
    name = draw(st.sampled_from(("argmax", "argmin")))
    shape = draw(shapes(1, empty=False))
    flags = {"keepdims": draw(st.booleans()), "select_last": draw(st.booleans())}
    return draw(filled(name, (shape,), NUMBERS, axis=axis_of(draw, shape), **flags))


@st.composite
def ordering(draw):
    name = draw(st.sampled_from(("sort", "argsort", "topk")))
    shape = draw(shapes(1))
    axis = axis_of(draw, shape)
    if name == "topk":
        k = draw(st.integers(0, shape[axis]))
        return draw(filled(name, (shape,), NUMBERS, k=k, axis=axis, largest=draw(st.booleans())))
    return draw(filled(name, (shape,), NUMBERS, axis=axis, descending=draw(st.booleans())))


@st.composite
def transpose(draw):
    shape = draw(shapes())
    perm = draw(st.none() | st.permutations(range(len(shape))).map(tuple))
    return draw(filled("transpose", (shape,), ANY, perm=perm))


@st.composite
def slicing(draw):
    shape = draw(shapes())
    axes = draw(st.lists(st.sampled_from(range(len(shape))), unique=True)) if shape else []
    ends = st.integers(-20, 20)
    attrs = {
        "starts": tuple(draw(ends) for _ in axes),
        "stops": tuple(draw(ends) for _ in axes),
        "steps": tuple(draw(st.sampled_from((1, 1, 2, 3, -1, -2, -5))) for _ in axes),
        "axes": tuple(axes),
    }
    return draw(filled("slice", (shape,), ANY, **attrs))


@st.composite
def concat(draw):
    shape = draw(shapes(1, limit=1500))
    axis = axis_of(draw, shape)
    results = []
    for _ in range(draw(st.integers(1, 5))):
        other = list(shape)
        other[axis] = draw(st.sampled_from((0, 1, 2, 3, 5, 9)))
        results.append(tuple(other))
    return draw(filled("concat", tuple(results), ANY, axis=axis))


@st.composite
def expand(draw):
    whole, shape = draw(shapes()), ()
    if whole:
        hidden = draw(st.lists(st.booleans(), min_size=len(whole), max_size=len(whole)))
        shape = tuple(1 if item else d for d, item in zip(whole, hidden, strict=True))
        shape = shape[draw(st.integers(0, len(shape))) :]
    return draw(filled("expand", (shape,), ANY, shape=whole))


@st.composite
def pad(draw):
    mode = draw(st.sampled_from(("constant", "constant", "reflect", "edge", "wrap")))
    shape = draw(shapes(most=4, limit=500, empty=mode == "constant"))
    # A negative number takes away; something has to be left for what is read again.
    least = [-(d // 2 if mode == "constant" else (d - 1) // 2) for d in shape]
    ends = [st.integers(max(-3, low), 4) for low in least]
    pads = tuple((draw(end), draw(end)) for end in ends)
    value = draw(st.sampled_from((0, 1)))
    return draw(filled("pad", (shape,), ANY, pads=pads, mode=mode, value=value))


@st.composite
def tile(draw):
    shape = draw(shapes(limit=300))
    repeats = tuple(draw(st.sampled_from((0, 1, 1, 2, 3))) for _ in shape)
    return draw(filled("tile", (shape,), ANY, repeats=repeats))


@st.composite
def flip(draw):
    shape = draw(shapes())
    axes = (
        draw(st.none() | st.lists(st.sampled_from(range(len(shape))), unique=True))
        if shape
        else None
    )
    return draw(filled("flip", (shape,), ANY, axes=axes and tuple(axes)))


def indices_into(seed, shape, size):
    """Indices of an axis of that size, some from its end; none where it is empty."""
    rng = np.random.default_rng(seed)
    return rng.integers(-size, size, shape).astype(np.int32) if size else np.zeros(shape, np.int32)


@st.composite
def gather(draw):
    shape = draw(shapes(1, 5, limit=1500))
    axis = axis_of(draw, shape)
    wanted = draw(shapes(0, 2, limit=20))
    if shape[axis] == 0:
        wanted = (*wanted, 0)
    dtype, seed = draw(st.sampled_from(ANY)), draw(seeds)
    operands = values(seed, shape, dtype), indices_into(seed, wanted, shape[axis])
    return case("gather", operands, (dtype, DType.I32), {"axis": axis})


def element_indices(draw, shape, axis, distinct=False):
    """Indices of an axis for places of a shape no larger than that of the data but along the axis."""
    cut = [draw(st.sampled_from(sorted({d, max(0, d - 1), min(d, 1)}))) for d in shape]
    size = shape[axis]
    cut[axis] = 0 if size == 0 else draw(st.integers(0, size if distinct else 2 * size))
    seed = draw(seeds)
    if not distinct:
        return indices_into(seed, tuple(cut), size)
    whole = list(cut)
    whole[axis] = size
    order = np.argsort(np.random.default_rng(seed).random(whole), axis=axis)
    return np.take(order, np.arange(cut[axis]), axis).astype(np.int32)


@st.composite
def gather_elements(draw):
    shape = draw(shapes(1, 5))
    axis = axis_of(draw, shape)
    position = element_indices(draw, shape, axis)
    dtype = draw(st.sampled_from(ANY))
    operands = values(draw(seeds), shape, dtype), position
    return case("gather_elements", operands, (dtype, DType.I32), {"axis": axis})


@st.composite
def scatter_elements(draw):
    how = draw(st.sampled_from((None, "add", "mul", "min", "max")))
    shape = draw(shapes(1, 5))
    axis = axis_of(draw, shape)
    position = element_indices(draw, shape, axis)
    dtype = draw(st.sampled_from(NUMBERS if how else ANY))
    low, high = (0.9, 1.1) if how == "mul" else (-2.0, 2.0)
    x, updates = (values(draw(seeds), s, dtype, low, high) for s in (shape, position.shape))
    attrs = {"axis": axis, "reduction": how}
    return case("scatter_elements", (x, position, updates), (dtype, DType.I32, dtype), attrs)


@st.composite
def matmul(draw):
    batches = draw(broadcast(2, most=3, limit=12))
    m, k, n = (draw(st.sampled_from((0, 1, 2, 3, 5, 8, 17, 33, 64, 65))) for _ in range(3))
    a, b = (*batches[0], m, k), (*batches[1], k, n)
    if draw(st.integers(0, 4)) == 0:
        return draw(filled("matmul", ((k,), b)))
    if draw(st.integers(0, 4)) == 0:
        return draw(filled("matmul", (a, (k,))))
    return draw(filled("matmul", (a, b)))


@st.composite
def layer_norm(draw):
    shape = draw(shapes(1).filter(lambda s: s[-1] > 0))
    last = [a for a in range(len(shape)) if 0 not in shape[a:]]
    axis = draw(st.sampled_from(last))
    weighted, biased = draw(st.booleans()), draw(st.booleans())
    results = [shape, *[shape[axis:]] * (weighted + biased)]
    absent = {**({} if weighted else {"weight": None}), **({} if biased else {"bias": None})}
    return draw(filled("layer_norm", results, exact=True, axis=axis, **absent))


@st.composite
def convolution(draw):
    rank = draw(st.integers(1, 3))
    groups = draw(st.sampled_from((1, 1, 2, 3)))
    n, each, outputs = (draw(st.sampled_from(c)) for c in ((0, 1, 2), (1, 2, 3), (1, 2, 5)))
    taps = [draw(st.integers(1, 3)) for _ in range(rank)]
    stride, dilation = (tuple(draw(st.integers(1, 3)) for _ in taps) for _ in range(2))
    reach = [(k - 1) * d + 1 for k, d in zip(taps, dilation, strict=True)]
    padding = tuple((draw(st.integers(0, 2)), draw(st.integers(0, 2))) for _ in taps)
    sizes = [
        max(1, r - sum(p)) + draw(st.integers(0, 6)) for r, p in zip(reach, padding, strict=True)
    ]
    if draw(st.integers(0, 3)) == 0:
        padding = draw(st.sampled_from(("same_upper", "same_lower")))
    biased = draw(st.booleans())
    results = [(n, groups * each, *sizes), (groups * outputs, each, *taps)]
    results += [(groups * outputs,)] * biased
    attrs = {"stride": stride, "dilation": dilation, "padding": padding, "groups": groups}
    return draw(filled(f"conv{rank}d", results, **({} if biased else {"bias": None}), **attrs))


@st.composite
def attention(draw):
    b, sq, sk = (draw(st.sampled_from(c)) for c in ((0, 1, 2), (1, 2, 3, 9, 33), (1, 2, 5, 17, 65)))
    heads, share, d, dv = (
        draw(st.sampled_from(c)) for c in ((1, 2, 3), (1, 2), (1, 3, 8), (1, 4, 5))
    )
    kind = draw(st.sampled_from(("none", "causal", "sliding:0", "sliding:3", "custom", "bias")))
    results = [(b, heads * share, sq, d), (b, heads, sk, d), (b, heads, sk, dv)]
    dtypes = [DType.F32] * 3
    if kind == "custom":
        results.append((b, sk))
        dtypes.append(DType.BOOL)
    if kind == "bias":
        hidden = [draw(st.booleans()) for _ in range(4)]
        whole = (b, heads * share, sq, sk)
        results.append(tuple(1 if item else s for s, item in zip(whole, hidden, strict=True)))
        dtypes.append(DType.F32)
    attrs = {"kind": kind, "softcap": draw(st.sampled_from((None, 1.5)))}
    if len(results) == 3:
        attrs["mask"] = None
    seed = draw(seeds)
    operands = [
        values([seed, index], *item) for index, item in enumerate(zip(results, dtypes, strict=True))
    ]
    return case("attention", operands, dtypes, attrs)


@st.composite
def fft(draw):
    n = draw(st.integers(1, 300) | st.sampled_from((512, 1000, 1021, 2048, 2187)))
    batch = draw(shapes(0, 3, limit=max(1, 8000 // n)))
    attrs = {"inverse": draw(st.booleans()), "norm": draw(st.sampled_from(("backward", "ortho")))}
    return draw(filled("fft", ((*batch, 2 * n),), **attrs))
