"""The decoder's graphs: a prompt in one go, and one token with the keys and values of those before."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

import rlx
from llama.settings import LlamaSettings
from rlx import ImportModelError, InputError
from rlx.errors import did_you_mean

# The score of a position that is masked; its exponential is 0.
_HIDDEN = np.float32(-1e9)
# A layer's number, queries, keys and values to its result and what is held of it.
_Attend = Callable[[int, rlx.Node, rlx.Node, rlx.Node], tuple[rlx.Node, list[rlx.Node]]]


class LlamaNetwork:
    """Builds graphs whose params are the tensors of a file, packed as they are.

    Args:
        file: A GGUF file of the llama architecture.
        context: Tokens that the keys and values have room for; None for what the model was made for.
        most: What None is at most.

    Raises:
        ImportModelError: The file is of another architecture, or tensors are missing or do not fit.
        InputError: ``context`` is below 1.
    """

    def __init__(self, file: rlx.gguf.File, context: int | None, most: int) -> None:
        self.settings = LlamaSettings.read(file.metadata)
        self.context = min(self.settings.context, most) if context is None else context
        if self.context < 1:
            raise InputError("context", got=context, expected="1 or above")
        self._tensors = file.tensors
        table = self._tensor("token_embd.weight")
        self.vocabulary = table.shape[0] if table.shape else 0
        # Sizes that a matrix of the file has are no larger than the file.
        s = self.settings
        self._check(self._tensor("blk.0.attn_q.weight"), (s.heads * s.key, s.width))
        factors = file.tensors.get("rope_freqs.weight")
        divisors = None if factors is None else factors.dequantized()
        self._angles = self.settings.angles(self.context, divisors)

    def prompt(self, length: int) -> rlx.Graph:
        """A prompt of up to ``length`` tokens.

        Returns:
            A graph. In: "tokens" i32 ``[length]``, whose end is padding, and "last" i32 ``[1]``, the
            place of the last token. Out: its logits ``[1, vocabulary]``, then keys and values of each
            layer ``[1, kv_heads, length, size]``. Padding follows the text, so nothing sees it.
        """
        g = rlx.Graph(f"prompt of {length}")
        tokens, last = g.input("tokens", (length,), "i32"), g.input("last", (1,), "i32")
        angles = [g.constant(table[:length]) for table in self._angles]

        def attend(
            index: int, q: rlx.Node, k: rlx.Node, v: rlx.Node
        ) -> tuple[rlx.Node, list[rlx.Node]]:
            return g.attention(q, k, v, kind="causal"), [k, v]

        x, stored = self._layers(g, tokens, angles, attend)
        g.set_outputs([self._logits(g, g.gather(x, last, axis=0)), *stored])
        return g

    def step(self) -> rlx.Graph:
        """One token.

        Returns:
            A graph. In: "token" i32 ``[1]``, "position" i32 ``[1]``, then "k0", "v0", "k1" ... f32
            ``[1, kv_heads, context, size]``. Out: the logits ``[1, vocabulary]``, then the same keys and
            values with those of this token written at its position.
        """
        g, s = rlx.Graph("step"), self.settings
        token, position = g.input("token", (1,), "i32"), g.input("position", (1,), "i32")
        angles = [g.gather(g.constant(table), position, axis=0) for table in self._angles]
        places = g.arange(self.context)
        here = g.reshape(g.eq(places, position), (1, 1, self.context, 1))
        ahead = g.where(g.gt(places, position), _HIDDEN, np.float32(0))
        ahead = g.reshape(ahead, (1, 1, 1, self.context))

        def attend(
            index: int, q: rlx.Node, k: rlx.Node, v: rlx.Node
        ) -> tuple[rlx.Node, list[rlx.Node]]:
            stored = []
            for name, new, size in (("k", k, s.key), ("v", v, s.value)):
                cache = g.input(f"{name}{index}", (1, s.kv_heads, self.context, size))
                stored.append(g.where(here, new, cache))
            return g.attention(q, stored[0], stored[1], ahead, kind="bias"), stored

        x, stored = self._layers(g, token, angles, attend)
        g.set_outputs([self._logits(g, x), *stored])
        return g

    def _layers(
        self, g: rlx.Graph, tokens: rlx.Node, angles: Sequence[rlx.Node], attend: _Attend
    ) -> tuple[rlx.Node, list[rlx.Node]]:
        """The vectors behind the last layer, and what ``attend`` holds of each."""
        s, length = self.settings, tokens.shape[0]
        cos, sin = angles

        def split(x: rlx.Node, heads: int, size: int) -> rlx.Node:
            return g.transpose(g.reshape(x, (1, length, heads, size)), (0, 2, 1, 3))

        x, stored = self._embed(g, tokens), []
        for index in range(s.layers):
            blk = f"blk.{index}"
            h = self._norm(g, x, f"{blk}.attn_norm")
            q = split(self._product(g, h, f"{blk}.attn_q", s.heads * s.key), s.heads, s.key)
            k = split(self._product(g, h, f"{blk}.attn_k", s.kv_heads * s.key), s.kv_heads, s.key)
            v = self._product(g, h, f"{blk}.attn_v", s.kv_heads * s.value)
            # Files have the rows of q and k in such an order that neighbours are a pair.
            q, k = (g.rope(item, cos, sin, s.rotary, "gptj") for item in (q, k))
            y, caches = attend(index, q, k, split(v, s.kv_heads, s.value))
            stored += caches
            y = g.reshape(g.transpose(y, (0, 2, 1, 3)), (length, s.heads * s.value))
            x = x + self._product(g, y, f"{blk}.attn_output", s.width)
            h = self._norm(g, x, f"{blk}.ffn_norm")
            gate = g.silu(self._product(g, h, f"{blk}.ffn_gate"))
            inner = gate * self._product(g, h, f"{blk}.ffn_up", gate.shape[-1])
            x = x + self._product(g, inner, f"{blk}.ffn_down", s.width)
        return x, stored

    def _logits(self, g: rlx.Graph, x: rlx.Node) -> rlx.Node:
        # Where the file has no output matrix, it is the table of the tokens' vectors.
        name = "output" if "output.weight" in self._tensors else "token_embd"
        return self._product(g, self._norm(g, x, "output_norm"), name, self.vocabulary)

    # --- weights -----------------------------------------------------------------------------------

    def _embed(self, g: rlx.Graph, tokens: rlx.Node) -> rlx.Node:
        tensor = self._tensor("token_embd.weight")
        self._check(tensor, (self.vocabulary, self.settings.width))
        table = self._param(g, tensor)
        if tensor.dtype is None:
            return g.dequantize_blocks(table, tensor.type, rows=tokens)
        return g.cast(g.gather(table, tokens, axis=0), "f32")

    def _norm(self, g: rlx.Graph, x: rlx.Node, name: str) -> rlx.Node:
        tensor = self._tensor(f"{name}.weight")
        self._check(tensor, (self.settings.width,))
        weight = g.param(tensor.name, tensor.shape, value=tensor.dequantized())
        return g.rms_norm(x, weight, self.settings.eps)

    def _product(self, g: rlx.Graph, x: rlx.Node, name: str, size: int | None = None) -> rlx.Node:
        """X times a matrix of the file, plus its bias where it has one.

        Matrices in blocks stay packed: the kernel decodes them as it multiplies.
        """
        tensor = self._tensor(f"{name}.weight")
        first = tensor.shape[0] if tensor.shape else 0
        rows = first if size is None else size
        self._check(tensor, (rows, x.shape[-1]))
        w = self._param(g, tensor)
        if tensor.dtype is None:
            y = g.dequant_matmul(x, w, tensor.type)
        else:
            y = x @ g.transpose(w if tensor.type == "F32" else g.cast(w, "f32"))
        bias = self._tensors.get(f"{name}.bias")
        if bias is not None:
            self._check(bias, (rows,))
            y = y + g.param(bias.name, bias.shape, value=bias.dequantized())
        return y

    def _param(self, g: rlx.Graph, tensor: rlx.gguf.Tensor) -> rlx.Node:
        if tensor.name in g.param_names:  # the table of the tokens' vectors, used twice
            return g.named(tensor.name)
        if tensor.dtype is None:
            return g.param(tensor.name, tensor.packed.shape, "u8", tensor.packed)
        return g.param(tensor.name, tensor.shape, tensor.dtype, tensor.array())

    def _tensor(self, name: str) -> rlx.gguf.Tensor:
        if name not in self._tensors:
            hint = did_you_mean(name, self._tensors) if len(self._tensors) < 50 else None
            raise ImportModelError(f"the file has no tensor {name!r}", hint=hint)
        return self._tensors[name]

    @staticmethod
    def _check(tensor: rlx.gguf.Tensor, shape: tuple[int, ...]) -> None:
        floats = tensor.dtype is None or tensor.dtype.is_float
        if tensor.shape != shape or not floats:
            got = f"{tensor.type} {tensor.shape}"
            raise ImportModelError(f"tensor {tensor.name!r} does not fit", got=got, expected=shape)
