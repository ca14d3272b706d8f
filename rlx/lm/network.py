"""The graphs of a model: one reads prompts and makes steps, the other turns whole texts into vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import numpy as np

from rlx.errors import ImportModelError, InputError
from rlx.importers.gguf import File
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node
from rlx.ir.opdef import Array, TensorType
from rlx.ir.shape import size
from rlx.lm.config import ModelConfig
from rlx.lm.rope import Rope
from rlx.lm.tensor_params import TensorParams, tensor_of
from rlx.lm.token_sampling import RECENT
from rlx.ops.block_formats import FORMATS
from rlx.ops.selection.draw_token import CANDIDATES, SETTINGS
from rlx.sizes.dim import Dim
from rlx.sizes.expressions import SizeExpr

# The type of keys and values in the memory of a conversation; the numbers and the bytes of a block of "q8_0".
CacheDType = Literal["f16", "f32", "q8_0"]
_BLOCK, _NBYTES = FORMATS["Q8_0"].weights, FORMATS["Q8_0"].nbytes
# Turns queries, keys and values ``[*lead, heads, size]`` of a layer into its result of the same lead.
_Attend = Callable[[int, Node, Node, Node], Node]


class Network:
    """Builds graphs whose params are the tensors of a file, packed as they are.

    Args:
        file: The file.
        cache_dtype: The type of keys and values in the cache: "f16", "f32", or "q8_0", which is 8 bits and a scale for
            every 32 numbers.

    Attributes:
        config: The sizes of the model.
        vocabulary: Rows of the table of tokens.
        cache_dtype: The type of keys and values in the cache.

    Raises:
        ImportModelError: The architecture is not known, tensors are missing or do not fit, or a value makes no sense.
        InputError: Heads do not consist of blocks of 32 numbers, as "q8_0" needs.
    """

    config: ModelConfig
    vocabulary: int
    cache_dtype: CacheDType

    def __init__(self, file: File, cache_dtype: CacheDType = "f16") -> None:
        self.config = ModelConfig.read(file.metadata, file.tensors)
        self._tensors, self.cache_dtype = file.tensors, cache_dtype
        table = tensor_of(file.tensors, "token_embd.weight")
        self.vocabulary = table.shape[0] if table.shape else 0
        c = self.config
        if cache_dtype == "q8_0" and c.writes and (c.key % _BLOCK or c.value % _BLOCK):
            got = f"keys of {c.key} and values of {c.value} numbers"
            what, expected = "cache_dtype 'q8_0' does not fit the model", f"multiples of {_BLOCK}"
            raise InputError(what, got=got, expected=expected, hint="'f16' does")

    def states(self, context: int) -> dict[str, TensorType]:
        """Returns the types of keys and values of each layer, in the order of the decoder's inputs.

        Args:
            context: Tokens that there is room for.
        """
        c, packed = self.config, self.cache_dtype == "q8_0"
        dtype = DType.U8 if packed else DType.parse(self.cache_dtype)
        sizes = {
            n: s // _BLOCK * _NBYTES if packed else s for n, s in (("k", c.key), ("v", c.value))
        }
        types = {n: TensorType((context, c.kv_heads, s), dtype) for n, s in sizes.items()}
        return {f"{name}{i}": type for i in range(c.layers) for name, type in types.items()}

    def decoder(self, context: int, chunk: int) -> Graph:
        """Returns the graph of some tokens behind those that were read before: a part of a prompt, or one step.

        In: "tokens" i32 ``[count]``, of which -1 stands for the one that the last run drew; "position" i64, the number of
        tokens before them; "wanted" i64, the number of last tokens whose logits are wanted; "settings" f32, how the next
        token is drawn (``Sampling.settings``); then the states: "drawn" i32 ``[1 + context]``, the token that the last run
        drew and room for those that a run is given, and "k0", "v0", "k1" ... of the types of ``states``, the keys and
        values so far, to which a run adds those of its tokens. Out: logits, ``[wanted, vocabulary]``, and the next token,
        i32 ``[1]``.

        Args:
            context: Tokens that the states have room for.
            chunk: Most tokens of a run; kernels for many tokens are chosen for so many.
        """
        g = Graph(f"{self.config.architecture.name} decoder")
        chunk = min(chunk, context)
        g.first_hints = {"count": chunk, "wanted": 1}
        count = Dim("count", min=1, max=chunk)
        tokens = g.input("tokens", (count,), "i32")
        before, last = g.input("position", (), "i64"), g.input("wanted", (), "i64")
        settings = g.input("settings", (SETTINGS + RECENT,), "f32")
        drawn = g.update(g.input("drawn", (1 + context,), "i32"), tokens, 1)
        tokens = g.where(g.lt(tokens, np.int32(0)), g.narrow(drawn, 0, 0, 1), tokens)
        position = g.read_size(before, max=context - count, name="position")
        # A dim of its own: memory for the logits of few tokens is a hundredth of that for a chunk's.
        wanted = g.read_size(last, max=count, min=1, name="wanted")
        types, packed = self.states(context), self.cache_dtype == "q8_0"

        def filled(name: str, new: Node) -> Node:
            state = g.input(name, types[name].shape, types[name].dtype)
            rows = g.add_node("quantize_q8_0", [new]) if packed else g.cast(new, state.dtype)
            state = g.narrow(g.update(state, rows, position), 0, 0, position + count)
            state = g.unsqueeze(state, 0)
            return g.dequantize_blocks(state, "Q8_0") if packed else g.cast(state, "f32")

        def attend(index: int, q: Node, k: Node, v: Node) -> Node:
            keys, values = filled(f"k{index}", k), filled(f"v{index}", v)
            return g.squeeze(self._attention(g, index, g.unsqueeze(q, 0), keys, values), 0)

        angles = self._angles(g, context, position, count)
        weights = TensorParams(g, self._tensors)
        x = self._blocks(weights, g, self._embed(weights, g, tokens), angles, attend)
        x = self._norm(weights, g, g.narrow(x, 0, count - wanted, wanted), "output_norm")
        # Where the file has no output matrix, it is the table of the tokens' vectors.
        name = "output" if weights.has("output") else "token_embd"
        logits = weights.product(x, name, self.vocabulary)
        if self.config.logit_scale != 1:
            logits = logits * (1 / self.config.logit_scale)
        if self.config.logit_cap:
            logits = g.tanh(logits * (1 / self.config.logit_cap)) * self.config.logit_cap
        best = min(CANDIDATES, self.vocabulary)
        attrs = {"all": best == self.vocabulary}
        token = g.add_node("draw_token", [*g.topk(logits, best), tokens, settings], attrs)
        g.update(drawn, token, 0)
        g.set_outputs([logits, token])
        return g

    def encoder(self, longest: int, most: int) -> Graph:
        """Returns the graph of whole texts, which are padded at their ends.

        In: "tokens" i32 ``[texts, length]``; "pooling" f32 ``[texts, length]``, the weight of each token in the vector of
        its text; and for networks whose tokens see those behind them "seen" bool ``[texts, length]``, False for padding.
        Out: vectors of length 1, f32 ``[texts, width]``.

        Args:
            longest: Most tokens of a text.
            most: Most texts of a run.
        """
        g = Graph(f"{self.config.architecture.name} encoder")
        texts, length = Dim("texts", min=1, max=most), Dim("length", min=1, max=longest)
        tokens = g.input("tokens", (texts, length), "i32")
        pooling = g.input("pooling", (texts, length), "f32")
        seen = None if self.config.causal else g.input("seen", (texts, length), "bool")

        def attend(index: int, q: Node, k: Node, v: Node) -> Node:
            return self._attention(g, index, q, k, v, seen)

        weights = TensorParams(g, self._tensors)
        x = self._embed(weights, g, tokens)
        x = self._blocks(weights, g, x, self._angles(g, longest, 0, length), attend)
        if weights.has("output_norm"):
            x = self._norm(weights, g, x, "output_norm")
        x = g.squeeze(g.unsqueeze(pooling, 1) @ x, 1)
        g.set_outputs([g.l2_normalize(x)])
        return g

    # --- the parts of both -------------------------------------------------------------------------

    def _embed(self, weights: TensorParams, g: Graph, tokens: Node) -> Node:
        """The tokens' vectors; encoders of the BERT kind add those of positions and of the first segment."""
        c = self.config
        x = weights.table("token_embd", tokens, self.vocabulary, c.width)
        if c.embedding_scale != 1:
            x = x * c.embedding_scale
        if weights.has("token_types"):
            zero = g.constant(0, "i32")
            types = weights.rows("token_types")
            x = x + weights.table("token_types", zero, types, c.width)
        if weights.has("position_embd"):
            index, rows = g.arange(tokens.shape[-1]), weights.rows("position_embd")
            if rows < c.context:
                expected = f"{c.context} positions"
                raise ImportModelError("position_embd.weight", got=rows, expected=expected)
            x = x + weights.table("position_embd", index, rows, c.width)
        return self._norm(weights, g, x, "token_embd_norm") if weights.has("token_embd_norm") else x

    def _angles(
        self, g: Graph, context: int, start: int | SizeExpr, count: int | SizeExpr
    ) -> dict[int, tuple[Node, Node]]:
        """Cosines and sines of some positions, ``[count, 1, size / 2]``, by layer."""
        c, made = self.config, dict[Rope, tuple[Node, Node]]()
        for rope in (c.rope, c.local_rope):
            if rope is not None and rope not in made:
                divisors = self._divisors(rope, context) if rope is c.rope else None
                # Params, since programs for one token and for many share those and not constants.
                names = (f"rope{len(made)}.{name}" for name in ("cos", "sin"))
                tables = zip(names, rope.tables(context, divisors))
                cos, sin = (
                    g.unsqueeze(
                        g.narrow(g.param(name, table.shape, value=table), 0, start, count), 1
                    )
                    for name, table in tables
                )
                made[rope] = cos, sin
        ropes = (c.local_rope if window else c.rope for window in c.windows)
        return {index: made[rope] for index, rope in enumerate(ropes) if rope is not None}

    def _divisors(self, rope: Rope, context: int) -> Array | None:
        """The divisors of frequencies that the file has; long and short texts may have their own."""
        name = "rope_freqs.weight"
        if rope.scaling == "longrope":
            name = f"rope_factors_{'long' if self.config.is_long(context) else 'short'}.weight"
            return tensor_of(self._tensors, name).dequantized()
        return self._tensors[name].dequantized() if name in self._tensors else None

    def _blocks(
        self,
        weights: TensorParams,
        g: Graph,
        x: Node,
        angles: dict[int, tuple[Node, Node]],
        attend: _Attend,
    ) -> Node:
        """All blocks. A norm that the architecture has not leaves its operand as it is."""
        c = self.config
        for index in range(c.layers):
            blk = f"blk.{index}"

            def norm(x: Node, name: str, blk: str = blk) -> Node:
                given = name in c.architecture.norms
                return self._norm(weights, g, x, f"{blk}.{name}") if given else x

            q, k, v = self._projections(weights, g, norm(x, "attn_norm"), blk)
            if index in angles:
                cos, sin = angles[index]
                rope = c.local_rope if c.windows[index] else c.rope
                assert rope is not None
                q, k = (g.rope(item, cos, sin, rope.size, rope.pairs) for item in (q, k))
            y = attend(index, q, k, v)
            y = g.reshape(y, (*y.shape[:-2], c.heads * c.value))
            y = norm(weights.product(y, f"{blk}.attn_output", c.width), "post_attention_norm")
            x = norm(x + self._scaled(y), "attn_output_norm")
            y = norm(self._feed_forward(weights, g, norm(x, "ffn_norm"), blk), "post_ffw_norm")
            x = norm(x + self._scaled(y), "layer_output_norm")
        return x

    def _scaled(self, y: Node) -> Node:
        return y if self.config.residual_scale == 1 else y * self.config.residual_scale

    def _projections(
        self, weights: TensorParams, g: Graph, h: Node, blk: str
    ) -> tuple[Node, Node, Node]:
        """Queries, keys and values ``[*lead, heads, size]``, by one matrix or by three."""
        c, lead = self.config, h.shape[:-1]
        sizes = c.heads * c.key, c.kv_heads * c.key, c.kv_heads * c.value
        if weights.has(f"{blk}.attn_qkv"):
            qkv = g.split(weights.product(h, f"{blk}.attn_qkv", sum(sizes)), sizes, axis=-1)
        else:
            qkv = tuple(
                weights.product(h, f"{blk}.attn_{name}", size) for name, size in zip("qkv", sizes)
            )
        kind, named = c.architecture.qk_norm, dict(zip("qkv", qkv))
        if kind == "all":
            named |= {n: self._norm(weights, g, named[n], f"{blk}.attn_{n}_norm") for n in "qk"}
        heads = {"q": (c.heads, c.key), "k": (c.kv_heads, c.key), "v": (c.kv_heads, c.value)}
        named = {name: g.reshape(x, (*lead, *heads[name])) for name, x in named.items()}
        if kind == "head":
            named |= {n: self._norm(weights, g, named[n], f"{blk}.attn_{n}_norm") for n in "qk"}
        return named["q"], named["k"], named["v"]

    def _attention(
        self, g: Graph, index: int, q: Node, k: Node, v: Node, seen: Node | None = None
    ) -> Node:
        """Attention of one layer over ``[texts, length, heads, size]``."""
        c = self.config
        window, kind = c.windows[index], "causal"
        if window:
            kind = f"sliding:{window - 1}"  # a token sees itself besides so many
        if not c.causal:
            kind = "custom"
        cap = c.score_cap or None
        return g.attention(
            q, k, v, seen, kind, scale=c.score_scale, softcap=cap, num_kv_heads=c.kv_heads, layout="bshd"
        )  # fmt: skip

    def _feed_forward(self, weights: TensorParams, g: Graph, h: Node, blk: str) -> Node:
        """The feed-forward part. Where one matrix has both products, the gate comes first."""
        c = self.config
        act = getattr(g, c.architecture.activation)
        if c.experts and weights.has(f"{blk}.ffn_gate_inp"):
            return self._experts(weights, g, h, blk)
        gate = f"{blk}.ffn_gate" if c.architecture.gated else f"{blk}.ffn_up"
        if c.architecture.gated and not weights.has(gate):
            both = weights.product(h, f"{blk}.ffn_up", 2 * c.inner)
            first, second = g.split(both, (c.inner, c.inner), axis=-1)
            inner = act(first) * second
        else:
            inner = act(weights.product(h, gate, c.inner))
            if c.architecture.gated:
                inner = inner * weights.product(h, f"{blk}.ffn_up", c.inner)
        return weights.product(inner, f"{blk}.ffn_down", c.width)

    def _experts(self, weights: TensorParams, g: Graph, h: Node, blk: str) -> Node:
        """A feed-forward part of several experts, of which a router chooses some for each token."""
        c, act = self.config, getattr(g, self.config.architecture.activation)
        x = g.reshape(h, (size(h.shape[:-1]), c.width))
        count, used = x.shape[0], c.experts_used
        scores = weights.product(x, f"{blk}.ffn_gate_inp", c.experts)
        # The softmax of the chosen ones alone is that of all, made to sum to 1.
        scores = scores if c.expert_weights_norm else g.softmax(scores)
        shares, chosen = g.topk(scores, used)
        shares = g.softmax(shares) if c.expert_weights_norm else shares
        chosen = g.cast(g.reshape(chosen, (count * used,)), "i32")
        rows = g.expand(g.unsqueeze(x, 1), (count, used, c.width))
        rows = g.reshape(rows, (count * used, c.width))
        first, second = (
            weights.expert_product(
                rows, chosen, f"{blk}.ffn_{name}_exps", c.experts, c.expert_inner
            )
            for name in ("gate", "up")
        )
        down = f"{blk}.ffn_down_exps"
        y = weights.expert_product(act(first) * second, chosen, down, c.experts, c.width)
        y = g.reshape(y, (count, used, c.width))
        y = g.sum(y * g.unsqueeze(shares, -1), axes=(1,))
        if c.shared_inner:
            first, second = (
                weights.product(x, f"{blk}.ffn_{name}_shexp", c.shared_inner)
                for name in ("gate", "up")
            )
            own = weights.product(act(first) * second, f"{blk}.ffn_down_shexp", c.width)
            gate = weights.needed(f"{blk}.ffn_gate_inp_shexp.weight", c.width)
            y = y + own * g.sigmoid(g.sum(x * gate, axes=(-1,), keepdims=True))
        return g.reshape(y, h.shape)

    def _norm(self, weights: TensorParams, g: Graph, x: Node, name: str) -> Node:
        """A norm over the last axis, with the weights of a name."""
        size = int(x.shape[-1])
        weight = weights.needed(f"{name}.weight", size)
        if self.config.architecture.norm == "rms":
            return g.rms_norm(x, weight, self.config.eps)
        return g.layer_norm(x, weight, weights.needed(f"{name}.bias", size), eps=self.config.eps)
