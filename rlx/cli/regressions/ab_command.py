"""``rlx regress ab``: two installs of rlx on this machine, measured in turn."""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path

from rlx.cli.model_options import progress
from rlx.cli.regressions.compare_command import add_report, report
from rlx.cli.regressions.record_command import add_plan, plan_of
from rlx.errors import InputError
from rlx.regress.record import RecordTarget, record


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command."""
    for side, what in (("base", "what is compared with"), ("new", "what is compared")):
        command.add_argument(
            f"--{side}-python",
            required=True,
            metavar="PYTHON",
            help=f"the interpreter of the environment of {what}",
        )
    add_plan(command)
    command.add_argument(
        "--keep", type=Path, metavar="FOLDER", help="keep base.rlxreg and new.rlxreg in this folder"
    )
    add_report(command)


def run(args: argparse.Namespace) -> int:
    """Records both, and compares them; the exit status is that of ``rlx regress compare``.

    Raises:
        RlxError: A suite, device or case does not exist, or an install can't measure.
        OSError: A file can't be read or written.
    """
    with tempfile.TemporaryDirectory(prefix="rlx-regress-") as temporary:
        folder = args.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        paths = folder / "base.rlxreg", folder / "new.rlxreg"
        for path in paths:
            if path.exists():
                raise InputError("a record file exists already", got=path)
        with progress(False, "measure") as say:
            say("measure")
            pythons = args.base_python, args.new_python
            targets = [RecordTarget(*both) for both in zip(pythons, paths, strict=True)]
            record(targets, plan_of(args))
        return report(paths, args)
