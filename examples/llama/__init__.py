"""A decoder of the llama family from any GGUF file of that architecture, built with the graph API."""

from llama.generate import Decoder
from llama.sampling import Sampler
from llama.settings import LlamaSettings
from llama.tokens import Tokenizer

__all__ = ["Decoder", "LlamaSettings", "Sampler", "Tokenizer"]
