"""Folders of transformers, ``config.json`` and safetensors, under the keys and names of GGUF files."""

from __future__ import annotations

import json
import math
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from rlx.errors import ImportModelError, first_line, listed
from rlx.importers import safetensors
from rlx.importers.gguf import File, Tensor
from rlx.importers.mapped import Entries
from rlx.ir.dtype import DType, widen
from rlx.ir.opdef import Array
from rlx.lm.architectures import ARCHITECTURES, Architecture
from rlx.lm.config import TRANSFORMERS, ModelConfig
from rlx.lm.rope import smoothed_divisors

# Modules by their names in GGUF files, without numbers of blocks. Families that differ follow below.
_MODULES = {
    "token_embd": "model.embed_tokens", "output_norm": "model.norm", "output": "lm_head",
    "attn_norm": "input_layernorm", "attn_q": "self_attn.q_proj", "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm", "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm", "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj", "ffn_gate_inp": "mlp.gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj", "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj", "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
}  # fmt: skip
# One matrix of one expert, and its name in GGUF files, where one tensor has those of all experts.
_EXPERT = re.compile(r"(?:mlp|block_sparse_moe)\.experts\.(\d+)\.(\w+)$")
_EXPERT_NAMES = {
    "gate_proj": "ffn_gate_exps", "up_proj": "ffn_up_exps", "down_proj": "ffn_down_exps",
    "w1": "ffn_gate_exps", "w3": "ffn_up_exps", "w2": "ffn_down_exps",
}  # fmt: skip
_BEHIND = {
    "post_attention_norm": "post_attention_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_GEMMA = {**_BEHIND, "ffn_norm": "pre_feedforward_layernorm"}
_FAMILIES: dict[str, dict[str, str]] = {
    "gemma2": _GEMMA,
    "gemma3": _GEMMA,
    "olmo2": _BEHIND,
    "phi3": {"attn_qkv": "self_attn.qkv_proj", "ffn_up": "mlp.gate_up_proj"},
    "starcoder2": {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
    "llama": {"ffn_gate_inp": "block_sparse_moe.gate"},
    "bert": {
        "token_embd": "embeddings.word_embeddings", "token_types": "embeddings.token_type_embeddings",
        "position_embd": "embeddings.position_embeddings", "token_embd_norm": "embeddings.LayerNorm",
        "attn_q": "attention.self.query", "attn_k": "attention.self.key",
        "attn_v": "attention.self.value", "attn_output": "attention.output.dense",
        "attn_output_norm": "attention.output.LayerNorm", "ffn_up": "intermediate.dense",
        "ffn_down": "output.dense", "layer_output_norm": "output.LayerNorm",
    },
}  # fmt: skip
_BLOCK = re.compile(r"(?:model\.layers|encoder\.layer)\.(\d+)\.")
# Beginnings that whole models put before the names of their text part.
_FRONTS = ("model.language_model.", "language_model.model.", "bert.")
_BASE = ("embed_tokens.", "layers.", "norm.")
_ROTARY = {"default": "none", "linear": "linear", "yarn": "yarn", "longrope": "longrope"}
# Keys of GGUF files by those of config.json. The first that is there counts.
_NUMBERS = {
    "context_length": ("max_position_embeddings",),
    "embedding_length": ("hidden_size",),
    "block_count": ("num_hidden_layers",),
    "feed_forward_length": ("intermediate_size",),
    "attention.head_count": ("num_attention_heads",),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.value_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "norm_epsilon"),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logits_scaling",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "expert_weights_norm": ("norm_topk_prob",),
}
# Values that transformers takes where config.json has none, or that it stores as null. The text part of a model for images
# has those alone that differ from these.
_DEFAULTS: dict[str, dict[str, Any]] = {
    "gemma2": {"head_dim": 256},
    "gemma3": {
        "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26, "num_attention_heads": 8,
        "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072, "rms_norm_eps": 1e-6,
        "rope_theta": 1e6, "rope_local_base_freq": 1e4, "sliding_window": 4096, "query_pre_attn_scalar": 256,
    },
    "qwen3": {"head_dim": 128},
}  # fmt: skip
# The operations of activations.
_ACTIVATIONS = {
    "silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_pytorch_tanh": "gelu_approx", "gelu_new": "gelu_approx",
    "gelu_fast": "gelu_approx",
}  # fmt: skip


# Before the name of a tensor of one expert, until all are together.
_ONE_EXPERT = "expert of "


def load_folder(path: str | os.PathLike[str]) -> File:
    """Reads a model as transformers saves it.

    The tensors stay in the mapped files until they are touched.

    Args:
        path: A folder with ``config.json`` and ``*.safetensors``.

    Returns:
        Metadata and tensors under the names that a GGUF file of the model would have.

    Raises:
        ImportModelError: A file is missing or malformed, or the architecture is not known.
    """
    folder = Path(path)
    config = read_json(folder / "config.json")
    metadata: Entries[Any] = Entries()
    try:
        config = {**config, **(config.get("text_config") or {})}
        record = _record(config.get("model_type"), folder)
        given = {name: value for name, value in config.items() if value is not None}
        config = {**config, **_DEFAULTS.get(record.name, {}), **given, **_pooling(folder)}
        rope, local = _rope_settings(config)
        metadata.update(_metadata(record, config, rope, local))
        size = ModelConfig.read(metadata).rope
        factors = _factors(rope, size.size if size else 0)
    except (KeyError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
        what = "config.json lacks a value, or has one of another type"
        raise ImportModelError(what, where=folder, got=first_line(error)) from None
    tensors = _tensors(record, folder)
    for name, values in factors.items():
        tensors[name] = _plain(name, values)
    return File(metadata, tensors)


def whole_numbers(value: Any) -> list[int]:
    """Returns the whole numbers of a list, or of one number alone."""
    return [item for item in (value if isinstance(value, list) else [value]) if type(item) is int]


def read_json(path: Path) -> dict[str, Any]:
    """Returns the object in a JSON file.

    Raises:
        ImportModelError: It can't be read, or is no object.
    """
    try:
        result = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ImportModelError(f"{path.name} can't be read", where=path, got=error) from None
    except (ValueError, RecursionError) as error:
        raise ImportModelError(f"{path.name} is no JSON", where=path, got=error) from None
    if not isinstance(result, dict):
        raise ImportModelError(f"{path.name} is no object", where=path, got=type(result).__name__)
    return result


def _pooling(folder: Path) -> dict[str, int]:
    """The number that GGUF files have for the pooling of sentence-transformers."""
    path = folder / "1_Pooling/config.json"
    modes = read_json(path) if path.exists() else {}
    names = ("", "pooling_mode_mean_tokens", "pooling_mode_cls_token", "pooling_mode_lasttoken")
    chosen = [index for index, name in enumerate(names) if modes.get(name) is True]
    return {"pooling": chosen[0]} if chosen else {}


def _record(kind: Any, folder: Path) -> Architecture:
    for record in ARCHITECTURES.values():
        if kind in record.model_types:
            return record
    known = [name for record in ARCHITECTURES.values() for name in record.model_types]
    what = "the architecture is not known"
    raise ImportModelError(what, where=folder, got=f"{kind!r:.80}", expected=listed(known))


def _first(config: Mapping[str, Any], names: tuple[str, ...], default: Any = None) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), default)


def _rope_settings(config: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings of the rotation, of the whole text and of windows; newer files have one object for both."""
    new = config.get("rope_parameters")
    if isinstance(new, dict) and "full_attention" in new:
        return dict(new["full_attention"]), dict(new.get("sliding_attention", {}))
    settings = dict(new or config.get("rope_scaling") or {})
    settings.setdefault("rope_theta", config.get("rope_theta", 10000.0))
    settings.setdefault("rope_type", settings.get("type", "default"))
    return settings, {"rope_theta": config.get("rope_local_base_freq", 10000.0)}


def _metadata(
    record: Architecture,
    config: Mapping[str, Any],
    rope: Mapping[str, Any],
    local: Mapping[str, Any],
) -> Iterator[tuple[str, Any]]:
    """The keys of a GGUF file."""
    name = record.name
    yield "general.architecture", name
    yield TRANSFORMERS, True
    for key, sources in _NUMBERS.items():
        value = _first(config, sources)
        if value is not None:
            yield f"{name}.{key}", value
    if "pooling" in config:
        yield f"{name}.pooling_type", config["pooling"]
    if config.get("use_sliding_window") is False:
        yield f"{name}.attention.sliding_window", 0
    windows = _windowed(config)
    if windows is not None:
        yield f"{name}.attention.sliding_window_pattern", np.array(windows)
    act = config.get("hidden_activation") or config.get("hidden_act")
    if act is not None and _ACTIVATIONS.get(act) != record.activation:
        raise ImportModelError(
            "the activation is not that of the architecture", got=f"{act!r:.80}", expected=record.activation
        )  # fmt: skip
    for key, token in zip(("eos", "eot"), whole_numbers(config.get("eos_token_id"))):
        yield f"tokenizer.ggml.{key}_token_id", token
    if config.get("query_pre_attn_scalar"):
        yield f"{name}.attention.scale", config["query_pre_attn_scalar"] ** -0.5
    if "partial_rotary_factor" in config or "partial_rotary_factor" in rope:
        size = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
        part = rope.get("partial_rotary_factor", config.get("partial_rotary_factor"))
        yield f"{name}.rope.dimension_count", int(size * part)
    yield from _rope_metadata(name, config, rope)
    yield f"{name}.rope.local_freq_base", float(local.get("rope_theta", 10000.0))


def _windowed(config: Mapping[str, Any]) -> list[bool] | None:
    """The layers that see a window, as newer and older files say it; None where none of them is told from others."""
    layers = range(int(config["num_hidden_layers"]))
    if isinstance(config.get("layer_types"), list):
        return [kind == "sliding_attention" for kind in config["layer_types"]]
    if type(config.get("sliding_window_pattern")) is int:
        return [(index + 1) % config["sliding_window_pattern"] != 0 for index in layers]
    if "max_window_layers" in config:
        return [index >= config["max_window_layers"] for index in layers]
    return None


def _rope_metadata(
    name: str, config: Mapping[str, Any], rope: Mapping[str, Any]
) -> Iterator[tuple[str, Any]]:
    kind = rope.get("rope_type", "default")
    if kind not in {*_ROTARY, "llama3"}:
        expected = listed([*_ROTARY, "llama3"])
        raise ImportModelError("rope_type is not known", got=f"{kind!r:.80}", expected=expected)
    yield f"{name}.rope.freq_base", float(rope.get("rope_theta", 10000.0))
    yield f"{name}.rope.scaling.type", _ROTARY.get(kind, "none")
    most = config.get("max_position_embeddings", 0)
    trained = rope.get("original_max_position_embeddings") or config.get(
        "original_max_position_embeddings", most
    )
    yield f"{name}.rope.scaling.original_context_length", trained
    if "factor" in rope:
        yield f"{name}.rope.scaling.factor", float(rope["factor"])
    factor = rope.get("attention_factor")
    if kind == "longrope" and factor is None:
        stretch = most / trained
        factor = math.sqrt(1 + math.log(stretch) / math.log(trained)) if stretch > 1 else 1.0
    if kind == "yarn" and factor is not None:
        factor /= 1 + 0.1 * math.log(rope["factor"])  # the other way round it is the default
    if factor is not None:
        yield f"{name}.rope.scaling.attn_factor", float(factor)


def _factors(rope: Mapping[str, Any], size: int) -> dict[str, Array]:
    """Divisors of frequencies, which GGUF files have as tensors."""
    if rope.get("rope_type") == "llama3":
        divisors = smoothed_divisors(
            size, rope["rope_theta"], rope["factor"], rope["low_freq_factor"],
            rope["high_freq_factor"], rope["original_max_position_embeddings"],
        )  # fmt: skip
        return {"rope_freqs.weight": divisors}
    if rope.get("rope_type") == "longrope":
        return {
            f"rope_factors_{kind}.weight": np.asarray(rope[f"{kind}_factor"], np.float32)
            for kind in ("long", "short")
        }
    return {}


def _tensors(record: Architecture, folder: Path) -> Entries[Tensor]:
    """All tensors, by the names of GGUF files. Those that no part of the network has keep their names."""
    # Some folders have the same tensors again under names of their own ("consolidated").
    files = sorted(folder.glob("model*.safetensors")) or sorted(folder.glob("*.safetensors"))
    if not files:
        raise ImportModelError("there is no *.safetensors", where=folder)
    modules = {**_MODULES, **_FAMILIES.get(record.name, {})}
    names = {module: name for name, module in modules.items()}
    results: Entries[Tensor] = Entries()
    experts: dict[str, dict[int, Tensor]] = {}
    for file in files:
        arrays = safetensors.load(file)
        for name in (*arrays, *arrays.refused):
            known = _gguf_name(name, names)
            if name in arrays.refused:
                results.refused[known] = arrays.refused[name]
                continue
            dtype, array = arrays.dtypes[name], arrays[name]
            if dtype is None:
                results.refused[known] = f"tensor {name!r}: rlx has no {array.dtype}"
            elif record.shift_norms and "norm" in known:
                weights = widen(array, dtype).astype(np.float32)
                results[known] = _plain(known, weights + np.float32(1))
            else:
                results[known] = _plain(known, array, dtype)
            if known in results and known.startswith(_ONE_EXPERT):
                whole, index = known.removeprefix(_ONE_EXPERT).split("#")
                experts.setdefault(whole, {})[int(index)] = results.pop(known)
    for whole, parts in experts.items():
        results[whole] = _stacked(whole, parts)
    return results


def _stacked(name: str, parts: Mapping[int, Tensor]) -> Tensor:
    """The matrices of all experts in one tensor."""
    kinds = {(part.shape, part.type) for part in parts.values()}
    if sorted(parts) != list(range(len(parts))) or len(kinds) != 1:
        got, expected = f"{len(parts)} of {len(kinds)} kinds", "matrices of one shape and type"
        raise ImportModelError(f"experts of {name!r}", got=got, expected=expected)
    shape, kind = kinds.pop()
    packed = np.stack([parts[index].packed for index in range(len(parts))])
    return Tensor(name, (len(parts), *shape), kind, packed.reshape(-1))


def _gguf_name(name: str, names: Mapping[str, str]) -> str:
    """Returns the name that a GGUF file has for a tensor of transformers."""
    for front in _FRONTS:
        if name.startswith(front):
            rest = name.removeprefix(front)
            name = rest if front == "bert." else f"model.{rest}"
    if name.startswith(_BASE):  # a model without its output matrix
        name = f"model.{name}"
    module, _, kind = name.rpartition(".")
    block = _BLOCK.match(name)
    if block is None:
        return f"{names[module]}.{kind}" if module in names else name
    module = module[block.end() :]
    expert = _EXPERT.match(module)
    if expert is not None and expert[2] in _EXPERT_NAMES:
        return f"{_ONE_EXPERT}blk.{block[1]}.{_EXPERT_NAMES[expert[2]]}.{kind}#{expert[1]}"
    return f"blk.{block[1]}.{names[module]}.{kind}" if module in names else name


def _plain(name: str, array: Array, dtype: DType = DType.F32) -> Tensor:
    """A tensor that is not in blocks."""
    flat = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
    return Tensor(name, array.shape, dtype.name, flat)
