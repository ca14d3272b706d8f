"""The conformance kit finds what is wrong with a backend, and nothing with a right one."""

import pytest

import rlx
import rlx.testing
from rlx import flags
from rlx.backends import registry
from rlx.backends.reference import ReferenceExecutable
from rlx.plugin import DeviceInfo


class Faulty(rlx.Backend):
    """The reference with one fault."""

    name, kernel_set = "npu", ""

    def __init__(self, fault):
        self.fault = fault

    def devices(self):
        return [DeviceInfo("npu", 0, "Faulty")]

    def absent(self):
        return "never"

    def refuses(self, info, graph):
        return "no relu" if self.fault == "refuses" else None

    def load(self, info, graph, schedule, plan, options):
        if self.fault == "load":
            raise RuntimeError("it breaks")
        return type("Executable", (_Executable,), {"fault": self.fault})(graph, {})


class _Executable(ReferenceExecutable):
    fault = ""

    def compute(self, inputs, targets):
        if self.fault == "views":
            for view, array in zip(self.input_views, inputs, strict=True):
                view[...] = array
        super().compute(inputs, targets)
        if self.fault == "wrong":
            for array in targets:
                array += 1

    def submit(self, arrays, outputs, fresh):
        if self.fault == "fresh":
            self.output_views = tuple(view.copy() for view in self.output_views)
        return super().submit(arrays, outputs, fresh)

    def set_params(self, values):
        if self.fault == "params":
            self._params.update(values)
        else:
            super().set_params(values)

    def bind(self, binding):
        super().bind(binding._replace(feeds=()) if self.fault == "feeds" else binding)

    def clone(self):
        if self.fault == "clones":
            return self
        return super().clone()


@pytest.fixture
def faulty():
    def make(fault):
        rlx.register_backend(Faulty(fault))

    yield make
    registry._loaded.pop("npu", None)
    flags.renew()


def test_a_right_backend_keeps_every_promise(faulty):
    faulty("")
    rlx.testing.check_backend("npu")
    report = rlx.testing.conformance("npu", ["relu", "matmul"], most=3)
    assert report.counts() == {"right": 6, "host": 0, "refused": 0, "wrong": 0, "failed": 0}
    assert report.faults == ()
    assert str(report).startswith("npu: 6 right")


@pytest.mark.parametrize(
    "device", ["cpu", "reference", "null", pytest.param("webgpu", marks=pytest.mark.webgpu)]
)
def test_the_backends_of_rlx_keep_every_promise(device, request):
    if device == "webgpu":
        device = request.getfixturevalue("webgpu")
    rlx.testing.check_backend(device)


@pytest.mark.parametrize(
    ("fault", "promise"),
    [
        ("wrong", "runs, and the same views"),
        ("views", "input views"),
        ("fresh", "runs, and the same views"),
        ("params", "params are copied"),
        ("feeds", "handles and feeds"),
        ("clones", "clones"),
    ],
)
def test_a_broken_promise_is_named(faulty, fault, promise):
    faulty(fault)
    with pytest.raises(AssertionError, match=promise):
        rlx.testing.check_backend("npu")


@pytest.mark.parametrize(
    ("fault", "outcome", "detail"),
    [
        ("wrong", "wrong", "error"),
        ("load", "failed", "CompileError"),
        ("refuses", "refused", "no relu"),
    ],
)
def test_a_case_has_an_outcome(faulty, fault, outcome, detail):
    faulty(fault)
    told = []
    report = rlx.testing.conformance("npu", ["relu"], 2, ["f32"], told=told.append)
    assert [verdict.outcome for verdict in report.verdicts] == [outcome] * 2
    assert all(detail in item.detail for item in told)
    assert report.by_op()["relu"][outcome] == 2
    assert len(report.faults) == (0 if outcome == "refused" else 2)


def test_cases_are_spread_over_dtypes():
    results = list(rlx.testing.cases(["relu"], most=6))
    assert len({case.dtypes for case in results}) == 6
    assert len(results) == 6
    f32 = list(rlx.testing.cases(["relu"], dtypes=["f32"]))
    assert {str(dtype) for case in f32 for dtype in case.dtypes} == {"f32"}
    with pytest.raises(rlx.UnknownNameError, match="did you mean"):
        list(rlx.testing.cases(["relv"]))
