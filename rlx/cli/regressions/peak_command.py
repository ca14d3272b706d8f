"""``rlx regress peak``: measures the machine itself."""

from __future__ import annotations

import argparse
import json

import msgspec

from rlx.cli import screen
from rlx.cli.model_options import devices_of
from rlx.regress.machine_peaks import peaks

_COLUMNS = {
    "copy_gb_s": "copy GB/s",
    "fma_gflop_s": "multiply-add GFLOP/s",
    "dispatch_us": "dispatch us",
    "upload_gb_s": "upload GB/s",
}


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    command.add_argument("--devices", default="all", help='separated by commas, or "all"')
    command.add_argument("--json", action="store_true", help="as JSON")


def run(args: argparse.Namespace) -> int:
    """Measures the devices and prints a row for each.

    Raises:
        RlxError: A device does not exist.
    """
    rows = []
    for device in devices_of(args.devices):
        result = msgspec.to_builtins(peaks("0" * 16, str(device), 0))
        rows.append({"device": str(device), **{name: result[name] for name in _COLUMNS}})
    if args.json:
        print(json.dumps(rows, indent=2))
        return 0
    lines = [
        [row["device"], *("-" if row[name] is None else f"{row[name]:.3g}" for name in _COLUMNS)]
        for row in rows
    ]
    output = screen.columns(
        "what the devices can do", ["device", *_COLUMNS.values()], lines, right=True
    )
    screen.Screen().print(output)
    return 0
