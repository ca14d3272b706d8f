"""The decoder's graph: some tokens behind those that were read before."""

from __future__ import annotations

import rlx
from llama.settings import LlamaSettings
from rlx import ImportModelError, InputError
from rlx.errors import did_you_mean


class LlamaNetwork:
    """Builds a graph whose params are the tensors of a file, packed as they are.

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

    def graph(self) -> rlx.Graph:
        """Any number of tokens behind those that were read before: a prompt, or one step.

        Returns:
            A graph. In: "tokens" i32 ``[count]``, "position" i64, the number of tokens before them, then the states
            "k0", "v0", "k1" ... f32 ``[context, kv_heads, size]``: the keys and values of the tokens so far, to which it
            adds those of these tokens. Out: the logits of the next token, ``[1, vocabulary]``.
        """
        g, s = rlx.Graph("llama"), self.settings
        count = rlx.Dim("count", min=1, max=self.context)
        tokens = g.input("tokens", (count,), "i32")
        position = g.read_size(
            g.input("position", (), "i64"), max=self.context - count, name="position"
        )
        cos, sin = (
            g.unsqueeze(g.narrow(g.constant(table), 0, position, count), 1)
            for table in self._angles
        )

        def filled(name: str, new: rlx.Node) -> rlx.Node:
            state = g.input(name, (self.context, *new.shape[1:]))
            read = g.narrow(g.update(state, new, position), 0, 0, position + count)
            return g.unsqueeze(read, 0)

        x = self._embed(g, tokens)
        for index in range(s.layers):
            blk = f"blk.{index}"
            h = self._norm(g, x, f"{blk}.attn_norm")
            q, k, v = (
                g.reshape(self._product(g, h, f"{blk}.attn_{name}", n * size), (count, n, size))
                for name, n, size in (
                    ("q", s.heads, s.key), ("k", s.kv_heads, s.key), ("v", s.kv_heads, s.value)
                )
            )  # fmt: skip
            # Files have the rows of q and k in such an order that neighbours are a pair.
            q, k = (g.rope(item, cos, sin, s.rotary, "gptj") for item in (q, k))
            keys, values = filled(f"k{index}", k), filled(f"v{index}", v)
            y = g.attention(g.unsqueeze(q, 0), keys, values, kind="causal", layout="bshd")
            y = g.reshape(y, (count, s.heads * s.value))
            x = x + self._product(g, y, f"{blk}.attn_output", s.width)
            h = self._norm(g, x, f"{blk}.ffn_norm")
            gate = g.silu(self._product(g, h, f"{blk}.ffn_gate"))
            inner = gate * self._product(g, h, f"{blk}.ffn_up", gate.shape[-1])
            x = x + self._product(g, inner, f"{blk}.ffn_down", s.width)
        g.set_outputs([self._logits(g, g.narrow(x, 0, count - 1, 1))])
        return g

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
