"""``rlx lm``: talk with a language model, time it, and show what its file holds."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from typing import Any

import rlx
from rlx.cli import lm_bench, model_options, screen
from rlx.errors import printable_lines
from rlx.lm import memory
from rlx.lm.chat import Chat
from rlx.lm.language_model import read_model
from rlx.lm.memory import size

_HELP = "/undo takes back your last message, /save FILE keeps the conversation, /quit ends"


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Adds the subcommands and their options."""
    commands = command.add_subparsers(dest="part", required=True)
    chatting = _part(commands, "chat", chat, "talk with a model; each line of input is a message")
    chatting.add_argument("--system", help="the system message")
    chatting.add_argument("--load", metavar="FILE", help="a conversation that /save kept")
    chatting.add_argument("--max-tokens", type=int, default=1024, help="of an answer")
    for name, kind in (
        ("temperature", float), ("top-k", int), ("top-p", float), ("min-p", float),
        ("repetition-penalty", float), ("seed", int),
    ):  # fmt: skip
        chatting.add_argument(f"--{name}", type=kind, help="see rlx.lm.Sampling")
    timing = _part(commands, "bench", lm_bench.bench, "time prompts and generation (pp and tg)")
    timing.add_argument("--json", action="store_true", help="print JSON")
    lm_bench.add_arguments(timing)
    showing = commands.add_parser("info", help="the sizes, tensors and memory of a model")
    showing.add_argument("model", metavar="MODEL", help="a GGUF file, or a folder of transformers")
    showing.add_argument("--context", type=int, help="tokens of a conversation")
    showing.add_argument("--json", action="store_true", help="print JSON")
    showing.set_defaults(run=info)


def _part(commands: Any, name: str, function: Any, text: str) -> argparse.ArgumentParser:
    """Adds a subcommand that runs a model."""
    command: argparse.ArgumentParser = commands.add_parser(name, help=text, description=text)
    command.add_argument("model", metavar="MODEL", help="a GGUF file, or a folder of transformers")
    model_options.add_device(command)
    command.add_argument("--context", type=int, help="tokens of a conversation")
    command.add_argument(
        "--cache-dtype", choices=("f16", "f32", "q8_0"), default="f16", help="of the cache"
    )
    command.add_argument(
        "--precision", choices=("f32", "int8", "bf16", "fast"), default="fast",
        help="int8 rounds what meets packed weights to 8 bits, on CPUs; bf16 rounds operands of many rows, on CPUs with AMX",
    )  # fmt: skip
    command.set_defaults(run=function)
    return command


def chat(args: argparse.Namespace) -> int:
    """Talks: a line of input is a message, and the answer is printed as it is written."""
    names = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty", "seed")
    given = {name: getattr(args, name) for name in names}
    settings = {name: value for name, value in given.items() if value is not None}
    with lm_bench.opened(args) as model:
        screen.say(f"{model!r}, {model.memory()}; {_HELP}", error=True)
        try:
            conversation = model.chat(args.system, load=args.load, **settings)
        except ImportError as error:  # tokenizers or jinja2 is missing
            screen.fail("rlx lm chat", error)
            return 1
        while True:
            try:
                line = input("> " if sys.stdin.isatty() else "").strip()
            except (EOFError, KeyboardInterrupt):
                return 0
            if line == "/quit":
                return 0
            try:
                _obey(conversation, line, args.max_tokens)
            except (rlx.InputError, OSError) as error:
                screen.fail("rlx lm chat", error)


def _obey(conversation: Chat, line: str, most: int) -> None:
    """Does what a line says. An interrupt ends the answer, not the conversation."""
    word, _, rest = line.partition(" ")
    if word == "/undo":
        conversation.undo()
    elif word == "/save":
        conversation.save(rest.strip() or "chat.kv")
    elif line:
        answer = conversation.send(line, max_tokens=most)
        try:
            for piece in answer:
                print(printable_lines(piece), end="", flush=True)
        except KeyboardInterrupt:
            answer.close()
        print()


def info(args: argparse.Namespace) -> int:
    """Shows the file's own texts, the sizes, the types of tensors and the memory that the model will take."""
    file, config = read_model(args.model)
    needed = memory(args.model, args.context)
    types = Counter[str]()
    for tensor in file.tensors.values():
        types[tensor.type] += tensor.packed.nbytes
    rows = {
        "architecture": config.architecture.name,
        **{
            name: getattr(config, name)
            for name in ("layers", "width", "inner", "heads", "kv_heads", "context")
        },
        "tensors": ", ".join(f"{name} {size(nbytes)}" for name, nbytes in types.most_common()),
        "memory": str(needed),
    }
    texts = {
        key: value
        for key, value in file.metadata.items()
        if key.startswith("general.") and isinstance(value, str) and key != "general.architecture"
    }
    if args.json:
        print(json.dumps({**texts, **rows}, indent=2))
        return 0
    lines = [[str(key), str(value)] for key, value in {**texts, **rows}.items()]
    screen.Screen().print(screen.columns(str(args.model), ["", ""], lines))
    return 0
