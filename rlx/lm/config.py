"""The sizes of a model, read from its file's metadata and checked."""

from __future__ import annotations

import math
from collections.abc import Container, Mapping
from typing import Any, Literal

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import ImportModelError, did_you_mean, listed
from rlx.lm.architectures import ARCHITECTURES, Architecture
from rlx.lm.rope import SCALINGS, Rope

# The key that says that a file was made from a folder of transformers: its rows are in another order.
TRANSFORMERS = "rlx.transformers"
_POOLINGS = ("none", "mean", "cls", "last")
# A bound well inside the range of f32.
_SMALL, _LARGE = 1e-20, 1e20
# Bounds of layers, of entries of a key, and of other sizes: far above those of models, and small enough to be computed with.
_LAYERS, _KEY, _SIZE = 4096, 8192, 2**26
Pooling = Literal["none", "mean", "cls", "last"]


@dataclass(frozen=True)
class ModelConfig:
    """Sizes of a model.

    Attributes:
        architecture: The family.
        layers: Blocks of attention and feed-forward part.
        width: Entries of a token's vector.
        inner: Entries between the two products of the feed-forward part.
        heads: Heads of queries.
        kv_heads: Heads of keys and values, each shared by ``heads / kv_heads``.
        key: Entries of a key, and of a query, of one head.
        value: Entries of a value of one head.
        context: Tokens of the longest text that it was made for.
        eps: The number that norms add to the mean square.
        rope: The rotation of keys in layers that see the whole text; None without one.
        local_rope: The rotation in layers that see a window.
        windows: Tokens that each layer sees, itself included; 0 for all.
        score_scale: The factor of scores.
        score_cap: c of ``c * tanh(score / c)``; 0 without a cap.
        logit_cap: The same for logits.
        embedding_scale: The factor of tokens' vectors.
        residual_scale: The factor of what a block adds.
        logit_scale: The divisor of logits.
        experts: Feed-forward parts that a router chooses among; 0 without one.
        experts_used: Experts of a token.
        expert_inner: ``inner`` of an expert.
        shared_inner: ``inner`` of the expert that every token has; 0 without one.
        expert_weights_norm: Whether the weights of a token's experts are made to sum to 1.
        causal: Whether tokens see those before them alone.
        pooling: How a text's vector is made of its tokens'.
    """

    architecture: Architecture
    layers: int
    width: int
    inner: int
    heads: int
    kv_heads: int
    key: int
    value: int
    context: int
    eps: float
    rope: Rope | None
    local_rope: Rope | None
    windows: tuple[int, ...]
    score_scale: float
    score_cap: float
    logit_cap: float
    embedding_scale: float
    residual_scale: float
    logit_scale: float
    experts: int
    experts_used: int
    expert_inner: int
    shared_inner: int
    expert_weights_norm: bool
    causal: bool
    pooling: Pooling

    @property
    def writes(self) -> bool:
        """True where it continues texts; other models make vectors of them."""
        return self.causal and self.pooling == "none"

    def is_long(self, context: int) -> bool:
        """Returns whether keys turn as those of texts do that are longer than the trained ones.

        Args:
            context: Tokens of a conversation.
        """
        return (
            self.rope is not None
            and self.rope.scaling == "longrope"
            and context > self.rope.trained
        )

    @staticmethod
    def read(metadata: Mapping[str, Any], tensors: Container[str] = ()) -> ModelConfig:
        """Returns the sizes that a file's metadata state.

        Args:
            metadata: By the keys of GGUF files.
            tensors: The names of the tensors.

        Raises:
            ImportModelError: The architecture is not known, a key is missing, or a value makes no sense.
        """
        record = _architecture(metadata.get("general.architecture"))
        keys = _Keys(metadata, record.name)
        heads, width = keys.whole("attention.head_count"), keys.whole("embedding_length")
        layers = keys.whole("block_count", most=_LAYERS)
        kv_heads = keys.whole("attention.head_count_kv", heads)
        key = keys.whole("attention.key_length", max(width // heads, 1), most=_KEY)
        if heads % kv_heads:
            raise _error("heads can't be shared", f"{heads} over {kv_heads}", "a divisor")
        eps = "attention.layer_norm_rms_epsilon"
        eps = eps if record.norm == "rms" else "attention.layer_norm_epsilon"
        wide = record.wide_scale == layers
        context = keys.whole("context_length", most=2**31 - 1)
        factors = "rope_factors_short.weight" in tensors
        rope = _rope(keys, record, key, context, factors) if record.rope else None
        windows, inner = _windows(keys, record, layers), keys.whole("feed_forward_length")
        experts = keys.whole("expert_count", 0, 0)
        return ModelConfig(
            architecture=record,
            layers=layers,
            width=width,
            inner=inner,
            heads=heads,
            kv_heads=kv_heads,
            key=key,
            value=keys.whole("attention.value_length", max(width // heads, 1), most=_KEY),
            context=context,
            eps=keys.real(eps, low=_SMALL, high=1.0),
            rope=rope,
            local_rope=_local_rope(keys, record, rope),
            windows=windows,
            score_scale=keys.real(
                "attention.scale", 1 / math.sqrt(width / heads if wide else key), low=_SMALL
            ),
            score_cap=keys.real("attn_logit_softcapping", 0.0, low=0.0),
            logit_cap=keys.real("final_logit_softcapping", 0.0, low=0.0),
            embedding_scale=keys.real(
                "embedding_scale", math.sqrt(width) if record.scaled_embedding else 1.0
            ),
            residual_scale=keys.real("residual_scale", 1.0),
            logit_scale=keys.real("logit_scale", 1.0),
            experts=experts,
            experts_used=keys.whole("expert_used_count", most=experts) if experts else 0,
            expert_inner=keys.whole("expert_feed_forward_length", inner),
            shared_inner=keys.whole("expert_shared_feed_forward_length", 0, 0),
            expert_weights_norm=keys.flag("expert_weights_norm", record.expert_weights_norm),
            causal=keys.flag("attention.causal", record.causal),
            pooling=_pooling(keys),
        )


class _Keys:
    """Values of metadata whose keys begin with the name of the architecture.

    Args:
        metadata: All values.
        name: The architecture.
    """

    def __init__(self, metadata: Mapping[str, Any], name: str) -> None:
        self.metadata, self.name = metadata, name

    def get(self, name: str, default: Any = None) -> Any:
        """Returns a value, or the default."""
        return self.metadata.get(f"{self.name}.{name}", default)

    def whole(
        self, name: str, default: int | None = None, least: int = 1, most: int = _SIZE
    ) -> int:
        """Returns a whole number; files may state one for each layer, all the same."""
        result = self.get(name, default)
        if isinstance(result, np.ndarray) and result.size and np.all(result == result[0]):
            result = result[0].item()
        if type(result) is not int or not least <= result <= most:
            expected = f"a whole number of {least} to {most}"
            raise _error(f"{self.name}.{name}", f"{result!r:.80}", expected)
        return result

    def real(
        self, name: str, default: float | None = None, low: float = -_LARGE, high: float = _LARGE
    ) -> float:
        """Returns a finite number within bounds."""
        result = self.get(name, default)
        if type(result) not in (int, float) or not low <= result <= high:
            raise _error(f"{self.name}.{name}", f"{result!r:.80}", f"a number of {low} to {high}")
        return float(result)

    def flag(self, name: str, default: bool) -> bool:
        """Returns a truth value."""
        result = self.get(name, default)
        if type(result) is not bool:
            raise _error(f"{self.name}.{name}", f"{result!r:.80}", "true or false")
        return result


def _architecture(name: Any) -> Architecture:
    if not isinstance(name, str) or name not in ARCHITECTURES:
        hint = did_you_mean(name, ARCHITECTURES) if isinstance(name, str) else None
        expected = listed(ARCHITECTURES)
        raise _error("the architecture is not known", f"{name!r:.80}", expected, hint)
    return ARCHITECTURES[name]


def _rope(keys: _Keys, record: Architecture, key: int, context: int, factors: bool) -> Rope:
    # Older files have one key for the linear factor; 0 means that none was set.
    factor = keys.real("rope.scaling.factor", keys.real("rope.scale_linear", 0.0, low=0.0), low=0.0)
    # Files that have factors for short and long texts need not name their kind.
    scaling = keys.get("rope.scaling.type", "longrope" if factors else "linear")
    if not isinstance(scaling, str) or scaling not in SCALINGS:
        raise _error(f"{record.name}.rope.scaling.type", f"{scaling!r:.80}", listed(SCALINGS))
    size = keys.whole("rope.dimension_count", key)
    if size % 2 or size > key:
        raise _error(f"{record.name}.rope.dimension_count", size, f"even, up to {key}")
    neighbours = record.rope == "gptj" and TRANSFORMERS not in keys.metadata
    return Rope(
        "gptj" if neighbours else "neox", size, keys.real("rope.freq_base", 10000.0, low=1 + 1e-6), scaling,
        max(factor or 1.0, _SMALL), keys.whole("rope.scaling.original_context_length", context, most=2**31 - 1),
        keys.real("rope.scaling.attn_factor", 1.0, low=_SMALL),
    )  # fmt: skip


def _local_rope(keys: _Keys, record: Architecture, rope: Rope | None) -> Rope | None:
    """The rotation of layers that see a window: its own base, never stretched."""
    if rope is None or not record.local_base:
        return rope
    base = keys.real("rope.local_freq_base", record.local_base, low=1 + 1e-6)
    return Rope(rope.pairs, rope.size, base)


def _windows(keys: _Keys, record: Architecture, layers: int) -> tuple[int, ...]:
    """The tokens that each layer sees. A file may say by a list which layers see a window."""
    window = keys.whole("attention.sliding_window", 0, 0, most=2**31 - 1)
    every = record.global_every
    local: list[bool] = [not every or (index + 1) % every != 0 for index in range(layers)]
    pattern = keys.get("attention.sliding_window_pattern")
    if isinstance(pattern, np.ndarray):
        if pattern.shape != (layers,):
            name = f"{record.name}.attention.sliding_window_pattern"
            raise _error(name, pattern.shape, f"one entry for each of {layers} layers")
        local = [bool(item) for item in pattern.tolist()]
    return tuple(window if item else 0 for item in local)


def _pooling(keys: _Keys) -> Pooling:
    number = keys.whole("pooling_type", 0, 0)
    if number >= len(_POOLINGS):
        expected = ", ".join(f"{index} ({name})" for index, name in enumerate(_POOLINGS))
        raise _error(f"{keys.name}.pooling_type", number, expected)
    return _POOLINGS[number]  # type: ignore[return-value]


def _error(
    what: str, got: object = None, expected: object = None, hint: str | None = None
) -> ImportModelError:
    return ImportModelError(what, got=got, expected=expected, hint=hint)
