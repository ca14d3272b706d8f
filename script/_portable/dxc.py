"""Microsoft's compiler of HLSL, called through its C++ interface (dxcapi.h) from ctypes."""

import ctypes
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

# Identifiers of dxcapi.h.
_COMPILER = "73e22d93-e6ce-47f3-b5bf-f0664f39c1b0"
_INTERFACE, _RESULT = "228b4687-5a6a-4730-900c-9702b2203f54", "58346cda-dde7-4497-9461-6f87af5e0659"
# Methods by their place in the table of an object. On Linux two destructors stand behind the three of every object.
_FIRST = 5
_RELEASE = 2
_COMPILE, _STATUS, _ERRORS, _POINTER, _SIZE = _FIRST, _FIRST, _FIRST + 2, _FIRST, _FIRST + 1
_UTF8 = 65001


class _Source(ctypes.Structure):
    _fields_ = (("text", ctypes.c_void_p), ("size", ctypes.c_size_t), ("encoding", ctypes.c_uint32))


class DxcResult(NamedTuple):
    """The outcome of a text.

    Attributes:
        good: Whether it compiled.
        messages: Errors and warnings.
    """

    good: bool
    messages: str


def _guid(text: str) -> ctypes.Array[ctypes.c_ubyte]:
    return (ctypes.c_ubyte * 16)(*uuid.UUID(text).bytes_le)


def _method(self: ctypes.c_void_p, place: int, result: Any, *types: Any) -> Callable[..., Any]:
    table = ctypes.cast(self, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p)))[0]
    function = ctypes.CFUNCTYPE(result, ctypes.c_void_p, *types)(table[place])
    return lambda *arguments: function(self, *arguments)


def compiler(library: Path) -> Callable[[str], DxcResult]:
    """A function that compiles a text whose entry point is ``main``, for shader model 6.2 with 16-bit types.

    Args:
        library: The shared library of the compiler.
    """
    loaded = ctypes.CDLL(str(library))
    this = ctypes.c_void_p()
    asked = _guid(_COMPILER), _guid(_INTERFACE)
    if loaded.DxcCreateInstance(*map(ctypes.byref, asked), ctypes.byref(this)):
        raise OSError(f"{library} has no compiler")
    pointer, word = ctypes.POINTER(ctypes.c_void_p), ctypes.c_uint32
    values = ctypes.POINTER(_Source), ctypes.POINTER(ctypes.c_wchar_p), word
    run = _method(
        this, _COMPILE, ctypes.c_int32, *values, ctypes.c_void_p, ctypes.c_void_p, pointer
    )
    options = ("-T", "cs_6_2", "-E", "main", "-enable-16bit-types")
    arguments, kind = (ctypes.c_wchar_p * len(options))(*options), _guid(_RESULT)

    def compiled(text: str) -> DxcResult:
        raw = text.encode()
        retained = ctypes.create_string_buffer(raw)
        source = _Source(ctypes.cast(retained, ctypes.c_void_p), len(raw), _UTF8)
        result, status, errors = ctypes.c_void_p(), ctypes.c_int32(), ctypes.c_void_p()
        where = ctypes.cast(kind, ctypes.c_void_p), ctypes.byref(result)
        if run(ctypes.byref(source), arguments, len(options), None, *where) or not result:
            return DxcResult(False, "the compiler could not be called")
        _method(result, _STATUS, ctypes.c_int32, ctypes.POINTER(ctypes.c_int32))(
            ctypes.byref(status)
        )
        _method(result, _ERRORS, ctypes.c_int32, pointer)(ctypes.byref(errors))
        messages = b""
        if errors:
            size = _method(errors, _SIZE, ctypes.c_size_t)()
            messages = ctypes.string_at(_method(errors, _POINTER, ctypes.c_void_p)(), size)
            _method(errors, _RELEASE, word)()
        _method(result, _RELEASE, word)()
        return DxcResult(status.value == 0, messages.decode(errors="replace").strip("\0\r\n"))

    return compiled
