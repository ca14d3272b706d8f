"""Texts to tokens and back, by the vocabulary of a file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from rlx.errors import ImportModelError, InputError, first_line, install_line, listed
from rlx.lm.folder import read_json, whole_numbers
from rlx.lm.vocabulary import CONTROL, MAKERS, OWN, WHOLE, refuse, texts

if TYPE_CHECKING:
    import tokenizers

# The types of values that are read without another check.
_KINDS = {
    "model": str, "pre": str, "token_type": np.ndarray, "scores": np.ndarray,
    "add_bos_token": bool, "add_eos_token": bool, "add_space_prefix": bool,
    "remove_extra_whitespaces": bool, "precompiled_charsmap": np.ndarray,
}  # fmt: skip
# Tokens that end an answer in one format of chats or another, besides the one that ends a text.
_ENDS = (
    "<|im_end|>",
    "<|eot_id|>",
    "<|end|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "</s>",
    "<|end_of_text|>",
)


# What stands for bytes that are no character. A character has four bytes at most; longer waits are for none.
_INCOMPLETE, _LONGEST_WAIT = "\N{REPLACEMENT CHARACTER}", 16
# Characters before a text that is encoded alone.
_SEAM = 64


class Tokenizer:
    """Texts to tokens and back.

    Attributes:
        library: The tokenizer of the tokenizers library.
        begin: The token that a text begins with, or None.
        end: The token that a text ends with when a model reads it whole, or None.
        ends: Tokens that end an answer.
        chat_template: The file's own template of chats, or None.
        names: Special tokens by the names that templates have for them ("bos_token").
    """

    library: tokenizers.Tokenizer
    begin: int | None
    end: int | None
    ends: frozenset[int]
    chat_template: str | None
    names: dict[str, str]

    def __init__(
        self,
        library: tokenizers.Tokenizer,
        begin: int | None = None,
        end: int | None = None,
        ends: Iterable[int] = (),
        chat_template: str | None = None,
        names: Mapping[str, str] | None = None,
    ) -> None:
        self.library, self.begin, self.end = library, begin, end
        # Some files mark such tokens as their own, not as control tokens.
        added = library.get_added_tokens_decoder().items()
        found = (index for index, token in added if token.content in _ENDS)
        self.ends = frozenset({*ends, *found})
        self.chat_template, self.names = chat_template, dict(names or {})

    @property
    def size(self) -> int:
        """The number of tokens."""
        return int(self.library.get_vocab_size(with_added_tokens=True))

    def encode(self, text: str, whole: bool = True) -> list[int]:
        """Returns the tokens of a text.

        Args:
            text: The text. Names of special tokens stand for these.
            whole: Whether the tokens that begin and end a text are added.

        Raises:
            InputError: It is no text.
        """
        if not isinstance(text, str):
            raise InputError("not a text", got=type(text).__name__, expected="str")
        result = list(self.library.encode(text, add_special_tokens=False).ids)
        if whole and self.begin is not None and result[:1] != [self.begin]:
            result.insert(0, self.begin)
        return [*result, self.end] if whole and self.end is not None else result

    def decode(self, tokens: Sequence[int], special: bool = False) -> str:
        """Returns the text of tokens.

        Args:
            tokens: The tokens.
            special: Whether special tokens stand in it by their names.
        """
        return str(self.library.decode(list(tokens), skip_special_tokens=not special))

    def stream(self, before: Sequence[int] = ()) -> TextStream:
        """Returns what turns tokens into text one by one.

        Args:
            before: Tokens whose text came before.
        """
        return TextStream(self, before)

    def encode_behind(self, before: str, text: str) -> list[int]:
        """Returns the tokens of a text that follows another one, whose tokens are known.

        Vocabularies that put a space before the first word put none here.

        Args:
            before: The text that comes before.
            text: The text.
        """
        first = self.encode(before[-_SEAM:], whole=False)
        both = self.encode(before[-_SEAM:] + text, whole=False)
        apart = both[: len(first)] != first  # a token would span the two
        return self.encode(text, whole=False) if apart else both[len(first) :]


class TextStream:
    """Turns tokens into text one by one. A character whose bytes are not all there waits for the others.

    Args:
        tokenizer: The tokenizer.
        before: Tokens whose text came before. Where the first word of a text has no space, it has one behind them.
    """

    def __init__(self, tokenizer: Tokenizer, before: Sequence[int] = ()) -> None:
        self._tokenizer = tokenizer
        # Of the tokens before, so many from the end that they have a text.
        count = next(
            (n for n in range(1, len(before) + 1) if tokenizer.decode(before[-n:])), len(before)
        )
        self._tokens = list(before[len(before) - count :])
        self._told = len(self._tokens)

    def add(self, token: int) -> str:
        """Returns the text that a token completes; empty where it ends within a character."""
        self._tokens.append(token)
        result = self._new()
        waits = result.endswith(_INCOMPLETE) and len(self._tokens) - self._told < _LONGEST_WAIT
        if waits or not result:
            return ""
        self._tokens, self._told = self._tokens[self._told :], len(self._tokens) - self._told
        return result

    def rest(self) -> str:
        """Returns the text of tokens that no other one completed."""
        result, self._told = self._new(), len(self._tokens)
        return result

    def _new(self) -> str:
        before = self._tokenizer.decode(self._tokens[: self._told])
        return self._tokenizer.decode(self._tokens)[len(before) :]


def of_metadata(metadata: Mapping[str, Any]) -> Tokenizer:
    """Returns the tokenizer that a GGUF file describes.

    Raises:
        ImportModelError: There is no vocabulary, one of a kind that is not known, or one that contradicts itself.
        ImportError: The tokenizers library is not installed.
    """
    _library()
    from tokenizers import AddedToken

    def get(name: str, default: Any = None) -> Any:
        result = metadata.get(f"tokenizer.ggml.{name}", default)
        legal = _KINDS.get(name, object)
        if not isinstance(result, legal) and result is not default:
            raise refuse(name, f"{result!r:.80}", legal.__name__)
        return result

    tokens, kind = get("tokens"), get("model")
    if kind not in MAKERS or not texts(tokens):
        raise refuse("no vocabulary that can be used", kind, listed(MAKERS))
    tokens = list(tokens)
    if len(set(tokens)) != len(tokens):
        raise refuse("a token stands in the vocabulary twice")
    types = get("token_type", np.ones(len(tokens), np.int32)).tolist()
    if len(types) != len(tokens):
        raise refuse("token_type", len(types), len(tokens))

    def known(name: str) -> int | None:
        token = get(f"{name}_token_id")
        if token is None:
            return None
        if type(token) is not int or not 0 <= token < len(tokens):
            raise refuse("a special token is not in the vocabulary", token, len(tokens))
        return token

    try:
        library = MAKERS[kind](get, tokens, types)
    except ImportModelError:
        raise
    except Exception as error:  # the library raises no type of its own
        raise refuse("the vocabulary can't be used", first_line(error)) from None
    library.add_tokens(
        [
            AddedToken(token, special=type == CONTROL, normalized=False)
            for token, type in zip(tokens, types)
            if type in (CONTROL, OWN)
        ]
    )
    begins = get("add_bos_token", kind in ("llama", "bert") or get("pre", "default") in WHOLE)
    finishes = get("add_eos_token", kind in ("bert", "t5"))
    begin, end = known("bos"), known("eos")
    if kind == "bert":
        begin, end = known("cls") if begin is None else begin, known("seperator")
    ends = {token for token in (end, known("eot"), known("eom")) if token is not None}
    template = metadata.get("tokenizer.chat_template")
    names = {"bos_token": begin, "eos_token": end}
    return Tokenizer(
        library,
        begin if begins else None,
        end if finishes else None,
        ends,
        template if isinstance(template, str) else None,
        {name: tokens[token] for name, token in names.items() if token is not None},
    )


def end_tokens(metadata: Mapping[str, Any]) -> frozenset[int]:
    """Returns the tokens that end an answer as a file's metadata name them, without the tokenizers library."""
    names = ("eos", "eot", "eom")
    found = (metadata.get(f"tokenizer.ggml.{name}_token_id") for name in names)
    return frozenset(token for token in found if type(token) is int)


def of_folder(folder: Path) -> Tokenizer:
    """Returns the tokenizer of a folder of transformers: ``tokenizer.json`` and ``tokenizer_config.json``.

    Raises:
        ImportModelError: A file is missing or malformed.
        ImportError: The tokenizers library is not installed.
    """
    from_file = _library().from_file
    path = folder / "tokenizer.json"
    try:
        library = from_file(str(path))
    except Exception as error:  # the library raises no type of its own
        raise ImportModelError("tokenizer.json can't be read", where=path, got=error) from None
    config = _optional(folder / "tokenizer_config.json")
    names = {
        name: str(value.get("content") if isinstance(value, dict) else value)
        for name, value in config.items()
        if name in ("bos_token", "eos_token") and value
    }
    ends: list[int | None] = list(
        whole_numbers(_optional(folder / "generation_config.json").get("eos_token_id"))
    )
    if "eos_token" in names:
        ends.append(library.token_to_id(names["eos_token"]))
    library.no_truncation()
    library.no_padding()
    # A post-processor says what a text begins and ends with.
    begin, end = _around(library)
    template = config.get("chat_template")
    file = folder / "chat_template.jinja"
    if file.exists():
        try:
            template = file.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ImportModelError("the template can't be read", where=file, got=error) from None
    return Tokenizer(
        library,
        begin,
        end,
        [token for token in ends if token is not None],
        template if isinstance(template, str) else None,
        names,
    )


def _around(library: tokenizers.Tokenizer) -> tuple[int | None, int | None]:
    """The tokens that a text begins and ends with."""
    plain, whole = (library.encode("a", add_special_tokens=added).ids for added in (False, True))
    fits = (i for i in range(len(whole)) if whole[i : i + len(plain)] == plain)
    first = next(fits, 0)
    before, behind = whole[:first], whole[first + len(plain) :]
    return before[0] if before else None, behind[-1] if behind else None


def _optional(path: Path) -> dict[str, Any]:
    return read_json(path) if path.exists() else {}


def _library() -> type[tokenizers.Tokenizer]:
    try:
        from tokenizers import Tokenizer
    except ImportError:
        what = f"texts need the tokenizers library; {install_line('.[lm]')}"
        raise ImportError(what, name="tokenizers") from None
    return Tokenizer
