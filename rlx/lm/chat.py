"""A conversation that keeps what was computed."""

from __future__ import annotations

import json
import os
import weakref
import zipfile
import zlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import InputError, ModelFileError, first_line
from rlx.files import replace
from rlx.lm.chat_template import render
from rlx.lm.folder import whole_numbers
from rlx.lm.generation import Generation
from rlx.lm.token_cache import TokenCache
from rlx.lm.token_sampling import Sampling
from rlx.lm.tokenizer import Tokenizer

_VERSION = 1
# What damaged archives raise.
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error,
)  # fmt: skip


class ChatModel(Protocol):
    """The members of a model that a conversation uses; see ``LanguageModel``."""

    context: int
    fingerprint: str

    @property
    def tokenizer(self) -> Tokenizer:
        """Turns texts into tokens."""

    def take(self, tokens: Sequence[int]) -> TokenCache:
        """Returns a cache that nobody uses."""

    def give_back(self, cache: TokenCache) -> None:
        """Takes a cache back."""

    def share(self, cache: TokenCache, tokens: Sequence[int]) -> None:
        """Copies keys and values that another conversation has of these tokens."""


@dataclass(frozen=True)
class _Turn:
    """A conversation as it was before a message.

    Attributes:
        messages: The messages.
        text: What the model had read, as text.
        tokens: The same as tokens.
    """

    messages: tuple[dict[str, Any], ...]
    text: str
    tokens: tuple[int, ...]


class Chat:
    """A conversation with a model. ``LanguageModel.chat`` makes it.

    Each token is computed once: a message adds to what was read before. Where the context is full, the oldest messages
    behind the system message are forgotten.

    Attributes:
        messages: The messages so far, each with "role" and "content".
        sampling: How answers are drawn where ``send`` says nothing else.
    """

    messages: list[dict[str, Any]]

    def __init__(
        self,
        model: ChatModel,
        messages: Sequence[Mapping[str, Any]],
        sampling: Sampling,
        template: str,
        names: Mapping[str, Any],
    ) -> None:
        self._model, self._template = model, template
        self._cache: TokenCache | None = None
        self._names = {**model.tokenizer.names, **names}
        self.messages = [_message(item) for item in messages]
        self.sampling = sampling
        self._text, self._tokens, self._before = "", list[int](), 0
        self._turns: list[_Turn] = []
        self._going: Generation | None = None
        self._returned: weakref.finalize[Any, Any] | None = None

    @property
    def tokens_computed(self) -> int:
        """The number of tokens that the device has read for this conversation."""
        return 0 if self._cache is None else self._cache.computed - self._before

    def send(
        self,
        text: str | Mapping[str, Any],
        *,
        max_tokens: int = 512,
        stop: Sequence[str] = (),
        **settings: Any,
    ) -> Generation:
        """Says something, and returns the answer as it is written.

        Args:
            text: The message, or a mapping with "role" and "content" (a tool's result).
            max_tokens: The answer ends after so many.
            stop: Texts that end it; they are left out.
            **settings: Fields of ``Sampling`` that differ from ``self.sampling``.

        Returns:
            The answer, to loop over. It is added to ``messages`` when it ends.

        Raises:
            InputError: A setting is out of range, the message does not fit into the context, an answer still goes on, or
                the template refuses the conversation.
        """
        if self._going is not None and not self._going.reason:
            hint = "read it to its end, or close() it"
            raise InputError("the last answer still goes on", hint=hint)
        message = _message({"role": "user", "content": text} if isinstance(text, str) else text)
        sampling, messages = changed(self.sampling, settings), [*self.messages, message]
        room = min(max_tokens, self._model.context // 4) if type(max_tokens) is int else 1
        while True:
            whole, tokens = self._rendered(messages)
            if len(tokens) + room <= self._model.context:
                break
            messages = self._without_oldest(messages, len(tokens) + room)
        turn = _Turn(tuple(self.messages), self._text, tuple(self._tokens))

        def ended(answer: Generation) -> None:
            if answer.reason == "error":
                self._take_back(turn)
                return
            # Tokens that a stop text cut are encoded again with the next message.
            more = ("", []) if answer.cut else (answer.text, answer.tokens)
            self._text, self._tokens = whole + more[0], [*tokens, *more[1]]
            self.messages.append({"role": "assistant", "content": answer.text})

        keep = self._kept(messages, tokens)
        result = Generation(
            lambda: self._own(tokens, keep), self._model.tokenizer, tokens, sampling, max_tokens, stop,
            self._model.tokenizer.ends, ended,
        )  # fmt: skip
        self.messages, self._going = messages, result
        self._turns.append(turn)
        return result

    def undo(self) -> None:
        """Takes back the last message and its answer. The tokens before them are kept.

        Raises:
            InputError: There is no message to take back.
        """
        if self._going is not None:
            self._going.close()
        if not self._turns:
            raise InputError("there is no message to take back")
        self._take_back(self._turns[-1])

    def _take_back(self, turn: _Turn) -> None:
        """Has the conversation be what it was before a message."""
        del self._turns[self._turns.index(turn) :]
        self.messages = list(turn.messages)
        self._text, self._tokens = turn.text, list(turn.tokens)

    def cancel(self) -> None:
        """Ends the answer that is being written. Any thread may call it."""
        if self._going is not None and not self._going.reason:
            self._going.cancel()

    def save(self, path: str | os.PathLike[str]) -> None:
        """Writes the conversation with its keys and values, for ``LanguageModel.chat(load=path)``.

        Args:
            path: The file, a NumPy archive. It takes the place of an older one when it is whole.

        Raises:
            InputError: An answer still goes on.
            OSError: It can't be written.
        """
        if self._going is not None and not self._going.reason:
            raise InputError("an answer still goes on", hint="read it to its end, or close() it")
        header = {
            "version": _VERSION, "model": self._model.fingerprint, "messages": self.messages,
            "text": self._text, "tokens": self._tokens,
        }  # fmt: skip
        read, states = ([], {}) if self._cache is None else self._cache.states()
        named: dict[str, Any] = {
            **states,
            "read": np.array(read, np.int32),
            "header": np.array(json.dumps(header)),
        }
        whole = Path(path)
        beside = whole.with_name(f".{whole.name}.{os.getpid()}")
        try:
            with open(beside, "wb") as file:
                np.savez(file, **named)
            replace(beside, whole)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise

    def restore(self, path: str | os.PathLike[str]) -> None:
        """Goes on where ``save`` was called.

        Raises:
            ModelFileError: The file can't be read, is of another model, or has more tokens than there is room for.
        """
        try:
            with open(path, "rb") as file, zipfile.ZipFile(file):
                archive = np.load(file, allow_pickle=False)
                arrays = {name: archive[name] for name in archive.files}
            header = json.loads(str(arrays.pop("header")))
            version, model = header["version"], header["model"]
            messages = [_message(item) for item in header["messages"]]
            text, tokens = str(header["text"]), whole_numbers(header["tokens"])
            read = arrays.pop("read").tolist()
            if version != _VERSION or len(tokens) != len(header["tokens"]):
                raise ValueError(f"version {version!r:.20}, {len(tokens)} tokens")
        except _UNREADABLE as error:
            raise ModelFileError("no saved chat", where=path, got=first_line(error)) from None
        if model != self._model.fingerprint:
            raise ModelFileError("the chat is of another model", where=path, got=f"{model!r:.80}")
        if read:
            try:
                self._own([]).restore(read, arrays)
            except InputError as error:
                what = "the chat does not fit into this model's context"
                raise ModelFileError(what, where=path, got=" ".join(str(error).split())) from None
        self.messages, self._text, self._tokens, self._turns = messages, text, tokens, []

    def close(self) -> None:
        """Ends the conversation. Its memory serves the next one."""
        if self._going is not None:
            self._going.close()
        self._cache = None
        if self._returned is not None:
            self._returned()

    def __enter__(self) -> Chat:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def _own(self, tokens: Sequence[int], keep: int = 0) -> TokenCache:
        """The memory of this conversation. It begins with what others have computed of the same tokens."""
        if self._cache is None:
            self._cache = self._model.take(tokens)
            # It is given back in any case, when nobody holds this conversation any more.
            self._returned = weakref.finalize(self, self._model.give_back, self._cache)
            self._before = self._cache.computed
            self._model.share(self._cache, tokens)
        self._cache.keep = keep
        return self._cache

    def _rendered(self, messages: Sequence[Mapping[str, Any]]) -> tuple[str, list[int]]:
        """A conversation as text and as tokens. Where it goes on from what was read, its end alone is encoded."""
        text = render(self._template, messages, **self._names)
        tokenizer = self._model.tokenizer
        if self._text and text.startswith(self._text):
            more = tokenizer.encode_behind(self._text, text[len(self._text) :])
            return text, [*self._tokens, *more]
        begin, tokens = tokenizer.begin, tokenizer.encode(text, whole=False)
        if begin is not None and tokens[:1] != [begin]:
            tokens.insert(0, begin)
        return text, tokens

    def _without_oldest(self, messages: list[dict[str, Any]], needed: int) -> list[dict[str, Any]]:
        """The messages without the oldest question and its answer."""
        first = int(bool(messages) and messages[0]["role"] == "system")
        later = [
            index for index in range(first + 1, len(messages)) if messages[index]["role"] == "user"
        ]
        if not later:
            raise InputError(
                "the message does not fit into the context",
                got=f"{needed} tokens with room for an answer",
                expected=f"up to {self._model.context}",
                hint="load the model with a larger context",
            )
        return [*messages[:first], *messages[later[0] :]]

    def _kept(self, messages: Sequence[Mapping[str, Any]], tokens: Sequence[int]) -> int:
        """The tokens of the system message, which stay when the context is full."""
        if messages[0]["role"] != "system":
            return int(self._model.tokenizer.begin is not None)
        try:
            text = render(self._template, messages[:1], answer=False, **self._names)
        except InputError:  # some templates want a question first
            return 0
        return min(len(self._model.tokenizer.encode(text)), len(tokens))


def _message(given: Any) -> dict[str, Any]:
    """A message of its own, once it is checked."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise InputError("a message", got=f"{given!r:.80}", expected='a mapping with a "role"')
    return dict(given)


def changed(sampling: Sampling, settings: Mapping[str, Any]) -> Sampling:
    """Returns settings with some fields changed.

    Raises:
        InputError: There is no such field, or a value is out of its range.
    """
    fields = {name: getattr(sampling, name) for name in Sampling.__dataclass_fields__}
    unknown = [name for name in settings if name not in fields]
    if unknown:
        raise InputError("no such setting", got=unknown[0], expected=", ".join(fields))
    return Sampling(**{**fields, **settings})
