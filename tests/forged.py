"""Writes model files whose checksums hold and whose compiled plan says something else than the compiler did."""

import numpy as np

import rlx
from rlx.ir import container


def forge(path, graph, change, device="cpu", whole=lambda kind, data: (kind, data)):
    """Saves a graph with a plan, and changes the plan.

    Args:
        path: The file.
        graph: The graph.
        change: Called with the plan's data and arrays, which it changes in place.
        device: What the plan is for.
        whole: Takes the kind and the data of the plan's container, and gives others.
    """
    rlx.save_model(graph, path, devices=[device])
    box = container.load(path.read_bytes())
    arrays = [np.array(array) for array in box.arrays]
    (position,) = box.data["plans"].values()
    plan = container.load(arrays[position].tobytes())
    stored = [np.array(array) for array in plan.arrays]
    change(plan.data["lowered"], stored)
    arrays[position] = np.frombuffer(container.dump(*whole(plan.kind, plan.data), stored), np.uint8)
    container.write(path, container.dump(box.kind, box.data, arrays))
