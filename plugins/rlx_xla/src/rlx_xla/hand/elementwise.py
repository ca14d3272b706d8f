"""The error function, and random numbers whose bits are those of every device."""

from __future__ import annotations

import math
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.ops.elementwise.random import RESULT_BITS, normal_table
from rlx_xla.values import XlaTracedArray, arithmetic, lifted

_SEGMENTS, _TABLE_BITS, _FRACTION_BITS = 256, 26, 13


def erf(x: Any) -> XlaTracedArray:
    """The error function, which NumPy lacks."""
    return XlaTracedArray(lax.erf(lifted(x)))


def sigmoid(x: Any) -> XlaTracedArray:
    """1 / (1 + exp(-x)), also where that is next to nothing."""
    return XlaTracedArray(lax.logistic(lifted(x)))


def gelu(x: Any) -> XlaTracedArray:
    """x/2 erfc(-x / sqrt 2): 1 + erf would lose the digits of large negative numbers in f32."""
    wide = lifted(x)
    return XlaTracedArray(0.5 * wide * lax.erfc(-wide * math.sqrt(0.5)))


def gelu_approx(x: Any) -> XlaTracedArray:
    """X times a sigmoid, which is (1 + tanh) / 2 without its cancellation."""
    wide = lifted(x)
    return XlaTracedArray(
        wide * lax.logistic(math.sqrt(8.0 / math.pi) * (wide + 0.044715 * wide**3))
    )


def _philox(seed: Any, stream: int, blocks: int) -> Any:
    """u32 words of a Philox stream from its start."""
    words = jnp.atleast_1d(seed).astype(jnp.uint32)
    key = [words[0], words[1] if words.shape[0] == 2 else jnp.uint32(0)]
    zero = jnp.zeros(blocks, jnp.uint32)
    c = [jnp.arange(blocks, dtype=jnp.uint32), zero, jnp.full(blocks, stream, jnp.uint32), zero]

    def product(a: Any, factor: int) -> tuple[Any, Any]:
        wide = a.astype(jnp.uint64) * jnp.uint64(factor)
        return (wide >> jnp.uint64(32)).astype(jnp.uint32), wide.astype(jnp.uint32)

    for _ in range(10):
        (high0, low0), (high2, low2) = product(c[0], 0xD2511F53), product(c[2], 0xCD9E8D57)
        c = [high2 ^ c[1] ^ key[0], low2, high0 ^ c[3] ^ key[1], low0]
        key = [key[0] + jnp.uint32(0x9E3779B9), key[1] + jnp.uint32(0xBB67AE85)]
    return jnp.stack(c, -1).reshape(-1)


def _normal(bits: Any) -> Any:
    """Normal numbers by a table, in whole numbers up to the last step."""
    u = jnp.maximum(bits >> jnp.uint32(1), jnp.uint32(1))
    octave = lax.clz(u).astype(jnp.int32) - 1
    rest = ((u << octave.astype(jnp.uint32)) & jnp.uint32(2**30 - 1)).astype(jnp.int32)
    position = octave * (_SEGMENTS + 1) + (rest >> 22)
    table = jnp.asarray(normal_table().astype(np.int64))
    fraction = ((rest >> (22 - _FRACTION_BITS)) & (2**_FRACTION_BITS - 1)).astype(jnp.int64)
    fine = table[position] - (
        ((table[position] - table[position + 1]) * fraction) >> _FRACTION_BITS
    )
    drop = _TABLE_BITS - RESULT_BITS
    z = ((fine + (1 << (drop - 1))) >> drop).astype(arithmetic().real) * np.float32(
        2.0**-RESULT_BITS
    )
    return jnp.where(bits & jnp.uint32(1), -z, z)


def random(seed: Any, shape: Any, stream: int, kind: str) -> XlaTracedArray:
    """Words of a Philox stream, or numbers made of them."""
    size = math.prod(shape)
    bits = _philox(jnp.asarray(lifted(seed)), stream, -(-size // 4))[:size].reshape(shape)
    if kind == "bits":
        return XlaTracedArray(bits)
    uniform = (bits >> jnp.uint32(8)).astype(arithmetic().real) * np.float32(2.0**-24)
    return XlaTracedArray(uniform if kind == "uniform" else _normal(bits))


INSTEAD = {
    "rlx.ops.elementwise.table.erf": erf,
    "rlx.ops.elementwise.table._sigmoid": sigmoid,
}
RECORDS = {"random": random, "gelu": gelu, "gelu_approx": gelu_approx}
