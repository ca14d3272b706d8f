"""Every sample of every op record, on every backend, against the float64 reference.

On the CPU and on WebGPU, fused and not; on every instruction set; and with WebGPU's default limits.
"""

import pytest

import rlx
from rlx.backends.base import CompileOptions
from rlx.cli.ops import ALLOWED
from rlx.ir.dtype import DType
from rlx.ir.opdef import NO_F64
from rlx.ops.cases import Case, cases

CASES = list(cases()) + list(cases(bench=True))
OPTIONS = {"fused": CompileOptions(), "plain": CompileOptions(fuse=False, fold=False, cse=False)}
# Constant folding would compute a composite of constants by the reference itself.
KEPT = CompileOptions(fold=False)


def check(case: Case, device: str, options: CompileOptions) -> None:
    graph = case.graph()
    operands = case.operands()
    with rlx.Session(device, options=options).compile(graph) as compiled:
        for _ in range(2):  # the second run finds what the first left in the arena
            got = compiled.run_slots(*operands)
            error, allowed = case.error(graph, got, operands)
            assert error <= allowed, f"{case} on {device}: error {error:.3g} > {allowed:.3g}"
    if device == "webgpu":
        allowed_on_host(case, compiled.host_fallbacks)


def allowed_on_host(case: Case, fallbacks: tuple[str, ...]) -> None:
    """What runs on the host is f64, which WebGPU lacks, or has a reason that the record may have."""
    f64 = DType.F64 in case.dtypes or "f64" in map(str, case.sample.attrs.values())
    for fallback in fallbacks:
        _, _, reason = fallback.partition(": ")
        assert reason.startswith(ALLOWED), f"{case}: {fallback}"
        assert f64 or not reason.startswith(NO_F64), f"{case}: {fallback}"


@pytest.mark.parametrize("mode", OPTIONS)
@pytest.mark.parametrize("case", CASES, ids=str)
def test_cpu(case, mode):
    check(case, "cpu", OPTIONS[mode])


def widest_only(case):
    """Casts are the same loops on every instruction set, and narrow types are casts around them."""
    return case.opdef.name != "cast" and case.dtypes[:1] != (DType.BF16,)


@pytest.mark.parametrize("isa", ["plain", "avx2", "avx512"])
@pytest.mark.parametrize("case", [c for c in CASES if widest_only(c)], ids=str)
def test_cpu_instruction_sets(case, isa, monkeypatch):
    from rlx._ext import cpu

    monkeypatch.setenv("RLX_CPU_ISA", isa)
    if isa not in cpu.isas():
        # What the processor lacks can't be run; asking for it has to say so.
        with pytest.raises(rlx.DeviceUnavailableError):
            check(case, "cpu", KEPT)
        return
    check(case, "cpu", KEPT)


@pytest.mark.webgpu
@pytest.mark.parametrize("case", CASES, ids=str)
def test_webgpu(case, webgpu):
    check(case, webgpu, KEPT)


@pytest.mark.webgpu
@pytest.mark.slow
@pytest.mark.parametrize("case", CASES, ids=str)
def test_webgpu_plain(case, webgpu):
    check(case, webgpu, OPTIONS["plain"])


FIRST = {case.opdef.name: case for case in reversed(CASES) if case.dtypes[:1] != (DType.F64,)}


@pytest.mark.webgpu
@pytest.mark.parametrize(
    "case",
    [
        pytest.param(c, marks=[] if c is FIRST.get(c.opdef.name) else pytest.mark.slow, id=str(c))
        for c in CASES
    ],
)
def test_webgpu_default_limits(case, webgpu, monkeypatch):
    monkeypatch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
    check(case, webgpu, OPTIONS["fused"])
