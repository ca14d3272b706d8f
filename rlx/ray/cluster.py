"""The nodes of a cluster: a lender of devices on each, and predictors that ask theirs."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from rlx.errors import DeviceUnavailableError, RlxError, install_line
from rlx.ray.lending import DeviceLender, this_process
from rlx.ray.predictor import Predictor

# Lenders of all programs of a cluster have one namespace: two programs on a node then use different devices.
_NAMESPACE, _NAME = "rlx", "rlx-devices-{}"
# A lender ends with the program that began it. Others then begin one anew, so often at most.
_TRIES = 3
# By its id, the first handle of each lender: an actor ends when the handle is dropped that began it.
_kept: dict[Any, Any] = {}


def ray_module() -> Any:
    """The package ``ray``.

    Raises:
        RlxError: It is not installed.
    """
    try:
        import ray
    except ImportError as error:
        raise RlxError("Ray is not installed", hint=install_line(".[ray]")) from error
    return ray


def lender(node: str | None = None) -> Any:
    """Returns the actor that hands out the devices of a node; starts it if there is none.

    Args:
        node: The node's id in hexadecimal; None for the node of this process.

    Returns:
        A handle of an actor of ``DeviceLender``, which takes no processors of Ray's.

    Raises:
        RlxError: Ray is not installed.

    Example:
        ```python
        print(ray.get(rlx.ray.lender().devices.remote()))
        ```
    """
    ray = ray_module()
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    node = node or ray.get_runtime_context().get_node_id()
    result = (
        ray.remote(DeviceLender)
        .options(
            name=_NAME.format(node),
            namespace=_NAMESPACE,
            get_if_exists=True,
            num_cpus=0,
            scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
        )
        .remote()
    )
    return _kept.setdefault(result._actor_id, result)


def devices() -> dict[str, list[str]]:
    """The devices of each node of the cluster, by the node's id.

    A node that can't say is left out with a ``RuntimeWarning``.

    Raises:
        RlxError: Ray is not installed.
    """
    ray = ray_module()
    asked = {
        node["NodeID"]: lender(node["NodeID"]).devices.remote()
        for node in ray.nodes()
        if node["Alive"]
    }
    results = {}
    for node, answer in asked.items():
        try:
            results[node] = ray.get(answer)
        except ray.exceptions.RayError as error:
            first = str(error).strip().splitlines()[-1]
            warnings.warn(
                f"node {node} has no devices of rlx: {first}", RuntimeWarning, stacklevel=2
            )
    return results


def device_here(among: Sequence[str] | None = None) -> str:
    """The device that this worker process is to use.

    Args:
        among: Devices to choose from; None for all of the node.

    Raises:
        DeviceUnavailableError: None of them is on this node, or its lender does not answer.
    """
    ray = ray_module()
    last: Exception | None = None
    for _ in range(_TRIES):
        try:
            device: str = ray.get(lender().lend.remote(this_process(), among))
            return device
        except ray.exceptions.RayTaskError as error:
            cause = error.cause
            raise (cause if isinstance(cause, RlxError) else error) from None
        except ray.exceptions.RayError as error:
            last = error
    raise DeviceUnavailableError("the lender of devices of this node ends", got=last)


class NodePredictor(Predictor):
    """A predictor on the device that the lender of its node gives it.

    Args:
        path: See ``Predictor``.
        among: Devices to choose from; None for all of the node.
        how: Other arguments of ``Predictor``.
        batch_size: Rows of a piece where the model leaves them open, so that the last batch compiles nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str] | bytes,
        among: Sequence[str] | None = None,
        how: Mapping[str, Any] | None = None,
        batch_size: int | None = None,
    ) -> None:
        super().__init__(path, device_here(among), **(how or {}))
        self.rows = self.rows or batch_size
