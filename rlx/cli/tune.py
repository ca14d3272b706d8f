"""``rlx bench --tune``: the variants of GPU kernels timed on every device that can, and the winners kept."""

from __future__ import annotations

import argparse
import json
import re
from functools import partial

import rlx
from rlx.backends.registry import backend
from rlx.cli import screen
from rlx.cli.model_options import devices_of
from rlx.device.names import info_of
from rlx.tune.tuner import Tuned, tune


def run(args: argparse.Namespace) -> int:
    """Tunes; 1 when a device that was named could not be.

    Raises:
        RlxError: There is no such device, or ``--only`` is no regular expression.
    """
    try:
        re.compile(args.only)
    except re.error as error:
        raise rlx.InputError("--only", got=args.only, expected=str(error)) from None
    named = args.devices != "all"
    gpus = [d for d in devices_of(args.devices) if named or _has_variants(d)]
    results: dict[str, list[Tuned]] = {}
    failed = not gpus
    if not gpus:
        screen.say("rlx bench: there is no GPU to tune for", error=True)
    for device in gpus:
        try:
            results[str(device)] = _tuned(device, args.only, args.json)
        except rlx.RlxError as error:
            failed = True
            screen.fail(f"rlx bench: {device}", error)
    if args.json:
        print(json.dumps({name: [row.to_json() for row in rows] for name, rows in results.items()}))
    else:
        for name, rows in results.items():
            _print(name, rows)
    return int(failed)


def _has_variants(device: rlx.Device) -> bool:
    """Returns whether a device has variants to tune; a plug-in that can't say has none."""
    try:
        info = info_of(device)
        return backend(info.backend).capabilities(info).kernel_variants
    except rlx.DeviceError:
        return False


def _tuned(device: rlx.Device, only: str, quiet: bool) -> list[Tuned]:
    with screen.Bars(quiet) as bars:
        if not quiet and not bars.shown:
            return tune(device, partial(_say, device), only=only)
        return tune(device, partial(bars.show, bars.add(str(device))), only=only)


def _say(device: rlx.Device, part: float, what: str) -> None:
    """A line for each problem, where a bar has no terminal to stand on."""
    screen.say(f"{device}: {part:4.0%} {what}", error=True)


def _print(name: str, rows: list[Tuned]) -> None:
    headings = ("problem", "family", "kept", "us", "by rule", "us", "simplest", "us")
    lines = [
        [
            row.problem,
            row.family,
            *(
                cell
                for variant in (row.best, row.default, row.simplest)
                for cell in (variant, f"{row.us[variant]:,.1f}" if variant in row.us else "-")
            ),
        ]
        for row in rows
    ]
    screen.Screen().print(screen.columns(name, headings, lines))
