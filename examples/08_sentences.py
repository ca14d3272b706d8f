"""Finds the sentence of the same meaning.

``python examples/08_sentences.py FOLDER "A query" "A text" "Another" ...``.

FOLDER holds all-MiniLM-L6-v2 or a relative: model.safetensors, vocab.txt and config.json. Without it, a tiny model of
random weights is made: its vectors are computed the same way and mean nothing.

It needs the tokenizers library: pip install tokenizers.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import rlx

TEXTS = ("A kitten is asleep on the sofa.", "Shares fell sharply on Monday.", "The dog eats.")


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", help="where model.safetensors and vocab.txt lie")
    parser.add_argument("query", nargs="?", default="The cat sleeps.")
    parser.add_argument("texts", nargs="*")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    # The command line comes first: --help needs no library.
    from minilm import Encoder, tiny

    with tempfile.TemporaryDirectory() as folder:
        if options.folder is None:
            tiny.model(Path(folder))
        with Encoder(options.folder or folder, options.device) as encoder:
            texts = options.texts or TEXTS
            query, *vectors = encoder.embed([options.query, *texts])
    print(options.query)
    for cosine, text in sorted(
        zip((float(query @ vector) for vector in vectors), texts), reverse=True
    ):
        print(f"  {cosine:6.3f}  {text}")


if __name__ == "__main__":
    try:
        main()
    except (rlx.RlxError, ImportError) as error:
        sys.exit(f"08_sentences.py: {error}")
