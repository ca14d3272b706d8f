"""The PyInstaller hooks for programs that import rlx; found by the entry point group ``pyinstaller40``."""

from __future__ import annotations

from pathlib import Path


def hook_folders() -> list[str]:
    """The folder of ``hook-rlx.py``."""
    return [str(Path(__file__).parent)]
