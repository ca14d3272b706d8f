"""The backends: one for each platform of JAX, all alike."""

from __future__ import annotations

from typing import Any

from rlx.plugin import (
    Backend,
    BackendCostModel,
    Capabilities,
    CompileOptions,
    DeviceInfo,
    Graph,
    MemoryPlan,
    Node,
    Program,
    Schedule,
)
from rlx_xla.engine import devices_of, version

# By the name of a backend: JAX's platform, what kind of device it is, and why there may be none.
_PLATFORMS = {
    "xla": ("cpu", "cpu", "JAX is not installed; pip install jax"),
    "cuda": (
        "cuda",
        "discrete",
        'JAX finds no NVIDIA GPU; in a checkout of rlx: pip install "plugins/rlx_xla[cuda]" on a machine that has one',
    ),
    "rocm": (
        "rocm",
        "discrete",
        'JAX finds no AMD GPU; in a checkout of rlx: pip install "plugins/rlx_xla[rocm]" on a machine that has one',
    ),
    "tpu": (
        "tpu",
        "discrete",
        'JAX finds no TPU; in a checkout of rlx: pip install "plugins/rlx_xla[tpu]" on a machine that has one',
    ),
}


class XlaBackend(Backend):
    """Graphs by XLA, on one platform.

    Args:
        name: The device's name in rlx.
    """

    kernel_set = ""

    def __init__(self, name: str) -> None:
        self.name = name
        self._platform, self._kind, self._absent = _PLATFORMS[name]

    def devices(self) -> list[DeviceInfo]:
        """JAX's devices of the platform."""
        result = devices_of(self._platform)
        return [self._info(index, device) for index, device in enumerate(result)]

    def _info(self, index: int, device: Any) -> DeviceInfo:
        kind = str(device.device_kind)
        adapter = "XLA on the processor" if self._platform == "cpu" else kind
        return DeviceInfo(
            self.name,
            index,
            adapter,
            api="XLA",
            driver=f"{version()}, {str(device.client.platform_version).splitlines()[0]}",
            kind=self._kind,
            software=False,
        )

    def absent(self) -> str:
        """Returns the advice to install what is missing."""
        return self._absent

    def build_id(self) -> str:
        """The versions that compiled programs depend on."""
        return version()

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """Returns the capabilities of executables."""
        from rlx_xla.executable import CAPABILITIES

        return CAPABILITIES

    def cost_model(self, info: DeviceInfo) -> BackendCostModel | None:
        """Returns the measured figures of the device; rlx's defaults for a GPU if nothing may be measured."""
        from rlx_xla.figures import model_of

        return model_of(info, self._platform)

    def unsupported(self, info: DeviceInfo, node: Node) -> str | None:
        """Why a node runs on the host: custom operations are functions of Python."""
        return "a custom operation" if node.op == "custom" else None

    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Keeps the graph; XLA compiles it when it is loaded for a device."""
        from rlx_xla.executable import XlaProgram

        return XlaProgram(graph, options, self._platform)


XLA, CUDA, ROCM, TPU = map(XlaBackend, _PLATFORMS)
