"""The output of ``benchmarks/cpu.py``: speeds, ratios and geometric means, tables for terminal and documentation."""

import math

import report
from rich.table import Table

SCRIPT = "benchmarks/cpu.py"
# Operations for each byte from which on arithmetic takes longer than memory, where no --peak says so.
INTENSITY = 5.0
# The slowest rows are named below the table.
SLOWEST = 15


def speeds(line, peak):
    """GFLOP/s, GB/s, and the part of a stated bound that counts."""
    ns = line["p50"][0] * 1e3
    results = {"gflops": line["flops"] / ns, "gb_per_s": line["nbytes"] / ns}
    intensity = peak[0] / peak[1] if peak else INTENSITY
    arithmetic = line["flops"] > intensity * line["nbytes"]
    results["counts"] = "flops" if arithmetic else "bytes"
    part = results["gflops" if arithmetic else "gb_per_s"] / peak[not arithmetic] if peak else None
    return results | {"part": part}


def one_line(line):
    """A row in a few words, as soon as it is known."""
    name = f"{line['row']}, {line['threads']} threads"
    if "failure" in line or "skipped" in line:
        return f"{name}: {line.get('failure') or line['skipped']}"
    if not line["correct"]:
        return f"WRONG {name}: error {line['error']:.2g}, at most {line['tolerance']:.2g}"
    return (
        f"{name}: {_us(line, 0)} us, {_speed(line)}, {_peer(line)} {_ratio(line)} {_spread(line)}"
    )


def _us(line, index, which="p50"):
    return f"{line[which][index]:,.1f}" if index < len(line[which]) else "-"


def _speed(line):
    if line["counts"] == "flops":
        return f"{line['gflops']:,.1f} GFLOP/s"
    return f"{line['gb_per_s']:,.1f} GB/s"


def _peer(line):
    if "peer" in line:
        return line["peer"]
    said = line["peer_absent"] | line["peer_failures"]
    return "; ".join(said.values())[:60] or "-"


def _ratio(line):
    return f"{line['ratio']:.2f}" if "peer" in line else "-"


def _spread(line):
    return "{:.2f} ... {:.2f}".format(*line["spread"]) if "peer" in line else "-"


_COLUMNS = (
    ("workload", lambda line: line["row"]),
    ("threads", lambda line: str(line["threads"])),
    ("p50 us", lambda line: _us(line, 0)),
    ("p99 us", lambda line: _us(line, 0, "p99")),
    ("speed", _speed),
    ("of bound", lambda line: "-" if line["part"] is None else f"{line['part']:.0%}"),
    ("peer", _peer),
    ("peer p50", lambda line: _us(line, 1)),
    ("peer p99", lambda line: _us(line, 1, "p99")),
    ("peer / rlx", _ratio),
    ("quartiles", _spread),
    ("error", lambda line: f"{line['error']:.1e}"),
)
_LEFT = {"workload", "peer"}


def _cells(line, columns):
    """Returns a row's cells; a row that was not timed has only its name."""
    if "p50" in line:
        return [shown(line) for _, shown in columns]
    said = "failed" if "failure" in line else "can't" if "skipped" in line else "WRONG"
    return [line["row"], str(line["threads"]), said, *["-"] * (len(columns) - 3)]


def _title(result):
    return f"{result['processor']}, {result['kernels']}, {result['processors']} processors"


def table(result):
    """Everything for the terminal."""
    output = Table(title=f"{_title(result)}; above 1 rlx is faster", title_justify="left")
    stated = any(line.get("part") is not None for line in result["rows"])
    columns = [column for column in _COLUMNS if stated or column[0] != "of bound"]
    for heading, _ in columns:
        output.add_column(heading, justify="left" if heading in _LEFT else "right", no_wrap=True)
    for line in result["rows"]:
        output.add_row(*_cells(line, columns))
    return output


def _compared(result):
    """Rows with a ratio, by number of threads."""
    by_threads = {}
    for line in result["rows"]:
        if "peer" in line:
            by_threads.setdefault(line["threads"], []).append(line)
    return by_threads


def _threads(count):
    return f"{count} thread{'s' * (count > 1)}"


def _versions(result):
    return ", ".join(f"{name} {value}" for name, value in result["versions"].items())


def _mean(threads, lines):
    mean = math.exp(sum(math.log(line["ratio"]) for line in lines) / len(lines))
    slower = sum(line["ratio"] < 1 for line in lines)
    # Of these not even a lucky pair in four was as fast as the peer.
    surely = sum(line["spread"][1] < 1 for line in lines)
    return (
        f"{_threads(threads)}: rlx is {mean:.2f} times as fast as its peer in the geometric mean of "
        f"{len(lines)} rows; {slower} rows are slower, {surely} of them with both quartiles below 1"
    )


def means(result):
    """A line for each number of threads: how rlx compares over all rows."""
    for threads, lines in _compared(result).items():
        yield _mean(threads, lines)


def notes(result):
    """Lines below the table: the mean, the slowest rows, peers that failed."""
    for threads, lines in _compared(result).items():
        yield _mean(threads, lines)
        slower = [line for line in lines if line["ratio"] < 1]
        for line in sorted(slower, key=lambda line: line["ratio"])[:SLOWEST]:
            yield f"  {_ratio(line)} ({_spread(line)}) {line['row']}, {line['peer']}"
    for line in result["rows"]:
        for way, said in (line.get("peer_absent", {}) | line.get("peer_failures", {})).items():
            yield f"{way}: {line['row']}, {line['threads']} threads: {said}"
    yield f"versions: {_versions(result)}"
    if result["load"]:
        yield "load when it began: " + ", ".join(f"{item:.1f}" for item in result["load"])


def checks(lines):
    """A table of what ``--check`` found: the worst error of each row, and its peers."""
    result = Table("workload", "lines", "worst error / tolerance", "peers")
    by_row = {}
    for line in lines:
        by_row.setdefault(line["row"], []).append(line)
    for row, group in by_row.items():
        told = [line["error"] / line["tolerance"] for line in group if "error" in line]
        failed = any("failure" in line for line in group)
        peers = sorted({name for line in group for name in line.get("peers", ())})
        absent = {value for line in group for value in line.get("peer_absent", {}).values()}
        said = "failed" if failed else f"{max(told):.2g}"
        result.add_row(row, str(len(group)), said, ", ".join([*peers, *absent]))
    return result


# The columns of the documentation after a workload and a number of threads.
_DOCS = ("workload", "threads", "p50 us", "speed", "peer / rlx", "quartiles")


def markdown(result):
    """The table of the documentation, a line for each workload, and what comes of it."""
    counts = sorted({line["threads"] for line in result["rows"]})
    by_row = {}
    for line in result["rows"]:
        by_row.setdefault(line["row"], {})[line["threads"]] = line
    headings = ["workload", "peer"]
    for count in counts:
        headings += [f"us, {_threads(count)}", "speed", "peer / rlx", "quartiles"]
    columns = [column for column in _COLUMNS if column[0] in _DOCS]
    results = []
    for name, lines in by_row.items():
        cells = [name, next((line["peer"] for line in lines.values() if "peer" in line), "-")]
        for count in counts:
            cells += _cells(lines[count], columns)[2:] if count in lines else ["-"] * 4
        results.append(cells)
    lines = [
        f"Measured on: {_title(result)}; {_versions(result)}.",
        "",
        *(f"- {line}" for line in means(result)),
        "",
        *report.markdown(headings, results),
    ]
    return "\n".join(lines)
