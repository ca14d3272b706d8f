"""``rlx regress``: did a driver, a GPU or a release change a result or a speed?"""

from __future__ import annotations

import argparse
from importlib import import_module

from rlx.errors import InputError, install_line

# A module of rlx.cli.regressions each. They are imported when one is asked for, since they need packages of an extra.
COMMANDS = {
    "record": "measure results and speed on the devices of this machine, for later comparison",
    "compare": "report the differences between two recordings, and their significance",
    "ab": "compare two installs of rlx: fresh processes of both take turns, case by case",
    "peak": "measure the machine itself: copies, multiply-adds, dispatches, uploads",
    "bisect": "find the commit that changed a result or a speed",
    "history": "show a folder's recordings over time, and their changes",
    "show": "show the contents of a record file",
    "merge": "merge record files",
}
_EXTRA = ("msgspec", "psutil", "scipy", "ruptures")


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The commands below this one; their own options are added when one is asked for."""
    listed = "; ".join(f"{name}: {text}" for name, text in COMMANDS.items())
    command.add_argument("what", choices=COMMANDS, metavar="COMMAND", help=listed)
    command.add_argument(
        "arguments", nargs=argparse.REMAINDER, help="the command's arguments; see COMMAND --help"
    )


def run(args: argparse.Namespace) -> int:
    """Runs one of the commands.

    Raises:
        InputError: A package of the extra is missing, or what the command raises.
        OSError: A file can't be read or written.
    """
    try:
        module = import_module(f"rlx.cli.regressions.{args.what}_command")
    except ModuleNotFoundError as error:
        if error.name not in _EXTRA:
            raise
        raise InputError(
            f"rlx regress needs {error.name}", hint=install_line(".[regress]")
        ) from error
    parser = argparse.ArgumentParser(
        prog=f"rlx regress {args.what}", description=COMMANDS[args.what]
    )
    module.add_arguments(parser)
    status: int = module.run(parser.parse_args(args.arguments))
    return status
