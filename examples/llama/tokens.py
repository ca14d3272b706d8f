"""The tokenizer that a GGUF file describes, run by the tokenizers library."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from rlx import ImportModelError

try:
    import tokenizers
except ImportError:
    raise ImportError("text needs the tokenizers library: pip install tokenizers") from None

from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers
from tokenizers.models import BPE

# The types of values that are read without another check.
_KINDS = {
    "model": str, "pre": str, "token_type": np.ndarray, "scores": np.ndarray,
    "add_bos_token": bool, "add_space_prefix": bool,
}  # fmt: skip
# Types of tokens in the files.
_UNKNOWN, _CONTROL, _OWN, _BYTE = 2, 3, 4, 6
_WORDS = r"[^\r\n\p{L}\p{N}]?\p{L}+"
_REST = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_SHORT = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
# How a text is cut before its parts are encoded, under the names that files have for it. None
# stands for GPT-2's way, which the library knows.
_LLAMA3 = (rf"{_SHORT}|{_WORDS}|\p{{N}}{{1,3}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",)
_DIGITS = (r"\p{N}", None)
_QWEN = (rf"{_SHORT}|{_WORDS}|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n]*|{_REST}",)
_TEKKEN = (
    rf"[^\r\n\p{{L}}\p{{N}}]?{_UPPER}*{_LOWER}+|[^\r\n\p{{L}}\p{{N}}]?{_UPPER}+{_LOWER}*"
    rf"|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|{_REST}",
)
_CUTS: dict[str, tuple[str | None, ...]] = {
    "default": (None,), "gpt-2": (None,), "gpt2": (None,), "mpt": (None,), "olmo": (None,),
    "phi-2": (None,), "llama-bpe": _LLAMA3, "llama3": _LLAMA3, "llama-v3": _LLAMA3,
    "falcon3": _LLAMA3, "smaug-bpe": _LLAMA3, "dbrx": _LLAMA3,
    "smollm": _DIGITS, "starcoder": _DIGITS, "refact": _DIGITS, "command-r": _DIGITS,
    "codeshell": _DIGITS, "exaone": _DIGITS, "qwen2": _QWEN, "stablelm2": _QWEN, "tekken": _TEKKEN,
}  # fmt: skip
# Those that take a whole part for a token where there is one, and begin a text with a token.
_WHOLE = {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"}


class Tokenizer:
    """Texts to tokens and back.

    Args:
        metadata: That of a GGUF file: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama").

    Attributes:
        begin: The token a text begins with, or None.
        ends: Tokens that end a text.

    Raises:
        ImportModelError: There is no vocabulary, or one of another kind.
    """

    def __init__(self, metadata: Mapping[str, Any]) -> None:
        def get(name: str, default: Any = None) -> Any:
            result = metadata.get(f"tokenizer.ggml.{name}", default)
            legal = _KINDS.get(name, object)
            if not isinstance(result, legal) and result is not default:
                raise _error(name, f"{result!r:.80}", legal.__name__)
            return result

        self.tokens = get("tokens")
        kind, makers = get("model"), {"gpt2": _byte_level, "llama": _sentence_piece}
        if kind not in makers or not _texts(self.tokens):
            raise _error("no vocabulary that can be used", kind, " or ".join(makers))
        if len(set(self.tokens)) != len(self.tokens):
            raise _error("a token stands in the vocabulary twice")
        types = get("token_type", np.ones(len(self.tokens), np.int32)).tolist()
        if len(types) != len(self.tokens):
            raise _error("token_type", len(types), len(self.tokens))
        pre = get("pre", "default")
        self.library = makers[kind](get, self.tokens, types)
        added = [
            AddedToken(token, special=type == _CONTROL, normalized=False)
            for token, type in zip(self.tokens, types)
            if type in (_CONTROL, _OWN)
        ]
        self.library.add_tokens(added)
        begins = get("add_bos_token", kind == "llama" or pre in _WHOLE)
        self.begin = self._known(get("bos_token_id")) if begins else None
        ends = (get(f"{name}_token_id") for name in ("eos", "eot", "eom"))
        self.ends = frozenset(end for end in map(self._known, ends) if end is not None)

    def _known(self, token: Any) -> int | None:
        if token is None:
            return None
        if type(token) is not int or not 0 <= token < len(self.tokens):
            raise _error("a special token is not in the vocabulary", token, len(self.tokens))
        return token

    def encode(self, text: str) -> list[int]:
        """Returns the tokens of a text, the start token included."""
        result = self.library.encode(text, add_special_tokens=False).ids
        return result if self.begin is None else [self.begin, *result]

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; control tokens have none."""
        return str(self.library.decode(list(tokens), skip_special_tokens=True))

    def stream(self, tokens: Iterable[int]) -> Iterator[str]:
        """The text of tokens piece by piece, a piece as soon as its characters are whole."""
        stream = decoders.DecodeStream(skip_special_tokens=True)
        for token in tokens:
            piece = stream.step(self.library, token)
            if piece:
                yield piece


def _error(what: str, got: object = None, expected: object = None) -> ImportModelError:
    return ImportModelError(f"[tokenizer] {what}", got=got, expected=expected)


def _texts(result: Any) -> bool:
    return (
        isinstance(result, list) and all(isinstance(item, str) for item in result) and bool(result)
    )


def _byte_level(get: Any, tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    """BPE over bytes with the merges of the file."""
    pre, merges = get("pre", "default"), get("merges")
    if pre not in _CUTS:
        raise _error("texts are cut in a way that is not known", pre, ", ".join(_CUTS))
    pairs = [tuple(merge.split(" ")) for merge in merges] if _texts(merges) else []
    vocabulary = {token: index for index, token in enumerate(tokens)}
    wrong = [
        pair for pair in pairs if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys()
    ]
    if wrong:
        raise _error("a merge is of tokens that the vocabulary lacks", " ".join(wrong[0]))
    result = tokenizers.Tokenizer(BPE(vocabulary, pairs, ignore_merges=pre in _WHOLE))
    cuts = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in _CUTS[pre] if cut]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=None in _CUTS[pre])
    result.pre_tokenizer = pre_tokenizers.Sequence([*cuts, last])
    result.decoder = decoders.ByteLevel()
    return result


def _sentence_piece(get: Any, tokens: list[str], types: list[int]) -> tokenizers.Tokenizer:
    """BPE over characters; the file has scores, and the better of two pieces is merged first."""
    scores = get("scores", np.zeros(0)).tolist()
    if len(scores) != len(tokens):
        raise _error("scores", len(scores), len(tokens))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    normal = [index for index, type in enumerate(types) if type not in (_UNKNOWN, _CONTROL, _BYTE)]
    merges = [
        (tokens[index][:cut], tokens[index][cut:])
        for index in sorted(normal, key=lambda index: (-scores[index], index))
        for cut in range(1, len(tokens[index]))
        if tokens[index][:cut] in vocabulary and tokens[index][cut:] in vocabulary
    ]
    unknown = [token for token, type in zip(tokens, types) if type == _UNKNOWN]
    has_bytes = all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))
    model = BPE(vocabulary, merges, unk_token=unknown[0] if unknown else None, fuse_unk=True,
                byte_fallback=has_bytes)  # fmt: skip
    result = tokenizers.Tokenizer(model)
    prefix = [normalizers.Prepend("▁")] if get("add_space_prefix", True) else []
    result.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if prefix else []
    result.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return result
