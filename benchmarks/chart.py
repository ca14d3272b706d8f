"""Draws the chart of the README and writes its short table, from the measurements beside this script.

usage: python benchmarks/chart.py [--out docs/_static/speed.svg] [--readme README.md]

One bar for each kind of work: the geometric mean, over the rows of that kind, of the time of the other program
divided by that of rlx. The thin line behind a bar reaches from the slowest row to the fastest one. The same
measurements always give the same bytes.
"""

import argparse
import json
import math
from pathlib import Path

import report

HERE = Path(__file__).parent
SCRIPT = "benchmarks/chart.py"
OUT = HERE.parent / "docs" / "_static" / "speed.svg"
README = HERE.parent / "README.md"

# A kind of work, and how the names of its rows begin.
KINDS = (
    ("matrix products", ("matmul", "f32 matmul", "MiniLM", "BERT")),
    ("packed and integer weights", ("int8", "f16 weights", "Q4_0", "Q8_0")),
    ("attention", ("attention", "decode")),
    ("convolutions", ("ResNet", "depthwise", "audio", "conv")),
    ("pools and resizing", ("max_pool", "resize")),
    ("softmax and norms", ("softmax", "layer_norm", "rms_norm")),
    ("elementwise", ("gelu", "exp", "tanh", "erf", "sigmoid", "add", "mul", "elementwise")),
    ("reductions, running sums", ("sum", "max ", "cumsum")),
    ("Fourier transforms", ("fft", "rfft")),
    ("spectra and features", ("Welch", "stft", "log-mel")),
    ("LSTM and GRU", ("lstm", "gru")),
    ("f16 product (tensor cores)", ("f16 matmul",)),
)
# Rows of the README, faster ones and slower ones: workload, peer (for the CPU None: the one it was timed with).
HIGHLIGHTS = (
    ("Welch 64 x 9,760, n_fft 256", None),
    ("lstm step 128, 128", None),
    ("ResNet 3x3, 256 to 256 of 14", None),
    ("f32 matmul 4096", "ort"),
    ("f16 matmul 4096", "torch"),
)
LONG = {"ort": "ONNX Runtime WebGPU", "torch": "PyTorch CUDA (tensor cores)", "ORT": "ONNX Runtime"}
LOW, HIGH = 1 / 16, 64  # ends of the axis
TICKS = (0.1, 0.25, 0.5, 1, 2, 4, 8, 16, 32)
WIDTH, TOP, ROW, BOTTOM = 960, 92, 25, 62
LABELS, PANEL, GAP = 186, 238, 16
FASTER, SLOWER, INK, FAINT = "#1a7f64", "#c2571a", "#1f2933", "#9aa5b1"


def kind_of(row):
    """Returns the kind of work of a row; None for a row that the chart leaves out."""
    return next((kind for kind, starts in KINDS if row.startswith(starts)), None)


def summed_up(pairs):
    """(least, geometric mean, largest) of the ratios of each kind."""
    by_kind = {}
    for row, ratio in pairs:
        by_kind.setdefault(kind_of(row), []).append(ratio)
    return {
        kind: (min(value), math.exp(sum(map(math.log, value)) / len(value)), max(value))
        for kind, value in by_kind.items()
    }


def panels(cpu, gpu):
    """Heading, line below it, and bars of each of the three comparisons."""
    single = [(r["row"], r["ratio"]) for r in cpu["rows"] if r["threads"] == 1 and "ratio" in r]
    yield "CPU, 1 thread", "beside ONNX Runtime, SciPy, NumPy", summed_up(single)
    for peer, heading in (("ort", "ONNX Runtime WebGPU"), ("torch", "PyTorch CUDA")):
        ratios = [(r["row"], r["ratios"][peer]) for r in gpu["rows"] if peer in r.get("ratios", {})]
        yield f"GPU ({gpu['adapter']})", f"beside {heading}", summed_up(ratios)


def place(left, ratio):
    """Returns the position of a ratio on the axis of a panel."""
    part = math.log(min(max(ratio, LOW), HIGH) / LOW) / math.log(HIGH / LOW)
    return left + PANEL * part


def text(x, y, words, *, size=12, fill=INK, anchor="start", weight="normal"):
    """A line of text."""
    return (
        f'<text x="{x:.1f}" y="{y:.1f}" font-size="{size}" fill="{fill}" text-anchor="{anchor}" '
        f'font-weight="{weight}">{words}</text>'
    )


def line(x1, y1, x2, y2, *, stroke, width=1.0):
    """A straight line."""
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{stroke}" stroke-width="{width}"/>'


def bar(left, y, result):
    """The bar of a kind of work, with its range and its number."""
    least, mean, largest = result
    first, x = place(left, 1), place(left, mean)
    fill = FASTER if mean >= 1 else SLOWER
    yield line(place(left, least), y, place(left, largest), y, stroke=FAINT, width=2)
    begin, width = min(first, x), max(abs(x - first), 1.5)
    yield f'<rect x="{begin:.1f}" y="{y - 6:.1f}" width="{width:.1f}" height="12" rx="2" fill="{fill}"/>'
    beyond = max(first, x, place(left, largest)) + 5
    crowded = beyond > left + PANEL - 26
    position, anchor = (min(first, place(left, least)) - 5, "end") if crowded else (beyond, "start")
    number = f"{mean:.1f}x" if mean >= 1 else f"{mean:.2f}x"
    yield text(position, y + 4, number, size=11, fill=fill, anchor=anchor, weight="600")


def svg(cpu, gpu):
    """The whole chart as text."""
    height = TOP + ROW * len(KINDS) + BOTTOM
    bottom = TOP + ROW * len(KINDS)
    results = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" '
        f'height="{height}" font-family="system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif" '
        'role="img">',
        "<title>Speed of rlx beside other programs, by kind of work</title>",
        f'<rect width="{WIDTH}" height="{height}" rx="8" fill="#ffffff"/>',
        text(20, 30, "Time of the other program / time of rlx", size=16, weight="600"),
        text(20, 50, "right of 1: rlx is faster", fill=FASTER),
        text(170, 50, "left of 1: rlx is slower", fill=SLOWER),
    ]
    for index, (kind, _) in enumerate(KINDS):
        results.append(text(20, TOP + ROW * index + ROW / 2 + 4, kind))
    for number, (heading, below, bars) in enumerate(panels(cpu, gpu)):
        left = LABELS + 6 + number * (PANEL + GAP)
        results.append(text(left, TOP - 20, heading, size=12, weight="600"))
        results.append(text(left, TOP - 5, below, size=11))
        for tick in TICKS:
            x, stroke = place(left, tick), "#52606d" if tick == 1 else "#e4e7eb"
            results.append(line(x, TOP, x, bottom, stroke=stroke, width=1.2 if tick == 1 else 1.0))
            if tick != 0.25:
                results.append(
                    text(x, bottom + 14, f"{tick:g}", size=10, fill="#616e7c", anchor="middle")
                )
        for index, (kind, _) in enumerate(KINDS):
            y = TOP + ROW * index + ROW / 2
            if kind in bars:
                results += bar(left, y, bars[kind])
            else:
                results.append(text(place(left, 1) + 6, y + 4, "not compared", size=10, fill=FAINT))
    results += [
        text(20, bottom + 36, "Bars: geometric mean of the rows of a kind. Grey lines: from the slowest row to the fastest.", size=11),
        text(20, bottom + 52, f"CPU: {cpu['processor']}, {cpu['kernels'].removeprefix('kernels for ')}. "
             f"GPU: driver {gpu['driver']}. Logarithmic axis.", size=11),
        "</svg>",
    ]  # fmt: skip
    return "\n".join(results) + "\n"


def highlights(cpu, gpu):
    """The short table of the README: rows that are faster and rows that are slower."""
    rows = []
    for name, peer in HIGHLIGHTS:
        lines = gpu["rows"] if peer else [r for r in cpu["rows"] if r["threads"] == 1]
        (result,) = [r for r in lines if r["row"] == name]
        ratio = result["ratios"][peer] if peer else result["ratio"]
        us, peer = result["gpu_us"] if peer else result["p50"][0], peer or result["peer"]
        said = f"**{ratio:.2f}x**" if ratio >= 1 else f"{ratio:.2f}x (rlx is slower)"
        where = gpu["adapter"] if lines is gpu["rows"] else f"{cpu['processor']}, 1 thread"
        rows.append([name, where, f"{us:,.1f}", LONG.get(peer, peer), said])
    return "\n".join(report.markdown(["workload", "on", "rlx, us", "beside", "speed of rlx"], rows))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cpu", type=Path, default=HERE / "cpu.json")
    parser.add_argument("--gpu", type=Path, default=HERE / "gpu_h200.json")
    parser.add_argument("--out", type=Path, default=OUT)
    parser.add_argument("--readme", type=Path, default=README)
    arguments = parser.parse_args()
    cpu, gpu = (json.loads(path.read_text()) for path in (arguments.cpu, arguments.gpu))
    arguments.out.write_text(svg(cpu, gpu), encoding="utf-8")
    report.write_between(arguments.readme, SCRIPT, highlights(cpu, gpu))


if __name__ == "__main__":
    main()
