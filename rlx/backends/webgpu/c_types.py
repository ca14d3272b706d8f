"""wgpu-py's C types, compiled when rlx is built: most of the time in which wgpu-py starts goes into C that is parsed.

wgpu-py has cffi parse its header of some thousand lines in every process, and after that the text of each type that it
names, together with the names of all others. An interface that cffi has compiled looks its types up in tables. Its
source is ``rlx/_wgpu_types.py``, which setup.py writes for the wgpu that is there. For another wgpu, and in a checkout, it is
made when it is needed, which still saves the second part.
"""

from __future__ import annotations

import hashlib
import importlib
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import _cffi_backend
import cffi

_NATIVE = "wgpu.backends.wgpu_native"
# The module of wgpu-py that makes the interface.
_ASKING = f"{_NATIVE}._ffi"
# Not that of rlx.locks: setup.py runs this file where rlx can't be imported yet.
_lock = threading.RLock()


class UnexpectedError(Exception):
    """wgpu-py asks for other types than those of its header."""


class CompiledInterface(_cffi_backend.FFI):  # type: ignore[misc]
    """A compiled interface that wgpu-py takes for a new ``cffi.FFI``."""

    header = ""

    def cdef(self, text: str) -> None:
        """Nothing: the types are there.

        Raises:
            UnexpectedError: They are those of another text.
        """
        if digest(text) != self.header:
            raise UnexpectedError

    def set_source(self, *_: object) -> None:
        """Nothing: the types are compiled."""


def import_native() -> ModuleType:
    """``wgpu.backends.wgpu_native`` on compiled types; as it is, if the program has imported it before.

    Raises:
        Exception: Whatever that module raises, if it can't be imported.
    """
    with _lock:
        if _NATIVE not in sys.modules:
            importlib.import_module("wgpu")
            try:
                with _answering(_compiled(header())):
                    return importlib.import_module(_NATIVE)
            except UnexpectedError:
                for name in [name for name in sys.modules if name.startswith(_NATIVE)]:
                    del sys.modules[name]
    return importlib.import_module(_NATIVE)


def header() -> str:
    """The C text that wgpu-py gives to cffi.

    Raises:
        UnexpectedError: There is no such file.
    """
    result = find_spec("wgpu")
    for folder in (result and result.submodule_search_locations) or ():
        path = Path(folder) / "resources" / "combined_header.h"
        if path.is_file():
            return path.read_text()
    raise UnexpectedError


def digest(text: str) -> str:
    """Returns a digest that identifies a header."""
    return hashlib.sha256(text.encode()).hexdigest()


def source_of(text: str) -> str:
    """The Python module that has an interface for these C types as ``ffi``.

    Raises:
        UnexpectedError: This release of cffi writes another kind of module.
    """
    from cffi import recompiler  # for builds, and where rlx was built with another wgpu

    parsed = cffi.FFI()
    parsed.cdef(text)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "types.py"
        recompiler.make_py_source(parsed, "rlx_wgpu_types", str(path), verbose=False)
        result = path.read_text()
    for old, new in (
        ("import _cffi_backend\n", "from rlx.backends.webgpu.c_types import CompiledInterface\n"),
        ("_cffi_backend.FFI(", "CompiledInterface("),
    ):
        if result.count(old) != 1:
            raise UnexpectedError
        result = result.replace(old, new)
    return f'{result}\nffi.header = "{digest(text)}"\n'


def _compiled(text: str) -> Any:
    """Returns an interface for these types: the prebuilt one if it fits, else a new one."""
    try:
        ready = importlib.import_module("rlx._wgpu_types").ffi
        if ready.header == digest(text):
            return ready
    except ImportError:
        pass
    module: dict[str, Any] = {}
    exec(source_of(text), module)
    return module["ffi"]


@contextmanager
def _answering(ready: Any) -> Iterator[None]:
    """Makes wgpu-py use this interface; all other callers get the original ``cffi.FFI``."""
    plain = cffi.FFI

    class FFI(plain):  # type: ignore[misc, valid-type]
        def __new__(cls, *args: Any, **keywords: Any) -> Any:
            asking = cls is FFI and sys._getframe(1).f_globals.get("__name__") == _ASKING
            return ready if asking else super().__new__(cls)

    cffi.FFI = FFI
    try:
        yield
    finally:
        cffi.FFI = plain
