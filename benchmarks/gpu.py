"""GPU kernels against the machine's limits and its other users: PyTorch, ONNX Runtime, tinygrad, SciPy.

usage: python benchmarks/gpu.py [--only REGEX] [--quick] [--device webgpu:N] [--json gpu.json]
                                [--docs docs/benchmarks.md]
       python benchmarks/gpu.py --from-json benchmarks/gpu_h200.json --docs docs/benchmarks.md
       python benchmarks/gpu.py --check [--limits default] [--variants all]

Every row is compared with float64 first, on random data, in memory that held NaN; a wrong row is not timed and makes
the exit status 1. Times are the GPU's own, summed over the kernels of a run (``gpu_clock``). ``--check`` compares only,
at small sizes, and needs no fast GPU. Peers run after rlx, each in a process of its own (``gpu_peers``); a missing peer
is reported as absent.
"""

import argparse
import json
import os
import platform
import re
import sys
import time
from contextlib import contextmanager
from pathlib import Path

os.environ["RLX_CACHE"] = "off"  # each row is compiled here and now

import gpu_report
import report
from gpu_cold import cold_start
from gpu_peers import PEERS, run_peer
from gpu_rows import ROWS
from rich.console import Console
from rich.progress import Progress
from work import error_of, touched

# (flop/s in f32, bytes/s of a copy, read and written) by a part of the adapter's name.
LIMITS = {"H200": (67e12, 4.3e12)}
# Copies that hold fewer bytes together may stay in caches: twice the second level of the H200.
CACHES = 120e6


@contextmanager
def forced(variant):
    """Inside it every kernel that has this variant is that one."""
    before = os.environ.pop("RLX_VARIANT", None)
    if variant:
        os.environ["RLX_VARIANT"] = variant
    try:
        yield
    finally:
        os.environ.pop("RLX_VARIANT", None)
        if before is not None:
            os.environ["RLX_VARIANT"] = before


def checked(work, device, copies=1):
    """A loaded workload, and what a row says of its correctness."""
    from gpu_clock import LoadedWorkload

    loaded = LoadedWorkload(work, device, copies)
    try:
        error = error_of(work, loaded.outputs())
    except BaseException:
        loaded.close()
        raise
    facts = {
        "error": error,
        "tolerance": work.tolerance,
        "correct": error <= work.tolerance,
        "kernels": loaded.kernels(),
        "on_the_host": loaded.on_the_host,
    }
    return loaded, facts


def lacking(work, device):
    """Why a device can't run a workload; None when it can."""
    import rlx
    from rlx.device.names import info_of

    features = info_of(rlx.Device.parse(device)).features
    half = work.options.precision == "f16" and "shader-f16" not in features
    return "the adapter has no shader-f16" if half else None


def check_row(row, device, wanted):
    """A line for each of a row's small sizes as rlx chooses, and for each variant that is asked for."""
    from rlx.ir.variants import watching

    for size in row.small:
        line = {"row": row.name, "size": size}
        work = row.work(size)
        if reason := lacking(work, device):
            yield line | {"variant": "", "correct": True, "skipped": reason}
            continue
        with watching() as chosen:
            yield line | {"variant": ""} | one_check(work, device, "")
        names = wanted.split(",") if wanted else []
        if wanted == "all":  # all that the row's kernels have
            names = {f"{family.name}={item.name}" for family, _, legal in chosen for item in legal}
        for variant in sorted(names):
            yield line | {"variant": variant} | one_check(work, device, variant)


def one_check(work, device, variant):
    """Checks a workload with a variant forced."""
    try:
        with forced(variant):
            loaded, facts = checked(work, device)
        loaded.close()
        return facts
    except Exception as error:  # whatever goes wrong costs this row only
        return report.failure(error)


def time_row(row, size, device, limits):
    """The line of a row; whatever goes wrong costs this row only."""
    line = {"row": row.name, "size": size}
    try:
        return line | timed_work(row.work(size), device, limits)
    except Exception as error:
        return line | report.failure(error)


def timed_work(work, device, limits):
    """Checks a workload, then times it if it is right."""
    from gpu_clock import copies_for, timed

    if reason := lacking(work, device):
        return {"correct": True, "skipped": reason}
    nbytes = work.nbytes or touched(work)
    software = limits[1] is None
    copies = 1 if software else copies_for(nbytes)
    loaded, result = checked(work, device, copies)
    with loaded:
        result |= {"flops": work.flops, "nbytes": nbytes}
        result |= {"counts": gpu_report.counts(work.flops, nbytes), "peer": work.peer[0]}
        result["cache_resident"] = copies * nbytes < CACHES
        if result["correct"] and not result["on_the_host"]:
            times = timed(loaded, most=8) if software else timed(loaded)
            result |= vars(times)
            result |= gpu_report.speeds(work, nbytes, times.gpu_us, limits)
    return result


def limits_of(device, console):
    """flop/s and bytes/s of the adapter: stated, or None and what a copy reaches here."""
    import rlx
    from rlx.device.names import info_of

    info = info_of(rlx.Device.parse(device))
    about = {"adapter": info.adapter, "driver": info.driver, "software": info.software}
    for name, known in LIMITS.items():
        if name in info.adapter:
            return known, about
    if info.software:
        return (None, None), about
    from gpu_clock import LoadedWorkload, timed
    from gpu_rows import COPY

    with LoadedWorkload(COPY.work(COPY.size), device) as loaded:
        seconds = timed(loaded).gpu_us / 1e6
    result = 2 * loaded.work.values["x"].nbytes / seconds
    console.print(f"a copy on {info.adapter}: {result / 1e9:,.0f} GB/s")
    return (None, result), about


def parsed():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="webgpu")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose name fits")
    parser.add_argument("--quick", action="store_true", help="the rows that tell most")
    parser.add_argument("--check", action="store_true", help="compare only, at small sizes")
    parser.add_argument(
        "--small", action="store_true", help="time at the small sizes: tries this script"
    )
    parser.add_argument("--limits", choices=("own", "default"), default="own")
    parser.add_argument("--variants", default="", metavar="all|NAME,...")
    parser.add_argument("--peers", default=",".join(PEERS), help="which peers run; none for none")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    result = parser.parse_args()
    if result.variants and not result.check:
        parser.error("--variants compares variants: it needs --check (rlx bench --tune times them)")
    return result


def main():
    arguments = parsed()
    console = Console(width=170)
    if arguments.from_json:
        result = json.loads(arguments.from_json.read_text())
        return finish(result, arguments, console)
    if arguments.limits == "default":
        os.environ["RLX_WEBGPU_DEFAULT_LIMITS"] = "1"
    rows = report.asked_for(ROWS, arguments)
    if arguments.check:
        return check(rows, arguments, console)
    return measure(rows, arguments, console)


def check(rows, arguments, console):
    """Every row at small sizes, with every variant asked for."""
    lines = []
    began = time.monotonic()
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("checks", total=len(rows))
        for row in rows:
            progress.update(bar, description=row.name)
            lines += check_row(row, arguments.device, arguments.variants)
            progress.advance(bar)
    console.print(gpu_report.checks(lines))
    return report.tell_checks(lines, began, arguments, console)


def measure(rows, arguments, console):
    """Every row, then the peers."""
    import rlx

    limits, about = limits_of(arguments.device, console)
    results = {
        **about,
        "device": arguments.device,
        "machine": f"{platform.system()} {platform.machine()}",
        "processors": os.cpu_count(),
        "versions": {"rlx": rlx.__version__},
        "limits": {"flops": limits[0], "bytes_per_s": limits[1]},
        "rows": [],
    }
    sizes = {row.name: row.small[0] if arguments.small else row.size for row in rows}
    with Progress(console=console, transient=True) as progress:
        bar = progress.add_task("rlx", total=len(rows))
        for row in rows:
            progress.update(bar, description=row.name)
            line = time_row(row, sizes[row.name], arguments.device, limits)
            console.print(gpu_report.one_line(line), markup=False, highlight=False)
            results["rows"].append(line)
            report.save(results, arguments)
            progress.advance(bar)
    right = {line["row"] for line in results["rows"] if "gpu_us" in line}
    peers = [name for name in arguments.peers.split(",") if name and name != "none"]
    names = [row.name for row in rows if row.name in right]
    for peer in peers:
        console.print(f"{peer} ...")
        results[peer] = run_peer(peer, names, arguments.small)
        report.save(results, arguments)
    if not arguments.only or re.search(arguments.only, "cold start"):
        results["cold"] = cold_start(arguments.device, "ort" in peers)
    return finish(results, arguments, console)


def finish(result, arguments, console):
    """Tables and files from what was measured."""
    gpu_report.compare(result)
    console.print(gpu_report.table(result))
    for line in gpu_report.notes(result):
        console.print(line, markup=False, highlight=False)
    report.save(result, arguments)
    if arguments.docs:
        report.write_between(arguments.docs, gpu_report.SCRIPT, gpu_report.markdown(result))
    return int(not all(line["correct"] for line in result["rows"]))


if __name__ == "__main__":
    sys.exit(main())
