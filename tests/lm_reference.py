"""Language models in float64, a whole text at once: the oracle of rlx.lm. It follows the papers and shares no code with it."""

import math

import numpy as np

from rlx.ops.block_formats import FORMATS, decode_blocks

# Families by what differs; the rest is Llama.
NEOX = {"qwen2", "qwen3", "qwen2moe", "qwen3moe", "gemma2", "gemma3", "phi3", "olmo2"}
NEOX |= {"starcoder2", "nomic-bert"}
GELU = {"gemma2", "gemma3", "starcoder2"}


def _weights(tensor):
    if tensor.type in FORMATS:
        return decode_blocks(tensor.packed, tensor.type).astype("f8")
    if tensor.type == "BF16":
        return (tensor.array().astype("u4") << 16).view("f4").astype("f8")
    return tensor.array().astype("f8")


def float64_weights(file):
    """All weights of a file."""
    return {name: _weights(tensor) for name, tensor in file.tensors.items()}


def erf(x):
    return np.vectorize(math.erf)(x)


class KeptBlocks:
    """Rounds the keys and values of a reference as a model did, each to a code that is nearest within the errors of f32.

    Args:
        states: The blocks of the model's layers in order, each ``[tokens, heads, bytes]``.
    """

    def __init__(self, states):
        self._left = [decode_blocks(state, "Q8_0").swapaxes(0, 1) for state in states.values()]

    def __call__(self, x):
        kept = self._left.pop(0)
        shape = *x.shape[:-1], -1, 32
        blocks, codes = np.reshape(x, shape), np.reshape(kept, shape)
        step = abs(blocks).max(-1, keepdims=True) / 127
        assert (abs(codes - blocks) <= 0.51 * step).all()
        return kept


class Reference:
    """A model of a GGUF file.

    Args:
        file: The file.
        neox: Whether keys are paired by halves, as in files of transformers.
        cache: How keys and values are rounded.
    """

    def __init__(self, file, neox=False, cache=np.float64):
        self.cache = cache
        self.meta, self.w = dict(file.metadata), float64_weights(file)
        self.name = self.meta["general.architecture"]
        self.neox = neox or self.name in NEOX
        self.heads = self.key("attention.head_count")
        self.kv = self.key("attention.head_count_kv", self.heads)
        self.width = self.key("embedding_length")
        self.size = self.key("attention.key_length", self.width // self.heads)

    def key(self, name, default=None):
        return self.meta.get(f"{self.name}.{name}", default)

    def norm(self, x, name):
        weight = self.w[f"{name}.weight"]
        bias = self.w.get(f"{name}.bias")
        if bias is None:
            eps = self.key("attention.layer_norm_rms_epsilon")
            return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight
        x = x - x.mean(-1, keepdims=True)
        eps = self.key("attention.layer_norm_epsilon")
        return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + eps) * weight + bias

    def product(self, x, name):
        return x @ self.w[f"{name}.weight"].T + self.w.get(f"{name}.bias", 0)

    def window(self, layer):
        """The tokens that a layer sees; None for all."""
        window = self.key("attention.sliding_window")
        if not window:
            return None
        whole = {"gemma2": layer % 2 == 1, "gemma3": layer % 6 == 5}.get(self.name, False)
        return None if whole else window

    def rotated(self, x, local):
        """x [heads, positions, size], each pair turned by its angle."""
        size = self.key("rope.dimension_count", x.shape[-1])
        base = 10000.0 if local and self.name == "gemma3" else self.key("rope.freq_base", 10000.0)
        pairs = np.arange(size // 2)
        angles = np.arange(x.shape[1])[:, None] / base ** (2 * pairs / size)
        magnitude = self.key("rope.scaling.attn_factor", 1.0)
        if not (local and self.name == "gemma3"):
            angles = angles / self.key("rope.scaling.factor", 1.0)
            angles = angles / self.w.get("rope_freqs.weight", np.ones(size // 2))
            angles = angles / self.w.get("rope_factors_short.weight", np.ones(size // 2))
        c, s = magnitude * np.cos(angles), magnitude * np.sin(angles)
        first = pairs if self.neox else 2 * pairs
        second = pairs + size // 2 if self.neox else 2 * pairs + 1
        result, a, b = x.copy(), x[..., first], x[..., second]
        result[..., first], result[..., second] = a * c - b * s, a * s + b * c
        return result

    def attention(self, q, k, v, window):
        n, k, v = q.shape[1], np.float64(self.cache(k)), np.float64(self.cache(v))
        scale = self.key("attention.scale", 1 / math.sqrt(self.size))
        cap, rows = self.key("attn_logit_softcapping"), []
        back = np.arange(n)[:, None] - np.arange(n)
        hidden = np.zeros((n, n), bool) if "bert" in self.name else back < 0
        if window:
            hidden |= back >= window
        for head in range(self.heads):
            stored = head * self.kv // self.heads
            scores = q[head] @ k[stored].T * scale
            scores = cap * np.tanh(scores / cap) if cap else scores
            scores[hidden] = -np.inf
            p = np.exp(scores - scores.max(-1, keepdims=True))
            rows.append(p / p.sum(-1, keepdims=True) @ v[stored])
        return np.concatenate(rows, -1)

    def activation(self, x):
        if self.name == "bert":
            return x * (1 + erf(x / math.sqrt(2))) / 2
        if self.name in GELU:
            return x / 2 * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
        return x / (1 + np.exp(-x))

    def mix(self, h, layer, blk):
        if f"{blk}.attn_qkv.weight" in self.w:
            sizes = self.heads * self.size, self.kv * self.size
            parts = np.split(self.product(h, f"{blk}.attn_qkv"), [sizes[0], sum(sizes)], -1)
        else:
            parts = [self.product(h, f"{blk}.attn_{item}") for item in "qkv"]
        if self.name == "olmo2":
            parts[:2] = [self.norm(x, f"{blk}.attn_{n}_norm") for x, n in zip(parts, "qk")]
        q, k, v = (x.reshape(len(h), -1, self.size) for x in parts)
        if self.name in ("qwen3", "qwen3moe", "gemma3"):
            q, k = self.norm(q, f"{blk}.attn_q_norm"), self.norm(k, f"{blk}.attn_k_norm")
        q, k, v = (x.swapaxes(0, 1) for x in (q, k, v))
        window = self.window(layer)
        if self.name != "bert":
            q, k = (self.rotated(x, window is not None) for x in (q, k))
        return self.product(self.attention(q, k, v, window), f"{blk}.attn_output")

    def experts(self, h, blk):
        """Each token by itself: the experts of the largest scores, by their shares."""
        scores, result = self.product(h, f"{blk}.ffn_gate_inp"), np.zeros_like(h)
        p = np.exp(scores - scores.max(-1, keepdims=True))
        p /= p.sum(-1, keepdims=True)
        for row, (x, shares) in enumerate(zip(h, p)):
            best = np.argsort(-shares, kind="stable")[: self.key("expert_used_count")]
            total = 1 if self.name == "qwen2moe" else shares[best].sum()
            for e in best:
                gate, up, down = (
                    self.w[f"{blk}.ffn_{n}_exps.weight"][e] for n in ("gate", "up", "down")
                )
                result[row] += shares[e] / total * (down @ (self.activation(gate @ x) * (up @ x)))
        if self.name == "qwen2moe":
            inner = self.activation(self.product(h, f"{blk}.ffn_gate_shexp"))
            own = self.product(
                inner * self.product(h, f"{blk}.ffn_up_shexp"), f"{blk}.ffn_down_shexp"
            )
            gate = h @ self.w[f"{blk}.ffn_gate_inp_shexp.weight"].reshape(-1)
            result += own / (1 + np.exp(-gate))[:, None]
        return result

    def feed(self, h, blk):
        if f"{blk}.ffn_gate_inp.weight" in self.w:
            return self.experts(h, blk)
        up = self.product(h, f"{blk}.ffn_up")
        if f"{blk}.ffn_gate.weight" in self.w:
            up = self.activation(self.product(h, f"{blk}.ffn_gate")) * up
        elif self.name == "phi3":
            gate, up = np.split(up, 2, -1)
            up = self.activation(gate) * up
        else:
            up = self.activation(up)
        return self.product(up, f"{blk}.ffn_down")

    def hidden(self, tokens):
        """The vectors of a text's tokens, [tokens, width]."""
        x = self.w["token_embd.weight"][tokens]
        if self.name in ("gemma2", "gemma3"):
            x = x * math.sqrt(self.width)
        x = x * self.key("embedding_scale", 1.0)
        if "bert" in self.name:
            x = x + self.w["token_types.weight"][0]
            x = x + (self.w["position_embd.weight"][: len(tokens)] if self.name == "bert" else 0)
            x = self.norm(x, "token_embd_norm")
        scale = self.key("residual_scale", 1.0)

        def norm(x, name):
            return self.norm(x, name) if f"{name}.weight" in self.w else x

        for layer in range(self.key("block_count")):
            blk = f"blk.{layer}"
            y = self.mix(norm(x, f"{blk}.attn_norm"), layer, blk)
            x = norm(x + scale * norm(y, f"{blk}.post_attention_norm"), f"{blk}.attn_output_norm")
            y = self.feed(norm(x, f"{blk}.ffn_norm"), blk)
            x = norm(x + scale * norm(y, f"{blk}.post_ffw_norm"), f"{blk}.layer_output_norm")
        return norm(x, "output_norm")

    def logits(self, tokens):
        """Logits behind each token, [tokens, vocabulary]."""
        name = "output" if "output.weight" in self.w else "token_embd"
        logits = self.product(self.hidden(tokens), name) / self.key("logit_scale", 1.0)
        cap = self.key("final_logit_softcapping")
        return cap * np.tanh(logits / cap) if cap else logits

    def greedy(self, prompt, limit):
        """The likeliest tokens that follow, and by how much each is ahead of the second, of the largest logit."""
        text, margins = list(prompt), []
        for _ in range(limit):
            logits = self.logits(text)[-1]
            second, first = np.sort(logits)[-2:]
            margins.append((first - second) / np.abs(logits).max())
            text.append(int(logits.argmax()))
        return text[len(prompt) :], margins
