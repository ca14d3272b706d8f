"""A cold start finds its requests prepared, with the same results."""

import cffi
import pytest
from python_process import run_python

from rlx.backends.webgpu import c_types, ctypes_known

PROGRAM = """
import sys
from cffi import api
asked = []
parse = api.FFI._typeof_locked
def counted(self, text):
    if text not in self._parsed_types:
        asked.append(text)
    return parse(self, text)
api.FFI._typeof_locked = counted
import numpy as np, rlx
g = rlx.Graph()
g.set_outputs([g.softmax(g.input("x", (3, 4)) @ g.param("w", (4, 5)))])
asked.clear()
with rlx.compile(g, "webgpu", params={"w": np.ones((4, 5))}) as compiled:
    compiled.run({"x": np.ones((3, 4), np.float32)})
print(len(asked), [text[:60] for text in asked])
"""


@pytest.fixture
def ffi(webgpu):
    """Loads wgpu-py as a program that imports it before rlx does."""
    result = cffi.FFI()
    result.cdef(c_types.header())
    return result


@pytest.mark.webgpu
def test_types_are_those_that_cffi_parses_by_itself(ffi):
    ctypes_known.parse_together(ffi)
    ready = dict(ffi._parsed_types)
    for text in (*ctypes_known.OBJECTS, *ctypes_known.ARRAYS, *ctypes_known.CALLBACKS):
        del ffi._parsed_types[text]
        if text in ctypes_known.CALLBACKS:
            ffi.getctype(text.replace("(", "(*)(", 1))
            assert ready[text] == (ffi.typeof(text.replace("(", "(*)(", 1)), True)
            ffi._parsed_types[text] = ready[text]
        else:
            assert ready[text] == (ffi.typeof(text), False)
    assert ctypes_known.parse_together(ffi) == 0


def test_another_cffi_is_left_alone():
    assert ctypes_known.parse_together(object()) == 0

    class Other:
        def __init__(self):
            self._parsed_types = {}

        def typeof(self, text):
            raise ValueError(text)

    other = Other()
    assert ctypes_known.parse_together(other) == 0
    assert other._parsed_types == {}


@pytest.mark.webgpu
def test_a_cold_start_parses_next_to_nothing(webgpu):
    done = run_python("-c", PROGRAM)
    assert int(done.stdout.split()[0]) <= 6, done.stdout
