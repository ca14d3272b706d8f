"""Models in a local cluster of Ray: what comes out of datasets, actors that die, and the example of a service."""

import os
import signal
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from python_process import run_python
from test_ray_parts import SCALE, W, graph, onnx_model

import rlx
import rlx.ray

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900), pytest.mark.filterwarnings("default")]
ROWS = 100_000
EXAMPLES = Path(__file__).parents[1] / "examples/ray_serve"


@pytest.fixture(scope="module")
def cluster():
    import ray

    # Workers are new processes: they find what this one found.
    os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path, os.environ.get("PYTHONPATH", "")])
    os.environ["RLX_CACHE"] = "off"
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(num_cpus=4, include_dashboard=False, log_to_driver=False, object_store_memory=1 << 29)
    ray.data.DataContext.get_current().enable_progress_bars = False
    yield ray
    ray.shutdown()


def table(ray, rows=ROWS, parts=50):
    x = np.random.default_rng(1).standard_normal((rows, 3)).astype(np.float32)
    ids = np.arange(rows)
    pieces = [
        {"x": x[part], "id": ids[part]}
        for part in np.array_split(np.arange(rows), parts)
        if len(part)
    ]
    return x, ray.data.from_items(list(range(len(pieces))), override_num_blocks=parts).map_batches(
        lambda batch: pieces[int(batch["item"][0])], batch_size=1
    )


class Killer(threading.Thread):
    """Kills one of two predictors a moment after both have begun."""

    def __init__(self, ray):
        super().__init__(daemon=True)
        self.ray, self.killed, self.finished = ray, None, False

    def run(self):
        before = set(self.held())
        while self.killed is None and not self.finished:
            begun = set(self.held()) - before
            if len(begun) == 2:
                time.sleep(0.5)
                os.kill(min(begun), signal.SIGKILL)
                self.killed = None if self.finished else min(begun)
                return
            time.sleep(0.05)

    def held(self):
        return self.ray.get(rlx.ray.lender().held.remote())


def columns(dataset):
    batches = list(dataset.iter_batches(batch_size=None, batch_format="numpy"))
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def test_rows_come_once_and_in_order_though_an_actor_is_killed(cluster, tmp_path):
    """100,000 rows through two actors, one of which is killed in the middle, equal one process."""
    rlx.save_model(graph(64), tmp_path / "affine.rlx")
    x, rows = table(cluster)
    killer = Killer(cluster)
    killer.start()

    def slowly(batch):
        time.sleep(
            0.1
        )  # what a pool of actors needs to be in the middle of the work when one of them dies
        return batch

    result = columns(
        rlx.ray.map_batches(
            rows.map_batches(slowly, batch_size=None),
            tmp_path / "affine.rlx",
            devices=["cpu"],
            batch_size=512,
            keep=["id"],
            actors=2,
        )
    )
    killer.finished = True
    killer.join(60)
    assert killer.killed is not None, "all was done before an actor was killed"
    assert np.array_equal(result["id"], np.arange(ROWS))
    alone = rlx.ray.Predictor(tmp_path / "affine.rlx", "cpu")({"x": x})
    for name, expected in alone.items():
        np.testing.assert_allclose(result[name], expected, rtol=1e-6, atol=1e-6)


def test_an_onnx_model_of_bytes_with_batches_that_are_measured(cluster):
    x, rows = table(cluster, 5_000, 7)
    mapped = rlx.ray.map_batches(
        rows, onnx_model(), devices=["cpu"], fixed=SCALE, keep=["id"], overhead_s=1e-5
    )
    result = columns(mapped)
    assert np.array_equal(result["id"], np.arange(5_000))
    np.testing.assert_allclose(result["y"], x @ W * 3, rtol=1e-4, atol=1e-5)


def test_batches_of_several_times_the_rows_that_a_model_is_written_for(cluster):
    x, rows = table(cluster, 100, 3)
    mapped = rlx.ray.map_batches(
        rows, onnx_model(4, 4), devices=["cpu"], fixed=SCALE, batch_size=24
    )
    np.testing.assert_allclose(columns(mapped)["y"], x @ W * 3, rtol=1e-4, atol=1e-5)


def test_a_model_too_small_for_a_cluster_is_said_to_be(cluster):
    _, rows = table(cluster, 100, 2)
    with pytest.warns(RuntimeWarning, match="of the time"):
        rlx.ray.map_batches(rows, onnx_model(), devices=["cpu"], fixed=SCALE)


def test_the_lender_of_a_node_gives_each_actor_a_device(cluster):
    from rlx.device.candidates import separate_devices

    (here,) = rlx.ray.devices().values()
    assert here == [str(device) for device in separate_devices()]

    @cluster.remote(num_cpus=0)
    class RayWorker:
        def device(self):
            from rlx.ray.cluster import device_here

            return device_here(), os.getpid()

    workers = [RayWorker.remote() for _ in here]
    got = cluster.get([worker.device.remote() for worker in workers])
    assert sorted(device for device, _ in got) == sorted(here)
    stored = cluster.get(rlx.ray.lender().held.remote())
    assert all(stored[pid] == device for device, pid in got)
    cluster.kill(workers[0])
    deadline = time.monotonic() + 30
    while got[0][1] in cluster.get(rlx.ray.lender().held.remote()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_errors_of_workers_are_those_of_rlx(cluster, tmp_path):
    _, rows = table(cluster, 100, 2)
    with pytest.raises(rlx.DeviceUnavailableError, match="no node"):
        rlx.ray.map_batches(rows, onnx_model(), devices=["webgpu:77"])
    with pytest.raises(rlx.ImportModelError):
        rlx.ray.map_batches(rows, tmp_path / "none.onnx", devices=["cpu"])
    with pytest.raises(rlx.InputError, match="scale"):
        rlx.ray.map_batches(rows, onnx_model(), devices=["cpu"])  # nothing says what it is
    for how in (
        {"batch_size": 0},
        {"actors": 0},
        {"batch_size": "large"},
        {"devices": "gpu"},
        {"actors": "auto"},
        {"batch_size": None},
        {"actors": True},
    ):
        with pytest.raises(rlx.InputError):
            rlx.ray.map_batches(rows, onnx_model(), **how)


def test_the_service_of_the_example_answers_under_load(tmp_path):
    """The example's own load, shortened: all answers are right, requests were joined. Serve's proxy may start slowly."""
    env = {"RLX_CACHE": "off", "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60"}
    arguments = (EXAMPLES / "load.py", "--seconds", 8, "--clients", 16)
    done = run_python(*arguments, env=env, cwd=tmp_path)
    assert "0 errors" in done.stdout
    assert "p99" in done.stdout
