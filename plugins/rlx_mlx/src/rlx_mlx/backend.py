"""The backend: MLX on the GPU of a Mac, or on the processor where there is none."""

from __future__ import annotations

from importlib.metadata import PackageNotFoundError, version

from rlx.plugin import (
    Backend,
    BackendCostModel,
    Capabilities,
    CompileOptions,
    Device,
    DeviceInfo,
    Graph,
    MemoryPlan,
    Node,
    Program,
    RooflineModel,
    Schedule,
)
from rlx_mlx.engine import device_facts, mlx
from rlx_mlx.limits import reason


class MlxBackend(Backend):
    """Graphs by MLX."""

    name = "mlx"
    kernel_set = ""

    def devices(self) -> list[DeviceInfo]:
        """MLX's device."""
        if mlx() is None:
            return []
        adapter, kind = device_facts()
        return [DeviceInfo("mlx", 0, adapter, api="MLX", driver=self.build_id(), kind=kind)]

    def absent(self) -> str:
        """Returns the advice to install what is missing."""
        return "MLX is not installed; pip install mlx on a Mac, or mlx[cpu] elsewhere"

    def build_id(self) -> str:
        """The version that programs depend on."""
        try:
            return f"MLX {version('mlx')}"
        except PackageNotFoundError:
            return "MLX"

    def capabilities(self, info: DeviceInfo) -> Capabilities:
        """Returns the capabilities of executables."""
        from rlx_mlx.executable import CAPABILITIES

        return CAPABILITIES

    def cost_model(self, info: DeviceInfo) -> BackendCostModel | None:
        """On the processor figures that keep "auto" from it; on a Mac rlx's defaults for a GPU, as nothing is measured."""
        if info.kind != "cpu":
            return None
        return RooflineModel(
            Device("mlx", info.index),
            gflops=20.0,
            dispatch_ns=10_000.0,
            roundtrip_ns=30_000.0,
            bandwidth=5.0,
            upload_bandwidth=5.0,
            readback_bandwidth=5.0,
            unified_memory=True,
        )

    def unsupported(self, info: DeviceInfo, node: Node) -> str | None:
        """Why a node runs on the host."""
        return reason(node)

    def lower(
        self,
        info: DeviceInfo,
        graph: Graph,
        schedule: Schedule | None,
        plan: MemoryPlan | None,
        options: CompileOptions,
    ) -> Program:
        """Keeps the graph; MLX traces it at the first run."""
        from rlx_mlx.executable import MlxProgram

        return MlxProgram(graph)


MLX = MlxBackend()
