"""An answer of a model as it is written, piece by piece."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Container, Iterator, Sequence
from typing import Literal

import numpy as np

from rlx.backends.executable import Pending
from rlx.errors import CancelledError, InputError
from rlx.ir.opdef import Array
from rlx.lm.token_cache import TokenCache
from rlx.lm.token_sampling import Sampler, Sampling
from rlx.lm.tokenizer import Tokenizer

Reason = Literal["", "stop", "length", "context", "cancelled", "error"]


class Generation:
    """The text that follows a prompt. It is written as it is asked for: ``for piece in generation``, or ``async for``.

    An answer that nobody holds any more ends by itself.

    Attributes:
        prompt: Tokens of the prompt.
        tokens: Tokens that were drawn so far, the one that ended the answer left out.
        text: The text so far; empty without a tokenizer.
        reason: Why the answer ended: "stop" a token or text that ends it, "length" ``max_tokens``, "context" there is no
            more room, "cancelled", "error" an exception; "" while it goes on.
        cut: Whether a stop text ended the answer. Its tokens are among ``tokens``, but it is not in ``text``.
        first_seconds: Time until the first token was drawn.
        seconds: Time until the last one was, that of the caller left out.
    """

    prompt: list[int]
    tokens: list[int]
    text: str
    cut: bool
    first_seconds: float
    seconds: float

    def __init__(
        self,
        take: Callable[[], TokenCache],
        tokenizer: Tokenizer | None,
        prompt: Sequence[int],
        sampling: Sampling,
        max_tokens: int,
        stop: Sequence[str] = (),
        ends: Container[int] = (),
        ended: Callable[[Generation], None] | None = None,
    ) -> None:
        """Checks the settings. Nothing is computed before the first token is asked for.

        Args:
            take: Returns the cache that reads the tokens.
            tokenizer: Makes texts of them.
            prompt: The tokens before the answer.
            sampling: How tokens are drawn.
            max_tokens: The answer ends after so many.
            stop: Texts that end it.
            ends: Tokens that end it.
            ended: Is called once, when it is over.
        """
        if type(max_tokens) is not int or max_tokens < 1:
            raise InputError("max_tokens", got=repr(max_tokens), expected="1 or above")
        if isinstance(stop, str) or not all(isinstance(item, str) and item for item in stop):
            raise InputError("stop", got=repr(stop), expected="texts that are not empty")
        if stop and tokenizer is None:
            raise InputError("stop texts need a tokenizer, and the model has none")
        self.prompt, self.tokens, self.text = list(prompt), list[int](), ""
        self.reason: Reason = ""
        self.cut = False
        self.first_seconds = self.seconds = 0.0
        self._take, self._sampler = take, Sampler(sampling)
        self._cache: TokenCache | None = None
        self._stream = None if tokenizer is None else tokenizer.stream(self.prompt)
        self._most, self._stop, self._ends = max_tokens, tuple(stop), ends
        self._held, self._seen = "", list(self.prompt)
        self._cancel, self._turn = threading.Event(), threading.Lock()
        self._over, self._ended = False, ended
        # The step that was started before its token was known, and its random number.
        self._ahead: tuple[Pending, float] | None = None

    def cancel(self) -> None:
        """Ends the answer before its next token. Any thread may call it."""
        self._cancel.set()

    def ids(self) -> Iterator[int]:
        """Yields tokens in place of texts."""
        while True:
            count = len(self.tokens)
            with self._turn:
                if not self._over:
                    self._advance()
            if len(self.tokens) == count:
                return
            yield self.tokens[-1]

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        if self._stream is None:
            raise InputError("the model has no tokenizer", hint="take ids(), or load it with one")
        with self._turn:
            while not self._over:
                piece = self._advance()
                if piece:
                    return piece
        raise StopIteration

    def __aiter__(self) -> Generation:
        return self

    async def __anext__(self) -> str:
        piece = await asyncio.to_thread(next, self, None)
        if piece is None:
            raise StopAsyncIteration
        return piece

    def close(self) -> None:
        """Ends the answer here; waits for a token that another thread is computing."""
        self._cancel.set()
        with self._turn:
            self._end("cancelled")

    def __del__(self) -> None:
        if not getattr(self, "_over", True):
            self._end("cancelled")

    def read(self) -> str:
        """Returns the whole text, once it is written."""
        for _ in self:
            pass
        return self.text

    def _end(self, reason: Reason) -> None:
        """The answer is over: tells who asked for it, once."""
        if self._over:
            return
        self._over, self.reason = True, self.reason or reason
        if self._stream is not None:
            self.text, self._held = self.text + self._held + self._stream.rest(), ""
        ended, self._ended = self._ended, None
        if ended is not None:
            ended(self)

    def _advance(self) -> str:
        """Draws a token, and returns the text that is known now. The answer is over where that was the last one."""
        try:
            return self._told(self._next_piece())
        except Exception:
            self._end("error")
            raise
        except BaseException:
            self._end("cancelled")
            raise

    def _next_piece(self) -> str:
        """The text of the next token. A reason is set where the answer ends with it."""
        start = time.perf_counter()
        try:
            token = self._draw()
        except CancelledError:
            self.reason = "cancelled"
            return ""
        now = time.perf_counter() - start
        self.first_seconds = self.first_seconds or now
        self.seconds += now
        if token in self._ends:
            self.reason = "stop"
            return ""
        self.tokens.append(token)
        self._seen.append(token)
        if len(self.tokens) >= self._most:
            self.reason = "length"
        elif self._ahead is None and self._cache is not None and self._cache.is_full:
            self.reason = "context"
        return self._stream.add(token) if self._stream else ""

    def _draw(self) -> int:
        """Reads the last token, and draws the next one."""
        if self._cancel.is_set():
            raise CancelledError("the answer was cancelled")
        if self._cache is None:
            self._cache = self._take()
        if not self._sampler.sampling.on_device:
            return self._sampler.draw(self._logits(self._cache), self._seen)
        now, number = self._ahead or self._next(self._cache)
        self._ahead = None
        if self._runs_ahead(self._cache):
            settings, later = self._settings(self._seen)
            self._ahead = self._cache.draw_ahead(settings), later
        token = int(now.wait()[0][0])
        if token >= 0 and self._ahead is not None:
            self._cache.settle(token)
        return token if token >= 0 else self._drawn_by_host(self._cache, number)

    def _next(self, cache: TokenCache) -> tuple[Pending, float]:
        """Starts the run that draws a token, where that was not done ahead."""
        settings, number = self._settings(self._seen[:-1])
        return cache.draw(self._unread(cache), settings, self._cancel), number

    def _settings(self, before: Sequence[int]) -> tuple[Array, float]:
        """Settings by which the device draws a token, and the random number."""
        number = self._sampler.number()
        return self._sampler.sampling.settings(number, before), number

    def _unread(self, cache: TokenCache) -> Sequence[int]:
        """The tokens that the cache has to read."""
        if not self.tokens:
            return cache.rest_of(self.prompt)
        if cache.room < 1:
            cache.shift(self._cancel)
        return self.tokens[-1:]

    def _logits(self, cache: TokenCache) -> Array:
        """The logits of the next token."""
        if not self.tokens:
            return cache.continue_with(self.prompt, self._cancel)
        logits: Array = cache.read(self._unread(cache))[-1]
        return logits

    def _runs_ahead(self, cache: TokenCache) -> bool:
        """Returns whether the next step is worth a start before this one's token is known: on devices that run beside us."""
        return cache.runs_beside and len(self.tokens) + 1 < self._most and cache.room > 0

    def _drawn_by_host(self, cache: TokenCache, number: float) -> int:
        """Draws a token that the device could not tell, of the logits behind the last one."""
        cache.rewind(len(cache.tokens) - (1 if self._ahead is None else 2))
        self._ahead = None
        return self._sampler.draw(cache.read(self._seen[-1:])[-1], self._seen, number)

    def _told(self, piece: str) -> str:
        """The text that surely belongs to the answer. What may be the beginning of a stop text waits until it is known."""
        if self.reason and self._stream:
            piece += self._stream.rest()
        self._held += piece
        found = [self._held.find(item) for item in self._stop if item in self._held]
        if found:
            self._held, self.reason, self.cut = self._held[: min(found)], "stop", True
        ready = len(self._held) - (0 if self.reason else _waiting(self._held, self._stop))
        piece, self._held = self._held[:ready], self._held[ready:]
        self.text += piece
        if self.reason:
            self._end(self.reason)
        return piece


def _waiting(text: str, stop: Sequence[str]) -> int:
    """The characters at the end of a text that may be the beginning of a stop text."""
    return max(
        (
            size
            for item in stop
            for size in range(1, min(len(item), len(text) + 1))
            if text.endswith(item[:size])
        ),
        default=0,
    )


def log_softmax(logits: Array) -> Array:
    """Returns logarithms of probabilities, f64 of the same shape."""
    shifted = logits.astype(np.float64) - logits.max(-1, keepdims=True)
    result: Array = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return result
