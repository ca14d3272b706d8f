"""What ``benchmarks/gpu.py`` says: speeds, targets, a table for the terminal and one for the README."""

import report
from rich.table import Table

SCRIPT = "benchmarks/gpu.py"
P12_MS = 100.0
# Operations for each byte from which on arithmetic takes the H200 longer than the transfer.
INTENSITY = 67 / 4.3


def counts(flops, nbytes):
    """Which of a workload's two floors is the higher one, "flops" or "bytes"."""
    return "flops" if flops > INTENSITY * nbytes else "bytes"


def speeds(work, nbytes, us, limits):
    """TFLOP/s, GB/s, and the part of the bound that counts."""
    seconds = us / 1e6
    found = {"tflops": work.flops / seconds / 1e12, "gb_per_s": nbytes / seconds / 1e9}
    by = counts(work.flops, nbytes)
    most, done = (limits[0], work.flops) if by == "flops" else (limits[1], nbytes)
    return found | {"part": done / seconds / most if most else None}


def judge(found, goals):
    """Adds peers' times, ratios and whether the target is reached to each row."""
    for line in found["rows"]:
        us = line.get("gpu_us")
        line["ratios"] = {}
        for peer in ("torch", "ort", "tinygrad", "scipy"):
            said = found.get(peer, {}).get("rows", {}).get(line["row"], {})
            if us and said.get("us"):
                line["ratios"][peer] = said["us"] / us
        goal = goals.get(line["row"])
        line["reached"] = _reached(line, goal) if goal and us else None


def _reached(line, goal):
    """Whether all that can be told of a goal holds; None where nothing can."""
    told = [line["tflops"] >= goal.tflops] if goal.tflops is not None else []
    if goal.part is not None and line["part"] is not None:
        told.append(line["part"] >= goal.part)
    told += [
        line["ratios"][peer] >= least
        for peer, least in goal.peers.items()
        if peer in line["ratios"]
    ]
    return all(told) if told else None


def one_line(line):
    """A row in a few words, as soon as it is known."""
    if "failure" in line or "skipped" in line:
        return f"{line['row']}: {line.get('failure') or line['skipped']}"
    if not line["correct"]:
        return f"WRONG {line['row']}: error {line['error']:.2g}, at most {line['tolerance']:.2g}"
    if line["on_the_host"]:
        return f"{line['row']}: not timed, on the host: {'; '.join(line['on_the_host'])}"
    part = "" if line["part"] is None else f", {line['part']:.0%} of the bound"
    return f"{line['row']}: {line['gpu_us']:,.1f} us, {_speed(line)}{part}, {_kernels(line)}"


def _speed(line):
    if line["counts"] == "flops":
        return f"{line['tflops']:,.2f} TFLOP/s"
    return f"{line['gb_per_s']:,.0f} GB/s"


def _kernels(line):
    shown = {name: line["kernels"].count(name) for name in line["kernels"]}
    return " + ".join(f"{n} {name}" if n > 1 else name for name, n in shown.items())


def _ratio(line, peer):
    return f"{line['ratios'][peer]:.2f}" if peer in line["ratios"] else "-"


_MARKS = {True: "yes", False: "no", None: "-"}
_COLUMNS = (
    ("workload", lambda line: line["row"]),
    ("target", lambda line: line["target"] or "-"),
    ("GPU us", lambda line: f"{line['gpu_us']:,.1f}{'*' if line['cache_resident'] else ''}"),
    ("wall us", lambda line: f"{line['wall_us']:,.0f}"),
    ("speed", _speed),
    ("of bound", lambda line: "-" if line["part"] is None else f"{line['part']:.0%}"),
    ("reached", lambda line: _MARKS[line["reached"]]),
    ("PyTorch", lambda line: _ratio(line, "torch")),
    ("ORT WebGPU", lambda line: _ratio(line, "ort")),
    ("tinygrad", lambda line: _ratio(line, "tinygrad")),
    ("SciPy", lambda line: _ratio(line, "scipy")),
    ("kernels", _kernels),
    ("error", lambda line: f"{line['error']:.1e}"),
)


# What stands in place of a time.
_UNTIMED = {"failure": "failed", "skipped": "can't"}


def _cells(line, columns):
    """A row's cells; one that was not timed says only what it is."""
    if "gpu_us" in line:
        return [shown(line) for _, shown in columns]
    said = next((word for key, word in _UNTIMED.items() if key in line), "WRONG")
    if said == "WRONG" and line["correct"]:
        said = "host"
    return [line["row"], line["target"] or "-", said, *["-"] * (len(columns) - 3)]


def table(found):
    """Everything for the terminal."""
    title = f"{found['adapter']}, {found['driver']}; peers: their time / rlx; * stays in caches"
    made = Table(title=title, title_justify="left")
    for at, (heading, _) in enumerate(_COLUMNS):
        made.add_column(heading, justify="left" if at in (0, 11) else "right")
    for line in found["rows"]:
        made.add_row(*_cells(line, _COLUMNS))
    return made


def notes(found):
    """Lines below the table: peers that are absent or failed, the cold start, what the bounds are."""
    for peer in ("torch", "ort", "tinygrad", "scipy"):
        said = found.get(peer)
        if said is None:
            continue
        yield f"{peer}: {said.get('absent') or said.get('about', '')}"
        for row, one in said.get("rows", {}).items():
            if "error" in one:
                yield f"  {row}: {one['error']}"
        if "ended" in said:
            yield f"  {said['ended']}"
    cold = found.get("cold")
    if cold:
        yield from _cold_lines(cold)
    flops, nbytes = (found["limits"][name] for name in ("flops", "bytes_per_s"))
    bound = "unknown" if flops is None else f"{flops / 1e12:.0f} TFLOP/s"
    copy = "unknown" if nbytes is None else f"{nbytes / 1e9:,.0f} GB/s"
    yield "GPU us: the kernels alone; with the gaps between them it is span_us in the JSON"
    yield f"bounds: arithmetic {bound}, copy {copy} (read and written)"
    told = [line["reached"] for line in found["rows"] if line.get("reached") is not None]
    yield f"targets reached: {sum(told)} of {len(told)}"


def _cold_lines(cold):
    if "failed" in cold:
        yield f"P12: {cold['failed']}"
        return
    said = "reached" if cold["rlx_ms"] <= P12_MS else "not reached"
    yield (
        f"P12: load, compile and first run of 16 nodes in a fresh process, no caches: rlx {cold['rlx_ms']:.0f} ms, "
        f"of which finding the adapters {cold['adapters_ms']:.0f} ms; {said} (at most {P12_MS:.0f} ms)"
    )
    yield f"  ONNX Runtime WebGPU: {cold['ort'] if isinstance(cold['ort'], str) else format(cold['ort'], '.0f') + ' ms'}"


def checks(lines):
    """A table of what ``--check`` found: the worst error of each row and variant."""
    made = Table("workload", "variant", "sizes", "worst error / tolerance", "kernels")
    by_row = {}
    for line in lines:
        by_row.setdefault((line["row"], line["variant"]), []).append(line)
    for (row, variant), group in by_row.items():
        told = [line for line in group if "error" in line]
        failed = any("failure" in line for line in group)
        worst = max((line["error"] / line["tolerance"] for line in told), default=0.0)
        kernels = sorted({name for line in told for name in line["kernels"]})
        said = "failed" if failed else f"{worst:.2g}" if told else group[0]["skipped"]
        made.add_row(row, variant or "own", str(len(group)), said, ", ".join(kernels))
    return made


_README = (
    "workload",
    "target",
    "GPU us",
    "speed",
    "of bound",
    "reached",
    "PyTorch",
    "ORT WebGPU",
    "tinygrad",
    "SciPy",
)


def markdown(found):
    """The README's table: rows with a target, figures only."""
    columns = [one for one in _COLUMNS if one[0] in _README]
    lines = [
        f"{found['adapter']}, driver {found['driver']}; a peer's column is its time by that of rlx, "
        "above 1 rlx is faster; * is data that stays in caches. `python benchmarks/gpu.py --json gpu.json --readme README.md` makes it.",
        "",
    ]
    rows = [_cells(line, columns) for line in found["rows"] if line["target"]]
    lines += report.markdown([heading for heading, _ in columns], rows)
    if found.get("cold", {}).get("rlx_ms"):
        cold = found["cold"]
        lines += ["", *(f"- {line.strip()}" for line in _cold_lines(cold))]
    return "\n".join(lines)


def write_readme(found, path):
    """Puts the table between the two comments of a file; SystemExit where it lacks them."""
    report.write_between(path, SCRIPT, markdown(found))
