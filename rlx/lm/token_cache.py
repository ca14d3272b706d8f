"""The tokens that a model has read, with their keys and values on the device."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from rlx.backends.executable import Pending
from rlx.errors import CancelledError, InputError
from rlx.ir.opdef import Array, TensorType
from rlx.lm.token_sampling import Sampling
from rlx.runtime.compiled import CompiledGraph

# Settings of runs whose token nobody wants.
_NEUTRAL = Sampling(temperature=0.0).settings(0.0)


class TokenCache:
    """The tokens that were read, and the memory of their keys and values.

    Args:
        compiled: The graph of ``Network.decoder``, whose states this object owns.
        types: Types of the states, by name; the first axis has the tokens that there is room for.
        chunk: Most tokens of a run.
        vocabulary: The number of tokens that the model knows.

    Attributes:
        tokens: The tokens that were read; the last one is -1 while the device alone knows it.
        computed: The number of tokens that runs have read, rewound ones too.
        context: Tokens that there is room for.
        keep: First tokens that ``shift`` keeps, such as those of a system message; None where it makes no room.
    """

    computed: int
    context: int
    keep: int | None

    def __init__(
        self, compiled: CompiledGraph, types: Mapping[str, TensorType], chunk: int, vocabulary: int
    ) -> None:
        self._compiled, self._vocabulary = compiled, vocabulary
        self._chunk = chunk
        self._types = dict(types)
        for name, type in self._types.items():
            compiled.bind_gpu_handle(name, np.zeros(type.shape, type.dtype.numpy))
        self.tokens: list[int] = []
        self.computed, self.context = 0, next(iter(self._types.values())).shape[0]
        compiled.bind_gpu_handle("drawn", np.zeros(1 + self.context, np.int32))
        self.keep = None
        self._last: Array | None = None
        self._lock = threading.RLock()

    @property
    def room(self) -> int:
        """The number of tokens that may follow."""
        return self.context - len(self.tokens)

    @property
    def runs_beside(self) -> bool:
        """True where the device computes while the host goes on."""
        return self._compiled.device.backend != "cpu"

    @property
    def is_full(self) -> bool:
        """True where no token may follow, and none is forgotten to make room."""
        return self.room < 1 and self.keep is None

    def continue_with(self, tokens: Sequence[int], cancel: threading.Event | None = None) -> Array:
        """Has the cache hold some tokens. Those at their beginning that it holds already are kept.

        Args:
            tokens: All tokens of the text.
            cancel: Ends it between two runs.

        Returns:
            The logits of the next token, f32 ``[vocabulary]``.

        Raises:
            InputError: There are no tokens, more than there is room for, or unknown ones.
            CancelledError: ``cancel`` was set. What was read until then is kept.
        """
        with self._lock:
            if self._last is not None and self.tokens == list(tokens):
                return self._last
            result: Array = self.read(self.rest_of(tokens), cancel=cancel)[-1]
            return result

    def rest_of(self, tokens: Sequence[int]) -> Sequence[int]:
        """Forgets what differs from some tokens. Returns those that are not read yet, the last one at least.

        Raises:
            InputError: There are no tokens, or more than there is room for.
        """
        if not 1 <= len(tokens) <= self.context:
            raise InputError("tokens of a text", got=len(tokens), expected=f"1 to {self.context}")
        with self._lock:
            self.rewind(min(common(self.tokens, tokens), len(tokens) - 1))
            return tokens[len(self.tokens) :]

    def read(
        self, tokens: Sequence[int], every: bool = False, cancel: threading.Event | None = None
    ) -> Array:
        """Reads tokens behind those that were read before.

        Args:
            tokens: At least one.
            every: Whether the logits behind all of them are returned, not behind the last one alone.
            cancel: Ends it between two runs.

        Returns:
            f32 ``[tokens or 1, vocabulary]``.

        Raises:
            InputError: There is no room for them, or the model does not know one.
            CancelledError: ``cancel`` was set. What was read until then is kept.
        """
        results: list[Array] = []
        for part in self._parts(self._checked(tokens), cancel):
            with self._lock:
                logits, _ = self._compiled.run(self._inputs(part, _NEUTRAL, every))
                self._was_read(part)
                self._last = logits[-1]
            results = [*results, logits] if every else [logits]
        return np.concatenate(results)

    def draw(
        self, tokens: Sequence[int], settings: Array, cancel: threading.Event | None = None
    ) -> Pending:
        """Reads tokens as ``read`` does, and has the device draw the next one.

        Args:
            tokens: At least one.
            settings: How it is drawn; see ``Sampling.settings``.
            cancel: Ends it between two runs.

        Returns:
            The last run: its only output is the token, i32 ``[1]``; -1 where the device can't tell.
        """
        pending = None
        for part in self._parts(self._checked(tokens), cancel):
            if pending is not None:
                pending.wait()
            pending = self._enqueue(part, settings)
        assert pending is not None
        return pending

    def draw_ahead(self, settings: Array) -> Pending:
        """Reads the token that the last run draws, before that run is over; ``settle`` says which one it was."""
        return self._enqueue(np.array([-1], np.int32), settings)

    def settle(self, token: int) -> None:
        """Says which token the device has read last."""
        with self._lock:
            self.tokens[-1] = token

    def _parts(self, tokens: Array, cancel: threading.Event | None) -> Iterator[Array]:
        """So few tokens at a time that one run takes them."""
        for start in range(0, len(tokens), self._chunk):
            if cancel is not None and cancel.is_set():
                got = f"{start} of {len(tokens)} tokens"
                raise CancelledError("reading was cancelled", got=got)
            yield tokens[start : start + self._chunk]

    def _inputs(self, tokens: Array, settings: Array, every: bool = False) -> dict[str, Array]:
        """The inputs of a run that reads tokens, and gives the logits behind all of them, or behind the last one."""
        position, wanted = np.array(len(self.tokens)), np.array(len(tokens) if every else 1)
        return {"tokens": tokens, "position": position, "wanted": wanted, "settings": settings}

    def _enqueue(self, tokens: Array, settings: Array) -> Pending:
        with self._lock:
            result = self._compiled.enqueue(self._inputs(tokens, settings), [1])
            self._was_read(tokens)
            return result

    def _was_read(self, tokens: Array) -> None:
        self.tokens.extend(tokens.tolist())
        self.computed += len(tokens)
        self._last = None

    def rewind(self, count: int) -> None:
        """Forgets all tokens but the first ones.

        Args:
            count: The number of tokens that stay.
        """
        with self._lock:
            if not 0 <= count <= len(self.tokens):
                raise InputError("tokens that stay", got=count, expected=f"0 to {len(self.tokens)}")
            if count < len(self.tokens):
                del self.tokens[count:]
                self._last = None

    def shift(self, cancel: threading.Event | None = None) -> Array:
        """Makes room: forgets the older half of the tokens behind the first ones, and reads the rest again.

        Args:
            cancel: Ends it between two runs.

        Returns:
            The logits of the next token.
        """
        keep = min(self.keep or 0, self.context // 2)
        rest = self.tokens[keep:]
        return self.continue_with([*self.tokens[:keep], *rest[(len(rest) + 1) // 2 :]], cancel)

    def copy_to(self, other: TokenCache, count: int) -> None:
        """Gives another cache of the same model the first tokens, with their keys and values."""
        tokens, states = self.states(count)
        if tokens:
            other.restore(tokens, states)

    def states(self, count: int | None = None) -> tuple[list[int], dict[str, Array]]:
        """Returns the first tokens or all, and their keys and values ``[tokens, kv_heads, size]`` by name."""
        with self._lock:
            tokens = self.tokens[:count]
            read = self._compiled.read_gpu_handle
            return tokens, {name: read(name)[: len(tokens)] for name in self._types}

    def restore(self, tokens: Sequence[int], states: Mapping[str, Array]) -> None:
        """Takes tokens with their keys and values.

        Raises:
            InputError: They are not of this model, or there is no room for them.
        """
        checked = self._checked(tokens, room=self.context)
        for name, type in self._types.items():
            wanted, given = (len(checked), *type.shape[1:]), states.get(name)
            if given is None or given.shape != wanted or given.dtype != type.dtype.numpy:
                got = None if given is None else f"{given.dtype}{given.shape}"
                expected, hint = f"{type.dtype.numpy}{wanted}", "load it with the same cache_dtype"
                what = f"state {name!r} is of another model or cache_dtype"
                raise InputError(what, got=got, expected=expected, hint=hint)
        with self._lock:
            for name, type in self._types.items():
                whole = np.zeros(type.shape, type.dtype.numpy)
                whole[: len(checked)] = states[name]
                self._compiled.bind_gpu_handle(name, whole)
            self.tokens, self._last = checked.tolist(), None

    def close(self) -> None:
        """Frees the memory."""
        self._compiled.close()

    def _checked(self, tokens: Sequence[int], room: int | None = None) -> Array:
        return checked_tokens(tokens, self.room if room is None else room, self._vocabulary)


def checked_tokens(tokens: Sequence[int] | Array, room: int, vocabulary: int) -> Array:
    """Returns tokens as an array, i32.

    Args:
        tokens: The tokens.
        room: Their largest number.
        vocabulary: The number of tokens that the model knows.

    Raises:
        InputError: There are none or too many, or the model does not know one.
    """
    array = np.asarray(tokens)
    if array.ndim != 1 or array.dtype.kind not in "iu" or not 0 < len(array) <= room:
        whole = array.ndim == 1 and (array.dtype.kind in "iu" or not array.size)
        got = len(array) if whole else f"{array.dtype}{array.shape}"
        raise InputError("tokens", got=got, expected=f"1 to {room} whole numbers")
    wrong = np.flatnonzero((array < 0) | (array >= vocabulary))
    if len(wrong):
        expected = f"0 to {vocabulary - 1}"
        raise InputError("no such token", got=int(array[wrong[0]]), expected=expected)
    return array.astype(np.int32)


def common(a: Sequence[int], b: Sequence[int]) -> int:
    """The number of first entries that two texts share."""
    count = min(len(a), len(b))
    first, second = np.asarray(a[:count]), np.asarray(b[:count])
    # Another thread may have cut one of them meanwhile.
    differ = np.flatnonzero(first != second) if len(first) == len(second) else np.array([0])
    return int(differ[0]) if len(differ) else count
