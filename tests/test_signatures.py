"""The typed interface to the C kernels: what does not fit a signature is refused with the kernel's name."""

import dataclasses
import shutil
import subprocess
import sysconfig

import numpy as np
import pytest
from samples import looped

import rlx
from rlx._ext import cpu
from rlx.abi import calls, kernels
from rlx.abi.calls import Given, SignatureError
from rlx.abi.header import c_header
from rlx.abi.kernels import KERNELS
from rlx.abi.signature import INT, Group, Parallel, Scratch, Signature
from rlx.backends.cpu import linker

F32, F64, I32 = Given("f32", 4), Given("f64", 8), Given("i32", 4)
SOFTMAX = {"outer": 2, "n": 3, "inner": 1, "log": 0}
WINDOW = {
    "batch": 1, "channels": 2, "outputs": 2, "groups": 1, "dims": (1, 5, 5), "kernel": (1, 3, 3), "out": (1, 3, 3),
    "stride": (1, 1, 1), "dilation": (1, 1, 1), "before": (0, 0, 0), "after": (0, 0, 0), "act": 0,
}  # fmt: skip


def refused(name, params):
    with pytest.raises(SignatureError) as result:
        calls.check_fields(KERNELS[name], params)
    assert repr(name) in str(result.value)
    return str(result.value)


def test_fields_that_fit():
    calls.check_fields(KERNELS["softmax"], SOFTMAX)
    calls.check_fields(KERNELS["conv_direct"], WINDOW)
    calls.check_fields(KERNELS["softmax"], {**SOFTMAX, "outer": np.int64(2), "log": True})


def test_a_field_that_lacks_or_is_surplus():
    assert "no inner" in refused("softmax", {k: v for k, v in SOFTMAX.items() if k != "inner"})
    assert "rows, which it does not have" in refused("softmax", {**SOFTMAX, "rows": 1})
    # The linker alone says how an operand is packed.
    product = {"m": 1, "k": 1, "n": 1, "act": 0, "columns": 64}
    calls.check_fields(KERNELS["gated_product"], product)
    assert "packing" in refused("gated_product", {**product, "packing": 1})


def test_a_field_of_another_type():
    assert "expected an integer" in refused("softmax", {**SOFTMAX, "n": 3.0})
    assert "0 to 1: no, yes" in refused("softmax", {**SOFTMAX, "log": 2})
    assert "a tuple of 3" in refused("conv_direct", {**WINDOW, "dims": (5, 5)})
    assert "each an integer" in refused("conv_direct", {**WINDOW, "dims": (1, 5, "5")})
    assert "a tuple" in refused("conv_direct", {**WINDOW, "dims": 5})
    norm = {"rows": 1, "n": 2, "eps": 1e-5, "rms": 0}
    assert "a number" in refused("layer_norm", {**norm, "eps": "small"})
    # A whole number is a number as well, and becomes a double.
    assert (
        calls.struct_of(KERNELS["layer_norm"], {**norm, "eps": 1}).words.view(np.float64)[2] == 1.0
    )


@pytest.mark.parametrize(
    ("reads", "writes", "said"),
    [
        ([F32, F32], [F32], "reads 1 operands, and is given 2"),
        ([None], [F32], "reads x: it is nothing"),
        ([F64], [F32], "reads x: it is f64, expected f32"),
        ([F32], [I32], "writes y: it is i32"),
        ([F32], [F32, F32], "writes 1 operands, and is given 2"),
        ([F32], [], "writes y: it is nothing"),
    ],
)
def test_operands_that_do_not_fit(reads, writes, said):
    with pytest.raises(SignatureError, match="'softmax'") as result:
        calls.check_operands(KERNELS["softmax"], reads, writes, "f32")
    assert said in str(result.value)


def test_operands_that_fit():
    calls.check_operands(KERNELS["softmax"], [F32], [F32], "f32")
    calls.check_operands(KERNELS["gather"], [F32, I32], [I32], "b4")
    calls.check_operands(KERNELS["layer_norm"], [F32], [F32], "f32")
    calls.check_operands(KERNELS["layer_norm"], [F32, None, F32], [F32, F32], "f32")


def test_a_kernel_that_does_not_exist():
    with pytest.raises(SignatureError, match=r"no kernel 'sofmax'; do you mean 'softmax'\?"):
        calls.kernel("sofmax")
    with pytest.raises(rlx.UnsupportedOpError, match="no kernel 'softmax' for i32"):
        calls.type_of(KERNELS["softmax"], I32)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"params": {**SOFTMAX, "rows": 1}}, "rows, which it does not have"),
        ({"inputs": ()}, "softmax"),
        ({"kernel": "softmaxx"}, "no kernel 'softmaxx'"),
    ],
)
def test_linking_refuses_a_call_that_does_not_fit(monkeypatch, change, said):
    link = linker.Linker.link
    monkeypatch.setattr(
        linker.Linker,
        "link",
        lambda self, result: link(self, [dataclasses.replace(call, **change) for call in result]),
    )
    g = rlx.Graph()
    g.set_outputs([g.softmax(g.input("x", (2, 3)), axis=1)])
    with pytest.raises(rlx.CompileError) as result:
        rlx.compile(g, "cpu")
    assert said in str(result.value)
    assert "softmax" in str(result.value)


@pytest.mark.parametrize("fault", ["none", "one too small", "of another type", "one too many"])
def test_scratch_that_does_not_fit_is_refused(fault):
    kernel = KERNELS["topk"]
    params = {"rows": 2, "n": 5, "k": 3, "largest": 1}
    (piece,) = calls.scratch(kernel, params, F32)
    calls.check_scratch(kernel, params, F32, [piece])
    stored = {
        "none": [],
        "one too small": [(piece[0], piece[1] - 1)],
        "of another type": [("f32", piece[1])],
        "one too many": [piece, piece],
    }[fault]
    with pytest.raises(SignatureError, match="'topk' needs scratch memory"):
        calls.check_scratch(kernel, params, F32, stored)


def test_linking_refuses_a_call_whose_scratch_is_gone(monkeypatch):
    link = linker.Linker.link
    monkeypatch.setattr(
        linker.Linker,
        "link",
        lambda self, result: link(
            self, [dataclasses.replace(call, outputs=call.outputs[:2]) for call in result]
        ),
    )
    g = rlx.Graph()
    g.set_outputs(g.topk(g.input("x", (2, 5)), 3))
    with pytest.raises(rlx.CompileError, match="'topk' needs scratch memory"):
        rlx.compile(g, "cpu")


@pytest.mark.parametrize("threads", [1, 4])
def test_a_lacking_field_is_refused_before_threads_share_the_call(monkeypatch, threads):
    link = linker.Linker.link
    short = {name: value for name, value in SOFTMAX.items() if name != "outer"}
    monkeypatch.setattr(
        linker.Linker,
        "link",
        lambda self, result: link(
            self, [dataclasses.replace(item, params=short) for item in result]
        ),
    )
    g = rlx.Graph()
    g.set_outputs([g.softmax(g.input("x", (4096, 256)), axis=1)])
    with pytest.raises(rlx.CompileError, match="'softmax' is given no outer"):
        rlx.compile(g, "cpu", options=rlx.CompileOptions(threads=threads))


# --- the C side -------------------------------------------------------------------------------------------


COMPILER = (sysconfig.get_config_var("CC") or "").split()
needs_compiler = pytest.mark.skipif(
    not COMPILER or shutil.which(COMPILER[0]) is None,
    reason="the compiler that built this Python is not installed",
)


def compiled(tmp_path, text, *options):
    """Runs a C program that includes the generated header, and gives what it prints."""
    (tmp_path / "kernel_signatures.h").write_text(c_header())
    source, program = tmp_path / "program.c", tmp_path / "program"
    source.write_text(text)
    command = [*COMPILER, "-std=gnu11", f"-I{tmp_path}", *options, str(source), "-o", str(program)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return done.stderr
    return subprocess.run([str(program)], capture_output=True, text=True, check=True).stdout


@needs_compiler
def test_python_and_c_agree_on_every_struct(tmp_path):
    lines, expected = [], []
    for name, kernel in KERNELS.items():
        paths = {
            each: f"{field}.{each}" if hasattr(kernel.fields[field], "fields") else field
            for field in kernel.fields
            for each in (getattr(kernel.fields[field], "fields", None) or (field,))
        }
        for each, path in paths.items():
            lines.append(f'printf("%zu\\n", offsetof(rlx_{name}, {path}) / 8);')
            expected.append(kernel.offset(each))
        if kernel.fields:
            lines.append(f'printf("%zu\\n", sizeof(rlx_{name}) / 8);')
            expected.append(kernel.words)
    text = "#include <stdio.h>\n#include <stddef.h>\n#include <kernel_signatures.h>\nint main(void) {%s return 0;}\n"
    result = compiled(tmp_path, text % "\n".join(lines))
    assert list(map(int, result.split())) == expected


@needs_compiler
def test_a_kernel_that_reads_a_wrong_field_does_not_compile(tmp_path):
    text = (
        "#include <kernel_signatures.h>\nint main(void) {rlx_softmax p = {0}; return (int)p.%s;}\n"
    )
    assert compiled(tmp_path, text % "inner") == ""
    assert "rows" in compiled(tmp_path, text % "rows")


def test_every_kernel_of_a_signature_is_compiled():
    names = {
        f"{kernel.name}_{type}" if type else kernel.name
        for kernel in KERNELS.values()
        if kernel.in_table
        for type in kernel.types or ("",)
    }
    variants = {
        f"{kernel.name}_{type}_{variant}" if type else f"{kernel.name}_{variant}"
        for kernel in KERNELS.values()
        for variant in kernel.variants
        for type in kernel.types or ("",)
    }
    assert set(cpu.kernels("plain")) == names
    assert all(set(cpu.kernels(isa)) <= names | variants for isa in cpu.isas())


SIX = {f"x{index}": "T" for index in range(6)}


@pytest.mark.parametrize(
    ("made", "said"),
    [
        ([Signature("a", ""), Signature("a", "")], "two kernels are named a"),
        ([Signature("a", "", reads={**SIX, "y": "T", "z": "T", "v": "T"})], "a has more operands"),
        ([Signature("a", "", writes=SIX)], "a has more operands"),
        (
            [Signature("a", "", {"n": INT, "g": Group("rlx_g", {"n": INT})})],
            "two fields of one name",
        ),
        ([Signature("a", "", {"n": INT}, parallel=Parallel("rows"))], "a has no field rows"),
        ([Signature("a", "", {"itemsize": INT})], "a has a field itemsize"),
    ],
)
def test_signatures_that_no_call_could_fulfil(made, said):
    with pytest.raises(ValueError, match=said):
        kernels.collected(made)


# --- the words of a call --------------------------------------------------------------------------------------


def test_arrays_stand_behind_the_struct():
    fields = {
        "rank": 2, "dims": (4, 5), "source_steps": (5, 1), "target_steps": (1, 4), "source_offset": 0,
        "target_offset": 7, "source_advance": 0, "target_advance": 0,
    }  # fmt: skip
    kernel = KERNELS["strided_copy"]
    words = calls.struct_of(kernel, fields).placed()
    start = words.ctypes.data
    assert words[kernel.offset("rank")] == 2
    assert words[kernel.offset("target_offset")] == 7
    for name in ("dims", "source_steps", "target_steps"):
        position = (int(words[kernel.offset(name)]) - start) // 8
        assert position >= kernel.words
        assert tuple(words[position : position + 2]) == fields[name]
    assert words.size == kernel.words + 6


@looped("name", [name for name, kernel in KERNELS.items() if kernel.scratch], ids=str)
def test_scratch_is_stated_by_formulas_of_the_fields(name):
    """No formula asks for a field that the call does not give."""
    kernel = KERNELS[name]
    params = {
        field: 1 if f.length is None else (1,) * (f.length or 2)
        for field, f in kernel.flat.items()
        if not f.linked
    }
    result = calls.scratch(kernel, params, F32)
    assert len(result) <= len(kernel.scratch)
    assert all(isinstance(length, int) and length > 0 for _, length in result)
    assert isinstance(next(iter(kernel.scratch.values())), Scratch)


def test_each_kernel_is_shared_or_says_why_not():
    for name, kernel in KERNELS.items():
        assert (kernel.parallel is None) == bool(kernel.alone), name
    alone = {name for name, kernel in KERNELS.items() if kernel.alone}
    assert alone == {
        "jump", "jump_unless", "next_trip", "custom", "python", "log_mel_backward", "resize_taps",
        "true_positions", "winograd_filters",
    }  # fmt: skip
