"""Kernels are valid by WebGPU's own rules: Dawn's compiler takes them, which is stricter than naga about barriers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from dispatches import CASES, of_each_kernel
from python_process import run_python
from selection import SELECTION
from shader_texts import texts

from rlx.backends.webgpu.modules import for_naga

pytestmark = pytest.mark.webgpu


def compiled(lines, folder, env):
    """Compiles texts by Dawn on SwiftShader, in a process of its own."""
    file = folder / "texts.jsonl"
    file.write_text("\n".join(map(json.dumps, lines)) + "\n")
    program = Path(__file__).with_name("dawn_compiles.py")
    return json.loads(run_python(program, file, env=env).stdout)


def kind_of(item):
    """The kernel, and whether it uses subgroups; of elementwise ones, whose text is made for each program, the operation."""
    kernel = item["label"].rpartition("/")[2]
    return item["label"] if kernel == "elementwise" else (kernel, item["subgroups"])


@pytest.mark.by_program
@pytest.mark.parametrize("extent", ["kinds", pytest.param("all", marks=pytest.mark.slow)])
@pytest.mark.timeout(3600)
def test_dawn_compiles_every_text(extent, swiftshader, tmp_path):
    """Compiles the texts of all samples and limits, also with one-value operands; normally one of each kernel."""
    if extent == "all":
        chosen = list(texts())
        assert len(chosen) > 4000
    else:
        few = of_each_kernel(CASES, "webgpu")
        results = list(texts(case for case in CASES if id(case) in few))
        chosen = list({kind_of(item): item for item in reversed(results)}.values())
        assert len(chosen) > 100, len(chosen)
    SELECTION.compiles(*(item["source"] for item in chosen))
    result = compiled(chosen, tmp_path, swiftshader)
    shown = "\n".join(f"{item['label']}: {item['why']}" for item in result["refused"][:5])
    assert not result["refused"], f"{len(result['refused'])} of {result['texts']} refused:\n{shown}"
    # SwiftShader's workgroups have no more than 256 threads: texts with more are checked as modules.
    fitting = sum(item["threads"] <= 256 for item in chosen)
    assert result["pipelines"] == fitting > 0.9 * len(chosen)


BARRIER = """
@group(0) @binding(0) var<storage, read_write> x: array<f32>;
@compute @workgroup_size(64)
fn main(@builtin(local_invocation_index) lane: u32) {
    if (x[lane] > 0.0) { workgroupBarrier(); }
    x[lane] = 1.0;
}
"""


def test_the_check_sees_a_barrier_that_not_all_threads_reach(swiftshader, tmp_path):
    single = {"label": "barrier", "source": BARRIER, "bindings": 1, "shared": 0, "threads": 64}
    (fault,) = compiled([single], tmp_path, swiftshader)["refused"]
    assert fault["label"] == "barrier"
    assert "uniform control flow" in fault["why"]


def test_lines_stay_where_they_were_for_naga():
    text = "enable f16;\nenable subgroups;\nconst N = 1u;\n"
    assert for_naga(text) == "enable f16;\n\nconst N = 1u;\n"
    assert for_naga("const N = 1u;\n") == "const N = 1u;\n"
