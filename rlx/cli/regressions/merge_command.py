"""``rlx regress merge``: several record files as one."""

from __future__ import annotations

import argparse
from pathlib import Path

from rlx.errors import InputError
from rlx.regress.recording import encoded_once, lines, read


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("files", nargs="+", type=Path, metavar="FILE", help="record files")
    command.add_argument("-o", "--output", required=True, type=Path, help="the file to write")


def run(args: argparse.Namespace) -> int:
    """Merges the files, which are checked first.

    Raises:
        InputError: A file is no record file, or the output is one of them.
        OSError: A file can't be read or written.
    """
    if args.output.exists():
        raise InputError("the output exists already", got=args.output)
    read(args.files)
    known: set[str] = set()
    with args.output.open("wb") as out:
        for path in args.files:
            out.writelines(encoded_once(lines(path), known))
    return 0
