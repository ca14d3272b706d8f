"""The work of benchmarks/xla.py: as a graph of rlx, in jax.numpy and in PyTorch."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

import rlx
from rlx.dataclasses import dataclass


@dataclass(frozen=True)
class XlaWorkload:
    """Some work.

    Attributes:
        name: What the table calls it.
        make: Makes its parts from the sizes.
        sizes: The sizes that are measured.
        few: Sizes for a processor.
        precision: The public precision.
    """

    name: str
    make: Callable[..., Parts]
    sizes: tuple[Any, ...]
    few: tuple[Any, ...]
    precision: str = "f32"

    @functools.cached_property
    def parts(self) -> Parts:
        """The parts at these sizes."""
        return self.make(*self.sizes)

    def graph(self) -> rlx.Graph:
        """A graph whose first output is the result."""
        return self.parts.graph()

    def operands(self) -> dict[str, np.ndarray]:
        """Values of its inputs."""
        return self.parts.operands

    def weights(self) -> dict[str, np.ndarray]:
        """Values of its params."""
        return self.parts.weights

    def jax(self, jnp: Any, **stored: Any) -> Any:
        """The result by JAX."""
        return self.parts.jax(jnp, **stored)

    def torch(self, torch: Any, **stored: Any) -> Any:
        """The result by PyTorch."""
        return self.parts.torch(torch, **stored)

    @property
    def flops(self) -> float:
        """Floating-point operations."""
        return self.parts.flops


@dataclass(frozen=True)
class Parts:
    """One work at some sizes; see ``XlaWorkload``."""

    graph: Callable[[], rlx.Graph]
    operands: dict[str, np.ndarray]
    weights: dict[str, np.ndarray]
    jax: Callable[..., Any]
    torch: Callable[..., Any]
    flops: float


def _random(*shape: int, dtype: str = "f32", scale: float = 1.0) -> np.ndarray:
    rng = np.random.default_rng(sum(shape))
    return (rng.standard_normal(shape) * scale).astype(
        {"f32": np.float32, "f16": np.float16}[dtype]
    )


def _graph(
    operands: dict[str, np.ndarray], weights: dict[str, np.ndarray], write: Callable[..., Any]
) -> rlx.Graph:
    g = rlx.Graph("work")
    nodes = {name: g.input(name, array.shape, array.dtype) for name, array in operands.items()}
    nodes |= {name: g.param(name, array.shape, array.dtype) for name, array in weights.items()}
    g.set_outputs([write(g, **nodes)])
    return g


def _product(n: int, dtype: str) -> Parts:
    operands = {
        "a": _random(n, n, dtype=dtype, scale=0.1),
        "b": _random(n, n, dtype=dtype, scale=0.1),
    }
    return Parts(
        lambda: _graph(operands, {}, lambda g, a, b: a @ b),
        operands,
        {},
        lambda jnp, a, b: a @ b,
        lambda torch, a, b: a @ b,
        2.0 * n**3,
    )


def _attend(jax: Any, q: Any, k: Any, v: Any, **more: Any) -> Any:
    """JAX's attention as its users get the most out of it: cuDNN for 16 bits; JAX's CPU has no such products."""
    narrow, gpu = q.dtype.itemsize == 2, jax.default_backend() == "gpu"
    if narrow and not gpu:
        result = jax.nn.dot_product_attention(
            *(item.astype("float32") for item in (q, k, v)), **more
        )
        return result.astype(q.dtype)
    how = "cudnn" if narrow else "xla"
    return jax.nn.dot_product_attention(q, k, v, implementation=how, **more)


def _attention(batch: int, heads: int, sequence: int, size: int, dtype: str) -> Parts:
    shape = (batch, heads, sequence, size)
    operands = {name: _random(*shape, dtype=dtype, scale=0.5) for name in "qkv"}

    def in_jax(jnp: Any, q: Any, k: Any, v: Any) -> Any:
        import jax

        q, k, v = (jnp.swapaxes(item, 1, 2) for item in (q, k, v))
        return jnp.swapaxes(_attend(jax, q, k, v, is_causal=True), 1, 2)

    def in_torch(torch: Any, q: Any, k: Any, v: Any) -> Any:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)

    def write(g: Any, q: Any, k: Any, v: Any) -> Any:
        return g.attention(q, k, v, kind="causal", num_heads=heads, head_dim=size)

    flops = 2.0 * batch * heads * sequence**2 * size
    return Parts(lambda: _graph(operands, {}, write), operands, {}, in_jax, in_torch, flops)


def _convolution(batch: int, channels: int, size: int, dtype: str) -> Parts:
    operands = {"x": _random(batch, channels, size, size, dtype=dtype)}
    weights = {"w": _random(channels, channels, 3, 3, dtype=dtype, scale=0.05)}

    def in_jax(jnp: Any, x: Any, w: Any) -> Any:
        from jax import lax

        return lax.conv_general_dilated(x, w, (1, 1), [(1, 1), (1, 1)])

    def in_torch(torch: Any, x: Any, w: Any) -> Any:
        return torch.nn.functional.conv2d(x, w, padding=1)

    def write(g: Any, x: Any, w: Any) -> Any:
        return g.conv2d(x, w, padding=1)

    flops = 2.0 * batch * channels * channels * 9 * size * size
    return Parts(
        lambda: _graph(operands, weights, write), operands, weights, in_jax, in_torch, flops
    )


def _fft(rows: int, size: int) -> Parts:
    operands = {"x": _random(rows, 2 * size)}

    def in_jax(jnp: Any, x: Any) -> Any:
        y = jnp.fft.fft(x[:, :size] + 1j * x[:, size:])
        return jnp.concatenate([y.real, y.imag], -1)

    def in_torch(torch: Any, x: Any) -> Any:
        y = torch.fft.fft(torch.complex(x[:, :size], x[:, size:]))
        return torch.cat([y.real, y.imag], -1)

    flops = 5.0 * rows * size * math.log2(size)
    return Parts(
        lambda: _graph(operands, {}, lambda g, x: g.fft(x)), operands, {}, in_jax, in_torch, flops
    )


# Of all-MiniLM-L6: width, heads, width of the inner product. Layers are a size of the work.
_WIDTH, _HEADS, _INNER = 384, 12, 1536


def _encoder_weights(layers: int, dtype: str) -> dict[str, np.ndarray]:
    shapes = {
        "qkv": (_WIDTH, 3 * _WIDTH),
        "out": (_WIDTH, _WIDTH),
        "up": (_WIDTH, _INNER),
        "down": (_INNER, _WIDTH),
    }
    results = {}
    for layer in range(layers):
        for name, shape in shapes.items():
            results[f"{name}{layer}"] = _random(*shape, dtype=dtype, scale=1 / math.sqrt(shape[0]))
            results[f"{name}_b{layer}"] = _random(shape[1], dtype=dtype, scale=0.02)
        for name in ("one", "two"):
            results[f"{name}{layer}"] = np.ones(_WIDTH, results[f"out{layer}"].dtype)
            results[f"{name}_b{layer}"] = np.zeros(_WIDTH, results[f"out{layer}"].dtype)
    return results


def _encoder(layers: int, batch: int, sequence: int, dtype: str) -> Parts:
    operands = {"x": _random(batch, sequence, _WIDTH, dtype=dtype)}
    weights = _encoder_weights(layers, dtype)
    size = _WIDTH // _HEADS

    def write(g: Any, x: Any, **w: Any) -> Any:
        for i in range(layers):
            q, k, v = g.split(x @ w[f"qkv{i}"] + w[f"qkv_b{i}"], [_WIDTH] * 3, -1)
            y = (
                g.attention(q, k, v, num_heads=_HEADS, head_dim=size) @ w[f"out{i}"]
                + w[f"out_b{i}"]
            )
            x = g.layer_norm(x + y, w[f"one{i}"], w[f"one_b{i}"])
            y = g.gelu(x @ w[f"up{i}"] + w[f"up_b{i}"]) @ w[f"down{i}"] + w[f"down_b{i}"]
            x = g.layer_norm(x + y, w[f"two{i}"], w[f"two_b{i}"])
        return x

    def in_jax(jnp: Any, x: Any, **w: Any) -> Any:
        import jax

        def norm(x: Any, scale: Any, bias: Any) -> Any:
            wide = x.astype(jnp.float32)
            centred = wide - wide.mean(-1, keepdims=True)
            y = centred * jax.lax.rsqrt((centred**2).mean(-1, keepdims=True) + 1e-5)
            return (y * scale + bias).astype(x.dtype)

        for i in range(layers):
            parts = jnp.split(x @ w[f"qkv{i}"] + w[f"qkv_b{i}"], 3, -1)
            q, k, v = (part.reshape(batch, sequence, _HEADS, size) for part in parts)
            y = _attend(jax, q, k, v).reshape(batch, sequence, _WIDTH)
            x = norm(x + y @ w[f"out{i}"] + w[f"out_b{i}"], w[f"one{i}"], w[f"one_b{i}"])
            y = jax.nn.gelu(x @ w[f"up{i}"] + w[f"up_b{i}"], approximate=False)
            x = norm(
                x + y @ w[f"down{i}"] + w[f"down_b{i}"],
                w[f"two{i}"],
                w[f"two_b{i}"],
            )
        return x

    def in_torch(torch: Any, x: Any, **w: Any) -> Any:
        f = torch.nn.functional
        for i in range(layers):
            parts = torch.addmm(w[f"qkv_b{i}"], x.reshape(-1, _WIDTH), w[f"qkv{i}"])
            q, k, v = parts.reshape(batch, sequence, 3, _HEADS, size).permute(2, 0, 3, 1, 4)
            y = (
                f.scaled_dot_product_attention(q, k, v)
                .transpose(1, 2)
                .reshape(batch, sequence, _WIDTH)
            )
            y = y @ w[f"out{i}"] + w[f"out_b{i}"]
            x = f.layer_norm(x + y, (_WIDTH,), w[f"one{i}"], w[f"one_b{i}"])
            y = f.gelu(x @ w[f"up{i}"] + w[f"up_b{i}"]) @ w[f"down{i}"] + w[f"down_b{i}"]
            x = f.layer_norm(x + y, (_WIDTH,), w[f"two{i}"], w[f"two_b{i}"])
        return x

    per_token = 2.0 * (4 * _WIDTH * _WIDTH + 2 * _WIDTH * _INNER) + 4.0 * sequence * _WIDTH
    flops = layers * batch * sequence * per_token
    return Parts(
        lambda: _graph(operands, weights, write), operands, weights, in_jax, in_torch, flops
    )


WORK: Sequence[XlaWorkload] = (
    XlaWorkload("product f16 4096", _product, (4096, "f16"), (256, "f16")),
    XlaWorkload("product f16 8192", _product, (8192, "f16"), (320, "f16")),
    XlaWorkload("product f32 4096", _product, (4096, "f32"), (256, "f32")),
    XlaWorkload("product f32 4096", _product, (4096, "f32"), (256, "f32"), "tf32"),
    XlaWorkload("product f32 8192", _product, (8192, "f32"), (320, "f32"), "tf32"),
    XlaWorkload(
        "attention f16 causal", _attention, (4, 16, 2048, 64, "f16"), (1, 2, 128, 32, "f16")
    ),
    XlaWorkload(
        "attention f32 causal", _attention, (4, 16, 1024, 64, "f32"), (1, 2, 128, 32, "f32")
    ),
    XlaWorkload("convolution f16", _convolution, (16, 128, 56, "f16"), (1, 16, 28, "f16")),
    XlaWorkload("convolution f32", _convolution, (16, 128, 56, "f32"), (1, 16, 28, "f32")),
    XlaWorkload("fft 64 x 65536", _fft, (64, 65536), (4, 4096)),
    XlaWorkload("fft 64 x 48000", _fft, (64, 48000), (4, 3000)),
    XlaWorkload("MiniLM 1 x 128 f32", _encoder, (6, 1, 128, "f32"), (2, 1, 32, "f32")),
    XlaWorkload("MiniLM 1 x 128 f16", _encoder, (6, 1, 128, "f16"), (2, 1, 32, "f16")),
    XlaWorkload("MiniLM 32 x 128 f32", _encoder, (6, 32, 128, "f32"), (1, 2, 32, "f32")),
    XlaWorkload("MiniLM 32 x 128 f32", _encoder, (6, 32, 128, "f32"), (1, 2, 32, "f32"), "tf32"),
    XlaWorkload("MiniLM 32 x 128 f16", _encoder, (6, 32, 128, "f16"), (1, 2, 32, "f16")),
)


def small(work: Sequence[XlaWorkload]) -> list[XlaWorkload]:
    """The same work at sizes for a processor; XLA has no TF32 there."""
    return [replace(item, sizes=item.few, precision="f32") for item in work]
