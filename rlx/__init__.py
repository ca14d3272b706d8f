"""rlx: an ML compiler and runtime for any GPU through WebGPU, and for the CPU.

Build a graph, compile it once, run it many times::

    import numpy as np, rlx
    g = rlx.Graph("mlp")
    x, w = g.input("x", (2, 4)), g.param("w", (4, 3))
    g.set_outputs([g.gelu(x @ w)])
    cg = rlx.compile(g, device="auto", params={"w": np.ones((4, 3), np.float32)})
    (y,) = cg.run_slots(np.ones((2, 4), np.float32))
"""

from importlib.util import find_spec

if find_spec("rlx._ext.cpu") is None:
    raise ImportError(
        f"rlx is not built for this Python in {__path__[0]}: run `pip install -e .` in the checkout, "
        "or start Python in another folder to use the installed package",
        name="rlx",  # `python -m rlx` then shows this sentence without a traceback
    )

from rlx import cost, onnx, ops, signal
from rlx.backends.base import (
    Backend,
    Capabilities,
    CompileOptions,
    DeviceInfo,
    Executable,
    GpuBuffer,
)
from rlx.backends.registered import register_backend
from rlx.budget import limits
from rlx.calibrate.measurer import Measurer
from rlx.compiler.device_choice import Choice, choose
from rlx.compiler.memo import CacheStats, cache_stats, clear_cache
from rlx.compiler.model_file import load_model, save_model
from rlx.compiler.watching import CancelToken, Progress
from rlx.cost import (
    BackendCostModel,
    FusionBenefit,
    GraphIoOptions,
    GraphIoProfile,
    IoFusionGate,
    estimate_graph_cost,
    fusion_benefit,
    pick_best_device,
    profile_graph_io,
    profile_graph_io_outputs,
)
from rlx.cost.calibration import measure_with
from rlx.device import (
    Benchmark,
    Device,
    DeviceCandidate,
    DevicePolicy,
    available_devices,
    host_sync_op_kinds,
    is_available,
    parse_device_list,
)
from rlx.errors import (
    BusyError,
    CancelledError,
    CompileError,
    DeviceError,
    DeviceFallbackError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceParseError,
    DeviceUnavailableError,
    DTypeError,
    GraphError,
    ImportModelError,
    InputError,
    LimitError,
    RlxError,
    ShapeError,
    UnknownNameError,
    UnsupportedOpError,
    VerifyError,
)
from rlx.importers import gguf, safetensors
from rlx.ir.dtype import DType
from rlx.ir.graph import Graph, Node, graph_param_names
from rlx.many.buckets import BucketedCompileCache
from rlx.many.caches import CompileCache
from rlx.many.graph_devices import GraphDevices, devices_for, fastest_device_for
from rlx.ops.custom import register_custom_op
from rlx.runtime.compiled import CompiledGraph, run_slots
from rlx.runtime.device_bench import DeviceBenchResult
from rlx.runtime.profile import Profile, ProfileRow
from rlx.runtime.routed import MoeResidencyStats
from rlx.runtime.session import Session, compile
from rlx.version import __version__

signal.compile_with(compile)
measure_with(Measurer())

__all__ = [
    "Backend",
    "BackendCostModel",
    "Benchmark",
    "BucketedCompileCache",
    "BusyError",
    "CacheStats",
    "CancelToken",
    "CancelledError",
    "Capabilities",
    "Choice",
    "CompileCache",
    "CompileError",
    "CompileOptions",
    "CompiledGraph",
    "DType",
    "DTypeError",
    "Device",
    "DeviceBenchResult",
    "DeviceCandidate",
    "DeviceError",
    "DeviceFallbackError",
    "DeviceInfo",
    "DeviceLostError",
    "DeviceMemoryError",
    "DeviceParseError",
    "DevicePolicy",
    "DeviceUnavailableError",
    "Executable",
    "FusionBenefit",
    "GpuBuffer",
    "Graph",
    "GraphDevices",
    "GraphError",
    "GraphIoOptions",
    "GraphIoProfile",
    "ImportModelError",
    "InputError",
    "IoFusionGate",
    "LimitError",
    "MoeResidencyStats",
    "Node",
    "Profile",
    "Progress",
    "ProfileRow",
    "RlxError",
    "Session",
    "ShapeError",
    "UnknownNameError",
    "UnsupportedOpError",
    "VerifyError",
    "__version__",
    "available_devices",
    "cache_stats",
    "choose",
    "clear_cache",
    "compile",
    "cost",
    "devices_for",
    "estimate_graph_cost",
    "fastest_device_for",
    "fusion_benefit",
    "gguf",
    "graph_param_names",
    "host_sync_op_kinds",
    "is_available",
    "limits",
    "load_model",
    "onnx",
    "ops",
    "parse_device_list",
    "pick_best_device",
    "profile_graph_io",
    "profile_graph_io_outputs",
    "register_backend",
    "register_custom_op",
    "run_slots",
    "safetensors",
    "save_model",
    "signal",
]
