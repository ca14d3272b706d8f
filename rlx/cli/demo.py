"""``rlx demo``: alpha peaks of a 64-channel EEG, streamed hop by hop on every device."""

from __future__ import annotations

import argparse
import itertools
import platform
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import rlx
from rlx import flags
from rlx.backends.registry import absent, listed_backends
from rlx.cli import screen
from rlx.cli.demo_result import DemoResult, DeviceResult
from rlx.cli.eeg import EegRecording, load_recording
from rlx.compiler.device_choice import choose
from rlx.device.figures import describe_devices
from rlx.errors import install_line
from rlx.ir.opdef import Array
from rlx.signal import complex_block, frame, window

NPERSEG = 256
SEGMENTS = 8
PEAKS = 16
HOP = 8
ALPHA_HZ = (8.0, 13.0)
EXPECTED_HZ = 10.0
# Devices and SciPy agree to rounding; ten times the FFT's own bound at this size.
AGREEMENT = 4e-5
BUDGET_S = 20.0


def build_graph(channels: int, fs: float, segments: int, k: int) -> rlx.Graph:
    """Microvolts to Welch peaks: framing, detrending, window, FFT, averaged power, strongest bins.

    Args:
        channels: Number of channels.
        fs: Samples per second.
        segments: Segments averaged, half overlapping.
        k: Bins returned.

    Returns:
        A graph from ``x`` [channels, (segments + 1) * 128] to [channels, 2 k] of (bin, uV^2/Hz).
    """
    g = rlx.Graph("eeg alpha")
    x = g.input("x", (channels, (segments + 1) * NPERSEG // 2))
    frames = frame(x, NPERSEG, NPERSEG // 2)
    w = window("hann", NPERSEG)
    # With this factor the squared magnitudes are a density, as scipy.signal.welch scales it.
    taper = (w / np.sqrt(fs * np.sum(w * w))).astype(np.float32)
    tapered = (frames - g.mean(frames, -1, keepdims=True)) * g.constant(taper)
    rows = g.reshape(tapered, (channels * segments, NPERSEG))
    g.set_outputs([g.welch_peaks(g.fft(complex_block(rows)), k, segments)])
    return g


def spectra_of(peaks: Array, bins: int) -> Array:
    """Full spectra [channels, bins] from all the (bin, power) pairs."""
    pairs = peaks.reshape(len(peaks), -1, 2)
    result = np.full((len(peaks), bins), np.nan)
    np.put_along_axis(result, pairs[..., 0].astype(np.int64), pairs[..., 1], axis=1)
    return result


def alpha(spectra: Array, fs: float) -> tuple[Array, Array]:
    """Frequency and power of the strongest bin between 8 and 13 Hz, per channel."""
    hz = np.arange(spectra.shape[1]) * fs / NPERSEG
    band = (hz >= ALPHA_HZ[0]) & (hz <= ALPHA_HZ[1])
    inside = np.where(band, np.nan_to_num(spectra), -1.0)
    best = inside.argmax(1)
    return hz[best], inside[np.arange(len(best)), best]


def stream(
    compiled: rlx.CompiledGraph, recording: EegRecording, limit: int, tick: Any
) -> tuple[Array, Array, Array]:
    """Streams the recording through ``run_slots``: nanoseconds per hop, Oz's alpha, last peaks."""
    width = compiled.input_views[0].shape[1]
    starts = range(0, recording.samples.shape[1] - width + 1, HOP)[:limit]
    oz = recording.names.index("Oz")
    took, track = np.zeros(len(starts)), np.zeros(len(starts))
    (view,) = compiled.input_views
    (peaks,) = compiled.run_slots()
    deadline, done = time.monotonic() + BUDGET_S, 0
    for i, start in enumerate(starts):
        begin = time.perf_counter_ns()
        view[...] = recording.samples[:, start : start + width]
        (peaks,) = compiled.run_slots()
        took[i] = time.perf_counter_ns() - begin
        spectrum = spectra_of(peaks[oz : oz + 1], NPERSEG // 2 + 1)
        track[i] = alpha(spectrum, recording.fs)[0][0]
        done = i + 1
        tick(1)
        if time.monotonic() > deadline:
            break
    return took[:done], track[:done], peaks.copy()


def scipy_spectra(samples: Array, fs: float) -> Array | None:
    """SciPy's Welch of the same samples; None where SciPy is not installed."""
    try:
        from scipy.signal import welch
    except ImportError:
        return None
    _, power = welch(samples.astype(np.float64), fs, "hann", NPERSEG, NPERSEG // 2, axis=-1)
    return np.asarray(power)


def difference(a: Array, b: Array) -> float:
    """Relative difference in the norm."""
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))


def measure(devices: list[str], hops: int, console: screen.Screen) -> DemoResult:
    """Runs the whole job on the devices."""
    recording = load_recording()
    channels = len(recording.names)
    segments = recording.samples.shape[1] // (NPERSEG // 2) - 1
    bins = NPERSEG // 2 + 1
    whole = build_graph(channels, recording.fs, segments, bins)
    hop_graph = build_graph(channels, recording.fs, SEGMENTS, PEAKS)
    choice = choose(hop_graph)
    used = recording.samples[:, : (segments + 1) * NPERSEG // 2]
    expected = scipy_spectra(used, recording.fs)
    labels = {str(d.device): d.label for d in describe_devices()}

    results: list[DeviceResult] = []
    latencies: dict[str, Array] = {}
    spectra: dict[str, Array] = {}
    track: Array = np.zeros(0)
    last: dict[str, Array] = {}
    count = min(hops, (recording.samples.shape[1] - (SEGMENTS + 1) * NPERSEG // 2) // HOP + 1)
    with screen.Bars(quiet=False) as bars:
        for name in devices:
            if not bars.shown:
                console.print(f"streaming on {name} ...")
            watch = _advance(bars, f"streaming on {name}", count)
            with rlx.compile(whole, device=name) as compiled:
                power = spectra_of(compiled.run_slots(used)[0], bins)
            with rlx.compile(hop_graph, device=name) as compiled:
                took, hz, last[name] = stream(compiled, recording, hops, watch)
            result = _timed(DeviceResult(name, labels.get(name, name)), took, recording.fs)
            frequencies, powers = alpha(power, recording.fs)
            result.alpha_hz, result.alpha_power = frequencies.tolist(), powers.tolist()
            first = next(iter(spectra.values()), power)
            result.device_difference = difference(power, first)
            if expected is not None:
                result.scipy_difference = difference(power, expected)
            results.append(result)
            latencies[name], spectra[name] = took / 1e3, power
            track = hz if not track.size else track
    result_all = DemoResult(
        recording.source,
        list(recording.names),
        recording.fs,
        used.shape[1] / recording.fs,
        str(choice.device),
        choice.reason,
        results,
        {
            "rlx": rlx.__version__,
            "python": platform.python_version(),
            "numpy": np.__version__,
            "machine": platform.platform(),
        },
        [],
        latencies,
        spectra,
        track,
    )
    result_all.problems = problems(result_all)
    return result_all


def _timed(result: DeviceResult, took_ns: Array, fs: float) -> DeviceResult:
    """Fills in the statistics of the hops' times."""
    p50, p99, p999 = map(float, np.percentile(took_ns / 1e3, [50, 99, 99.9]))
    result.hops, result.p50_us, result.p99_us, result.p999_us = len(took_ns), p50, p99, p999
    result.realtime = HOP / fs * 1e6 / p50
    return result


def problems(result: DemoResult) -> list[str]:
    """Lists the faults of the numbers: one line each."""
    results = []
    oz, step = result.channels.index("Oz"), result.fs / NPERSEG
    for device in result.devices:
        if abs(device.alpha_hz[oz] - EXPECTED_HZ) > step:
            results.append(
                f"{device.device}: Oz peaks at {device.alpha_hz[oz]:.2f} Hz, expected "
                f"{EXPECTED_HZ} +- {step:.2f}"
            )
        for name, value in (
            ("SciPy", device.scipy_difference),
            ("the first device", device.device_difference),
        ):
            if value is not None and not value <= AGREEMENT:
                results.append(
                    f"{device.device} differs from {name} by {value:.2e}, above {AGREEMENT}"
                )
    return results


def _advance(bars: screen.Bars, name: str, count: int) -> Callable[[int], None]:
    """Adds a bar for so many steps; gives what is called after each."""
    bar, steps = bars.add(name), itertools.count(1)
    return lambda _: bars.show(bar, next(steps) / count, "")


def print_tables(result: DemoResult, console: screen.Screen) -> None:
    """The console's summary."""
    main = result.devices[0]
    cells = [
        (name, f"{hz:.2f}", f"{power:.1f}")
        for name, hz, power in zip(result.channels, main.alpha_hz, main.alpha_power, strict=True)
    ]
    rows = -(-len(cells) // 4)
    lines = [
        [text for cell in cells[row::rows] for text in cell]
        + [""] * (3 * (4 - len(cells[row::rows])))
        for row in range(rows)
    ]
    title = f"Alpha peak per channel ({result.seconds:.0f} s, eyes closed), Hz"
    console.print(screen.columns(title, ("channel", "alpha", "uV²/Hz") * 4, lines))

    headings = (
        "device",
        "adapter",
        "hops",
        "p50 us",
        "p99 us",
        "p99.9 us",
        "x real time",
        "Oz Hz",
        "vs SciPy",
        "vs first",
    )
    oz = result.channels.index("Oz")
    lines = [
        [
            d.device,
            d.label,
            str(d.hops),
            *(f"{value:,.0f}" for value in (d.p50_us, d.p99_us, d.p999_us, d.realtime)),
            f"{d.alpha_hz[oz]:.2f}",
            "-" if d.scipy_difference is None else f"{d.scipy_difference:.1e}",
            f"{d.device_difference:.1e}",
        ]
        for d in result.devices
    ]
    title = f"Streaming, one hop = {HOP} samples = {HOP / result.fs * 1e3:.0f} ms"
    console.print(screen.columns(title, headings, lines))
    console.print(f"device chosen: {result.chosen} ({result.reason})")
    if result.devices[0].scipy_difference is None:
        text = f"SciPy is not installed, so nothing is compared with it; {install_line('.[demo]')}"
        console.print(text)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's options."""
    parser.add_argument("--device", help="only these devices, separated by commas")
    parser.add_argument("--hops", type=int, default=1_000_000, help="at most this many hops")
    parser.add_argument(
        "--out", type=Path, default=Path("rlx_demo_report.html"), help="the HTML report"
    )
    parser.add_argument("--json", action="store_true", help="figures as JSON on standard output")


def run(args: argparse.Namespace) -> int:
    """Runs the demo; the exit status is 1 when the numbers are wrong."""
    from rlx.cli.demo_report import write_report

    if args.hops < 1:
        raise rlx.InputError(f"--hops must be at least 1, got {args.hops}")
    console = screen.Screen(stderr=args.json)
    named = rlx.parse_device_list(args.device) if args.device else rlx.available_devices()
    result = measure([str(device) for device in named], args.hops, console)
    # Without --device every adapter was meant to run, so that none did is worth a word.
    here = {device.backend for device in named}
    lacking = [] if args.device else [name for name in listed_backends() if name not in here]
    if lacking:
        for name in lacking:
            console.print(absent(name))
        if flags.REQUIRE_WEBGPU.get() and "webgpu" in lacking:
            result.problems.append("RLX_REQUIRE_WEBGPU is set and no WebGPU adapter ran")
    note = write_report(result, args.out)
    if args.json:
        print(result.as_json())
    else:
        print_tables(result, console)
    console.print(f"report: {args.out}{note}")
    for problem in result.problems:
        screen.say(f"rlx demo: {problem}", error=True)
    return int(bool(result.problems))
