"""The command ``rlx``: its subcommands, and errors as one clear line."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

import rlx
from rlx import flags
from rlx.backends.base import backend
from rlx.cli import demo
from rlx.device import describe_devices
from rlx.ir.opdef import REGISTRY


def _show(rows: list[dict[str, object]], title: str, as_json: bool) -> int:
    """Rows as a table or as JSON."""
    if as_json:
        print(json.dumps(rows, indent=2))
        return 0
    table = Table(title=title)
    for name in rows[0]:
        table.add_column(name, overflow="fold")
    for row in rows:
        table.add_row(*(str(value) for value in row.values()))
    Console().print(table)
    return 0


def devices(args: argparse.Namespace) -> int:
    """Lists the devices here, and what is missing."""
    rows: list[dict[str, object]] = [
        {
            "device": str(found.device),
            "adapter": found.adapter,
            "api": found.api,
            "driver": found.driver,
            "software": found.software,
        }
        for found in describe_devices()
    ]
    status = _show(rows, "devices", args.json)
    if not rlx.is_available("webgpu"):
        print(backend("webgpu").absent(), file=sys.stderr)
    return status


def ops(args: argparse.Namespace) -> int:
    """The support table, from the op records."""

    def names(dtypes: frozenset[rlx.DType]) -> str:
        return " ".join(sorted(map(str, dtypes)))

    rows: list[dict[str, object]] = [
        {
            "op": opdef.name,
            "cpu": "view" if opdef.view else names(opdef.dtypes) if opdef.cpu else "-",
            "webgpu": "view" if opdef.view else names(opdef.webgpu_dtypes) if opdef.webgpu else "-",
            "samples": len(opdef.samples),
        }
        for opdef in sorted(REGISTRY.values(), key=lambda o: o.name)
        if not opdef.internal
    ]
    return _show(rows, "operations and the dtypes each device runs them in", args.json)


def env(args: argparse.Namespace) -> int:
    """The environment variables, their values and what they do."""
    rows: list[dict[str, object]] = [
        {"variable": name, "value": flag.get(), "default": flag.default, "meaning": flag.doc}
        for name, flag in sorted(flags.TABLE.items())
    ]
    return _show(rows, "environment variables", args.json)


_COMMANDS = {
    "devices": (devices, "the devices graphs can run on here"),
    "ops": (ops, "which operation runs where, in which dtypes"),
    "env": (env, "the RLX_ environment variables"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: Arguments; those of the process by default.

    Returns:
        The exit status: 2 for bad input, with one line on standard error.
    """
    parser = argparse.ArgumentParser(prog="rlx", description="An ML compiler and runtime.")
    parser.add_argument("--version", action="version", version=f"rlx {rlx.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (function, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="as JSON")
        command.set_defaults(run=function)
    command = commands.add_parser("demo", help="alpha peaks of a 64-channel EEG on every device")
    demo.add_arguments(command)
    command.set_defaults(run=demo.run)
    args = parser.parse_args(argv)
    try:
        status: int = args.run(args)
    except (rlx.RlxError, OSError) as error:
        print(f"rlx {args.command}: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return status
