"""The output of ``benchmarks/gpu.py``: speeds, ratios, a table for the terminal and one for the documentation."""

import math
from functools import partial

import report
from rich.table import Table

SCRIPT = "benchmarks/gpu.py"
PEERS = {"torch": "PyTorch", "ort": "ORT WebGPU", "tinygrad": "tinygrad", "scipy": "SciPy"}
# Operations for each byte from which on arithmetic takes the H200 longer than the transfer.
INTENSITY = 67 / 4.3


def counts(flops, nbytes):
    """Returns which of a workload's two floors is the higher one, "flops" or "bytes"."""
    return "flops" if flops > INTENSITY * nbytes else "bytes"


def speeds(work, nbytes, us, limits):
    """TFLOP/s, GB/s, and the part of the bound that counts."""
    seconds = us / 1e6
    results = {"tflops": work.flops / seconds / 1e12, "gb_per_s": nbytes / seconds / 1e9}
    by = counts(work.flops, nbytes)
    limit, done = (limits[0], work.flops) if by == "flops" else (limits[1], nbytes)
    return results | {"part": done / seconds / limit if limit else None}


def compare(result):
    """Adds to each row the time of every peer, divided by that of rlx."""
    for line in result["rows"]:
        us = line.get("gpu_us")
        line["ratios"] = {}
        for peer in PEERS:
            said = result.get(peer, {}).get("rows", {}).get(line["row"], {})
            if us and said.get("us"):
                line["ratios"][peer] = said["us"] / us


def means(result):
    """A line for each peer that ran several rows: how rlx compares over them."""
    for peer, name in PEERS.items():
        ratios = [line["ratios"][peer] for line in result["rows"] if peer in line.get("ratios", {})]
        if len(ratios) > 3:
            mean = math.exp(sum(map(math.log, ratios)) / len(ratios))
            slower = sum(ratio < 1 for ratio in ratios)
            yield (
                f"{name}: rlx is {mean:.2f} times as fast in the geometric mean of {len(ratios)} rows; "
                f"{slower} rows are slower"
            )


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


_COLUMNS = (
    ("workload", lambda line: line["row"]),
    ("GPU us", lambda line: f"{line['gpu_us']:,.1f}{'*' if line['cache_resident'] else ''}"),
    ("wall us", lambda line: f"{line['wall_us']:,.0f}"),
    ("speed", _speed),
    ("of bound", lambda line: "-" if line["part"] is None else f"{line['part']:.0%}"),
    *((name, partial(_ratio, peer=peer)) for peer, name in PEERS.items()),
    ("kernels", _kernels),
    ("error", lambda line: f"{line['error']:.1e}"),
)


_LEFT = {"workload", "kernels"}
# Texts in place of a time.
_UNTIMED = {"failure": "failed", "skipped": "can't"}


def _cells(line, columns):
    """Returns a row's cells; a row that was not timed has only its name."""
    if "gpu_us" in line:
        return [shown(line) for _, shown in columns]
    said = next((word for key, word in _UNTIMED.items() if key in line), "WRONG")
    if said == "WRONG" and line["correct"]:
        said = "host"
    return [line["row"], said, *["-"] * (len(columns) - 2)]


def table(result):
    """Everything for the terminal."""
    title = f"{result['adapter']}, {result['driver']}; peers: their time / rlx; * stays in caches"
    output = Table(title=title, title_justify="left")
    for heading, _ in _COLUMNS:
        output.add_column(heading, justify="left" if heading in _LEFT else "right")
    for line in result["rows"]:
        output.add_row(*_cells(line, _COLUMNS))
    return output


def notes(result):
    """Lines below the table: peers that are absent or failed, the cold start, what the bounds are."""
    for peer in PEERS:
        said = result.get(peer)
        if said is None:
            continue
        yield f"{peer}: {said.get('absent') or said.get('about', '')}"
        for row, value in said.get("rows", {}).items():
            if "error" in value:
                yield f"  {row}: {value['error']}"
        if "ended" in said:
            yield f"  {said['ended']}"
    cold = result.get("cold")
    if cold:
        yield from _cold_lines(cold)
    flops, nbytes = (result["limits"][name] for name in ("flops", "bytes_per_s"))
    bound = "unknown" if flops is None else f"{flops / 1e12:.0f} TFLOP/s"
    copy = "unknown" if nbytes is None else f"{nbytes / 1e9:,.0f} GB/s"
    yield "GPU us: the kernels alone; with the gaps between them it is span_us in the JSON"
    yield f"bounds: arithmetic {bound}, copy {copy} (read and written)"
    yield from means(result)


def _cold_lines(cold):
    if "failed" in cold:
        yield f"cold start: {cold['failed']}"
        return
    ort = cold["ort"] if isinstance(cold["ort"], str) else f"{cold['ort']:.0f} ms"
    yield (
        "cold start (load, compile and first run of 16 nodes in a fresh process without caches): "
        f"rlx {cold['rlx_ms']:.0f} ms, of which finding the adapters {cold['adapters_ms']:.0f} ms; "
        f"ONNX Runtime WebGPU: {ort}"
    )


def checks(lines):
    """A table of what ``--check`` found: the worst error of each row and variant."""
    result = Table("workload", "variant", "sizes", "worst error / tolerance", "kernels")
    by_row = {}
    for line in lines:
        by_row.setdefault((line["row"], line["variant"]), []).append(line)
    for (row, variant), group in by_row.items():
        told = [line for line in group if "error" in line]
        failed = any("failure" in line for line in group)
        worst = max((line["error"] / line["tolerance"] for line in told), default=0.0)
        kernels = sorted({name for line in told for name in line["kernels"]})
        said = "failed" if failed else f"{worst:.2g}" if told else group[0]["skipped"]
        result.add_row(row, variant or "own", str(len(group)), said, ", ".join(kernels))
    return result


_DOCS = ("workload", "GPU us", "speed", "of bound", *PEERS.values())


def markdown(result):
    """The table of the documentation: figures only."""
    columns = [column for column in _COLUMNS if column[0] in _DOCS]
    peers = [result[peer]["about"] for peer in PEERS if result.get(peer, {}).get("about")]
    lines = [
        f"Measured on: {result['adapter']}, driver {result['driver']}; {'; '.join(peers) or 'no peers'}.",
        "",
        *(f"- {line}" for line in means(result)),
    ]
    if result.get("cold", {}).get("rlx_ms"):
        lines += [f"- {line}" for line in _cold_lines(result["cold"])]
    rows = [_cells(line, columns) for line in result["rows"]]
    return "\n".join([*lines, "", *report.markdown([heading for heading, _ in columns], rows)])
