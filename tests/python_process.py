"""Runs Python in a process of its own."""

import os
import subprocess
import sys


def run_python(*arguments, env=None, status=0, **options):
    """Runs this interpreter, and returns the ended process with its output as text.

    Args:
        arguments: What follows the interpreter in the command; paths and numbers, too.
        env: Variables that are added to those of the environment.
        status: The exit status that the process has to end with.
        options: Further options of ``subprocess.run``.
    """
    done = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **(env or {})},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == status, (done.stdout + done.stderr)[-5000:]
    return done
