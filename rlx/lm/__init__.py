"""Language models: text that goes on, conversations, and vectors of texts, from GGUF files and folders of transformers.

Example::

    model = rlx.lm.load("model.gguf", device="auto", context=8192)
    chat = model.chat(system="You are brief.")
    for piece in chat.send("Hello", max_tokens=200):
        print(piece, end="")
"""

from rlx.lm.architectures import ARCHITECTURES as ARCHITECTURES
from rlx.lm.architectures import Architecture as Architecture
from rlx.lm.chat import Chat as Chat
from rlx.lm.config import ModelConfig as ModelConfig
from rlx.lm.generation import Generation as Generation
from rlx.lm.language_model import LanguageModel as LanguageModel
from rlx.lm.language_model import load as load
from rlx.lm.language_model import memory as memory
from rlx.lm.memory import MemoryNeeds as MemoryNeeds
from rlx.lm.token_sampling import Sampling as Sampling
from rlx.lm.tokenizer import Tokenizer as Tokenizer

__all__ = [
    "ARCHITECTURES", "Architecture", "Chat", "ModelConfig", "Generation", "MemoryNeeds", "LanguageModel", "Sampling", "Tokenizer",
    "load", "memory",
]  # fmt: skip
