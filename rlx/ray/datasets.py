"""map_batches: a model over a dataset of Ray, on all devices of the cluster, in the order of its rows."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal

from rlx.backends.base import CompileOptions
from rlx.device.names import Device
from rlx.errors import DeviceUnavailableError, InputError
from rlx.ray.batch_size import OVERHEAD_S, BatchSize, measure_batch_size
from rlx.ray.cluster import NodePredictor, ray_module
from rlx.ray.cluster import devices as devices_of_nodes

# Rows that a batch is measured with, which are repeated.
_SAMPLE = 16


def map_batches(  # noqa: PLR0913 - each is an option of its own
    dataset: Any,
    path: str | os.PathLike[str] | bytes,
    *,
    devices: Literal["all"] | Sequence[str] = "all",
    batch_size: Literal["auto"] | int = "auto",
    columns: Mapping[str, str] | None = None,
    fixed: Mapping[str, Any] | None = None,
    keep: Sequence[str] = (),
    options: CompileOptions | None = None,
    actors: int | None = None,
    overhead_s: float = OVERHEAD_S,
    **remote: Any,
) -> Any:
    """Runs a model over a dataset.

    One actor for each device of the cluster loads the model once. Rows come out in the order in which they went in, and
    each once: an actor that dies is started again, and its batches are run again. Nothing runs before the result is asked
    for, but for a few rows that the size of batches is measured with.

    Args:
        dataset: A ``ray.data.Dataset``.
        path: The model: a file that every node has at that path, or the bytes of an ONNX model.
        devices: "all", or the names of devices to use where they are, such as ``["webgpu", "cpu"]``.
        batch_size: Rows of a batch. "auto" measures how many make a run so long that handing it over takes at most a
            tenth of the time; a model that is written for a number of rows gets a multiple of it.
        columns: By the name of an input, its column; see ``rlx.ray.Predictor``.
        fixed: By name, inputs that are the same for all rows.
        keep: Columns that are passed on beside the outputs.
        options: How the model is compiled.
        actors: How many there are; None for one a device, but at most one less than the cluster has processors.
        overhead_s: Seconds that handing a batch over takes, for "auto".
        **remote: Options of the actors, such as ``num_cpus`` or ``resources``.

    Returns:
        A dataset with the columns of ``rlx.ray.Predictor``. Results of different kinds of devices differ by rounding.

    Raises:
        DeviceUnavailableError: No node has any of the devices.
        DeviceParseError: A name of a device can't be read.
        InputError: An option is out of range, or the dataset is empty where batches are to be measured.
        RlxError: Ray is not installed; or the model can't be loaded, or does not fit the columns.

    Example:
        ```python
        rows = ray.data.from_numpy(windows)
        found = rlx.ray.map_batches(rows, "model.onnx", batch_size=256)
        ```
    """
    ray = ray_module()
    for name, value, other in (("batch_size", batch_size, "auto"), ("actors", actors, None)):
        number = isinstance(value, int) and not isinstance(value, bool) and value >= 1
        if value != other and not number:
            raise InputError(f"option {name}", got=repr(value), expected=f">= 1, or {other!r}")
    if isinstance(devices, str) and devices != "all":
        raise InputError(
            "devices", got=repr(devices), expected='"all", or a list of names of devices'
        )
    among = None if isinstance(devices, str) else [str(Device.parse(device)) for device in devices]
    if not isinstance(path, bytes):
        path = str(Path(path).resolve())
    results = [
        item
        for node in devices_of_nodes().values()
        for item in node
        if among is None or item in among
    ]
    if not results:
        what = "no node of the cluster has any of the devices"
        raise DeviceUnavailableError(what, expected=", ".join(among or ("any",)))
    how = {"columns": columns, "fixed": fixed, "keep": tuple(keep), "options": options}
    if batch_size == "auto":
        measured = _measured(dataset, path, among, how, overhead_s)
        batch_size = measured.rows
    count = actors or _actors(ray, len(results))
    mapped = dataset.map_batches(
        NodePredictor,
        fn_constructor_args=(path, among, how, batch_size),
        batch_size=batch_size,
        batch_format="numpy",
        zero_copy_batch=True,
        compute=ray.data.ActorPoolStrategy(size=count),
        **{"num_cpus": 1, **remote},
    )
    mapped.context.execution_options.preserve_order = True
    return mapped


def _actors(ray: Any, devices: int) -> int:
    """Returns the number of actors: one per device, with a processor left for reading and the rest of the dataset."""
    processors = int(ray.cluster_resources().get("CPU", 1))
    largest = max(1, processors - 1)
    if devices > largest:
        warnings.warn(
            f"{largest} of {devices} devices are used: an actor takes a processor of Ray's, and there are {processors}; "
            "num_cpus=0.5 or actors=N changes that",
            RuntimeWarning,
            stacklevel=3,
        )
    return min(devices, largest)


def _measured(
    dataset: Any,
    path: str | bytes,
    among: Sequence[str] | None,
    how: Mapping[str, Any],
    overhead_s: float,
) -> BatchSize:
    """Measures the best rows of a batch in a worker of the cluster."""
    ray = ray_module()
    sample = dataset.take_batch(_SAMPLE, batch_format="numpy")

    def measure() -> BatchSize:
        predict = NodePredictor(path, among, how)
        try:
            return measure_batch_size(predict, sample, predict.rows or 1, overhead_s)
        finally:
            predict.close()

    try:
        measured: BatchSize = ray.get(ray.remote(measure).remote())
    except ray.exceptions.RayTaskError as error:
        cause = error.cause
        raise (cause if isinstance(cause, Exception) else error) from None
    if not measured.enough:
        warnings.warn(
            f"batches of {measured.rows} rows, the largest allowed, run for {1e3 * measured.run_s:.1f} ms: handing them "
            f"over takes {measured.share:.0%} of the time",
            RuntimeWarning,
            stacklevel=3,
        )
    return measured
