"""Errors of failed submissions, with hints."""

from __future__ import annotations

from typing import NoReturn

from rlx.backends.webgpu.provider import check_not_forked
from rlx.backends.webgpu.submission import MEMORY, OK, STOPPED, SubmissionRunner
from rlx.errors import DeviceLostError, DeviceMemoryError


def check(runner: SubmissionRunner, status: int) -> None:
    """Raises an error unless a submission went well.

    Raises:
        DeviceMemoryError: The device has no memory for it.
        DeviceLostError: The device failed.
        DeviceUnavailableError: The process was forked.
    """
    if status != OK:
        fail(runner)


def fail(runner: SubmissionRunner) -> NoReturn:
    """Raises the error of a submission that failed; see ``check``."""
    fault, said = runner.error()
    if fault == STOPPED:
        check_not_forked()
    if fault == MEMORY:
        hint = "use smaller batches, or the CPU"
        raise DeviceMemoryError("the device is out of memory", got=said, hint=hint)
    text = said or "no answer"
    raise DeviceLostError("the device failed during a run", got=text, hint="cg.recover()")
