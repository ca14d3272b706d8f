"""Random numbers that are the same bits on every device, and sampling from logits.

Philox 4x32-10 (Salmon et al. 2011, doi:10.1145/2063384.2063405): element e of a stream is word e % 4 of
block e // 4, whose counter is (block, 0, stream, 0) and whose key is the seed. Everything up to the last
conversion is integer arithmetic, so no device rounds differently.
"""

from __future__ import annotations

import functools
import math
import operator
from collections.abc import Sequence
from typing import Any

import numpy as np

from rlx.abi.elementwise import RANDOM
from rlx.errors import DTypeError, GraphError, ShapeError
from rlx.ir.dtype import DType, DTypeLike
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, Emitter, Kernels, NodeLike, Sample, ShapeLike, TensorType
from rlx.ir.shape import as_shape, size
from rlx.ops.declare import FLOAT_KERNELS, composite, op

_WORKGROUP = 256
# Normal numbers: |z| is a function of the tail probability, tabulated per octave of it.
_OCTAVES = 31
_SEGMENTS = 256
_TABLE_BITS = 26
_FRACTION_BITS = 13
RESULT_BITS = 21


@functools.cache
def normal_table() -> Array:
    """u32 ``[31 * 257]``: |z| in units of 2^-26 where P(|Z| > |z|) = 2^-(k+1) (1 + i/256).

    The inverse of erfc by Newton's method in float64.
    """
    k, i = np.divmod(np.arange(_OCTAVES * (_SEGMENTS + 1)), _SEGMENTS + 1)
    p = np.ldexp(1 + i / _SEGMENTS, -(k + 1))
    # The start: the tail of the normal density, or its middle.
    x = np.where(p < 0.5, np.sqrt(np.maximum(-np.log(p * np.sqrt(np.pi)), 0.05)), (1 - p) * 0.886)
    for _ in range(60):
        error = np.array([math.erfc(value) for value in x]) - p
        x = x + error * np.exp(x * x) * math.sqrt(math.pi) / 2 * np.where(p < 0.5, 0.7, 1.0)
        if np.max(np.abs(error) / p) < 1e-14:
            break
    return np.rint(x * math.sqrt(2) * 2**_TABLE_BITS).astype(np.uint32)


def philox(seed: Sequence[int], stream: int, blocks: int) -> Array:
    """u32 ``[4 * blocks]``: the stream's words from its start."""
    mask, shift = np.uint64(0xFFFFFFFF), np.uint64(32)
    c0 = np.arange(blocks, dtype=np.uint64)
    c1, c3 = np.zeros(blocks, np.uint64), np.zeros(blocks, np.uint64)
    c2 = np.full(blocks, stream, np.uint64)
    key = [int(seed[0]), int(seed[1])]
    for _ in range(10):
        a, b = c0 * np.uint64(0xD2511F53), c2 * np.uint64(0xCD9E8D57)
        c0, c1, c2, c3 = (
            (b >> shift) ^ c1 ^ np.uint64(key[0]),
            b & mask,
            (a >> shift) ^ c3 ^ np.uint64(key[1]),
            a & mask,
        )
        key = [(key[0] + 0x9E3779B9) % 2**32, (key[1] + 0xBB67AE85) % 2**32]
    return np.stack([c0, c1, c2, c3], -1).reshape(-1).astype(np.uint32)


def _normal(bits: Array) -> Array:
    """|z| by linear interpolation in integers, its sign from the lowest bit."""
    u = np.maximum(bits >> np.uint32(1), np.uint32(1)).astype(np.int64)
    octave = 30 - np.floor(np.log2(u)).astype(np.int64)
    rest = (u << octave) & (2**30 - 1)
    pos = octave * (_SEGMENTS + 1) + (rest >> 22)
    table = normal_table().astype(np.int64)
    fraction = (rest >> (22 - _FRACTION_BITS)) & (2**_FRACTION_BITS - 1)
    fine = table[pos] - (((table[pos] - table[pos + 1]) * fraction) >> _FRACTION_BITS)
    drop = _TABLE_BITS - RESULT_BITS
    z = ((fine + (1 << (drop - 1))) >> drop) / 2.0**RESULT_BITS
    return np.where(bits & 1, -z, z)


def _infer(types: Sequence[TensorType], attrs: dict[str, Any]) -> TensorType:
    if types[0].shape not in ((), (2,)):
        raise ShapeError("[random] the seed", got=types[0].shape, expected="a scalar, or two words")
    shape, stream = as_shape(attrs["shape"], where="random"), int(attrs["stream"])
    if attrs["kind"] not in RANDOM or not 0 <= stream < 2**31:
        raise GraphError("[random] no such numbers", got=f"{attrs['kind']}, {stream}")
    attrs.update(shape=shape, stream=stream)
    return TensorType(shape, DType.U32 if attrs["kind"] == "bits" else DType.F32)


def _lower(node: Node, emitter: Emitter) -> None:
    count = size(node.shape)
    normal = node.attrs["kind"] == "normal"
    table = [emitter.table(normal_table())] if normal else []
    emitter.call(
        "philox",
        [emitter.operand(0), *table],
        [emitter.result()],
        {
            "count": count,
            "stream": node.attrs["stream"],
            "kind": RANDOM.index(node.attrs["kind"]),
            "words": node.inputs[0].type.size,
        },
        math.ceil(count / (4 * _WORKGROUP)),
    )


@op(
    infer=_infer,
    flops=lambda node: 40.0 * size(node.shape),
    cpu=Kernels(("philox",), _lower),
    webgpu=Kernels(("philox",), _lower),
    dtypes=frozenset({DType.U32}),
    tolerance={DType.F32: 0.0},
    internal=True,
    samples=lambda: tuple(
        Sample((seed,), {"shape": shape, "stream": stream, "kind": kind}, low=0, high=4e9)
        for kind in RANDOM
        for seed, shape, stream in (((2,), (3, 5), 0), ((), (1,), 7), ((2,), (1021,), 123456),
                                    ((2,), (0, 3), 1))
    ),
)  # fmt: skip
def random(seed: Array, shape: Any, stream: int, kind: str) -> Array:
    """Words of a Philox stream; the same as uniform numbers in [0, 1); or as normal numbers."""
    words = [int(w) for w in np.atleast_1d(seed)]
    key = words if len(words) == 2 else [words[0], 0]
    bits = philox(key, stream, -(-size(shape) // 4))[: size(shape)].reshape(shape)
    if kind == "bits":
        return bits
    return (bits >> np.uint32(8)) / 2.0**24 if kind == "uniform" else _normal(bits)


def _numbers(g: Graph, kind: str, shape: Any, seed: Any, stream: int) -> Node:
    if isinstance(seed, Node):
        if not seed.dtype.is_integer:
            raise DTypeError("[random] the seed is not an integer", got=seed.dtype)
        words = g.cast(seed, DType.U32)
    else:
        number = operator.index(seed) if hasattr(seed, "__index__") else -1
        if not 0 <= number < 2**64:
            raise GraphError(
                "[random] seed",
                got=f"{seed!r:.60}",
                expected="a whole number from 0 to 2^64 - 1, or a node of one",
                hint="the shape comes first, the seed second: g.random_uniform((3, 4), 7)",
            )
        words = g.constant(np.array([number % 2**32, number >> 32], np.uint32))
    attrs = {"shape": as_shape(shape, where="random"), "stream": stream, "kind": kind}
    return g.add_node("random", [words], attrs)


def _key(seed: Any) -> Array:
    return np.array([int(seed) % 2**32, int(seed) >> 32], np.uint32)


def _spread(g: Graph, x: Node, scale: float, shift: float, dtype: Any) -> Node:
    """Random numbers times a scale, plus a shift."""
    if (scale, shift) != (1.0, 0.0):
        x = g.add(g.mul(x, float(scale)), float(shift))
    return g.cast(x, dtype) if DType.parse(dtype) is not DType.F32 else x


_RANDOM_SAMPLES = tuple(
    Sample((), {"shape": shape, "seed": seed, "stream": stream})
    for shape, seed, stream in (((3, 5), 1, 0), ((1,), 2**40 + 3, 5), ((0, 4), 1, 0), ((), 9, 1))
)


@composite(
    lambda g, shape, seed, stream, low, high, dtype: _spread(
        g, _numbers(g, "uniform", shape, seed, stream), high - low, low, dtype
    ),
    dtypes=frozenset({DType.U32}),
    samples=lambda: (
        *_RANDOM_SAMPLES,
        Sample((), {"shape": (7,), "seed": 3, "low": -2.0, "high": 5.0}),
        Sample((), {"shape": (7,), "seed": 3, "dtype": "f16"}),
    ),
)
def random_uniform(
    shape: ShapeLike,
    seed: NodeLike,
    stream: int = 0,
    low: float = 0.0,
    high: float = 1.0,
    dtype: DTypeLike = "f32",
) -> Array:
    """Uniform random numbers from ``low`` to below ``high``, the same bits on every device.

    Args:
        shape: Shape of the result.
        seed: 0 to 2^64 - 1, or an integer node for numbers that change from run to run.
        stream: Different streams of one seed are independent.
        low: Least value.
        high: Bound above.
        dtype: dtype of the result.
    """
    return random.reference(_key(seed), shape, stream, "uniform") * (high - low) + low


@composite(
    lambda g, shape, seed, stream, mean, scale, dtype: _spread(
        g, _numbers(g, "normal", shape, seed, stream), scale, mean, dtype
    ),
    dtypes=frozenset({DType.U32}),
    samples=lambda: (
        *_RANDOM_SAMPLES,
        Sample((), {"shape": (7,), "seed": 3, "mean": 1.0, "scale": 2.0}),
    ),
)
def random_normal(
    shape: ShapeLike,
    seed: NodeLike,
    stream: int = 0,
    mean: float = 0.0,
    scale: float = 1.0,
    dtype: DTypeLike = "f32",
) -> Array:
    """Normal random numbers, the same bits on every device; |z| reaches 6.2.

    The quantile function is tabulated with 256 points an octave of the tail and interpolated in
    integers; an error of z is below 2e-6.

    Args:
        shape: Shape of the result.
        seed: 0 to 2^64 - 1, or an integer node for numbers that change from run to run.
        stream: Different streams of one seed are independent.
        mean: Mean.
        scale: Standard deviation.
        dtype: dtype of the result.
    """
    return random.reference(_key(seed), shape, stream, "normal") * scale + mean


# --- sampling ------------------------------------------------------------------------------------------


def _sample(
    g: Graph, logits: Node, seed: Any, temperature: float, top_k: int, top_p: float, stream: int
) -> Node:
    if (
        not logits.shape
        or logits.shape[-1] == 0
        or temperature < 0
        or top_k < 0
        or not 0 < top_p <= 1
    ):
        raise GraphError(
            "[sample] does not fit",
            got=f"logits {logits.shape}, temperature {temperature}, k {top_k}, p {top_p}",
            expected="[..., tokens >= 1], temperature >= 0, top_k >= 0, 0 < top_p <= 1",
        )
    if temperature == 0:
        return g.argmax(logits, -1)
    tokens = logits.shape[-1]
    x = g.div(logits, float(temperature))
    if 0 < top_k < tokens:
        kth = g.narrow(g.topk(x, top_k)[0], -1, top_k - 1, 1)
        x = g.where(g.ge(x, kth), x, _LEAST)
    p = g.softmax(x, -1)
    if top_p < 1:
        falling = g.sort(p, -1, True)
        # A token is kept while those before it do not yet make up top_p.
        retained = g.lt(g.cumsum(falling, -1, True), float(top_p))
        least = g.min(g.where(retained, falling, 2.0), [-1], True)
        p = g.where(g.ge(p, least), p, 0.0)
    total = g.cumsum(p, -1)
    u = g.cast(_numbers(g, "uniform", (*logits.shape[:-1], 1), seed, stream), logits.dtype)
    level = g.mul(u, g.narrow(total, -1, tokens - 1, 1))
    return g.minimum(g.sum(g.cast(g.le(total, level), DType.I32), [-1]), tokens - 1)


# exp of it is 0 in every float type.
_LEAST = -1e30


@composite(
    _sample,
    dtypes=FLOAT_KERNELS,
    samples=lambda: tuple(
        Sample((shape,), {"seed": 5, **attrs}, (DType.F32,), low=-3, high=3)
        for shape in ((4, 50), (1, 1), (0, 8), (7,))
        for attrs in ({}, {"temperature": 0.0}, {"temperature": 0.7, "top_k": 5},
                      {"top_p": 0.8, "stream": 3}, {"top_k": 10, "top_p": 0.5})
    ),
)  # fmt: skip
def sample(
    logits: Array,
    seed: NodeLike,
    temperature: float = 1.0,
    top_k: int = 0,
    top_p: float = 1.0,
    stream: int = 0,
) -> Array:
    """A token drawn for every row of logits, in i32.

    Args:
        logits: ``[..., tokens]``.
        seed: As in ``random_uniform``.
        temperature: Divides the logits; 0 takes the largest.
        top_k: Keep the k most likely tokens and those as likely as the k-th; 0 keeps all.
        top_p: Keep the most likely tokens that together reach this probability.
        stream: As in ``random_uniform``.
    """
    if temperature == 0:
        return np.argmax(logits, -1)
    x = logits / temperature
    tokens = x.shape[-1]
    if 0 < top_k < tokens:
        kth = np.sort(x, -1)[..., ::-1][..., top_k - 1 : top_k]
        x = np.where(x >= kth, x, _LEAST)
    p = np.exp(x - x.max(-1, keepdims=True))
    p = p / p.sum(-1, keepdims=True)
    if top_p < 1:
        falling = np.sort(p, -1)[..., ::-1]
        before = np.cumsum(falling, -1) - falling
        least = np.where(before < top_p, falling, 2.0).min(-1, keepdims=True)
        p = np.where(p >= least, p, 0.0)
    total = np.cumsum(p, -1)
    u = random.reference(_key(seed), (*logits.shape[:-1], 1), stream, "uniform")
    return np.minimum(np.sum(total <= u * total[..., -1:], -1), tokens - 1)
