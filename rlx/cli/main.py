"""The command ``rlx``: its subcommands, and errors as one clear line."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from types import ModuleType

import rlx
from rlx import flags
from rlx.build_digest import build_digest
from rlx.cli import (
    bench,
    convert_command,
    demo,
    devices,
    licenses_command,
    lm_command,
    ops,
    profile_command,
    regress,
    run_command,
    screen,
)
from rlx.cost.background import waiting_for_figures


def _as_given(value: object) -> object:
    """A value of a variable; pairs as they are written there."""
    if isinstance(value, Mapping):
        return ",".join(f"{name}={item}" for name, item in value.items())
    return value


def env(args: argparse.Namespace) -> int:
    """The environment variables, their values and what they do."""
    rows: list[dict[str, object]] = [
        {
            "variable": name,
            "value": _as_given(flag.get()),
            "default": _as_given(flag.default),
            "meaning": flag.doc,
        }
        for name, flag in sorted(flags.TABLE.items())
    ]
    rows.append(
        {
            "variable": "(build)",
            "value": build_digest() or "unknown: the disk cache is off",
            "default": "",
            "meaning": "the digest of rlx's sources: compiled graphs of other builds are not used",
        }
    )
    return screen.show_rows(rows, "environment variables", args.json)


# The module of each command, which has its options besides --json and what runs it, and what it is for.
_COMMANDS: Mapping[str, tuple[ModuleType | None, str]] = {
    "devices": (devices, "list the devices of this machine and their speeds"),
    "ops": (ops, "list operations, the devices that run them, and their dtypes"),
    "env": (None, "list the RLX_ environment variables"),
    "licenses": (licenses_command, "list the licences of bundled components"),
    "run": (run_command, "run a model once; summarise or save its outputs"),
    "bench": (bench, "time a model on each device, and compare the results"),
    "profile": (profile_command, "profile a run: the time of each kernel, beside its estimate"),
    "convert": (convert_command, "convert a model to an .rlx file, which loads memory-mapped"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Runs a command.

    Args:
        argv: Arguments; those of the process by default.

    Returns:
        The exit status: 2 for bad input, with one line on standard error; on a terminal it is cut into its parts.
    """
    parser = argparse.ArgumentParser(prog="rlx", description="An ML compiler and runtime.")
    parser.add_argument("--version", action="version", version=f"rlx {rlx.__version__}")
    commands = parser.add_subparsers(dest="command", required=True)
    for name, (module, text) in _COMMANDS.items():
        command = commands.add_parser(name, help=text, description=text)
        command.add_argument("--json", action="store_true", help="print JSON")
        command.set_defaults(run=env if module is None else module.run)
        if module is not None:
            module.add_arguments(command)
    command = commands.add_parser(
        "demo", help="find the alpha peaks of a 64-channel EEG on every device"
    )
    demo.add_arguments(command)
    command.set_defaults(run=demo.run)
    text = "did a driver, a GPU or a release change a result or a speed?"
    command = commands.add_parser("regress", help=text, description=text)
    regress.add_arguments(command)
    command.set_defaults(run=regress.run)
    text = "talk with a language model, time it, or show its sizes"
    command = commands.add_parser("lm", help=text, description=text)
    lm_command.add_arguments(command)
    args = parser.parse_args(argv)
    try:
        with waiting_for_figures():  # a command may end before they were measured in the background
            status: int = args.run(args)
    except (rlx.RlxError, OSError) as error:
        screen.fail(f"rlx {args.command}", error)
        return 2
    return status
