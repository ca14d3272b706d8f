"""A model behind Ray Serve: requests that come at the same time are joined to one run.

Run it by ``serve run service:app`` in this folder, or see ``load.py``. ``RLX_SERVICE_MODEL`` names the model; without it a
small network of random weights is made.
"""

import os
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from ray import serve

import rlx
import rlx.ray

# Most requests of a run, and how long the first of them waits for others.
MOST, WAIT_S = 32, 0.002
FEATURES, RESULTS = 64, 8


def stand_in() -> Path:
    """A network of random weights, always the same, stored as a file."""
    rng = np.random.default_rng(0)
    g = rlx.Graph("service")
    x = g.input("x", (rlx.Dim("requests"), FEATURES))
    for index, (rows, columns) in enumerate([(FEATURES, 256), (256, 256), (256, RESULTS)]):
        w = (rng.standard_normal((rows, columns)) / rows**0.5).astype(np.float32)
        x = g.tanh(x @ g.param(f"w{index}", w.shape, value=w))
    g.set_outputs([x])
    path = Path(tempfile.mkdtemp()) / "service.rlx"
    rlx.save_model(g, path)
    return path


class Answers:
    """Answers ``{"x": [64 numbers]}`` by ``{"y": [8 numbers]}``.

    Args:
        path: The model.
        device: Where it runs; None for the device that the lender of the node gives out.
    """

    def __init__(self, path: str, device: str | None = None) -> None:
        self.predict = rlx.ray.Predictor(path, device or rlx.ray.device_here())
        self.predict({"x": np.zeros((1, FEATURES), np.float32)})  # the first run prepares

    @serve.batch(max_batch_size=MOST, batch_wait_timeout_s=WAIT_S)
    async def answers(self, rows: list[np.ndarray]) -> list[list[float]]:
        """One run for all rows; Serve hands each its own result."""
        (name,) = self.predict.outputs
        return self.predict({"x": np.stack(rows)})[name].tolist()

    async def __call__(self, request: Any) -> dict:
        body = await request.json()
        row = np.asarray(body.get("x", ()), np.float32)
        if row.shape != (FEATURES,):
            return {"error": f"x has the shape {list(row.shape)}, expected [{FEATURES}]"}
        return {"y": await self.answers(row)}


Service: Any = serve.deployment(ray_actor_options={"num_cpus": 1}, max_ongoing_requests=4 * MOST)(
    Answers
)
app = Service.bind(os.environ.get("RLX_SERVICE_MODEL") or str(stand_in()))
