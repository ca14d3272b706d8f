"""The example's window as tests run it: from its sources or frozen, on a screen of its own."""

import json
import os
import shutil
import subprocess
import sys
from ctypes.util import find_library
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parent.parent / "examples/desktop"
PLATFORMS = {"offscreen": [], "xcb": ["xvfb-run", "-a", "-s", "-screen 0 1280x1024x24"]}
CLOSE_S = 2.0
# In so many seconds a whole stretch with and one without a voice are heard, wherever in the signal they begin.
LISTENS_S = 2.3


SOURCES = (sys.executable, FOLDER / "app.py")


def start(platform, *arguments, cwd=None, program=SOURCES, environment=os.environ):
    """Starts the program on a screen of its own: from its sources, or frozen with another ``program``."""
    if platform == "xcb" and not (shutil.which("xvfb-run") and find_library("xcb-cursor")):
        pytest.skip("Xvfb, or Qt's library for it, is not installed")
    command = [*PLATFORMS[platform], *program, *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd,
        env={**environment, "QT_QPA_PLATFORM": platform},
    )  # fmt: skip


def result(*arguments, platform="offscreen", **how):
    """The JSON that a run prints, which ends by itself."""
    with start(platform, *arguments, **how) as program:
        try:
            out, err = program.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            program.kill()
            out, err = program.communicate()
    assert program.returncode == 0, out + err
    assert "Traceback" not in err
    return json.loads(out)


def failure(*arguments, **how):
    """The text that a run gives for ending at once, and its standard error."""
    with start("offscreen", *arguments, "--seconds", 1, **how) as program:
        try:
            out, err = program.communicate(timeout=60)
        finally:
            program.kill()
    assert program.returncode == 1, err
    return json.loads(out)["failures"][0], err


def middle(output, voice):
    """Activities in the middle of each stretch with or without a voice.

    A program that begins to listen while somebody speaks does not know the noise yet, so what it hears before the first
    change does not count. When it begins depends on how long the device took to open. Nor does the last chunk: the
    next stretch may begin in its second half.
    """
    known = output["voice"]
    heard = next(index for index, item in enumerate(known) if item is not known[0])
    inner = [
        output["activity"][index]
        for index in range(heard + 6, len(known) - 1)
        if all(item is voice for item in known[index - 6 : index + 2])
    ]
    assert len(inner) > 8
    return np.array(inner)
