"""A language model from a GGUF file writes on: ``python examples/09_llama.py model.gguf "Once upon a time"``.

Any file of the llama architecture does: weights stay packed as the file has them, keys and values stay on the device.
Without a file, or with ``--tiny``, it makes a tiny one of random weights: what comes out is nonsense then.

It needs the tokenizers library: pip install tokenizers.
"""

import argparse
import itertools
import sys
import tempfile
import time
from pathlib import Path

import rlx


def arguments():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("model", nargs="?", help="a GGUF file of the llama architecture")
    parser.add_argument("prompt", nargs="?", default="the other one is")
    parser.add_argument("--tiny", action="store_true", help="make a tiny random model")
    parser.add_argument("--device", default="auto")
    parser.add_argument("--context", type=int)
    parser.add_argument("--most", type=int, default=48, help="tokens to write")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 takes the likeliest")
    parser.add_argument("--top-k", type=int, default=40)
    parser.add_argument("--top-p", type=float, default=0.95)
    parser.add_argument("--min-p", type=float, default=0.05)
    parser.add_argument("--penalty", type=float, default=1.1, help="of repetition")
    parser.add_argument("--seed", type=int, default=0)
    return parser.parse_args()


def main():
    options = arguments()
    # The command line comes first: --help needs no library.
    from llama import Decoder, Sampler, Tokenizer, tiny

    with tempfile.TemporaryDirectory() as folder:
        path = options.model
        if options.tiny or path is None:
            path = Path(folder) / "tiny.gguf"
            path.write_bytes(tiny.model())
        sampler = Sampler(
            options.temperature, options.top_k, options.top_p, options.min_p, options.penalty,
            seed=options.seed,
        )  # fmt: skip
        with Decoder(path, options.device, options.context) as decoder:
            tokenizer = Tokenizer(decoder.file.metadata)
            tokens = tokenizer.encode(options.prompt)
            start = time.perf_counter()
            drawn = decoder.generate(tokens, sampler, options.most, tokenizer.ends)
            first = list(itertools.islice(drawn, 1))
            ready, count = time.perf_counter(), 0

            def counted():
                nonlocal count
                for token in itertools.chain(first, drawn):
                    count += 1
                    yield token

            print(options.prompt, end="", flush=True)
            for piece in tokenizer.stream(counted()):
                print(piece.encode(errors="replace").decode(), end="", flush=True)
            took = time.perf_counter() - ready
            print(
                f"\n\n{decoder.device}: {len(tokens)} tokens read in {ready - start:.2f} s with compiling"
            )
            print(f"{count} written, {max(count - 1, 0) / took:.1f} tokens/s")


if __name__ == "__main__":
    try:
        main()
    except (rlx.RlxError, ImportError) as error:
        sys.exit(f"09_llama.py: {error}")
