"""The tokenizers that files describe, as the tokenizers library builds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import ImportModelError, listed

if TYPE_CHECKING:
    from tokenizers import Tokenizer as Library

# Types of tokens in the files.
UNKNOWN, CONTROL, OWN, BYTE = 2, 3, 4, 6
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
WHOLE = {"llama-bpe", "llama3", "llama-v3", "falcon3", "tekken"}
Get = Callable[..., Any]


def refuse(what: str, got: object = None, expected: object = None) -> ImportModelError:
    """Returns the error for a vocabulary that can't be used."""
    return ImportModelError(f"[tokenizer] {what}", got=got, expected=expected)


def texts(value: Any) -> bool:
    """Returns whether a value is a sequence of at least one text."""
    several = isinstance(value, Sequence) and not isinstance(value, str) and bool(value)
    return several and all(type(item) is str for item in value)


def byte_level(get: Get, tokens: list[str], types: list[int]) -> Library:
    """Returns BPE over bytes with the merges of the file ("gpt2")."""
    from tokenizers import Regex, Tokenizer, decoders, pre_tokenizers
    from tokenizers.models import BPE

    pre, merges = get("pre", "default"), get("merges")
    if pre not in _CUTS:
        raise refuse("texts are cut in a way that is not known", pre, listed(_CUTS))
    pairs = [tuple(merge.split(" ")) for merge in merges] if texts(merges) else []
    vocabulary = {token: index for index, token in enumerate(tokens)}
    wrong = [
        pair for pair in pairs if len(pair) != 2 or not {*pair, "".join(pair)} <= vocabulary.keys()
    ]
    if wrong:
        raise refuse("a merge is of tokens that the vocabulary lacks", " ".join(wrong[0]))
    result = Tokenizer(BPE(vocabulary, pairs, ignore_merges=pre in WHOLE))
    cuts = [pre_tokenizers.Split(Regex(cut), "isolated") for cut in _CUTS[pre] if cut]
    last = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=None in _CUTS[pre])
    result.pre_tokenizer = pre_tokenizers.Sequence([*cuts, last])
    result.decoder = decoders.ByteLevel()
    return result


def _scores(get: Get, tokens: list[str]) -> list[float]:
    scores: list[float] = get("scores", np.zeros(0)).tolist()
    if len(scores) != len(tokens):
        raise refuse("scores", len(scores), len(tokens))
    return scores


def sentence_piece(get: Get, tokens: list[str], types: list[int]) -> Library:
    """Returns BPE over characters; the file has scores, and the better of two pieces is merged first ("llama")."""
    from tokenizers import Tokenizer
    from tokenizers.models import BPE

    scores = _scores(get, tokens)
    vocabulary = {token: index for index, token in enumerate(tokens)}
    normal = [index for index, type in enumerate(types) if type not in (UNKNOWN, CONTROL, BYTE)]
    merges = [
        (tokens[index][:cut], tokens[index][cut:])
        for index in sorted(normal, key=lambda index: (-scores[index], index))
        for cut in range(1, len(tokens[index]))
        if tokens[index][:cut] in vocabulary and tokens[index][cut:] in vocabulary
    ]
    unknown = [token for token, type in zip(tokens, types) if type == UNKNOWN]
    model = BPE(vocabulary, merges, unk_token=unknown[0] if unknown else None, fuse_unk=True,
                byte_fallback=_has_bytes(vocabulary))  # fmt: skip
    return _with_spaces(Tokenizer(model), get)


def unigram(get: Get, tokens: list[str], types: list[int]) -> Library:
    """Returns SentencePiece's unigram model: the pieces of the largest sum of scores ("t5")."""
    from tokenizers import Tokenizer, normalizers
    from tokenizers.models import Unigram

    scores = _scores(get, tokens)
    unknown = next((index for index, type in enumerate(types) if type == UNKNOWN), None)
    pieces = list(zip(tokens, scores))
    vocabulary = {token: index for index, token in enumerate(tokens)}
    result = Tokenizer(Unigram(pieces, unknown, _has_bytes(vocabulary)))
    _with_spaces(result, get)
    characters = get("precompiled_charsmap", np.zeros(0, np.uint8))
    if characters.size:
        first = normalizers.Precompiled(characters.astype(np.uint8).tobytes())
        result.normalizer = normalizers.Sequence([first, result.normalizer])
    return result


def _has_bytes(vocabulary: dict[str, int]) -> bool:
    return all(f"<0x{byte:02X}>" in vocabulary for byte in range(256))


def _with_spaces(result: Library, get: Get) -> Library:
    """Has spaces stand as SentencePiece writes them, one before the first word."""
    from tokenizers import Regex, decoders, normalizers

    prefix: list[normalizers.Normalizer] = (
        [normalizers.Prepend("▁")] if get("add_space_prefix", True) else []
    )
    if get("remove_extra_whitespaces", False):
        prefix = [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " "), *prefix]
    result.normalizer = normalizers.Sequence([*prefix, normalizers.Replace(" ", "▁")])
    strip = [decoders.Strip(" ", 1, 0)] if get("add_space_prefix", True) else []
    result.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), *strip]
    )
    return result


def word_piece(get: Get, tokens: list[str], types: list[int]) -> Library:
    """Returns BERT's WordPiece. Files mark the pieces that begin a word, and the library those that do not ("bert")."""
    from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
    from tokenizers.models import WordPiece

    def plain(token: str) -> str:
        if token.startswith("▁"):
            return token[1:]
        return token if token.startswith("[") and token.endswith("]") else f"##{token}"

    vocabulary = {plain(token): index for index, token in enumerate(tokens)}
    unknown = get("unknown_token_id", vocabulary.get("[UNK]"))
    if type(unknown) is not int or not 0 <= unknown < len(tokens):
        raise refuse("there is no token for unknown words", unknown)
    result = Tokenizer(WordPiece(vocabulary, unk_token=plain(tokens[unknown])))
    result.normalizer = normalizers.BertNormalizer(lowercase=True)
    result.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    result.decoder = decoders.WordPiece()
    return result


# Kinds of vocabularies by their names in files.
MAKERS: dict[str, Callable[[Get, list[str], list[int]], Library]] = {
    "gpt2": byte_level, "llama": sentence_piece, "t5": unigram, "bert": word_piece,
}  # fmt: skip
