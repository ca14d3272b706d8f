"""The backend "cuda" of the example: NumPy's references, two devices, no FFT, and faults on demand.

``EXAMPLE_CUDA`` names what goes wrong: import, exit, devices, absent, refuses, cost_model, load or run.
"""

import os

import numpy as np

import rlx
from rlx.backends.reference import ReferenceExecutable
from rlx.cost import RooflineModel

FAULT = os.environ.get("EXAMPLE_CUDA", "")


def _fault(where):
    if where == FAULT:
        raise RuntimeError(f"the example breaks in {where}")


_fault("import")
if FAULT == "exit":
    raise SystemExit("the example ends the process")


class ExampleExecutable(ReferenceExecutable):
    """The reference, unless it is to fail."""

    def compute(self, inputs, targets):
        _fault("run")
        super().compute(inputs, targets)


class ExampleBackend(rlx.Backend):
    """Two devices that are fast by their own account."""

    name = "cuda"

    def devices(self):
        _fault("devices")
        if FAULT == "absent":
            return []
        return [
            rlx.DeviceInfo("cuda", index, "Example GPU", driver=np.__version__)
            for index in range(2)
        ]

    def absent(self):
        return "no CUDA driver; install one"

    def refuses(self, info, graph):
        _fault("refuses")
        results = [node.name for node in graph.nodes if node.op in ("fft", "rfft")]
        return f"no FFT on {info.adapter}: {', '.join(results)}" if results else None

    def cost_model(self, info):
        _fault("cost_model")
        # The second is the slower one.
        trip = 10.0 * (1 + info.index)
        device = rlx.Device("cuda", info.index)
        return RooflineModel(device, 1e6, 1.0, trip, 1e4, 1e4, 1e4, unified_memory=False)

    def capabilities(self, info):
        return rlx.Capabilities(arena_ptr=False)

    def load(self, info, graph, schedule, plan, options):
        _fault("load")
        return ExampleExecutable(graph, {})


BACKEND = ExampleBackend()
