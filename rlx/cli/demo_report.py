"""The demo's HTML report: one file, with its plots inside."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import jinja2
import numpy as np

from rlx.cli.demo_result import DemoResult
from rlx.errors import install_line, printable_value

_COLOURS = ("#2563eb", "#d97706", "#059669", "#9333ea")


def write_report(result: DemoResult, path: Path) -> str:
    """Writes the report.

    Args:
        result: The measurement.
        path: The file.

    Returns:
        A remark for the console: what was left out and how to get it, or nothing.
    """
    plots = _plots(result)
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("rlx.cli"),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=printable_value,
    )
    oz = result.channels.index("Oz")
    text = environment.get_template("demo.html.j2").render(result=result, plots=plots, oz=oz)
    path.write_text(text, encoding="utf-8")
    return "" if plots else f" (without plots, which take matplotlib; {install_line('.[demo]')})"


def _plots(result: DemoResult) -> dict[str, str]:
    try:
        import matplotlib
    except ImportError:
        return {}
    matplotlib.use("svg")
    from matplotlib import pyplot as plt

    plt.rcParams.update(
        {
            "font.size": 10,
            "axes.spines.top": False,
            "axes.spines.right": False,
            "svg.fonttype": "none",
            "font.family": "sans-serif",
        }
    )
    return {
        "spectra": _svg(plt, _draw_spectra, result, (9.2, 3.6)),
        "latency": _svg(plt, _draw_latency, result, (9.2, 3.2)),
        "channels": _svg(plt, _draw_channels, result, (9.2, 3.4)),
    }


def _svg(plt: Any, draw: Any, result: DemoResult, size: tuple[float, float]) -> str:
    figure, axes = plt.subplots(figsize=size, layout="constrained")
    draw(axes, result)
    text = io.StringIO()
    figure.savefig(text, format="svg", metadata={"Date": None})
    plt.close(figure)
    svg = text.getvalue()
    return svg[svg.index("<svg") :]


def _draw_spectra(axes: Any, result: DemoResult) -> None:
    spectra = next(iter(result.spectra.values()))
    hz = np.arange(spectra.shape[1]) * result.fs / (2 * (spectra.shape[1] - 1))
    shown = hz <= 40
    axes.axvspan(8, 13, color="#fde68a", alpha=0.5, lw=0)
    for row in spectra:
        axes.semilogy(hz[shown], row[shown], color="#94a3b8", lw=0.5, alpha=0.5)
    for colour, name in zip(_COLOURS, ("Oz", "O1", "O2", "Pz"), strict=True):
        row = spectra[result.channels.index(name)]
        axes.semilogy(hz[shown], row[shown], color=colour, lw=2, label=name)
    axes.set(xlabel="frequency, Hz", ylabel="power, µV²/Hz", xlim=(0, 40))
    axes.legend(frameon=False, ncols=4, loc="upper right")


def _draw_latency(axes: Any, result: DemoResult) -> None:
    everything = np.concatenate(list(result.latencies_us.values()))
    edges = np.geomspace(everything.min() * 0.9, everything.max() * 1.1, 90)
    for colour, device in zip(_COLOURS, result.devices, strict=False):
        took = result.latencies_us[device.device]
        axes.hist(took, edges, color=colour, alpha=0.6, label=device.device)
        marks = (("p50", device.p50_us), ("p99", device.p99_us), ("p99.9", device.p999_us))
        for i, (name, value) in enumerate(marks):
            axes.axvline(value, color=colour, lw=1, ls=":")
            axes.annotate(
                name,
                (value, 0.97 - 0.09 * i),
                xycoords=("data", "axes fraction"),
                color=colour,
                fontsize=8,
                ha="left",
            )
    axes.set(xscale="log", xlabel="time per hop, µs", ylabel="hops")
    axes.legend(frameon=False, loc="upper center")


def _draw_channels(axes: Any, result: DemoResult) -> None:
    device = result.devices[0]
    order = np.argsort(device.alpha_power)[::-1]
    names = [result.channels[i] for i in order]
    colours = [_COLOURS[1] if name == "Oz" else _COLOURS[0] for name in names]
    axes.bar(range(len(names)), np.array(device.alpha_power)[order], color=colours)
    axes.set_xticks(range(len(names)), names, rotation=90, fontsize=7)
    axes.set(ylabel="alpha peak, µV²/Hz", xlim=(-0.7, len(names) - 0.3))
