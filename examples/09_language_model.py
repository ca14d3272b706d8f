"""A language model answers: ``python examples/09_language_model.py model.gguf "What is a GPU?"``.

Without a file it takes a tiny one of random weights, which answers nonsense. It needs: pip install tokenizers jinja2.
"""

import argparse
import sys
import tempfile
from pathlib import Path

import rlx


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a GGUF file, or a folder of transformers")
    parser.add_argument("message", nargs="?", default="the other one")
    parser.add_argument("--device", default="auto")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = options.model or Path(folder) / "tiny.gguf"
        if options.model is None:
            import tiny_lm

            path.write_bytes(tiny_lm.model())
        with rlx.lm.load(path, options.device) as model, model.chat() as chat:
            print(f"{model}, {model.memory()}")
            answer = chat.send(options.message, max_tokens=48)
            for piece in answer:
                print(piece.encode(errors="replace").decode(), end="", flush=True)
            print(f"\n{len(answer.tokens) / answer.seconds:.1f} tokens/s ({answer.reason})")


if __name__ == "__main__":
    try:
        main()
    except (rlx.RlxError, ImportError) as error:
        sys.exit(f"09_language_model.py: {error}")
