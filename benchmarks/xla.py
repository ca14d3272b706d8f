"""The same work by rlx on WebGPU, by rlx through XLA, by bare JAX and by PyTorch, on one machine.

    python benchmarks/xla.py --json table.json
    python benchmarks/xla.py --from-json benchmarks/xla_h100.json --docs docs/guides/xla.md

Every contestant is called in the same way: weights and large operands lie on the device, each call brings 16 floats
from the host, and reads back 16 others, which waits for everything. Contestants take turns of several calls, so that a
clock that changes meets all of them; the first calls of a turn don't count, since a GPU takes a while to go over from one
library's work to another's. The row "call" is apart: 256 bytes go there and come back.

It runs from sources, too: ``PYTHONPATH=.:plugins/rlx_xla/src``. What is not installed is left out and said so.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
import report
import xla_work
from xla_work import WORK, XlaWorkload

import rlx
from rlx.backends.registry import backend_names

# Calls of a turn that don't count, and that do.
UNCOUNTED, COUNTED = 3, 8
CONTESTANTS = ("webgpu", "cuda", "jax", "torch")
SCRIPT = "benchmarks/xla.py"


class Contestant(NamedTuple):
    """One way to do some work.

    Attributes:
        call: Does it once, and waits.
        result: The large result of the last call, on the host.
    """

    call: Callable[[], Any]
    result: Callable[[], np.ndarray]


def registered() -> None:
    """Adds the plug-in's backends where no entry point does."""
    if "cuda" not in backend_names() or "xla" not in backend_names():
        import rlx_xla

        rlx_xla.register()


def by_rlx(work: XlaWorkload, device: str) -> Contestant:
    """The work as a graph of rlx; operands are handles on the device, weights are params."""
    graph = work.graph()
    small = graph.input("small", (16,))
    graph.set_outputs([*graph.outputs, small + 1.0])
    compiled = rlx.compile(
        graph, device, work.weights(), rlx.CompileOptions(precision=work.precision)
    )
    for name, array in work.operands().items():
        compiled.bind_gpu_handle(name, array)
    inputs = {"small": np.zeros(16, np.float32)}
    last = len(graph.outputs) - 1
    if device in ("xla", "cuda"):
        import rlx_xla

        small_one = inputs["small"]
        return Contestant(
            lambda: np.asarray(rlx_xla.run_on_device(compiled, small_one)[last]),
            lambda: np.asarray(rlx_xla.run_on_device(compiled, small_one)[0]),
        )
    return Contestant(
        lambda: compiled.run_read_outputs(inputs, [last]),
        lambda: compiled.run_read_outputs(inputs, [0])[0],
    )


def by_jax(work: XlaWorkload, platform_name: str) -> Contestant:
    """The work as a function of JAX, jitted."""
    import jax
    import jax.numpy as jnp

    device = jax.devices(platform_name)[0]
    arrays = {**work.operands(), **work.weights()}
    stored = {name: jax.device_put(array, device) for name, array in arrays.items()}
    precision = {"f32": "highest", "tf32": "tensorfloat32", "bf16": "bfloat16"}[work.precision]

    def function(stored: Any, small: Any) -> Any:
        with jax.default_matmul_precision(precision):
            return work.jax(jnp, **stored), small + 1

    with jax.default_device(device):
        jitted = jax.jit(function).lower(stored, jax.ShapeDtypeStruct((16,), np.float32)).compile()
    small = np.zeros(16, np.float32)
    return Contestant(
        lambda: np.asarray(jitted(stored, small)[1]), lambda: np.asarray(jitted(stored, small)[0])
    )


def by_torch(work: XlaWorkload, device: str) -> Contestant:
    """The work in PyTorch, eager as most people run it."""
    import torch

    torch.set_grad_enabled(False)
    narrow = work.precision == "tf32"
    arrays = {**work.operands(), **work.weights()}
    stored = {name: torch.from_numpy(array).to(device) for name, array in arrays.items()}
    small = np.zeros(16, np.float32)

    def run() -> Any:
        torch.backends.cuda.matmul.allow_tf32 = narrow
        torch.backends.cudnn.allow_tf32 = narrow
        return work.torch(torch, **stored)

    def call() -> Any:
        retained = run()
        result = (torch.from_numpy(small).to(device) + 1).cpu().numpy()
        return retained, result

    return Contestant(call, lambda: run().cpu().numpy())


def call_of(name: str, device: str) -> Callable[[], Any]:
    """A call that takes 256 bytes from NumPy and gives 256 bytes to it."""
    x = np.ones(64, np.float32)
    if name in ("webgpu", "cuda"):
        graph = rlx.Graph("call")
        graph.set_outputs([graph.input("x", (64,)) * 2.0 + 1.0])
        compiled = rlx.compile(graph, device)
        return lambda: compiled.run_slots(x)
    if name == "jax":
        import jax

        place = jax.devices(device)[0]
        with jax.default_device(place):
            jitted = jax.jit(lambda x: x * 2.0 + 1.0).lower(x).compile()
        return lambda: np.asarray(jitted(x))
    import torch

    return lambda: (torch.from_numpy(x).to(device) * 2.0 + 1.0).cpu().numpy()


def makers(devices: dict[str, str]) -> dict[str, Callable[[XlaWorkload], Contestant]]:
    """Returns the makers of work by contestant."""
    return {
        "webgpu": lambda work: by_rlx(work, devices["webgpu"]),
        "cuda": lambda work: by_rlx(work, devices["cuda"]),
        "jax": lambda work: by_jax(work, devices["jax"]),
        "torch": lambda work: by_torch(work, devices["torch"]),
    }


def timed(calls: dict[str, Callable[[], Any]], seconds: float) -> dict[str, dict[str, float]]:
    """Median and quartiles of each in us; they take turns."""
    for call in calls.values():
        for _ in range(3):
            call()
    times: dict[str, list[float]] = {name: [] for name in calls}
    stop = time.monotonic() + seconds
    while time.monotonic() < stop or min(map(len, times.values())) < COUNTED:
        for name, call in calls.items():
            for index in range(UNCOUNTED + COUNTED):
                start = time.perf_counter_ns()
                call()
                if index >= UNCOUNTED:
                    times[name].append((time.perf_counter_ns() - start) / 1e3)
    results = {}
    for name, listed in times.items():
        low, middle, high = statistics.quantiles(listed, n=4)
        results[name] = {"us": middle, "low_us": low, "high_us": high, "runs": len(listed)}
    return results


def difference(first: np.ndarray, other: np.ndarray) -> float:
    """Largest difference, in parts of the largest number."""
    a, b = np.asarray(first, np.float64), np.asarray(other, np.float64)
    return float(np.max(np.abs(a - b)) / max(np.max(np.abs(b)), 1e-30))


def rows(
    chosen: list[XlaWorkload], devices: dict[str, str], seconds: float
) -> Iterator[dict[str, Any]]:
    """One row for each work, as it is measured."""
    for work in chosen:
        results: dict[str, Contestant] = {}
        failed: dict[str, str] = {}
        for name, make in makers(devices).items():
            if name not in devices:
                continue
            try:
                results[name] = make(work)
                results[name].call()
            except Exception as error:
                results.pop(name, None)
                failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]
        times = (
            timed({name: value.call for name, value in results.items()}, seconds) if results else {}
        )
        base = next((results[name] for name in ("jax", "torch", "webgpu") if name in results), None)
        errors = {}
        if base is not None:
            expected = base.result()
            for name, value in results.items():
                with suppress(Exception):
                    errors[name] = difference(value.result(), expected)
        yield {"work": work.name, "precision": work.precision, "flops": work.flops, "times": times,
               "errors": errors, "failed": failed}  # fmt: skip


def call_row(devices: dict[str, str], seconds: float) -> dict[str, Any]:
    """The row of small calls."""
    calls, failed = {}, {}
    for name, device in devices.items():
        try:
            calls[name] = call_of(name, device)
            calls[name]()
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {str(error).splitlines()[0]}"[:200]
            calls.pop(name, None)
    return {"work": "call of 256 bytes", "precision": "f32", "flops": 0.0, "errors": {}, "failed": failed,
            "times": timed(calls, seconds) if calls else {}}  # fmt: skip


def shown(row: dict[str, Any]) -> str:
    """A row as a line of the table, and below it what failed."""
    cells = []
    for name in CONTESTANTS:
        result = row["times"].get(name)
        if result is None:
            cells.append(f"{'-':>20}")
            continue
        speed = f" {row['flops'] / result['us'] / 1e6:6.1f}T" if row["flops"] else ""
        cells.append(f"{result['us']:12.1f}{speed:>8}")
    times = row["times"]
    ratio = times["cuda"]["us"] / times["jax"]["us"] if {"cuda", "jax"} <= times.keys() else None
    name = row["work"] if row["precision"] == "f32" else f"{row['work']} by {row['precision']}"
    line = f"{name:28}" + "".join(cells)
    line += (
        ""
        if ratio is None
        else f"{ratio:8.2f}x {times['cuda']['us'] - times['jax']['us']:+8.1f} us"
    )
    for name, error in row["failed"].items():
        line += f"\n    {name}: {error}"
    wrong = {name: error for name, error in row["errors"].items() if error > row_tolerance(row)}
    return line + "".join(f"\n    {name} is off by {error:.2g}" for name, error in wrong.items())


def row_tolerance(row: dict[str, Any]) -> float:
    """Returns the allowed difference of results: rounding of operands, and sums in another order."""
    return 2e-2 if "f16" in row["work"] or row["precision"] != "f32" else 1e-4


def parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument(
        "--json", type=Path, help="writes everything that was measured to this file"
    )
    parser.add_argument(
        "--only", default="", help="work whose name holds this text; names apart by commas"
    )
    parser.add_argument("--seconds", type=float, default=2.0, help="for each row")
    parser.add_argument(
        "--skip", default="", help="contestants to leave out: webgpu,cuda,jax,torch"
    )
    parser.add_argument(
        "--cpu",
        action="store_true",
        help="XLA's and PyTorch's CPU in place of the GPU, small sizes",
    )
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    parser.add_argument("--list", action="store_true", help="names of the work")
    args = parser.parse_args()
    if args.from_json and not args.docs:
        parser.error("--from-json needs --docs")
    return args


def write_page(page: Path, results: dict[str, Any]) -> None:
    """Puts the table into a page."""
    headings = ["us a call", *CONTESTANTS, "cuda / jax"]
    cells = []
    for row in results["rows"]:
        times = row["times"]
        name = row["work"] + ("" if row["precision"] == "f32" else f", {row['precision']}")
        ratio = times["cuda"]["us"] / times["jax"]["us"]
        shown_times = (
            f"{times[contestant]['us']:,.0f}" if contestant in times else "-"
            for contestant in CONTESTANTS
        )
        cells.append([name, *shown_times, f"{ratio:.2f}"])
    result = "\n".join(report.markdown(headings, cells))
    about = results["about"]
    packages = ", ".join(f"{name} {about[name]}" for name in ("jax", "torch") if name in about)
    adapters = {item.split(": ", 1)[1] for item in about["devices"] if not item.startswith("xla")}
    machine = ", ".join(sorted(adapters))
    report.write_between(page, SCRIPT, f"{result}\n\n{machine}; {packages}.")


def main() -> int:
    args = parsed()
    if args.from_json:
        write_page(args.docs, json.loads(args.from_json.read_text()))
        return 0
    work = xla_work.small(WORK) if args.cpu else WORK
    wanted = [text.strip() for text in args.only.split(",") if text.strip()]
    chosen = [item for item in work if not wanted or any(text in item.name for text in wanted)]
    if args.list:
        print("\n".join(item.name for item in work))
        return 0
    registered()
    devices = {"webgpu": "webgpu", "cuda": "xla" if args.cpu else "cuda",
               "jax": "cpu" if args.cpu else "cuda", "torch": "cpu" if args.cpu else "cuda"}  # fmt: skip
    for name in filter(None, args.skip.split(",")):
        devices.pop(name.strip())
    about = {"python": platform.python_version(), "numpy": np.__version__, "rlx": rlx.__version__}
    about["devices"] = [
        f"{device}: {rlx.device.names.info_of(device).adapter}"
        for device in rlx.available_devices()
    ]
    for module in ("jax", "torch"):
        with suppress(ImportError):
            about[module] = __import__(module).__version__
    print(json.dumps(about))
    print(
        f"{'us a call (TFLOP/s)':28}"
        + "".join(f"{name:>20}" for name in CONTESTANTS)
        + "    cuda/jax"
    )
    results = []
    listed = rows(chosen, devices, args.seconds)
    for row in listed:
        print(shown(row), flush=True)
        results.append(row)
    if not wanted or any(text in "call of 256 bytes" for text in wanted):
        results.append(call_row(devices, args.seconds))
        print(shown(results[-1]), flush=True)
    if args.json:
        args.json.write_text(json.dumps({"about": about, "rows": results}, indent=1))
    if args.docs:
        write_page(args.docs, {"about": about, "rows": results})
    return int(any(row["failed"] for row in results))


if __name__ == "__main__":
    sys.exit(main())
