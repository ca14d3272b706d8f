"""MiniLM, sentences to vectors, from safetensors files, built with the graph API."""

from minilm.encode import Encoder
from minilm.network import MiniLmNetwork
from minilm.pieces import WordPieces

__all__ = ["Encoder", "MiniLmNetwork", "WordPieces"]
