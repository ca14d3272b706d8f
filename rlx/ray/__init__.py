"""Models in a Ray cluster: datasets of any size, and services.

Nothing here is imported before it is used, and ``import rlx`` never imports Ray. In a checkout ``pip install '.[ray]'`` brings it.

Example:
    ```python
    import ray, rlx.ray

    rows = ray.data.read_parquet("s3://bucket/windows")
    found = rlx.ray.map_batches(rows, "model.onnx", keep=["id"])
    found.write_parquet("s3://bucket/results")
    ```
"""

from typing import TYPE_CHECKING

from rlx import lazy_imports

if TYPE_CHECKING:
    from rlx.ray.batch_size import BatchSize as BatchSize
    from rlx.ray.batch_size import measure_batch_size as measure_batch_size
    from rlx.ray.cluster import device_here as device_here
    from rlx.ray.cluster import devices as devices
    from rlx.ray.cluster import lender as lender
    from rlx.ray.datasets import map_batches as map_batches
    from rlx.ray.lending import DeviceLender as DeviceLender
    from rlx.ray.predictor import Predictor as Predictor

_homes = lazy_imports.names_of(
    __name__,
    {
        "rlx.ray.batch_size": "BatchSize measure_batch_size",
        "rlx.ray.datasets": "map_batches",
        "rlx.ray.lending": "DeviceLender",
        "rlx.ray.cluster": "device_here devices lender",
        "rlx.ray.predictor": "Predictor",
    },
)
__all__ = sorted(_homes)
