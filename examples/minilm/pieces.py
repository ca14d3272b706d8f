"""WordPiece, BERT's way from a text to tokens, run by the tokenizers library."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from rlx import ImportModelError

try:
    import tokenizers
except ImportError:
    raise ImportError("text needs the tokenizers library: pip install tokenizers") from None

from tokenizers.models import WordPiece
from tokenizers.normalizers import BertNormalizer
from tokenizers.pre_tokenizers import BertPreTokenizer
from tokenizers.processors import BertProcessing

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")


class WordPieces:
    """Sentences to tokens.

    Args:
        path: A vocabulary, one token a line (``vocab.txt``).
        longest: Most tokens of a sentence; what is behind is cut off.

    Raises:
        ImportModelError: The vocabulary can't be read or lacks a token that BERT needs.
    """

    def __init__(self, path: str | os.PathLike[str], longest: int = 256) -> None:
        try:
            lines = Path(path).read_text("utf-8").split("\n")
        except (OSError, ValueError) as error:
            raise ImportModelError("no vocabulary", where=path, got=error) from None
        words = {word.removesuffix("\r"): index for index, word in enumerate(lines) if word}
        missing = [word for word in _SPECIAL if word not in words]
        if missing:
            raise ImportModelError("no vocabulary of BERT", where=path, got=f"no {missing[0]}")
        self.size = max(words.values()) + 1
        self.library = tokenizers.Tokenizer(WordPiece(words, unk_token="[UNK]"))
        self.library.normalizer = BertNormalizer(lowercase=True)
        self.library.pre_tokenizer = BertPreTokenizer()
        ends = ((word, words[word]) for word in ("[SEP]", "[CLS]"))
        self.library.post_processor = BertProcessing(*ends)
        self.library.add_special_tokens([word for word in (*_SPECIAL, "[MASK]") if word in words])
        self.library.enable_truncation(longest)

    def encode(self, sentences: Sequence[str]) -> list[list[int]]:
        """The tokens of each sentence, with those that begin and end it."""
        return [item.ids for item in self.library.encode_batch(list(sentences))]
