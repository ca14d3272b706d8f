"""Faults that were planted in an install are found and named by ``rlx regress``: in numbers and in speed."""

import sys

import pytest
from faulty_installs import faulty_results, faulty_wgsl, hurried, slow

from rlx.cli.main import main
from rlx.regress.compare import compare
from rlx.regress.record import RecordPlan, RecordTarget, record
from rlx.regress.recording import read

ONLY = r"^(tanh|sqrt|add|abs|exp) (256-1024(x256-1024)? f32|edges)$"
STORE = "out[i] = t0;"
# A last place, a flushed subnormal number, one wrong element of many, and NaN: each in an operation of its own.
WGSL_FAULTS = [
    (
        "// Elementwise: tanh.",
        STORE,
        "out[i] = bitcast<vec4<f32>>(bitcast<vec4<u32>>(t0) + vec4<u32>(1u));",
    ),
    (
        "// Elementwise: abs.",
        STORE,
        "out[i] = select(vec4<f32>(0.0), t0, t0 >= vec4<f32>(1.17549435e-38));",
    ),
    (
        "// Elementwise: add.",
        STORE,
        "out[i] = t0 + select(vec4<f32>(0.0), vec4<f32>(0.0, 0.01, 0.0, 0.0), i == 777u);",
    ),
    (
        "// Elementwise: sqrt.",
        STORE,
        "out[i] = select(t0, vec4<f32>(bitcast<f32>(0x7fc00000u | min(i, 1u))), i == 99u);",
    ),
]
CPU_FAULTS = {
    "tanh": "y[:] = np.nextafter(y, np.float32(9))",
    "abs": "y[y < 1.1754944e-38] = 0",
    "add": "y[len(y) // 3] += 0.01",
    "sqrt": "y[len(y) // 3] = np.nan",
}


def _compared(tmp_path, python, device, only=ONLY, processes=1, base=sys.executable):
    paths = [tmp_path / "base.rlxreg", tmp_path / "new.rlxreg"]
    targets = [RecordTarget(base, paths[0]), RecordTarget(python, paths[1])]
    record(targets, RecordPlan(("ops",), [device], processes, True, only))
    base, new = (read([path])[0] for path in paths)
    return compare(base, new), paths


def _named(comparison):
    """The kinds of findings that mean that results have changed, by the name of the case."""
    return {
        case.name: {finding.kind for finding in case.findings if finding.changed}
        for case in comparison.cases
        if case.changed
    }


def _check(comparison, adapter):
    result = _named(comparison)
    assert {name.split()[0] for name in result} == {"tanh", "abs", "add", "sqrt"}
    assert "bits" in result["tanh 256-1024 f32"]
    assert "bits" in result["abs edges"]
    assert {"bits", "tolerance"} <= result["add 256-1024x256-1024 f32"]
    assert "not-finite" in result["sqrt 256-1024 f32"]
    assert comparison.exit_code() == 4
    assert {case.pair.new.adapter for case in comparison.cases if case.changed} == {adapter}


@pytest.mark.webgpu
def test_faults_of_kernels_are_named_by_operation_and_adapter(tmp_path, webgpu, capsys):
    python = faulty_wgsl(tmp_path / "faulty", WGSL_FAULTS)
    comparison, paths = _compared(tmp_path, python, webgpu, base=hurried(tmp_path / "base"))
    adapter = read([paths[0]])[0].devices[webgpu].adapter
    _check(comparison, adapter)
    html, junit = tmp_path / "r.html", tmp_path / "r.xml"
    arguments = ["regress", "compare", *map(str, paths), "--html", str(html), "--junit", str(junit)]
    assert main(arguments) == 4
    said = capsys.readouterr().out
    for text in (said, html.read_text(), junit.read_text()):
        for op in ("tanh", "abs", "add", "sqrt"):
            assert op in text
    assert adapter in html.read_text()


def test_faults_of_the_cpu_are_named(tmp_path):
    python, base = faulty_results(tmp_path / "faulty", CPU_FAULTS), hurried(tmp_path / "base")
    comparison, paths = _compared(tmp_path, python, "cpu", base=base)
    _check(comparison, read([paths[0]])[0].devices["cpu"].adapter)


@pytest.mark.slow
def test_two_recordings_of_the_same_code_have_the_same_results(tmp_path):
    comparison, _ = _compared(tmp_path, sys.executable, "cpu")
    assert not _named(comparison)
    assert comparison.kinds == {}


@pytest.mark.slow
@pytest.mark.parametrize("how", ["wait", "memory"])
def test_a_case_that_takes_twice_as_long_is_slower(tmp_path, how):
    """Twice, and five processes: this machine may be busy; benchmarks/regress_checks.py measures finer steps."""
    python = slow(tmp_path / "slow", ["tanh"], 1.0, how)
    comparison, _ = _compared(tmp_path, python, "cpu", r"^(tanh|exp|sqrt|add) 256-1024", 5)
    results = {case.op: case.decisive for case in comparison.cases}
    assert str(results["tanh"].verdict) in ("slower", "inconclusive")
    assert results["tanh"].new_ns > 1.4 * results["tanh"].base_ns
    assert "slower" not in {str(value.verdict) for op, value in results.items() if op != "tanh"}
