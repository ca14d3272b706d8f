"""Starts the service in a local cluster, and calls it from many clients at once for a while.

usage: python examples/ray_serve/load.py [--seconds 60] [--clients 32] [--device cpu]

Every answer is compared with that of the model in this process. The exit code is 0 if there was no error.
"""

import argparse
import asyncio
import sys
import time
from pathlib import Path

import aiohttp
import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

import ray
import service
from ray import serve

import rlx.ray

PORT = 8123


async def client(url, model, stop, times, errors):
    """Asks again and again, each time after the last answer."""
    rng = np.random.default_rng()
    async with aiohttp.ClientSession() as http:
        while time.monotonic() < stop:
            x = rng.standard_normal(service.FEATURES).astype(np.float32)
            began = time.perf_counter()
            try:
                async with http.post(url, json={"x": x.tolist()}) as response:
                    answer = (await response.json())["y"]
                times.append(time.perf_counter() - began)
                expected = model({"x": x[None]})["output0"][0]
                if not np.allclose(answer, expected, rtol=1e-4, atol=1e-5):
                    errors.append(f"a wrong answer: {answer}")
            except Exception as error:
                errors.append(f"{type(error).__name__}: {error}")


async def load(url, path, seconds, clients):
    """The times of all answers, and what went wrong."""
    model = rlx.ray.Predictor(path, "cpu")
    times: list[float] = []
    errors: list[str] = []
    stop = time.monotonic() + seconds
    await asyncio.gather(*(client(url, model, stop, times, errors) for _ in range(clients)))
    return times, errors


def main():
    parser = argparse.ArgumentParser(description="many clients of the service at once")
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--clients", type=int, default=32)
    parser.add_argument("--device", help="where the model runs; the lender's choice without it")
    arguments = parser.parse_args()
    path = str(service.stand_in())
    # Workers find the modules that this program found, wherever it was started.
    env = {"env_vars": {"PYTHONPATH": ":".join(p for p in sys.path if p)}}
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False, runtime_env=env)
    serve.start(http_options={"port": PORT})
    serve.run(service.Service.bind(path, arguments.device), name="service")
    url = f"http://127.0.0.1:{PORT}/"
    times, errors = asyncio.run(load(url, path, arguments.seconds, arguments.clients))
    p50, p99 = np.percentile(times or [np.nan], [50, 99]) * 1e3
    print(
        f"{len(times)} answers in {arguments.seconds:.0f} s by {arguments.clients} clients, {len(errors)} errors"
    )
    print(f"{len(times) / arguments.seconds:.0f} a second, p50 {p50:.1f} ms, p99 {p99:.1f} ms")
    for error in errors[:5]:
        print(error)
    serve.shutdown()
    ray.shutdown()
    return int(bool(errors) or not times)


if __name__ == "__main__":
    sys.exit(main())
