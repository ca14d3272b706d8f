"""Reports of ``rlx regress``: what they say, that names can't inject anything, and a browser that shows them."""

import argparse
import os
import re
import shutil
import subprocess
from html.parser import HTMLParser

import pytest
from recordings import (
    LAVAPIPE,
    add_text,
    change_case,
    change_output,
    digest,
    fail,
    recording,
    write,
)

from rlx.cli.regressions import compare_command as compare_command
from rlx.cli.regressions import history_command as history_command
from rlx.cli.regressions import show_command as show_command
from rlx.regress import charts, history, report
from rlx.regress.compare import compare
from rlx.regress.differing import text_diffs
from rlx.regress.error_ledger import ledger
from rlx.regress.record_schema import Kernel

GPU = {"device": "webgpu", "adapter": LAVAPIPE, "gpu": True}
CHROMIUM = (
    shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
)
HOSTILE = """</script><script>document.title='broken'</script><img src=x onerror="document.title='broken'">'"{{7*7}}"""


def run(command, *arguments):
    parser = argparse.ArgumentParser()
    command.add_arguments(parser)
    return command.run(parser.parse_args([str(argument) for argument in arguments]))


def flagged_pair(name="matmul 64x11 f32"):
    """A pair with everything that a report can show."""
    base, new = (
        recording(seed=1, **GPU),
        recording(seed=2, **GPU, driver="2.0", slower={3: 1.3, 7: 0.7}),
    )
    first, other = (
        f"fn main() {{\n  // {name}\n  let a = {x};\n}}" for x in ("b + c", "fma(b, 1.0, c)")
    )
    change_case(
        base,
        3,
        name=name,
        kernels=[Kernel("k", 1, add_text(base, first))],
        schedule=add_text(base, "v = k(a)"),
    )
    change_case(
        new,
        3,
        name=name,
        kernels=[Kernel("k", 2, add_text(new, other))],
        schedule=add_text(new, "v = k(b)"),
    )
    change_output(new, 2, bits=digest("x"), max_ulp=900.0, max_abs=1e-4, relative=1e-4)
    fail(new, 6, error=name)
    return base, new


def days(count=12):
    """A recording a day: a driver that is faster from day 5 on, a commit that is slower from day 8 on."""
    return [
        recording(
            seed=100 + day,
            began=f"2026-01-{day + 1:02}T00:00:00Z",
            driver="2.0" if day >= 5 else "1.0",
            commit=("b" if day >= 8 else "a") * 40,
            spread=0.002,
            slower={1: 0.7 if day >= 5 else 1.0, 2: 1.3 if day >= 8 else 1.0},
            **GPU,
        )
        for day in range(count)
    ]


class Checker(HTMLParser):
    """Notes what elements there are, and that each is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.tags = [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in ("meta", "input", "br", "img"):
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def parsed(text):
    checker = Checker()
    checker.feed(text)
    assert checker.open == []
    return checker.tags


def made(name="matmul 64x11 f32"):
    base, new = flagged_pair(name)
    third = recording(seed=3, device="webgpu", adapter="NVIDIA H200", gpu=True, error={2: 40})
    comparisons = [compare(base, new), compare(base, third)]
    return report.compare_report(comparisons, [base, new, third], history.series(days()))


def test_a_report_says_all():
    text = made()
    parsed(text)
    for part in (
        "Results changed in 2 of 10 cases. Times: 1 slower, 1 faster, 7 same.",
        "Results that changed",
        "webgpu: driver",
        "copy, GB/s",
        "beyond the tolerance",
        "times the others: NVIDIA H200",
        "WGSL of k",
        '<span class="add">+  let a = fma(b, 1.0, c);</span>',
        "Histories of flagged cases",
        "+30 %</b> since 2026-01-09 00:00: commit aaaaaaaaaaaa -&gt; bbbbbbbbbbbb",
    ):
        assert part in text, part


def test_a_report_loads_nothing():
    text = made()
    assert not re.search(r"""(src|href|action)\s*=|url\(|@import|https?:""", text)
    policy = next(a["content"] for tag, a in parsed(text) if tag == "meta" and "http-equiv" in a)
    assert policy.startswith("default-src 'none'")


def test_names_of_a_hostile_file_inject_nothing():
    def kinds(text):
        return {tag for tag, _ in parsed(text)}

    text = made(HOSTILE)
    assert kinds(text) == kinds(made())
    assert text.count("<script>") == 1
    assert "49" not in re.findall(r"onerror=[^<]*", text)[0]
    assert not [a for _, a in parsed(text) if any(name.startswith("on") for name in a)]


def test_a_report_of_nothing_in_common():
    base, new = recording(), recording(device="webgpu")
    text = report.compare_report([compare(base, new)], [base, new])
    parsed(text)
    assert "Not comparable: no device of the one is like a device of the other." in text


def test_diffs_are_each_shown_once_and_long_ones_are_cut():
    base, new = flagged_pair()
    titles = [diff.title for diff in text_diffs(compare(base, new))]
    assert titles == ["schedule", "WGSL of k"]
    lines = "\n".join(map(str, range(2000)))
    for item, text in ((base, lines), (new, lines.replace("1", "one"))):
        change_case(item, 0, schedule=add_text(item, text))
    cut = next(diff for diff in text_diffs(compare(base, new)) if "add" in diff.cases[0])
    assert len(cut.lines) == 301
    assert cut.lines[-1][1].endswith("more lines")
    change_case(new, 0, schedule=add_text(new, "\n" * 4000))
    long = next(diff for diff in text_diffs(compare(base, new)) if "add" in diff.cases[0])
    assert "too long" in long.lines[0][1]
    change_case(new, 0, schedule=digest("gone"))
    lost = next(diff for diff in text_diffs(compare(base, new)) if "add" in diff.cases[0])
    assert "do not hold" in lost.lines[0][1]


def test_axes_hold_what_is_drawn():
    effects = [case.decisive.effect for case in compare(*flagged_pair()).cases if case.decisive]
    axis = charts.ratio_axis(effects)
    assert axis.at(0.0) == 50
    assert "1" in [tick.text for tick in axis.ticks]
    assert all(
        0 < charts.interval(axis, effect).low <= charts.interval(axis, effect).high < 100
        for effect in effects
    )
    errors = charts.error_axis(ledger([recording()]))
    assert charts.error_at(errors, 0.0) == 0
    assert charts.error_at(errors, float("inf")) == 100
    assert 0 < charts.error_at(errors, 6e-8) < charts.error_at(errors, 1e-5) < 100


def test_histories_find_what_changed_and_when():
    results = {item.name: item for item in history.series(days())}
    faster, slower = results["exp 64x9 f32"], results["pow 64x10 f32"]
    assert [(change.at, change.causes) for change in faster.changes] == [
        (5, ("driver 1.0 -> 2.0",))
    ]
    assert faster.changes[0].ratio == pytest.approx(0.7, rel=0.05)
    ((position, causes),) = [(change.at, change.causes) for change in slower.changes]
    assert position == 8
    assert causes[0] == "commit aaaaaaaaaaaa -> bbbbbbbbbbbb"
    assert not any(
        value.changes
        for name, value in results.items()
        if name not in ("exp 64x9 f32", "pow 64x10 f32")
    )


def test_histories_find_other_bits():
    recordings = days(6)
    for item in recordings[4:]:
        change_output(item, 0, bits=digest("since day 4"))
    assert [item.new_bits for item in history.series(recordings)][:2] == [(4,), ()]


def test_noise_alone_changes_no_level():
    recordings = [
        recording(seed=index, began=f"2026-01-{index + 1:02}", spread=0.05) for index in range(20)
    ]
    assert sum(len(item.changes) for item in history.series(recordings)) <= 1


def test_the_history_command_names_the_commit(tmp_path, capsys):
    for index, day in enumerate(days()):
        write(day, tmp_path / f"{index}.rlxreg")
    assert run(history_command, tmp_path, "--html", tmp_path / "h.html") == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "10 series" in printed
    assert "+30 %" in printed
    parsed((tmp_path / "h.html").read_text())


def test_show_has_machine_floor_slowest_cases_and_failures(tmp_path, capsys):
    result = recording(seed=1, **GPU)
    fail(result, 6, error="CompileError: no kernel")
    result.end = None
    assert run(show_command, write(result, tmp_path / "a.rlxreg")) == 0
    printed = " ".join(capsys.readouterr().out.split())
    for part in (
        LAVAPIPE,
        "noise floor",
        "slowest cases",
        "sort 64x16 f32",
        "CompileError: no kernel",
        "interrupted",
    ):
        assert part in printed, part


def test_the_ledger_flags_a_driver_that_is_ten_times_worse(tmp_path, capsys):
    recordings = [
        recording(seed=1, device="webgpu", adapter="A"),
        recording(seed=2, device="webgpu", adapter="B"),
        recording(seed=3, device="webgpu", adapter="C", error={2: 15.0, 3: 5.0}),
    ]
    results = [(item.op, item.adapter) for item in ledger(recordings) if item.stands_out]
    assert results == [("pow", "C")]
    assert not any(item.fails for item in ledger(recordings))
    files = [write(item, tmp_path / f"{item.run.run}.rlxreg") for item in recordings]
    assert run(show_command, *files, "--numerics") == 0
    assert (
        "pow (f32) on C stands out: 9e-07, 15 times the others; pow 64x10 f32"
        in capsys.readouterr().out
    )


def test_the_ledger_compares_adapters_over_common_cases_alone():
    first, other = (
        recording(adapter="A", error={12: 100.0}, cases=20),
        recording(adapter="B", cases=10),
    )
    assert not any(entry.stands_out for entry in ledger([first, other]))


def test_the_ledger_counts_cases_of_special_values_apart():
    result = recording(adapter="A", cases=20)
    change_case(result, 12, tolerance=None)
    change_output(result, 12, relative=None, nan=1)
    (entry,) = [item for item in ledger([result, recording(adapter="B", cases=20)]) if item.edges]
    assert (entry.op, entry.edges, entry.relative) == ("pow", 1, pytest.approx(6e-8))
    assert not entry.fails
    assert not entry.stands_out


def test_the_ledger_knows_errors_beyond_the_tolerance():
    result = recording()
    change_output(result, 2, relative=None)
    (entry,) = [item for item in ledger([result]) if item.fails]
    assert (entry.op, entry.relative, entry.times_others) == ("pow", float("inf"), None)


# A browser draws the page, clicks on a heading, searches, and leaves what it sees in the title.
PROBE = """
document.querySelectorAll("th button")[3].click();
const search = document.querySelector("input[type=search]");
search.value = "matmul"; search.dispatchEvent(new Event("input"));
const shown = [...document.querySelectorAll("table.sortable")[0].tBodies[0].rows].filter((row) => !row.hidden);
const wide = document.documentElement.scrollWidth > window.innerWidth;
document.title = `shown ${shown.length}, ${document.querySelectorAll("th[aria-sort=ascending]").length} sorted, wide ${wide}`;
"""


def browse(path, *options):
    """Runs the browser; gives what it prints, and checks that no script failed."""
    command = [
        CHROMIUM,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--hide-scrollbars",
        "--enable-logging=stderr",
    ]
    profile = f"--user-data-dir={path.parent / 'profile'}"
    done = subprocess.run(
        [*command, profile, *options, path.as_uri()],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert "CONSOLE" not in done.stderr, done.stderr
    return done.stdout


@pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("RLX_REQUIRE_WEBGPU"),
    reason="no Chromium; script/test installs it, and CI requires it",
)
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_the_report_without_errors(tmp_path, width):
    path = tmp_path / "report.html"
    path.write_text(made(HOSTILE))
    image = tmp_path / "report.png"
    browse(path, f"--screenshot={image}", f"--window-size={width},1600")
    assert image.stat().st_size > 20_000
    # The policy of the page keeps out every script but its own, so the probe goes into a copy without it.
    probed = tmp_path / "probed.html"
    text = re.sub(r"<meta http-equiv[^>]*>", "", made())
    probed.write_text(text.replace("</body>", f"<script>{PROBE}</script></body>"))
    dom = browse(probed, "--dump-dom", f"--window-size={width},1600")
    assert "<title>shown 1, 1 sorted, wide false</title>" in dom


@pytest.mark.skipif(
    CHROMIUM is None and not os.environ.get("RLX_REQUIRE_WEBGPU"),
    reason="no Chromium; script/test installs it, and CI requires it",
)
def test_the_policy_of_the_page_stops_other_scripts(tmp_path):
    path = tmp_path / "report.html"
    path.write_text(made(HOSTILE))
    dom = browse(path, "--dump-dom")
    assert "<title>rlx regress:" in dom
    assert "10 of 10</output>" in dom
    path.write_text(made().replace("</body>", "<script>document.title = 'broken'</script></body>"))
    with pytest.raises(AssertionError, match="Content Security Policy"):
        browse(path, "--dump-dom")


def test_the_compare_command_writes_a_report(tmp_path, capsys):
    files = [write(item, tmp_path / f"{index}.rlxreg") for index, item in enumerate(flagged_pair())]
    (tmp_path / "days").mkdir()
    for index, day in enumerate(days(5)):
        write(day, tmp_path / "days" / f"{index}.rlxreg")
    made_at = tmp_path / "r.html"
    assert run(compare_command, *files, "--html", made_at, "--history", tmp_path / "days") == 4
    assert "Histories of flagged cases" in made_at.read_text()
    assert "results that changed on webgpu" in capsys.readouterr().out
