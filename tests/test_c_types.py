"""wgpu-py on C types that were compiled before: the same types, and wgpu-py's own way where they do not fit."""

import importlib.util
import json
import re

import pytest
from python_process import run_python

_cffi_backend = pytest.importorskip("_cffi_backend")
import cffi

from rlx.backends.webgpu import c_types

TEXT = "typedef struct Pair { int a; double b; } Pair; typedef enum Kind { Kind_A = 1, Kind_B = 7 } Kind; int f(Pair *);"

ASKED = """
import json, sys
{before}
import rlx
from rlx.backends.webgpu import c_types
{change}
found = [one.backend for one in map(rlx.Device.parse, rlx.available_devices())]
from wgpu.backends.wgpu_native import ffi
import cffi
names = [type(ffi).__name__, cffi.FFI.__module__, "pycparser" in sys.modules]
print(json.dumps([names, found]))
"""


def asked(before="", change=""):
    """Returns the state of a fresh process after it looked for devices."""
    return json.loads(run_python("-c", ASKED.format(before=before, change=change)).stdout)


def made(text):
    module = {}
    exec(c_types.source_of(text), module)
    return module["ffi"]


def cname(type):
    """A type as C text; of a typedef for a type without a name cffi says either."""
    return re.sub(r"\b(struct|enum|union) ", "", type.cname)


def layout(ffi, name):
    """Size, alignment, and fields or values of a type."""
    single = ffi.typeof(name)
    if single.kind == "enum":
        return sorted(single.relements.items()), ffi.sizeof(name)
    if single.kind in ("struct", "union"):
        try:
            size = ffi.sizeof(name)
        except (TypeError, ValueError, _cffi_backend.FFI.error):  # only pointers to it are known
            return "opaque"
        fields = [(field, value.offset, cname(value.type)) for field, value in single.fields]
        return size, ffi.alignof(name), fields
    return single.kind, cname(single), None if single.kind == "function" else ffi.sizeof(name)


def names(ffi):
    """The names of all types of a header; cffi tells those of both kinds of interface."""
    typedefs, structs, unions = ffi.list_types()
    return [
        *typedefs,
        *(f"struct {struct}" for struct in structs),
        *(f"union {union}" for union in unions),
    ]


@pytest.fixture(scope="module")
def both():
    """wgpu's types as cffi parses them in each process, and compiled."""
    pytest.importorskip("wgpu")
    text = c_types.header()
    plain = cffi.FFI()
    plain.cdef(text)
    return plain, made(text)


@pytest.mark.slow
def test_all_types_of_wgpu_are_the_same(both):
    plain, compiled = both
    assert sorted(names(plain)) == sorted(names(compiled))
    assert len(names(plain)) > 200
    for name in names(plain):
        assert layout(plain, name) == layout(compiled, name), name


def test_the_interface_belongs_to_its_text():
    compiled = made(TEXT)
    assert compiled.sizeof("Pair") == 16
    compiled.cdef(TEXT)
    compiled.set_source("anything", None)
    with pytest.raises(c_types.UnexpectedError):
        compiled.cdef(TEXT + " ")


def test_only_wgpu_is_given_it():
    plain, ready = cffi.FFI, made(TEXT)
    with c_types._answering(ready):
        assert type(cffi.FFI()).__mro__[1] is plain
        with_name = {"__name__": "wgpu.backends.wgpu_native._ffi", "cffi": cffi}
        assert eval("cffi.FFI()", with_name) is ready

        class Own(cffi.FFI):
            pass

        assert isinstance(Own(), plain)
    assert cffi.FFI is plain


@pytest.mark.webgpu
@pytest.mark.wgpu_native
def test_a_fresh_process_has_it(webgpu):
    (kind, module, parsed), result = asked()
    assert (kind, module) == ("CompiledInterface", "cffi.api")
    assert "webgpu" in result
    # The installed package brings the types; a checkout makes them.
    assert parsed == (importlib.util.find_spec("rlx._wgpu_types") is None)


@pytest.mark.webgpu
@pytest.mark.parametrize(
    "how",
    [
        {"before": "import wgpu.backends.wgpu_native"},
        {"change": "before = c_types.header; c_types.header = lambda: before() + chr(10)"},
        {"change": "c_types.header = lambda: (_ for _ in ()).throw(c_types.UnexpectedError)"},
    ],
    ids=["the program was first", "another header", "no header"],
)
def test_else_wgpu_parses_them_itself(how, webgpu):
    (kind, module, _), result = asked(**how)
    assert (kind, module) == ("FFI", "cffi.api")
    assert "webgpu" in result
