"""``rlx bench --tune``: the variants of GPU kernels timed on every device that can, and the winners kept."""

from __future__ import annotations

import argparse
import json
import re
import sys
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

import rlx
from rlx.backends.plugins import abilities
from rlx.device.names import info_of
from rlx.errors import describe
from rlx.tune.tuner import Tuned, tune


def run(args: argparse.Namespace) -> int:
    """Tunes; 1 when a device that was named could not be.

    Raises:
        RlxError: There is no such device, or ``--only`` is no regular expression.
    """
    try:
        re.compile(args.only)
    except re.error as error:
        raise rlx.InputError(describe("--only", got=args.only, expected=str(error))) from None
    named = args.devices != "all"
    devices = rlx.parse_device_list(args.devices) if named else rlx.available_devices()
    gpus = [device for device in devices if named or _has_variants(device)]
    found: dict[str, list[Tuned]] = {}
    failed = not gpus
    if not gpus:
        print("rlx bench: there is no GPU to tune for", file=sys.stderr)
    for device in gpus:
        try:
            found[str(device)] = _tuned(device, args.only, args.json)
        except rlx.RlxError as error:
            failed = True
            print(f"rlx bench: {device}: {' '.join(str(error).split())}", file=sys.stderr)
    if args.json:
        print(json.dumps({name: [one.to_json() for one in rows] for name, rows in found.items()}))
    else:
        for name, rows in found.items():
            _print(name, rows)
    return int(failed)


def _has_variants(device: rlx.Device) -> bool:
    """Whether there is anything to tune; a plug-in that can't say has nothing."""
    try:
        return abilities(info_of(device)).kernel_variants
    except rlx.DeviceError:
        return False


def _tuned(device: rlx.Device, only: str, quiet: bool) -> list[Tuned]:
    console = Console(stderr=True)
    if not quiet and not console.is_terminal:
        return tune(device, partial(_say, device), only=only)
    bars = Progress(
        TextColumn("{task.fields[device]}"),
        BarColumn(),
        TextColumn("{task.description}"),
        TimeElapsedColumn(),
        console=console,
        disable=quiet,
    )
    with bars:
        bar = bars.add_task("", device=str(device), total=1.0)
        told = partial(_show, bars, bar)
        return tune(device, told, only=only)


def _show(bars: Progress, bar: TaskID, part: float, what: str) -> None:
    bars.update(bar, completed=part, description=what)


def _say(device: rlx.Device, part: float, what: str) -> None:
    """A line for each problem, where a bar has no terminal to stand on."""
    print(f"{device}: {part:4.0%} {what}", file=sys.stderr, flush=True)


def _print(name: str, rows: list[Tuned]) -> None:
    table = Table("problem", "family", "kept", "us", "by rule", "us", "simplest", "us", title=name)
    for one in rows:
        cells = [
            cell
            for variant in (one.best, one.default, one.simplest)
            for cell in (variant, f"{one.us[variant]:,.1f}" if variant in one.us else "-")
        ]
        table.add_row(one.problem, one.family, *cells)
    Console().print(table)
