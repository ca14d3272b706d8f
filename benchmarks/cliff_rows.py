"""Random cases of elementwise operations, reductions, norms, sorting and movement."""

import numpy as np
from cliff_draw import Constant, node

UNARY = {
    "Relu": None, "Sigmoid": None, "Tanh": np.tanh, "Exp": np.exp, "Sqrt": np.sqrt, "Log": np.log, "Erf": None,
    "Gelu": None, "Abs": np.abs, "Neg": np.negative, "Softplus": None, "HardSigmoid": None, "HardSwish": None,
    "LeakyRelu": None, "Elu": None, "Selu": None, "Floor": np.floor, "Round": np.rint, "Sin": np.sin, "Cos": np.cos,
    "Reciprocal": np.reciprocal, "Mish": None, "Softsign": None, "Atan": np.arctan, "Sign": np.sign, "Sinh": np.sinh,
}  # fmt: skip
BINARY = {
    "Add": np.add, "Sub": np.subtract, "Mul": np.multiply, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
    "PRelu": None, "Pow": np.power, "Greater": np.greater, "Equal": np.equal, "LessOrEqual": np.less_equal,
}  # fmt: skip
REDUCTIONS = {
    "ReduceSum": np.sum, "ReduceMean": np.mean, "ReduceMax": np.max, "ReduceMin": np.min, "ReduceProd": np.prod,
    "ReduceL1": None, "ReduceL2": None, "ReduceSumSquare": None, "ReduceLogSumExp": None,
}  # fmt: skip


def _into(function, *operands, dtype=np.float32, shape=None):
    """A call that stores the results of a NumPy function in an array of its own."""
    out = np.empty(np.broadcast_shapes(*(operand.shape for operand in operands)), dtype)
    return lambda: [function(*operands, out=out)]


def unary(d):
    kind = d.choice(list(UNARY))
    x = (
        d.floats(d.shape(), 0.1, 4.0)
        if kind in {"Sqrt", "Log", "Reciprocal"}
        else d.floats(d.shape())
    )
    others = {"NumPy": _into(UNARY[kind], x)} if UNARY[kind] else {}
    return node("elementwise", kind, x, others=others)


def binary(d):
    kind, shape = d.choice(list(BINARY)), d.shape()
    a = d.floats(shape)
    how = d.choice(["same", "scalar", "last", "some", "first"])
    other = {
        "same": shape,
        "scalar": (),
        "last": shape[-1:],
        "some": tuple(item if d.chance(0.5) else 1 for item in shape),
        "first": (shape[0], *[1] * (len(shape) - 1)),
    }[how]
    b = d.floats(other)
    if kind == "Pow":
        a = np.abs(a) + np.float32(0.1)
    elif d.chance(0.3) and kind != "PRelu":
        a, b = b, a
    dtype = bool if kind in {"Greater", "Equal", "LessOrEqual"} else np.float32
    others = {"NumPy": _into(BINARY[kind], a, b, dtype=dtype)} if BINARY[kind] else {}
    return node(
        "elementwise", kind, a, Constant(b) if b.size < 4096 and d.chance(0.5) else b, others=others
    )


def power(d):
    x = np.abs(d.floats(d.shape())) + np.float32(0.1)
    exponent = np.float32(d.choice([2.0, 0.5, 3.0, -1.0, 1.5, -0.5, 2.2, 0.45, 4.0]))
    others = {"NumPy": _into(lambda a, out: np.power(a, exponent, out=out), x)}
    return node("elementwise", "Pow", x, Constant(np.array(exponent)), others=others)


def where(d):
    shape = d.shape()
    mask = d.integers(d.choice([shape, shape[-1:]]), 0, 2, bool)
    return node(
        "elementwise", "Where", mask, d.floats(shape), d.floats(d.choice([shape, (), shape[-1:]]))
    )


def clip(d):
    low, high = (Constant(np.array(item, np.float32)) for item in (-0.5, 0.5))
    x = d.floats(d.shape())
    return node("elementwise", "Clip", x, low, high, others={"NumPy": _into(lambda a, out: np.clip(a, -0.5, 0.5, out=out), x)})  # fmt: skip


def cast(d):
    x = d.floats(d.shape()) * 50
    if d.chance(0.4):
        x = x.astype(d.choice([np.int32, np.int64, np.uint8, np.float16, np.float64]))
        return node("elementwise", "Cast", x, to=1)
    return node("elementwise", "Cast", x, to=d.choice([6, 7, 10, 11]))


def reduction(d):
    kind, x = d.choice(list(REDUCTIONS)), d.floats(d.shape())
    if kind == "ReduceProd":
        x = np.abs(x) ** np.float32(0.05)
    axes = d.axes(x.ndim)
    function = REDUCTIONS[kind]
    others = {}
    if function:
        out = np.empty([n for index, n in enumerate(x.shape) if index not in axes], np.float32)
        others["NumPy"] = lambda: [function(x, tuple(axes), out=out)]
    keep = d.choice([0, 1])
    if keep and function:
        out = np.empty([1 if index in axes else n for index, n in enumerate(x.shape)], np.float32)
        others["NumPy"] = lambda: [function(x, tuple(axes), out=out, keepdims=True)]
    return node("reduction", kind, x, Constant(np.array(axes)), keepdims=keep, others=others)


def arg_reduction(d):
    kind, x = d.choice(["ArgMax", "ArgMin"]), d.floats(d.shape())
    axis = d.between(0, x.ndim - 1)
    function = np.argmax if kind == "ArgMax" else np.argmin
    return node(
        "reduction", kind, x, axis=axis, keepdims=0, others={"NumPy": lambda: [function(x, axis)]}
    )


def softmax(d):
    x = d.floats(d.shape())
    return node(
        "rows", d.choice(["Softmax", "Softmax", "LogSoftmax"]), x, axis=d.between(0, x.ndim - 1)
    )


def norm(d):
    kind = d.choice(["layer", "layer", "instance", "group", "batch", "lp", "rms"])
    if kind in {"layer", "rms", "lp"}:
        x = d.floats(d.shape(rank=d.choice([2, 3, 3, 4]), least=2))
        axis = d.choice([x.ndim - 1, x.ndim - 1, d.between(1, x.ndim - 1)])
        rest = x.shape[axis:]
        weight, bias = Constant(d.floats(rest)), Constant(d.floats(rest))
        if kind == "layer":
            return node("rows", "LayerNormalization", x, weight, bias, axis=axis)
        if kind == "lp":
            return node("rows", "LpNormalization", x, axis=d.between(0, x.ndim - 1), p=2)
        kind = "SimplifiedLayerNormalization"
        return node("rows", kind, x, Constant(d.floats(x.shape[-1:])), axis=-1)
    channels = d.choice([3, 8, 16, 32, 48, 64, 96, 128, 256, 320])
    x = d.floats(d.images(channels=channels, spatial=d.choice([1, 2]), smallest=2))
    scale, bias = Constant(d.floats(channels)), Constant(d.floats(channels))
    if kind == "instance":
        return node("rows", "InstanceNormalization", x, scale, bias)
    if kind == "group" and channels % 8 == 0:
        return node("rows", "GroupNormalization", x, scale, bias, num_groups=8)
    mean, variance = Constant(d.floats(channels)), Constant(d.floats(channels, 0.5, 2.0))
    return node("rows", "BatchNormalization", x, scale, bias, mean, variance)


def cumulation(d):
    x = d.floats(d.shape())
    axis = d.between(0, x.ndim - 1)
    out = np.empty_like(x)
    others = {"NumPy": lambda: [np.cumsum(x, axis, out=out)]}
    return node("rows", "CumSum", x, Constant(np.array(axis)), others=others)


def top(d):
    x = d.floats(d.shape(least=2))
    axis = d.choice([x.ndim - 1, x.ndim - 1, d.between(0, x.ndim - 1)])
    k = min(x.shape[axis], d.choice([1, 2, 5, 10, 40, 50, 100, 300, 1000]))
    k = Constant(np.array([k]))
    return node("rows", "TopK", x, k, axis=axis, largest=d.choice([0, 1, 1]), outputs=2)


def transpose(d):
    x = d.floats(d.shape(rank=d.choice([2, 3, 3, 4, 4, 5])))
    order = d.sample(range(x.ndim), x.ndim)
    out = np.empty([x.shape[index] for index in order], np.float32)
    return node("movement", "Transpose", x, perm=order, others={"NumPy": lambda: [np.copyto(out, x.transpose(order)) or out]})  # fmt: skip


def pad(d):
    x = d.floats(d.shape(least=3))
    mode = d.choice(["constant", "constant", "edge", "reflect"])
    last = x.ndim - min(2, x.ndim)
    widths = [0 if index < last and d.chance(0.8) else min(d.choice([0, 1, 1, 2, 3, 8, 16]), x.shape[index] - 1) for index in range(x.ndim)] * 2  # fmt: skip
    return node("movement", "Pad", x, Constant(np.array(widths)), mode=mode)


def concat(d):
    shape = d.shape(most=2**20)
    axis, parts = d.between(0, len(shape) - 1), []
    for _ in range(d.choice([2, 2, 3, 4, 8])):
        single = list(shape)
        if d.chance(0.5):
            single[axis] = d.size(max(1, 2 * shape[axis]))
        parts.append(d.floats(single))
    others = {"NumPy": lambda: [np.concatenate(parts, axis)]}
    return node("movement", "Concat", *parts, axis=axis, others=others)


def split(d):
    x = d.floats(d.shape(least=4))
    axis = d.between(0, x.ndim - 1)
    parts = d.choice([2, 3, 4])
    indices = sorted(d.sample(range(1, x.shape[axis]), parts - 1))
    sizes = np.diff([0, *indices, x.shape[axis]])
    return node("movement", "Split", x, Constant(sizes), axis=axis, outputs=parts)


def cut(d):
    x = d.floats(d.shape(least=4))
    axes = d.axes(x.ndim)
    starts = [d.between(0, x.shape[axis] // 2) for axis in axes]
    ends = [d.between(s + 1, x.shape[axis]) for s, axis in zip(starts, axes, strict=True)]
    steps = [d.choice([1, 1, 1, 2, 3]) for _ in axes]
    parts = (Constant(np.array(item, np.int64)) for item in (starts, ends, axes, steps))
    where_ = [slice(None)] * x.ndim
    for axis, *bounds in zip(axes, starts, ends, steps, strict=True):
        where_[axis] = slice(*bounds)
    out = np.array(x[tuple(where_)], order="C")  # a part that is contiguous is copied, too
    return node("movement", "Slice", x, *parts, others={"NumPy": lambda: [np.copyto(out, x[tuple(where_)]) or out]})  # fmt: skip


def gather(d):
    x = d.floats(d.shape(least=2))
    axis = d.between(0, x.ndim - 1)
    count = d.choice([1, 5, 32, 100, 128, 500])
    places = d.integers((count,), 0, x.shape[axis])
    return node(
        "movement",
        "Gather",
        x,
        places,
        axis=axis,
        others={"NumPy": lambda: [np.take(x, places, axis)]},
    )


def gather_elements(d):
    x = d.floats(d.shape(least=2))
    axis = d.between(0, x.ndim - 1)
    places = d.integers(x.shape, 0, x.shape[axis])
    return node("movement", "GatherElements", x, places, axis=axis)


def gather_nd(d):
    x = d.floats(d.shape(rank=d.choice([2, 3, 4]), least=2))
    depth = d.between(1, x.ndim)
    count = d.choice([1, 10, 100, 1000])
    places = np.stack([d.integers((count,), 0, n) for n in x.shape[:depth]], -1)
    return node("movement", "GatherND", x, places)


def scatter(d):
    x = d.floats(d.shape(rank=d.choice([1, 2, 3]), least=4))
    depth = d.between(1, x.ndim)
    count = min(d.choice([1, 10, 100, 1000]), int(np.prod(x.shape[:depth])))
    flat = np.array(d.sample(range(int(np.prod(x.shape[:depth]))), count))
    places = np.stack(np.unravel_index(flat, x.shape[:depth]), -1)
    return node("movement", "ScatterND", x, places, d.floats((count, *x.shape[depth:])))


def expand(d):
    shape = d.shape()
    x = d.floats([n if d.chance(0.5) else 1 for n in shape])
    return node("movement", "Expand", x, Constant(np.array(shape)))


def tile(d):
    x = d.floats(d.shape(most=2**18))
    repeats = np.array([d.choice([1, 1, 2, 3]) for _ in x.shape])
    return node(
        "movement", "Tile", x, Constant(repeats), others={"NumPy": lambda: [np.tile(x, repeats)]}
    )


def rearrange(d):
    block = d.choice([2, 2, 4])
    batch, channels, high, wide = d.images(
        channels=d.choice([4, 16, 32, 64, 128, 256]), most=2**20, smallest=2
    )
    if d.chance(0.5):
        kind, shape = (
            "DepthToSpace",
            (batch, block * block * max(1, channels // block**2), high, wide),
        )
    else:
        kind, shape = "SpaceToDepth", (batch, channels, high * block, wide * block)
    return node("movement", kind, d.floats(shape), blocksize=block)


def triangle(d):
    return node(
        "movement", "Trilu", d.floats(d.shape(rank=d.choice([2, 3]))), upper=d.choice([0, 1])
    )


def one_hot(d):
    places = d.integers(d.shape(rank=d.choice([1, 2]), most=2**12), 0, 64)
    depth = Constant(np.array(d.choice([64, 100, 1000])))
    return node("movement", "OneHot", places, depth, Constant(np.array([0, 1], np.float32)))


FAMILIES = (
    *(unary, unary, binary, binary, power, where, clip, cast, reduction, reduction, reduction, arg_reduction, softmax),
    *(softmax, norm, norm, norm, cumulation, top, transpose, transpose, pad, pad, concat, split, cut, gather),
    *(gather_elements, gather_nd, scatter, expand, tile, rearrange, triangle, one_hot),
)  # fmt: skip
