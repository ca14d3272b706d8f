"""No dispatch binds memory twice as writable: what shares memory has one name in the kernel's text."""

from __future__ import annotations

import itertools
import re

import numpy as np
import pytest
from dispatches import CASES, joined_graph, native, planned, render_with, thinned
from random_graphs import random_graph
from samples import by_family, each, looped

import rlx
from rlx.backends.base import CompileOptions
from rlx.backends.webgpu import codegen
from rlx.backends.webgpu.binding_aliasing import joined
from rlx.backends.webgpu.wgsl_scope import references, tokens_of
from rlx.device.names import info_of
from rlx.lru import Lru

_BINDING = re.compile(r"@binding\((\d+)\) var<storage, (\w+)> (\w+):")


def test_no_random_graph_binds_writable_memory_twice():
    """The compiler checks it of every program in all tests; samples are planned by tests/test_shaders.py, too."""
    for seed in range(100):
        planned(random_graph(seed)[0])


def test_the_check_sees_what_is_bound_twice(monkeypatch):
    """Without the joining, many cases are found."""
    monkeypatch.setattr(codegen, "pattern_of", lambda values, slots: tuple(range(len(values))))
    monkeypatch.setattr(codegen, "_sources", Lru(64))
    result = (case for case in CASES if refused(case, "binds memory twice as writable"))
    assert len(list(itertools.islice(result, 20))) == 20


def test_the_check_sees_other_bindings(monkeypatch):
    render = codegen.render
    render_with(monkeypatch, lambda *args: render(*args).replace("@binding(1)", "@binding(7)"))
    assert any(refused(case, "declares other bindings") for case in CASES)


def refused(case, why):
    """Returns whether the compiler refuses a case, for that reason."""
    try:
        planned(case.graph())
    except rlx.CompileError as error:
        return why in str(error)
    return False


# --- the results are right -----------------------------------------------------------------------------------


@pytest.mark.webgpu
@pytest.mark.by_program
@pytest.mark.parametrize("group", by_family(thinned([item for item in CASES if native(item)])))
def test_operands_that_are_one_value(group, webgpu):
    """Every operation on a value that stands at several of its operands, against the reference."""

    def check(case):
        graph, pattern = joined_graph(case)
        arguments = case.operands()
        operands = [arguments[index] for index in pattern]
        expected = case.expected(case.graph(), operands)
        largest = np.max(np.abs(expected[0].astype(np.float64)), initial=0)
        if case.opdef.name == "selective_scan" and not largest < 1e6:
            return  # the steps are their own decay: states grow without bounds, and rounding with them
        options = CompileOptions(fold=False)
        with rlx.Session(webgpu, options=options).compile(graph) as compiled:
            got = compiled.run_slots(*(arguments[index] for index in sorted(set(pattern))))
            error, allowed = case.difference(case.graph(), got, expected)
        assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(group, check)


@pytest.mark.webgpu
@pytest.mark.by_program
@looped("dtype", ["f32", "i32", "u32", "i64", "f16", "bf16", "i8", "u8"])
@looped("shape", [(1,), (7,), (4, 3), (5, 8)])
def test_a_result_in_place_of_an_operand_of_another_type(dtype, shape, webgpu):
    """Elementwise calls in a row, unfused: each takes over the memory of the one before, cast or not."""
    g = rlx.Graph()
    x = g.input("x", shape, dtype)
    y = x + x
    other = {"f32": "i32", "i32": "f32", "u32": "i32", "f16": "bf16", "bf16": "f16"}.get(
        dtype, dtype
    )
    z = g.cast(y, other) * g.cast(y, other)
    last = g.cast(z, dtype) if other != dtype else z
    g.set_outputs([last + y])
    value = np.random.default_rng(3).integers(0, 5, shape).astype("f4")
    arguments = rlx.ir.dtype.store(value, rlx.ir.dtype.DType.parse(dtype))
    options = CompileOptions(fuse=False, fold=False, cse=False)
    with rlx.Session(webgpu, options=options).compile(g) as compiled:
        got = rlx.ir.dtype.widen(compiled.run_slots(arguments)[0], last.dtype)
    np.testing.assert_array_equal(got, 4 * value * value + 2 * value)


@pytest.mark.webgpu
@looped("shape", [(33, 64), (40, 30), (20, 36), (3, 5)])
def test_halves_that_are_read_in_two_shapes(shape, webgpu, rng):
    """A matrix of f16 times itself in another shape: one operand is read in vectors, the other by the number."""
    if "shader-f16" not in info_of(rlx.Device.parse(webgpu)).features:
        return
    g = rlx.Graph()
    x = g.input("x", shape, "f16")
    g.set_outputs([x @ g.reshape(x, shape[::-1])])
    arguments = rng.standard_normal(shape).astype("f2")
    with rlx.Session(webgpu, precision="f16").compile(g) as compiled:
        got = compiled.run_slots(arguments)[0].astype("f8")
    expected = arguments.astype("f8") @ arguments.reshape(shape[::-1]).astype("f8")
    assert np.abs(got - expected).max() <= 1e-3 * np.abs(expected).max()


# --- how texts are written -----------------------------------------------------------------------------------

TEXT = """
@group(0) @binding(0) var<storage, read_write> x: array<{0}>;
@group(0) @binding(1) var<storage, read> w: array<f32>;
@group(0) @binding(2) var<storage, read_write> y: array<{1}>;

struct Pair {{ x: f32, y: f32 }}
// x and y are named here, too
fn larger(x: f32, y: f32) -> f32 {{ return max(x, y); }}
fn first() -> f32 {{ let x = x[0]; return f32(x); }}
fn last(p: vec2<f32>) -> f32 {{
    for (var y = 0u; y < 3u; y++) {{ if (y == 2u) {{ return p.x + f32(y); }} }}
    return f32(y[1]);
}}
@compute @workgroup_size(1)
fn main() {{
    {{ let y = 1u; y = y + 1u; }}
    y[x[2]] = x[y[3]];
}}
"""


def names_of(text):
    """The names that a text means as its bindings, in order."""
    tokens = tokens_of(text)
    return [tokens[reference] for reference in references(tokens, {"x", "y"})]


def test_names_that_functions_declare_are_left_alone():
    assert names_of(TEXT.format("f32", "f32")) == ["x", "y", "y", "x", "x", "y"]


def test_tokens_are_the_text():
    for case in thinned():
        for item in planned(case.graph())[0]:
            assert "".join(tokens_of(item.source)) == item.source


def test_one_name_for_both():
    text = joined(TEXT.format("u32", "u32"), (0, 1, 0), "kernel")
    assert re.findall(r"@binding.*", text) == [
        "@binding(0) var<storage, read_write> x_y: array<u32>;",
        "@binding(1) var<storage, read> w: array<f32>;",
    ]
    assert "fn larger(x: f32, y: f32)" in text
    assert "let x = x_y[0]; return f32(x);" in text
    assert "x_y[x_y[2]] = x_y[x_y[3]];" in text
    assert "return f32(x_y[1]);" in text
    assert "// x and y are named here, too" in text


@looped(
    ("types", "common", "expected"),
    [
        (("i32", "u32"), "u32", "x_y[bitcast<i32>(x_y[2])] = bitcast<i32>(x_y[x_y[3]]);"),
        (
            ("f32", "i32"), "u32",
            "x_y[bitcast<f32>(x_y[2])] = bitcast<u32>(bitcast<f32>(x_y[bitcast<i32>(x_y[3])]));",
        ),
        (
            ("u32", "vec4<u32>"), "vec4<u32>",
            "x_y[x_y[u32(2) >> 2u][u32(2) & 3u]] = x_y[u32(x_y[3]) >> 2u][u32(x_y[3]) & 3u];",
        ),
        (
            ("f32", "vec2<u32>"), "vec2<u32>",
            "x_y[bitcast<f32>(x_y[u32(2) >> 1u][u32(2) & 1u])] = "
            "bitcast<f32>(x_y[u32(x_y[3]) >> 1u][u32(x_y[3]) & 1u]);",
        ),
    ],
)  # fmt: skip
def test_types_that_differ(types, common, expected):
    text = joined(TEXT.format(*types), (0, 1, 0), "kernel")
    assert f"x_y: array<{common}>;" in text
    assert expected in text


@looped(
    ("types", "pattern"),
    [
        (("atomic<i32>", "i32"), (0, 1, 0)),  # an atomic has to be what it is
        (("vec4<f32>", "f32"), (0, 1, 0)),  # parts of vectors are not written
        (("f32", "f32"), (0, 1, 2, 0)),  # there is no fourth binding
    ],
)
def test_what_does_not_go_together_is_refused(types, pattern):
    with pytest.raises(rlx.CompileError, match="two operands in the same memory"):
        joined(TEXT.format(*types), pattern, "kernel")


def test_nothing_shared_nothing_changed():
    text = TEXT.format("f32", "f32")
    assert joined(text, (0, 1, 2), "kernel") is text
