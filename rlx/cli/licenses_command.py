"""``rlx licenses``: lists the licences of bundled components."""

from __future__ import annotations

import argparse
import json

from rlx.cli import screen
from rlx.licenses import as_json, licenses, notices


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    command.add_argument("--full", action="store_true", help="print the texts of the licences, too")


def run(args: argparse.Namespace) -> int:
    """Prints a table, the texts, or JSON."""
    if args.json:
        print(json.dumps(as_json(args.full), indent=2))
    elif args.full:
        print(notices())
    else:
        headings = ("name", "version", "licence", "inside", "sources")
        rows = [
            (item.name, item.version, item.license, item.inside, item.home) for item in licenses()
        ]
        title = "bundled components; --full has the texts"
        screen.Screen().print(screen.columns(title, headings, rows))
    return 0
