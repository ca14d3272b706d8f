"""A digest of everything that rlx is made of, so that one build never takes what another stored.

``setup.py`` runs this file by itself, before rlx can be imported: it needs nothing but Python.
"""

from __future__ import annotations

import functools
import hashlib
from pathlib import Path

# The sources of a build, below the folder of setup.py.
_SOURCES = (
    "setup.py",
    "rlx/**/*.py",
    "cython_src/**/*.pyx",
    "cython_src/**/*.pxd",
    "cython_src/**/*.c",
    "cython_src/**/*.h",
    "shaders/**/*.wgsl",
)
# Files that a build writes there: the digest, and indexes of the sources.
_WRITTEN = {"rlx/_build.py", "rlx/ir/op_index.py", "rlx/importers/onnx/operator_index.py"}


def digest_of(root: Path) -> str:
    """The digest of the sources below a folder: equal ones have equal ones, wherever they lie.

    Args:
        root: The folder of setup.py, in a checkout or an unpacked sdist.
    """
    digest = hashlib.sha256()
    names = {path.relative_to(root).as_posix() for source in _SOURCES for path in root.glob(source)}
    for name in sorted(names - _WRITTEN):
        raw = (root / name).read_bytes()
        digest.update(f"{name} {len(raw)}\0".encode())
        digest.update(raw)
    return digest.hexdigest()


def module_text(digest: str) -> str:
    """Returns the text of ``rlx/_build.py`` in a package."""
    return f'"""The identity of this build of rlx: a digest of its sources."""\n\nDIGEST = "{digest}"\n'


@functools.cache
def build_digest() -> str | None:
    """The digest of this rlx; None where it was packaged without one, and then nothing is cached.

    A package knows it from when it was built. A checkout and an editable install read their sources,
    which takes some milliseconds, once: they may have been edited since.
    """
    from rlx import _build

    if _build.DIGEST is not None:
        return _build.DIGEST
    root = Path(__file__).resolve().parent.parent
    checkout = all((root / name).exists() for name in ("setup.py", "cython_src", "shaders"))
    return digest_of(root) if checkout else None
