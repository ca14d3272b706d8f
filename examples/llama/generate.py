"""Text token by token: the prompt by buckets, then steps whose keys and values stay on the device."""

from __future__ import annotations

import os
from collections.abc import Container, Iterator, Sequence

import numpy as np

import rlx
from llama.network import Network
from llama.sampling import Sampler
from rlx import InputError
from rlx.errors import describe

# Ends of the prompts' buckets. Each one in use has a copy of the weights, so there are few.
_BUCKETS = (32, 256, 2048)
_CONTEXT = 2048


class Decoder:
    """A compiled model.

    Args:
        model: Path of a GGUF file of the llama architecture, or such a file loaded.
        device: A device or its name.
        context: Most tokens of prompt and answer together; by default what the model was made for,
            but at most 2,048.

    Raises:
        ImportModelError: The file can't be read, or is no such model.
        InputError: ``context`` is below 1.

    Example:
        decoder = Decoder("model.gguf")
        tokenizer = Tokenizer(decoder.file.metadata)
        for token in decoder.generate(tokenizer.encode("Once"), Sampler(seed=1), most=50):
            print(tokenizer.decode([token]))
    """

    def __init__(
        self,
        model: str | os.PathLike[str] | rlx.gguf.File,
        device: rlx.Device | str = "auto",
        context: int | None = None,
    ) -> None:
        self.file = model if isinstance(model, rlx.gguf.File) else rlx.gguf.load(model)
        self.network = Network(self.file, context, _CONTEXT)
        self.context = self.network.context
        step = self.network.step()
        self._caches = {name: step.named(name).shape for name in step.input_names[2:]}
        self._step = rlx.compile(step, device)
        self.device = self._step.device
        ends = [*(end for end in _BUCKETS if end < self.context), self.context]
        ranges = [(low + 1, high) for low, high in zip([0, *ends], ends)]
        self._prompts = rlx.BucketedCompileCache(self.device, ranges)
        self.position = 0

    def prefill(self, tokens: Sequence[int]) -> np.ndarray:
        """Starts anew with a prompt, all of it at once.

        Returns:
            The logits of what comes next, ``[vocabulary]``.

        Raises:
            InputError: There are no tokens, more than the context holds, or unknown ones.
        """
        count = len(tokens)
        if not 1 <= count <= self.context:
            raise InputError(
                describe("[prefill] tokens", got=count, expected=f"1 to {self.context}")
            )
        self._check(tokens)
        upper, compiled = self._prompts.get_or_compile(count, self.network.prompt)
        padded = np.zeros(upper, np.int32)
        padded[:count] = tokens
        logits, *held = compiled.run_raw({"tokens": padded, "last": np.int32([count - 1])})
        for output, ((name, shape), new) in enumerate(zip(self._caches.items(), held), 1):
            cache = np.zeros(shape, np.float32)
            cache[:, :, :count] = new[:, :, :count]
            self._step.bind_gpu_handle(name, cache)
            self._step.set_gpu_handle_feed(name, output)
        self.position = count
        return logits[0].copy()

    def step(self, token: int) -> np.ndarray:
        """Goes on by one token.

        Returns:
            The logits of what comes next, ``[vocabulary]``: all that is read back.

        Raises:
            InputError: There was no prompt, the context is full, or there is no such token.
        """
        if not 0 < self.position < self.context:
            what = "the context is full" if self.position else "there was no prompt"
            raise InputError(describe(f"[step] {what}", got=f"position {self.position}"))
        self._check([token])
        inputs = {"token": np.int32([token]), "position": np.int32([self.position])}
        (logits,) = self._step.run_read_outputs(inputs, [0])
        self.position += 1
        return logits[0]

    def generate(
        self,
        tokens: Sequence[int],
        sampler: Sampler | None = None,
        most: int = 128,
        stop: Container[int] = (),
    ) -> Iterator[int]:
        """The tokens that follow a prompt, each as soon as it is drawn.

        Args:
            tokens: The prompt.
            sampler: How they are drawn.
            most: At most so many; the end of the context ends it too.
            stop: Tokens that end it, left out.

        Raises:
            InputError: See ``prefill``.
        """
        sampler = sampler or Sampler()
        text, logits = list(tokens), self.prefill(tokens)
        for _ in range(most):
            token = sampler.draw(logits, text)
            if token in stop:
                return
            yield token
            text.append(token)
            if self.position == self.context:
                return
            logits = self.step(token)

    def _check(self, tokens: Sequence[int]) -> None:
        wrong = [token for token in tokens if not 0 <= token < self.network.vocabulary]
        if wrong:
            expected = f"0 to {self.network.vocabulary - 1}"
            raise InputError(describe("no such token", got=wrong[0], expected=expected))

    def close(self) -> None:
        """Frees what the graphs hold."""
        self._step.close()
        self._prompts.close()

    def __enter__(self) -> Decoder:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()
