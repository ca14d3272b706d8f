"""The functions that elementwise kernels take from the shader library, whatever its layout."""

import pytest

import rlx
from rlx.backends.webgpu.elementwise_wgsl import definitions, library
from rlx.backends.webgpu.wgsl import render

LIBRARY = "\n".join(render(f"lib/{name}", {}) for name in ("math", "point"))


def test_definitions_of_every_shape():
    text = """
    // fn commented(x: f32) -> f32 { return x; }
    @must_use fn one(x: f32) -> f32 { if (x > 0.0) { return x; } return -x; }
    fn two (a: f32,
            b: f32) -> f32
    {
        /* } */ return one(a) + b; // }
    }
    fn three() { for (var i = 0u; i < 3u; i++) { two(1.0, 2.0); } }
    """
    result = definitions(text)
    assert list(result) == ["one", "two", "three"]
    assert result["one"].startswith("@must_use fn one")
    assert result["two"].split()[-1] == "}"


def test_faults_of_a_library_are_told():
    with pytest.raises(rlx.CompileError, match="defined twice"):
        definitions("fn a() { }\nfn a() { }")
    with pytest.raises(rlx.CompileError, match="has no end"):
        definitions("fn a() { if (true) { }")


def test_a_kernel_gets_what_it_calls_and_what_that_calls():
    called = library("let t0 = 0.5 * v0 * (1.0 + erf (v0 * 0.7));")
    assert set(definitions(called)) == {"erf", "keep_nan"}
    assert library("let t0 = v0 + v1;") == ""


def test_no_remainder_of_signed_integers():
    """Vulkan leaves it undefined where an operand is negative; software adapters do not show that."""
    signed = {name: text for name, text in definitions(LIBRARY).items() if "i32" in text}
    assert "modulo_i32" in signed
    assert [name for name, text in signed.items() if "%" in text] == []
