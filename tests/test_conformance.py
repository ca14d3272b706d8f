"""Every sample of every op record, on every backend, against the float64 reference."""

import pytest

import rlx
from rlx.backends.base import CompileOptions
from rlx.ops.cases import Case, cases

CASES = list(cases()) + list(cases(bench=True))
OPTIONS = {"fused": CompileOptions(), "plain": CompileOptions(fuse=False, fold=False, cse=False)}


def check(case: Case, device: str, options: CompileOptions) -> None:
    graph = case.graph()
    operands = case.operands()
    with rlx.Session(device, options=options).compile(graph) as compiled:
        for _ in range(2):  # the second run finds what the first left in the arena
            got = compiled.run_slots(*operands)
            error, allowed = case.error(graph, got, operands)
            assert error <= allowed, f"{case} on {device}: error {error:.3g} > {allowed:.3g}"


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cpu(case, mode):
    check(case, "cpu", OPTIONS[mode])


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
@pytest.mark.parametrize("case", [c for c in CASES if c.opdef.name != "cast"], ids=str)
def test_cpu_instruction_sets(case, isa, monkeypatch):
    from rlx._ext import cpu

    if isa not in cpu.isas():
        # What the processor lacks can't be run; asking for it has to say so.
        monkeypatch.setenv("RLX_CPU_ISA", isa)
        with pytest.raises(rlx.DeviceUnavailableError):
            check(case, "cpu", OPTIONS["fused"])
        return
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    check(case, "cpu", OPTIONS["fused"])


@pytest.mark.webgpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_webgpu(case, webgpu):
    graph = case.graph()
    held = {rlx.DType.F32, rlx.DType.I32, rlx.DType.U32, rlx.DType.BOOL}
    taken = set(case.dtypes) | {node.dtype for node in graph.outputs} <= held
    taken = taken and (case.opdef.view or case.dtypes[0] in case.opdef.webgpu_dtypes)
    if not taken:
        with pytest.raises(rlx.UnsupportedOpError, match=r"no kernel|not held"):
            rlx.Session(webgpu).compile(graph)
        return
    check(case, webgpu, OPTIONS["fused"])
