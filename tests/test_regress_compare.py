"""Comparing recordings: what counts as a changed result, each verdict on time, each exit status."""

import argparse
import json
import subprocess
import sys
from xml.etree import ElementTree

import msgspec
import pytest
from recordings import LAVAPIPE, change_case, change_output, digest, fail, recording, write

import rlx
from rlx.cli.regressions import compare_command as command
from rlx.cli.regressions import part
from rlx.regress import exports
from rlx.regress.compare import NOT_COMPARABLE, compare, fail_on
from rlx.regress.findings import KINDS
from rlx.regress.record_schema import Kernel, Load
from rlx.regress.timing import floors

GPU = {"device": "webgpu", "adapter": LAVAPIPE, "gpu": True}


def pair(**changes):
    """Two recordings of unchanged code; ``changes`` are in the second one."""
    return recording(seed=1), recording(**{"seed": 2, **changes})


def run(*arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(argument) for argument in arguments]))


def kinds(base, new, case):
    return {finding.kind for finding in compare(base, new).cases[case].findings}


def test_unchanged_code_is_the_same():
    result = compare(*pair())
    assert result.verdicts == {"same": 10}
    assert not result.kinds
    assert result.exit_code() == 0


# The faults of check 2 of the design: what is changed in a case's output, and how it must be called.
FAULTS = {
    "a last place": ({"bits": digest("ulp"), "max_ulp": 2.5, "max_abs": 1.5e-7}, {"bits"}),
    "a flushed denormal": (
        {"bits": digest("flush"), "max_ulp": 8.3e6, "max_abs": 1e-38, "sample": ["0.0", "-1.25"]},
        {"bits"},
    ),
    "a wrong element in a million": (
        {"bits": digest("wrong"), "max_abs": 3.0, "max_ulp": 2.5e7, "rms": 3e-3, "relative": 3e-3},
        {"bits", "error", "tolerance"},
    ),
    "a NaN": (
        {"bits": digest("nan"), "nan": 1, "relative": None},
        {"bits", "not-finite", "error", "tolerance"},
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_faults_of_numbers_are_named_by_operation_and_adapter(fault, capsys, tmp_path):
    change, named = FAULTS[fault]
    base, new = recording(seed=1, **GPU), recording(seed=2, **GPU)
    change_output(new, 2, **change)
    result = compare(base, new)
    (case,) = (item for item in result.cases if item.changed)
    assert (case.op, case.pair.new.adapter) == ("pow", LAVAPIPE)
    assert {finding.kind for finding in case.findings} == named
    assert result.exit_code() == 4
    files = write(base, tmp_path / "a.rlxreg"), write(new, tmp_path / "b.rlxreg")
    assert run(*files) == 4
    printed = " ".join(capsys.readouterr().out.split())
    assert "pow 64x10 f32" in printed
    assert LAVAPIPE in printed


def test_other_hardware_may_have_other_bits_but_no_larger_errors():
    base, new = recording(seed=1, **GPU), recording(seed=1, **{**GPU, "adapter": "NVIDIA H200"})
    assert set(compare(base, new).kinds) == {"other-hardware"}
    change_output(new, 3, max_ulp=40.0, max_abs=4e-6)
    result = compare(base, new)
    assert [case.op for case in result.cases if case.changed] == ["matmul"]


def test_another_instruction_set_is_other_hardware():
    base, new = pair(isa="avx512")
    change_output(new, 0, bits=digest("avx512"))
    assert kinds(base, new, 0) == {"other-hardware"}


def test_a_few_units_in_the_last_place_are_no_larger_error():
    base, new = pair()
    change_output(base, 0, max_ulp=0.5, max_abs=3e-8)
    change_output(new, 0, max_ulp=2.5, max_abs=1.5e-7)
    assert "error" not in kinds(base, new, 0)


def test_units_in_the_last_place_next_to_zero_are_no_larger_error():
    base, new = pair()
    change_output(new, 0, max_ulp=1e6)
    assert "error" not in kinds(base, new, 0)


def test_bits_that_vary_between_processes_are_no_change():
    base, new = pair()
    measured = change_output(new, 0, bits=digest("new"))
    measured.times[3] = msgspec.structs.replace(measured.times[3], bits=[digest("other")])
    assert kinds(base, new, 0) == {"not-deterministic"}
    assert compare(base, new).exit_code() == 0


def test_a_case_that_fails_now_is_a_changed_result():
    base, new = pair()
    fail(new, 4)
    assert kinds(base, new, 4) == {"failure"}
    assert compare(base, new).exit_code() == 4
    assert kinds(new, base, 4) == {"mended"}
    assert compare(new, base).exit_code() == 0


def test_a_case_that_fails_in_some_processes_is_a_changed_result():
    base, new = pair()
    fail(new, 4, processes=[1, 2])
    (finding,) = compare(base, new).cases[4].findings
    assert finding.text.startswith("fails in 2 of 5 processes: DeviceLostError")


@pytest.mark.parametrize(
    ("changes", "kind"),
    [
        ({"kernels": [Kernel("exp", 2)]}, "kernels"),
        ({"schedule": digest("other")}, "schedule"),
        ({"bytes": 1}, "bytes"),
        ({"uploaded": 1}, "bytes"),
        ({"arena": 1}, "memory"),
        ({"peak": 1}, "memory"),
        ({"allocations": 5000}, "allocations"),
        ({"on_the_host": ["sort: no kernel for f64"]}, "host"),
    ],
)
def test_what_the_compiler_made_is_reported_and_fails_when_asked(changes, kind):
    base, new = pair()
    change_case(new, 1, **changes)
    result = compare(base, new)
    assert kinds(base, new, 1) == {kind}
    assert result.exit_code() == 0
    assert result.exit_code(fail_on(f"changed,{kind}")) == 4


def test_other_wgsl_is_reported():
    base, new = recording(seed=1, **GPU), recording(seed=2, **GPU)
    change_case(new, 1, kernels=[Kernel("exp", 1, digest("other"))])
    assert kinds(base, new, 1) == {"wgsl"}


def test_every_kind_has_a_reason():
    assert all(kind.title and kind.reason for kind in KINDS.values())


def test_slower_and_faster():
    result = compare(*pair(slower={2: 1.3, 5: 0.7}))
    verdicts = [str(case.verdict) for case in result.cases]
    assert (verdicts[2], verdicts[5]) == ("slower", "faster")
    assert verdicts.count("same") == 8
    assert result.exit_code() == 1
    assert result.exit_code(fail_on("changed")) == 0


def test_a_small_change_is_the_same_however_certain():
    base, new = recording(seed=1, spread=0.001), recording(seed=2, spread=0.001, slower={2: 1.03})
    assert compare(base, new).cases[2].verdict == "same"
    assert compare(base, new, min_effect=0.02).cases[2].verdict == "slower"


def test_noise_is_inconclusive_and_says_how_many_processes_would_decide():
    result = compare(recording(seed=1, spread=0.2), recording(seed=2, spread=0.2, slower={2: 1.25}))
    timing = result.cases[2].decisive
    assert timing.verdict == "inconclusive"
    assert "noise hides" in timing.reason
    assert timing.processes > 5
    assert result.exit_code() == 3


@pytest.mark.parametrize("side", [0, 1])
def test_a_busy_machine_decides_nothing(side):
    slower = {index: 1.5 for index in range(10)}
    recordings = [recording(seed=1), recording(seed=2, slower=slower)]
    results = {"seed": side + 1, "contention": 0.4, **({"slower": slower} if side else {})}
    recordings[side] = recording(**results)
    result = compare(*recordings)
    assert result.verdicts == {"inconclusive": 10}
    assert "busy" in result.cases[0].decisive.reason
    assert result.exit_code() == 3


def test_processes_that_were_disturbed_are_left_out():
    base, new = pair()
    for measured in new.measured.values():
        measured.times[0] = msgspec.structs.replace(measured.times[0], ns=[10**9], contention=0.5)
    assert compare(base, new).verdicts == {"same": 10}


def test_recordings_that_took_turns_are_compared_in_pairs():
    slower = {index: 1.1 for index in range(10)}
    drift = (0.0, 0.3, 0.1, -0.2, 0.2)
    for turns, verdict in ((None, "inconclusive"), ("feed" * 4, "slower")):
        base, new = (
            recording(turns=turns, drift=drift),
            recording(seed=1, slower=slower, turns=turns, drift=drift),
        )
        assert compare(base, new).verdicts == {verdict: 10}
    new.run = msgspec.structs.replace(new.run, turns="f00d" * 4)
    assert compare(base, new).verdicts == {"inconclusive": 10}


def test_a_pair_with_a_disturbed_process_is_left_out():
    base, new = recording(turns="feed" * 4), recording(seed=1, turns="feed" * 4)
    for index, item in enumerate((base, new)):
        for measured in item.measured.values():
            for process in range(2):
                number = 2 * index + process
                measured.times[number] = msgspec.structs.replace(
                    measured.times[number], contention=0.5
                )
    assert compare(base, new).verdicts == {"inconclusive": 10}
    assert "1 of 5" in compare(base, new).cases[0].decisive.reason


def test_without_contention_the_load_around_the_recording_counts():
    base, new = pair(contention=None)
    assert compare(base, new).verdicts == {"same": 10}
    new.run = msgspec.structs.replace(new.run, load=Load(0.5))
    assert compare(base, new).verdicts == {"inconclusive": 10}


def test_two_processes_are_too_few():
    result = compare(recording(seed=1, processes=2), recording(seed=2, processes=2))
    assert result.verdicts == {"inconclusive": 10}
    assert "2 processes; 3 decide" in result.cases[0].decisive.reason


def test_cases_measured_for_their_results_alone_have_no_verdict():
    base, new = pair()
    for item in (base, new):
        measured = change_case(item, 0, timed=False)
        for value in (2, 3, 4):
            del measured.times[value]
    item = compare(base, new)
    assert item.cases[0].verdict is None
    assert item.verdicts == {"same": 9}


def test_a_slower_machine_is_not_blamed_on_kernels():
    result = compare(*pair(peak=0.7, slower={3: 1.5}))
    assert result.verdicts == {"machine": 9, "slower": 1}
    assert result.cases[3].verdict == "slower"
    assert "peaks take 1.4" in result.cases[0].decisive.reason
    assert compare(*pair(peak=0.7)).exit_code() == 3
    assert compare(*pair(peak=1.5)).verdicts == {"faster": 10}


def test_gpu_timestamps_decide_where_both_have_them():
    base, new = recording(seed=1, **GPU), recording(seed=2, **GPU)
    for measured in new.measured.values():
        for key, times in measured.times.items():
            measured.times[key] = msgspec.structs.replace(times, ns=[3 * x for x in times.ns])
    result = compare(base, new)
    assert result.verdicts == {"same": 10}
    assert {t.metric: str(t.verdict) for t in result.cases[0].timings}["run"] == "slower"
    for measured in new.measured.values():
        for key, times in measured.times.items():
            measured.times[key] = msgspec.structs.replace(times, gpu_ns=[])
    assert compare(base, new).verdicts == {"slower": 10}


def test_the_cold_suite_is_decided_by_compile_and_first_run():
    base, new = recording(seed=1, suite="cold"), recording(seed=2, suite="cold", slower={1: 1.3})
    case = compare(base, new).cases[1]
    assert {timing.metric for timing in case.timings if timing.judged} == {"compile", "first"}
    assert case.verdict == "slower"


def test_a_recording_knows_its_noise_floor():
    calm, noisy = floors(recording(spread=0.01, cases=50)), floors(recording(spread=0.1, cases=50))
    assert calm["cpu"] == pytest.approx(1.96 * 0.01 * (2 / 5) ** 0.5, rel=0.2)
    assert noisy["cpu"] == pytest.approx(10 * calm["cpu"], rel=0.05)
    assert floors(recording(processes=1)) == {}


def test_devices_are_paired_by_adapter_and_by_name():
    base = recording(seed=1, device="webgpu", adapter="A")
    assert [p.title for p in compare(base, recording(device="webgpu:1", adapter="A")).pairs] == [
        "webgpu -> webgpu:1"
    ]
    assert [p.title for p in compare(base, recording(device="webgpu", adapter="B")).pairs] == [
        "webgpu"
    ]
    mapped = compare(base, recording(device="cpu", adapter="C"), devices={"webgpu": "cpu"})
    assert [p.title for p in mapped.pairs] == ["webgpu -> cpu"]
    assert not mapped.pairs[0].same_hardware
    with pytest.raises(rlx.InputError, match="webgp"):
        compare(base, base, devices={"webgp": "webgpu"})


def test_nothing_in_common_is_not_comparable():
    other = compare(recording(), recording(device="webgpu"))
    assert other.exit_code() == NOT_COMPARABLE
    assert "no device" in other.headline
    assert other.exit_code(()) == NOT_COMPARABLE
    assert "no case" in compare(recording(), recording(suite="signal")).headline


def test_cases_of_one_recording_alone_are_listed():
    result = compare(recording(cases=3), recording(cases=2))
    assert result.only_base == ("pow 64x10 f32 on cpu",)
    assert result.only_new == ()


def test_machines_that_differ_are_compared_and_the_difference_is_said():
    result = compare(*pair(driver="2.0", commit="b" * 40))
    assert ("cpu: driver", "1.0", "2.0") in result.differences
    assert [name for name, _, _ in result.differences][:2] == ["commit", "build of rlx"]


def test_changed_results_come_before_slower_and_slower_before_inconclusive():
    base, new = pair(slower={2: 1.3})
    for index, measured in enumerate(new.measured.values()):
        if index == 3:
            measured.times = {
                k: msgspec.structs.replace(t, contention=0.9) for k, t in measured.times.items()
            }
    assert compare(base, new).exit_code() == 1
    change_output(new, 1, bits=digest("x"))
    assert compare(base, new).exit_code() == 4
    assert compare(base, new).exit_code(fail_on("inconclusive")) == 3


def test_wrong_options_are_input_errors():
    with pytest.raises(rlx.InputError, match="slower"):
        fail_on("slowr")
    for text in ("five", "-1%", "5%%", "nan", "20"):
        with pytest.raises(rlx.InputError, match="not a fraction"):
            part(text)
    assert part("5%") == part("0.05") == 0.05
    with pytest.raises(rlx.InputError):
        compare(recording(), recording(), min_effect=-1.0)


@pytest.mark.parametrize(("command", "missing"), [("compare", "scipy"), ("history", "ruptures")])
def test_a_missing_extra_is_named(command, missing):
    code = f"import sys; sys.modules[{missing!r}] = None; import rlx.cli.main as m; m.main(['regress', {command!r}, 'x'])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert f"needs {missing}" in done.stderr
    assert "pip install '.[regress]'" in done.stderr


def test_json_and_junit_have_every_case(tmp_path, capsys):
    base, new = pair(slower={2: 1.3})
    change_output(new, 1, bits=digest("x"))
    fail(new, 3)
    files = write(base, tmp_path / "a.rlxreg"), write(new, tmp_path / "b.rlxreg")
    results = tmp_path / "r.json", tmp_path / "r.xml"
    assert run(*files, "--json", results[0], "--junit", results[1]) == 4
    tree = json.loads(results[0].read_text())
    assert (tree["version"], tree["exit_code"], len(tree["cases"])) == (exports.JSON_VERSION, 4, 10)
    assert tree["cases"][2]["verdict"] == "slower"
    suite = ElementTree.parse(results[1]).getroot()[0]
    assert (suite.get("tests"), suite.get("failures")) == ("10", "3")
    capsys.readouterr()
    assert run(*files, "--json", "-", "--fail-on", "slower") == 1
    assert json.loads(capsys.readouterr().out)["exit_code"] == 1


def test_junit_skips_what_is_inconclusive_and_holds_no_character_that_xml_forbids():
    base, new = recording(seed=1), recording(seed=2, contention=0.9)
    change_case(new, 0, name="a\x00b\x1b<&\ud800")
    result = compare(base, new)
    text = exports.as_junit([result], fail_on("slower,changed"))
    suite = ElementTree.fromstring(text.encode())[0]
    assert suite.get("skipped") == "10"
    assert suite[0].get("name") == "a\ufffdb\ufffd<&\ufffd"
    broken = exports.as_junit([compare(recording(), recording(suite="x"))])
    assert ElementTree.fromstring(broken.encode())[1][0][0].get("type") == "not comparable"


def test_the_console_shows_no_control_characters_of_a_file(tmp_path, capsys):
    base, new = pair()
    change_case(new, 0, name="\x1b[31mred\x07[bold]x")
    change_output(new, 0, bits=digest("x"))
    run(write(base, tmp_path / "a.rlxreg"), write(new, tmp_path / "b.rlxreg"))
    printed = capsys.readouterr().out
    assert "\x1b[31m" not in printed
    assert "\x07" not in printed
    assert "[bold]" in printed


def test_one_recording_alone_is_an_input_error(tmp_path):
    with pytest.raises(rlx.InputError, match="only one recording"):
        run(write(recording(), tmp_path / "a.rlxreg"))


def test_several_recordings_are_each_compared_with_the_first(tmp_path, capsys):
    files = [
        write(
            recording(
                seed=value,
                began=f"2026-01-0{value}T00:00:00Z",
                slower={1: 1.0 + 0.3 * (value == 3)},
            ),
            tmp_path / f"{value}.rlxreg",
        )
        for value in (1, 2, 3)
    ]
    assert run(*files[:2]) == 0
    assert run(*files) == 1
    assert "1 slower, 9 same" in capsys.readouterr().out
