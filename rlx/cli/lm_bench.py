"""``rlx lm bench``: tokens per second of prompts and of generation, with llama.cpp beside it where it is installed."""

from __future__ import annotations

import argparse
import json
import shutil
import statistics
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np

import rlx
from rlx.cli import model_options, screen
from rlx.errors import InputError
from rlx.lm import LanguageModel, load


def add_arguments(command: argparse.ArgumentParser) -> None:
    """Adds the options, under the names that llama-bench has for them."""
    command.add_argument("-p", "--prompt", type=int, default=512, help="tokens of a prompt")
    command.add_argument("-n", "--generate", type=int, default=128, help="tokens to generate")
    command.add_argument("-r", "--repetitions", type=int, default=5)
    command.add_argument(
        "--llama-bench", metavar="PROGRAM", default="llama-bench",
        help="llama.cpp's own program; it runs too where it is found",
    )  # fmt: skip


def opened(args: argparse.Namespace, quiet: bool = False) -> LanguageModel:
    """Loads the model of a command, with its progress on standard error."""
    options = rlx.CompileOptions(precision=args.precision)
    with model_options.progress(quiet, "load"):
        return load(
            args.model, args.device, args.context, cache_dtype=args.cache_dtype, options=options
        )


def bench(args: argparse.Namespace) -> int:
    """Times the model, and llama.cpp on as many threads."""
    for name in ("prompt", "generate", "repetitions"):
        if getattr(args, name) < 1:
            raise InputError(f"--{name}", got=getattr(args, name), expected="1 or above")
    rows = []
    with opened(args, args.json) as model:
        needed = args.prompt + args.generate
        if needed > model.context:
            raise InputError("the context is too small", got=model.context, expected=needed)
        with model_options.progress(args.json, "run"):
            rows += list(_measured(model, args))
    program = shutil.which(args.llama_bench)
    if program is not None:
        rows += _peer(program, args)
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    headings = ["", "test", "tokens/s", "least", "most"]
    lines = [
        [row["engine"], row["test"], *(f"{row[name]:.1f}" for name in ("median", "least", "most"))]
        for row in rows
    ]
    screen.Screen().print(screen.columns(str(args.model), headings, lines))
    return 0


def _measured(model: LanguageModel, args: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """The rates of prompts and of generation. Each repetition has other tokens."""
    rng = np.random.default_rng()
    prompts, steps = [], []
    cache = model.take([])
    for turn in range(args.repetitions + 1):
        cache.rewind(0)
        tokens = rng.integers(0, model.vocabulary, args.prompt)
        start = time.perf_counter()
        cache.read(tokens)
        between = time.perf_counter()
        cache.rewind(0)
        cache.read(tokens[:1])
        begin = time.perf_counter()
        for token in rng.integers(0, model.vocabulary, args.generate):
            cache.read([token])
        if turn:  # the first one warms up
            prompts.append(args.prompt / (between - start))
            steps.append(args.generate / (time.perf_counter() - begin))
    model.give_back(cache)
    yield _row(f"rlx {model.device}", f"pp{args.prompt}", prompts)
    yield _row(f"rlx {model.device}", f"tg{args.generate}", steps)


def _row(engine: str, test: str, rates: list[float]) -> dict[str, Any]:
    middle = statistics.median(rates)
    return {
        "engine": engine,
        "test": test,
        "median": middle,
        "least": min(rates),
        "most": max(rates),
    }


def _peer(program: str, args: argparse.Namespace) -> list[dict[str, Any]]:
    """The rates of llama.cpp, by its own program."""
    from rlx.threads import thread_count

    command = [
        program, "--model", args.model, "-p", str(args.prompt), "-n", str(args.generate),
        "-r", str(args.repetitions), "-t", str(thread_count()), "-o", "json",
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
        return [
            _row(
                f"llama.cpp {item.get('backends', '')}",
                f"pp{item['n_prompt']}" if item["n_prompt"] else f"tg{item['n_gen']}",
                [float(rate) for rate in item["samples_ts"]],
            )
            for item in found
        ]
    except (ValueError, KeyError, TypeError):
        screen.say(f"rlx lm bench: {program} gave no figures: {done.stderr[-200:]!r}", error=True)
        return []
