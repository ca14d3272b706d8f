"""Every sample of every op record, on every backend, against the float64 reference.

On the CPU and on WebGPU, fused and not; on every instruction set; and with WebGPU's default limits. RLX_TEST_DEVICE names
the device of a backend that is installed: its samples are then run, too.
"""

import functools
import os
from typing import NamedTuple

import numpy as np
import pytest
from dispatches import CASES, of_each_kernel, thinned, usual
from samples import ALL, by_op, each

import rlx
from rlx import flags
from rlx._ext import cpu
from rlx.backends.base import CompileOptions
from rlx.cli.ops import ALLOWED
from rlx.ir.dtype import DType
from rlx.ir.opdef import NO_F64
from rlx.ops.conformance_cases import Case

pytestmark = pytest.mark.per_op

FUSED, PLAIN = CompileOptions(), CompileOptions(fuse=False, fold=False, cse=False)
# Constant folding would compute a composite of constants by the reference itself.
KEPT = CompileOptions(fold=False)
SETS = ("plain", "neon", "avx2", "avx512")
OTHER = os.environ.get("RLX_TEST_DEVICE", "")
ON_DAWN = flags.WEBGPU.get() == "dawn"


class Expected:
    """A case, and what it has to give: computed once for all ways to run it."""

    def __init__(self, case: Case) -> None:
        self.case, self.graph, self.operands = case, case.graph(), case.operands()

    @functools.cached_property
    def results(self) -> list[np.ndarray]:
        """The reference's results."""
        return self.case.expected(self.graph, self.operands)

    def check(self, device: str, options: CompileOptions, way: str) -> None:
        """Compiles the case and runs it twice: the second run finds what the first left in the arena."""
        with rlx.Session(device, options=options).compile(self.graph) as compiled:
            for _ in range(2):
                got = compiled.run_slots(*self.operands)
                error, allowed = self.case.difference(self.graph, got, self.results)
                assert error <= allowed, f"{way}: error {error:.3g} > {allowed:.3g}"
        if device == "webgpu":
            allowed_on_host(self.case, compiled.host_fallbacks)


def allowed_on_host(case: Case, fallbacks: tuple[str, ...]) -> None:
    """Checks that each node on the host is f64, which WebGPU lacks, or has a reason that the record may have."""
    f64 = DType.F64 in case.dtypes or "f64" in map(str, case.sample.attrs.values())
    for fallback in fallbacks:
        _, _, reason = fallback.partition(": ")
        assert reason.startswith(ALLOWED), f"{case}: {fallback}"
        assert f64 or not reason.startswith(NO_F64), f"{case}: {fallback}"


def of_set(case: Case, isa: str) -> bool:
    """Returns whether a case is worth running on an instruction set of its own.

    Casts are the same loops on every one, and narrow types are casts around them.
    """
    same = case.opdef.name == "cast" or case.dtypes[:1] == (DType.BF16,)
    return isa in cpu.isas() and not same


if OTHER:

    @pytest.mark.parametrize("group", by_op(case for case in CASES if not case.sample.bench))
    def test_other_device(group):
        """A plug-in refuses an operation, or computes it right."""

        def check(case):
            try:
                Expected(case).check(OTHER, FUSED, OTHER)
            except rlx.UnsupportedOpError as error:
                print(f"{case}: {error}")

        each(group, check)


@pytest.mark.parametrize("group", by_op(thinned([item for item in CASES if not item.sample.bench])))
def test_reference(group):
    """The device "reference" computes the same as the record's reference function by itself."""

    def check(case):
        graph, operands = case.graph(), case.operands()
        with rlx.Session("reference", options=KEPT).compile(graph) as compiled:
            got = compiled.run_slots(*operands)
            error, allowed = case.error(graph, got, operands)
            assert error <= allowed, f"error {error:.3g} > {allowed:.3g}"

    each(group, check)


@pytest.mark.parametrize("group", by_op(CASES))
def test_cpu(group):
    """The usual cases on the instruction set that the device chooses, and on each of the others every kernel."""
    few = of_each_kernel(group)

    def check(case):
        expected = Expected(case)
        expected.check("cpu", FUSED, "fused")
        if id(case) in few:
            expected.check("cpu", PLAIN, "plain")
        for isa in SETS if id(case) in few else ():
            if of_set(case, isa):
                with pytest.MonkeyPatch.context() as patch:
                    patch.setenv("RLX_CPU_ISA", isa)
                    expected.check("cpu", KEPT, isa)

    each(usual(group, few), check)


@pytest.mark.parametrize("isa", SETS)
def test_an_instruction_set_runs_or_is_refused(isa, monkeypatch):
    """Instruction sets that the processor lacks can't be run; asking for one is an error."""
    monkeypatch.setenv("RLX_CPU_ISA", isa)
    expected = Expected(CASES[0])
    if isa in cpu.isas():
        expected.check("cpu", KEPT, isa)
        return
    with pytest.raises(rlx.DeviceUnavailableError):
        expected.check("cpu", KEPT, isa)


FIRST = {
    id(case)
    for case in {c.opdef.name: c for c in reversed(CASES) if c.dtypes[:1] != (DType.F64,)}.values()
}


# On WebGPU: the options, and whether the device has the default limits.
WAYS = {"own limits": (KEPT, False), "default limits": (FUSED, True), "plain": (PLAIN, False)}


class Way(NamedTuple):
    """A case, and one way to compute it on WebGPU."""

    expected: Expected
    name: str

    def __str__(self) -> str:
        return f"{self.expected.case}, {self.name}"

    @property
    def opdef(self):
        """The record, as of a case."""
        return self.expected.case.opdef

    def check(self, device):
        options, default = WAYS[self.name]
        with pytest.MonkeyPatch.context() as patch:
            if default:
                patch.setenv("RLX_WEBGPU_DEFAULT_LIMITS", "1")
            self.expected.check(device, options, self.name)


def ways(case):
    """The normal run takes one case of each op with the default limits; ``--all`` takes every way."""
    expected = Expected(case)
    few = ["own limits", *(["default limits"] if id(case) in FIRST else [])]
    return (Way(expected, name) for name in (WAYS if ALL else few))


@pytest.mark.webgpu
@pytest.mark.by_program
@pytest.mark.parametrize("group", by_op(CASES))
def test_webgpu(group, webgpu):
    """With what the adapter has, and, for one case of each op, with the default limits of WebGPU."""
    few = of_each_kernel(group, "webgpu")
    # Kernels are the same texts for both libraries; through Dawn the normal run takes each of them once.
    chosen = [case for case in group if id(case) in few] if ON_DAWN else usual(group, few)
    each((way for case in chosen for way in ways(case)), lambda way: way.check(webgpu))
