"""A language model, loaded on a device."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast, get_args

import numpy as np

from rlx.backends.base import CompileOptions
from rlx.compiler.choice import Choice
from rlx.compiler.progress import CancelToken, ProgressCallback
from rlx.device.names import Device, DeviceLike
from rlx.errors import ImportModelError, InputError
from rlx.importers import gguf
from rlx.importers.mapped import release_pages
from rlx.ir.opdef import Array
from rlx.lm.chat import Chat, changed
from rlx.lm.compiling import compile_model
from rlx.lm.config import ModelConfig, Pooling
from rlx.lm.embedding import TOKENS, Embedder
from rlx.lm.folder import load_folder
from rlx.lm.generation import Generation, log_softmax
from rlx.lm.memory import MemoryNeeds, estimate
from rlx.lm.network import CacheDType, Network
from rlx.lm.token_cache import TokenCache, common
from rlx.lm.token_sampling import Sampling
from rlx.lm.tokenizer import Tokenizer, end_tokens, of_folder, of_metadata
from rlx.runtime.compiled import CompiledGraph

# Most tokens of the context where the caller names none.
_CONTEXT = 4096
# Most tokens of a run, and the share of weights and cache that its values may take. The CPU reads more tokens no faster,
# and Python and the compiled programs take memory there, too.
_CHUNK, _CHUNK_ON_CPU = (512, 1 / 10), (256, 1 / 22)
# Most tokens whose logits are held at once.
_FEW_LOGITS = 64
# A prefix is copied from another conversation if it is longer by so many tokens, and by this share of the context, all of
# which is copied.
_WORTH_COPYING, _SHARE = 32, 1 / 16
PathLike = str | os.PathLike[str]


class LanguageModel:
    """A language model. ``rlx.lm.load`` makes it.

    Attributes:
        file: Metadata and tensors, by the names of GGUF files.
        config: Its sizes.
        vocabulary: The number of its tokens.
        context: Tokens of a conversation.
        compiled: The graph that reads prompts and makes steps; that of whole texts for an encoder.
        device: The device that runs it.
        choice: Why that device was chosen.
        sampling: How tokens are drawn where a call says nothing else.
        fingerprint: A digest that tells models apart.
    """

    file: gguf.File
    config: ModelConfig
    vocabulary: int
    context: int
    compiled: CompiledGraph
    device: Device
    choice: Choice
    sampling: Sampling
    fingerprint: str

    def __init__(
        self,
        file: gguf.File,
        tokenizer: Callable[[], Tokenizer],
        device: DeviceLike = "auto",
        context: int | None = None,
        options: CompileOptions | None = None,
        progress: ProgressCallback | None = None,
        cancel: CancelToken | None = None,
        cache_dtype: CacheDType = "f16",
    ) -> None:
        self._network = Network(file, _checked_dtype(cache_dtype))
        self.file, self.config = file, self._network.config
        self.vocabulary = self._network.vocabulary
        self.context = _checked_context(context, self.config.context)
        self.sampling, self.fingerprint = Sampling(), _fingerprint(file, self.config, self.context)
        self._make_tokenizer = tokenizer
        self._made_tokenizer: Tokenizer | None = None
        # A collected answer may give its cache back within any call of this thread.
        self._options, self._lock, self._embedding = options, threading.RLock(), threading.Lock()
        self._embedder: Embedder | None = None
        self._free: list[TokenCache] = []
        self._lent: list[TokenCache] = []
        if self.config.writes:
            compiled, choice = compile_model(
                lambda backend: self._network.decoder(self.context, self._chunk(backend)),
                device, options, progress, cancel,
            )  # fmt: skip
            self._free.append(self._cache(compiled))
        else:
            self._embedder = Embedder(
                self._network, self.context, device, options, progress, cancel
            )
            compiled, choice = self._embedder.compiled, self._embedder.choice
        self.compiled, self.device, self.choice = compiled, compiled.device, choice
        release_pages(tensor.packed for tensor in file.tensors.values())

    @property
    def tokenizer(self) -> Tokenizer:
        """The tokenizer, made when it is first used.

        Raises:
            ImportModelError: The file has none that is known.
            ImportError: The tokenizers library is not installed.
        """
        if self._made_tokenizer is None:
            self._made_tokenizer = self._make_tokenizer()
        return self._made_tokenizer

    def tokenize(self, text: str, whole: bool = True) -> list[int]:
        """Returns the tokens of a text.

        Args:
            text: The text.
            whole: Whether tokens that begin and end a text are added.
        """
        return self.tokenizer.encode(text, whole)

    def detokenize(self, tokens: Sequence[int]) -> str:
        """Returns the text of tokens; special tokens have none."""
        return self.tokenizer.decode(tokens)

    def generate(
        self,
        prompt: str | Sequence[int],
        *,
        max_tokens: int = 256,
        stop: Sequence[str] = (),
        **settings: Any,
    ) -> Generation:
        """Returns the text that follows a prompt, to loop over as it is written.

        What an earlier call has computed of the prompt is used again.

        Args:
            prompt: A text, or tokens.
            max_tokens: The answer ends after so many.
            stop: Texts that end it; they are left out.
            **settings: Fields of ``Sampling`` that differ from ``self.sampling``.

        Returns:
            The answer: ``for piece in answer``, ``async for piece in answer``, ``answer.read()``, or its tokens by
            ``answer.ids()``.

        Raises:
            InputError: A setting is out of range, or the prompt does not fit into the context.
        """
        self._check_writes()
        sampling = changed(self.sampling, settings)
        tokens = self.tokenize(prompt) if isinstance(prompt, str) else list(prompt)
        tokenizer = self.tokenizer if isinstance(prompt, str) else self._tokenizer_or_none()
        ends = end_tokens(self.file.metadata) if tokenizer is None else tokenizer.ends
        if not 1 <= len(tokens) <= self.context:
            got, expected = f"{len(tokens)} tokens", f"1 to {self.context}"
            raise InputError("the prompt does not fit into the context", got=got, expected=expected)
        taken: list[TokenCache] = []

        def take() -> TokenCache:
            taken.append(self.take(tokens))
            return taken[0]

        def ended(_: Generation) -> None:
            for cache in taken:
                self.give_back(cache)

        return Generation(
            take, tokenizer, tokens, sampling, max_tokens, stop, ends=ends, ended=ended
        )

    def chat(
        self,
        system: str | None = None,
        *,
        load: PathLike | None = None,
        messages: Sequence[Mapping[str, Any]] = (),
        tools: Sequence[Mapping[str, Any]] | None = None,
        template: str | None = None,
        names: Mapping[str, Any] | None = None,
        **settings: Any,
    ) -> Chat:
        """Begins a conversation.

        Args:
            system: The system message.
            load: A file of ``Chat.save``, whose conversation goes on.
            messages: Messages that were said before, each with "role" and "content".
            tools: Functions that the model may call, as JSON schemas.
            template: The template in place of the file's own.
            names: More names of the template, such as ``{"enable_thinking": False}``.
            **settings: Fields of ``Sampling`` that differ from ``self.sampling``.

        Raises:
            InputError: The file has no template, or a setting is out of range.
            ModelFileError: ``load`` can't be read, or is of another model.
        """
        self._check_writes()
        if load is not None and (system is not None or messages):
            hint = "the file has its own messages"
            raise InputError("load with a system message or messages", hint=hint)
        template = self.tokenizer.chat_template if template is None else template
        if template is None:
            hint = "give template=, or use generate() with a prompt"
            raise InputError("the file has no chat template", hint=hint)
        first = [] if system is None else [{"role": "system", "content": system}]
        sampling = changed(self.sampling, settings)
        more = {**(names or {}), **({"tools": tools} if tools else {})}
        result = Chat(self, [*first, *messages], sampling, template, more)
        if load is not None:
            try:
                result.restore(load)
            except BaseException:
                result.close()
                raise
        return result

    def embed(
        self,
        texts: str | Sequence[str | Sequence[int]],
        *,
        pooling: Pooling | None = None,
        truncate: bool = False,
    ) -> Array:
        """Returns vectors of texts, of length 1, so that products are cosines.

        A model that also generates keeps its weights twice after the first call.

        Args:
            texts: One text, or several; each of several may be tokens.
            pooling: How a vector is made of the tokens' vectors: "mean", "cls" or "last"; None for the file's own way,
                or "mean".
            truncate: Whether longer texts than the context end there; otherwise they are an error.

        Returns:
            f32 ``[texts, width]``; ``[width]`` for one text.

        Raises:
            InputError: A text does not fit into the context.
        """
        own = self.config.pooling
        pooling = pooling or ("mean" if own == "none" else own)
        if pooling not in ("mean", "cls", "last"):
            raise InputError("pooling", got=repr(pooling), expected="mean, cls or last")
        several = [texts] if isinstance(texts, str) else list(texts)
        if not all(isinstance(text, str | Sequence | np.ndarray) for text in several):
            expected = "texts, or lists of tokens"
            raise InputError("texts", got=f"{several!r:.80}", expected=expected)
        tokens = [self.tokenize(text) if isinstance(text, str) else list(text) for text in several]
        if truncate:
            tokens = [self._truncated(text) for text in tokens]
        with self._embedding:
            if self._embedder is None:
                self._embedder = Embedder(self._network, self.context, self.device, self._options)
            result = self._embedder.embed(tokens, pooling)
        return result[0] if isinstance(texts, str) else result

    def _truncated(self, tokens: list[int]) -> list[int]:
        """The tokens that the context holds. The one that ends a text stays its last."""
        if len(tokens) <= self.context:
            return tokens
        tokenizer = self._tokenizer_or_none()
        end = [] if tokenizer is None or tokenizer.end is None else [tokenizer.end]
        return [*tokens[: self.context - len(end)], *end]

    def logprobs(self, text: str | Sequence[int]) -> Array:
        """Returns the logarithm of each token's probability, given those before it.

        Args:
            text: A text, or at least two tokens.

        Returns:
            f64 ``[tokens - 1]``: nothing comes before the first one.

        Raises:
            InputError: There are fewer than two tokens, or more than the context.
        """
        tokens = self.tokenize(text) if isinstance(text, str) else list(text)
        if not 2 <= len(tokens) <= self.context:
            got, expected = f"{len(tokens)} tokens", f"2 to {self.context}"
            raise InputError("the text does not fit into the context", got=got, expected=expected)
        self._check_writes()
        cache, results = self.take([]), []
        try:
            cache.rewind(0)
            # Logits of a few tokens at a time: those of a long text would fill the memory.
            for start in range(0, len(tokens), _FEW_LOGITS):
                rows = log_softmax(cache.read(tokens[start : start + _FEW_LOGITS], every=True))
                following = np.asarray(tokens[start + 1 : start + 1 + len(rows)])
                results.append(rows[np.arange(len(following)), following])
        finally:
            self.give_back(cache)
        return np.concatenate(results)

    def memory(self) -> MemoryNeeds:
        """Returns the bytes of weights, of a conversation and of a run, as ``rlx.lm.memory`` states them before."""
        return _run_size(self.file, self._network, self.context, *_CHUNK)[1]

    def close(self) -> None:
        """Frees everything. Conversations end, too."""
        for cache in (*self._free, *self._lent):
            cache.close()
        if self._embedder is not None:
            self._embedder.compiled.close()

    def __enter__(self) -> LanguageModel:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def __repr__(self) -> str:
        c = self.config
        return f"<rlx.lm.LanguageModel {c.architecture.name}: {c.layers} layers of {c.width} on {self.device}>"

    # --- the memory of conversations -----------------------------------------------------------------

    def take(self, tokens: Sequence[int]) -> TokenCache:
        """Returns a cache that nobody uses, the one that holds most of these tokens; a new one if all are used."""
        with self._lock:
            if self._free:
                result = max(self._free, key=lambda cache: common(cache.tokens, tokens))
                self._free.remove(result)
            else:
                result = self._cache(self.compiled.clone())
            result.keep = None
            self._lent.append(result)
        return result

    def give_back(self, cache: TokenCache) -> None:
        """Takes a cache back. It keeps its tokens, for whoever begins with the same ones."""
        with self._lock:
            if cache in self._lent:
                self._lent.remove(cache)
                self._free.append(cache)

    def share(self, cache: TokenCache, tokens: Sequence[int]) -> None:
        """Copies keys and values from another conversation where that begins with the same tokens."""
        here = common(cache.tokens, tokens)
        with self._lock:
            others = [other for other in (*self._free, *self._lent) if other is not cache]
        counts = [(common(other.tokens, tokens), other) for other in others]
        count, best = max(counts, key=lambda item: item[0], default=(0, cache))
        if count - here >= max(_WORTH_COPYING, _SHARE * self.context):
            best.copy_to(cache, count)

    def _cache(self, compiled: Any) -> TokenCache:
        chunk = self._chunk(compiled.device.backend)
        return TokenCache(compiled, self._network.states(self.context), chunk, self.vocabulary)

    def _chunk(self, backend: str) -> int:
        """Most tokens of a run."""
        limits = _CHUNK_ON_CPU if backend == "cpu" else _CHUNK
        return _run_size(self.file, self._network, self.context, *limits)[0]

    def _tokenizer_or_none(self) -> Tokenizer | None:
        """The tokenizer, for the tokens that end an answer; None where there is none."""
        try:
            return self.tokenizer
        except (ImportError, ImportModelError):
            return None

    def _check_writes(self) -> None:
        if not self.config.writes:
            hint = "model.embed(texts) returns vectors"
            raise InputError("the model writes no text", got=repr(self), hint=hint)


def load(
    path: PathLike,
    device: DeviceLike = "auto",
    context: int | None = None,
    *,
    cache_dtype: CacheDType = "f16",
    options: CompileOptions | None = None,
    progress: ProgressCallback | None = None,
    cancel: CancelToken | None = None,
) -> LanguageModel:
    """Loads a language model.

    Args:
        path: A GGUF file, or a folder of transformers: ``config.json``, ``*.safetensors``, ``tokenizer.json``.
        device: A device or its name.
        context: Tokens of a conversation, prompt and answer together; by default those that the model was made for, but at
            most 4,096.
        cache_dtype: The type in which a conversation's keys and values are kept. "f16" takes half the memory of "f32", and
            "q8_0" a quarter: 8 bits and a scale for every 32 numbers. Both round them.
        options: Options of the compiler. By default the CPU rounds what it multiplies packed weights by to 8 bits, and matrix
            units (the device dawn) round operands of products of prompts to f16, numbers above 65,504 to infinity. Both are
            several times as fast; ``CompileOptions()`` multiplies in f32, as other GPUs do.
        progress: Called with an ``rlx.Progress`` while it loads.
        cancel: Ends the loading from another thread.

    Returns:
        The model. ``model.choice`` says why it runs where it runs.

    Raises:
        ImportModelError: The file can't be read, or its architecture or a tensor's type is not known.
        InputError: ``context`` is out of range, or there is no such ``cache_dtype``, or it does not fit the model.
        DeviceMemoryError: There is no memory for it.
        CancelledError: ``cancel`` was cancelled.
    """
    file, tokenizer = read_file(path)
    return LanguageModel(file, tokenizer, device, context, options, progress, cancel, cache_dtype)


def memory(
    path: PathLike, context: int | None = None, *, cache_dtype: CacheDType = "f16"
) -> MemoryNeeds:
    """Returns the memory that a model will take, without loading it.

    Args:
        path: As for ``load``.
        context: As for ``load``.
        cache_dtype: As for ``load``.
    """
    file, _ = read_file(path)
    network = Network(file, _checked_dtype(cache_dtype))
    return _run_size(file, network, _checked_context(context, network.config.context), *_CHUNK)[1]


def _run_size(
    file: gguf.File, network: Network, context: int, most: int, share: float
) -> tuple[int, MemoryNeeds]:
    """Returns how many tokens a run takes, half of the most for a small model, and the memory of such a model."""
    config, states = network.config, network.states(context) if network.config.writes else {}
    for chunk in (most, most // 2) if config.writes else (TOKENS,):
        needs = estimate(file, config, network.vocabulary, chunk, states.values())
        if needs.work <= share * (needs.weights + needs.cache):
            break
    return chunk, needs


def read_model(path: PathLike) -> tuple[gguf.File, ModelConfig]:
    """Returns the tensors of a model and its sizes."""
    file, _ = read_file(path)
    return file, ModelConfig.read(file.metadata, file.tensors)


def read_file(path: PathLike) -> tuple[gguf.File, Callable[[], Tokenizer]]:
    """Reads the header of a model, and returns how its tokenizer is made."""
    where = Path(path)
    if where.is_dir():
        return load_folder(where), lambda: of_folder(where)
    file = gguf.load(where)
    return file, lambda: of_metadata(file.metadata)


def _checked_dtype(name: str) -> CacheDType:
    if name not in get_args(CacheDType):
        expected = " or ".join(get_args(CacheDType))
        raise InputError("cache_dtype", got=repr(name), expected=expected)
    return cast(CacheDType, name)


def _checked_context(context: int | None, trained: int) -> int:
    if context is None:
        return min(trained, _CONTEXT)
    if type(context) is not int or not 1 <= context <= trained:
        expected = f"1 to {trained}, what the model was made for"
        raise InputError("context", got=repr(context), expected=expected)
    return context


def _fingerprint(file: gguf.File, config: ModelConfig, context: int) -> str:
    """A digest of the sizes, of the rotation in this context, and of names, types, shapes and first bytes of tensors."""
    digest = hashlib.sha256(f"{config} {config.is_long(context)}".encode())
    for name, tensor in file.tensors.items():
        digest.update(f"{name} {tensor.type} {tensor.shape};".encode())
        digest.update(tensor.packed.reshape(-1)[:64].tobytes())
    return digest.hexdigest()
