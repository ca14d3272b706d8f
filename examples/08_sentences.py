"""Finds the sentence of the same meaning.

``python examples/08_sentences.py MODEL "A query" "A text" "Another" ...``.

MODEL is a folder of transformers with an encoder, such as all-MiniLM-L6-v2 (model.safetensors, config.json,
tokenizer.json), or a GGUF file of one. Without it, a tiny model of random weights is made: its vectors are computed the
same way and mean nothing. It needs the tokenizers library: pip install tokenizers.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import rlx

TEXTS = ("A kitten is asleep on the sofa.", "Shares fell sharply on Monday.", "The dog eats.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?")
    parser.add_argument("query", nargs="?", default="The cat sleeps.")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or Path(folder) / "tiny.gguf"
        if options.model is None:
            import tiny_lm

            path.write_bytes(tiny_lm.model(architecture="bert", kv_heads=4))
        with rlx.lm.load(path, options.device) as model:
            texts = options.texts or TEXTS
            query, *vectors = model.embed([options.query, *texts])
    print(options.query)
    cosines = [float(query @ vector) for vector in vectors]
    for cosine, text in sorted(zip(cosines, texts, strict=True), reverse=True):
        print(f"  {cosine:6.3f}  {text}")


if __name__ == "__main__":
    try:
        main()
    except (rlx.RlxError, ImportError) as error:
        sys.exit(f"08_sentences.py: {error}")
