"""Measures Ray's time for a batch: of a dataset through ``rlx.ray.map_batches``, and of a call of an actor.

usage: python benchmarks/ray_overhead.py [--json FILE] [--docs docs/scaling.md]
       python benchmarks/ray_overhead.py --from-json benchmarks/ray_overhead.json --docs docs/scaling.md

A model that does next to nothing is run over datasets of few and of many batches; the difference of their times over that of
their batches is what one takes, without starting the actors. The cluster is this machine.
"""

import argparse
import json
import os
import platform
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

import numpy as np
import report

SCRIPT = "benchmarks/ray_overhead.py"
WIDTH, FEW, MANY = 256, 50, 650


def stored(folder, rows):
    import rlx

    g = rlx.Graph("overhead")
    g.set_outputs([g.input("x", (rows, WIDTH)) * 2.0])
    rlx.save_model(g, folder / f"{rows}.rlx")
    return folder / f"{rows}.rlx"


def seconds(ray, path, rows, batches, actors):
    """Returns the seconds of a dataset of so many batches, from the first call to the last row."""
    import rlx.ray

    data = np.ones((batches * rows, WIDTH), np.float32)
    dataset = ray.data.from_numpy([part for part in np.split(data, batches)]).rename_columns(["x"])
    mapped = rlx.ray.map_batches(dataset, path, devices=["cpu"], batch_size=rows, actors=actors)
    began = time.perf_counter()
    count = sum(len(batch["output0"]) for batch in mapped.iter_batches(batch_size=None))
    assert count == len(data)
    return time.perf_counter() - began


def actor_call(ray, path, rows):
    """Seconds of a call of an actor with a batch, and back."""
    import rlx.ray

    actor = ray.remote(rlx.ray.Predictor).remote(str(path), "cpu")
    batch = {"x": np.ones((rows, WIDTH), np.float32)}
    times = []
    for _ in range(60):
        began = time.perf_counter()
        ray.get(actor.__call__.remote(batch))
        times.append(time.perf_counter() - began)
    return median(times)


def measure(ray, rows, actors, rounds):
    with tempfile.TemporaryDirectory() as folder:
        path = stored(Path(folder), rows)
        times = []
        for _ in range(rounds):
            few, many = (seconds(ray, path, rows, count, actors) for count in (FEW, MANY))
            times.append((many - few) / (MANY - FEW))
        return {
            "rows": rows,
            "kib": rows * WIDTH * 4 / 1024,
            "actors": actors,
            "batch_ms": 1e3 * median(times),
            "call_ms": 1e3 * actor_call(ray, path, rows),
        }


def finish(result, arguments):
    headings = ["a batch", "actors", "of a dataset, ms", "call of an actor, ms"]
    cells = [
        [
            f"{row['kib']:,.0f} KiB",
            str(row["actors"]),
            f"{row['batch_ms']:.1f}",
            f"{row['call_ms']:.1f}",
        ]
        for row in result["rows"]
    ]
    output = "\n".join(report.markdown(headings, cells))
    print(output)
    report.save(result, arguments)
    if arguments.docs:
        report.write_between(arguments.docs, SCRIPT, f"{output}\n\n{result['machine']}.")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path)
    parser.add_argument("--docs", type=Path, help="write the table into this page")
    parser.add_argument("--from-json", type=Path, help="take the figures from an earlier --json")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    if arguments.from_json:
        return finish(json.loads(arguments.from_json.read_text()), arguments)
    import ray

    env = {"env_vars": {"PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}}
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, runtime_env=env)
    ray.data.DataContext.get_current().enable_progress_bars = False
    results = {
        "machine": f"Ray {ray.__version__}, {os.cpu_count()} processors, {platform.system()}"
    }
    results["rows"] = [
        measure(ray, rows, actors, arguments.rounds)
        for rows, actors in ((16, 1), (1024, 1), (1024, 2))
    ]
    ray.shutdown()
    return finish(results, arguments)


if __name__ == "__main__":
    sys.exit(main())
