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
from typing import TYPE_CHECKING

if find_spec("rlx._ext.cpu") is None:
    raise ImportError(
        f"rlx is not built for this Python in {__path__[0]}: run `pip install -e .` in the checkout, "
        "or start Python in another folder to use the installed package",
        name="rlx",  # `python -m rlx` then shows this sentence without a traceback
    )

from rlx import lazy_imports
from rlx.version import __version__ as __version__

# isort: off
if TYPE_CHECKING:  # for type checkers, and for tools that collect what a program needs
    from rlx import cost as cost, lm as lm, onnx as onnx, ops as ops, signal as signal
    from rlx.prewarm import open_ahead as open_ahead
    from rlx.backends.base import (
        Backend as Backend,
        CompileOptions as CompileOptions,
        DeviceInfo as DeviceInfo,
    )
    from rlx.backends.executable import (
        Capabilities as Capabilities,
        Executable as Executable,
        GpuBuffer as GpuBuffer,
    )
    from rlx.backends.registry import register_backend as register_backend
    from rlx.resource_limits import limits as limits
    from rlx.compiler.cache_stats import CacheStats as CacheStats, cache_stats as cache_stats
    from rlx.compiler.choice import Choice as Choice
    from rlx.compiler.device_choice import choose as choose
    from rlx.compiler.compile_cache import clear_cache as clear_cache
    from rlx.compiler.model_file import load_model as load_model, save_model as save_model
    from rlx.compiler.progress import CancelToken as CancelToken, Progress as Progress
    from rlx.cost.estimate import (
        estimate_graph_cost as estimate_graph_cost,
        pick_best_device as pick_best_device,
    )
    from rlx.cost.gate import (
        FusionBenefit as FusionBenefit,
        IoFusionGate as IoFusionGate,
        fusion_benefit as fusion_benefit,
    )
    from rlx.cost.io_profile import (
        GraphIoOptions as GraphIoOptions,
        GraphIoProfile as GraphIoProfile,
        profile_graph_io as profile_graph_io,
        profile_graph_io_outputs as profile_graph_io_outputs,
    )
    from rlx.cost.model import BackendCostModel as BackendCostModel
    from rlx.device.candidates import DeviceCandidate as DeviceCandidate
    from rlx.device.names import (
        Device as Device,
        available_devices as available_devices,
        host_sync_op_kinds as host_sync_op_kinds,
        is_available as is_available,
        parse_device_list as parse_device_list,
    )
    from rlx.device.policy import Benchmark as Benchmark, DevicePolicy as DevicePolicy
    from rlx.errors import (
        BusyError as BusyError,
        CancelledError as CancelledError,
        ClosedError as ClosedError,
        CompileError as CompileError,
        DeviceError as DeviceError,
        DeviceFallbackError as DeviceFallbackError,
        DeviceLostError as DeviceLostError,
        DeviceMemoryError as DeviceMemoryError,
        DeviceParseError as DeviceParseError,
        DeviceUnavailableError as DeviceUnavailableError,
        DTypeError as DTypeError,
        GraphError as GraphError,
        ImportModelError as ImportModelError,
        InputError as InputError,
        FileInUseError as FileInUseError,
        LimitError as LimitError,
        ModelFileError as ModelFileError,
        ModelNotFoundError as ModelNotFoundError,
        NodeValueError as NodeValueError,
        RlxError as RlxError,
        ShapeError as ShapeError,
        SizesError as SizesError,
        UnknownNameError as UnknownNameError,
        UnknownSizeError as UnknownSizeError,
        UnsupportedOpError as UnsupportedOpError,
        VerifyError as VerifyError,
    )
    from rlx.importers import gguf as gguf, safetensors as safetensors
    from rlx.ir.dtype import DType as DType
    from rlx.ir.graph import Graph as Graph, Node as Node
    from rlx.ir.view import graph_param_names as graph_param_names
    from rlx.serving.buckets import BucketedCompileCache as BucketedCompileCache
    from rlx.serving.caches import CompileCache as CompileCache
    from rlx.serving.graph_devices import (
        GraphDevices as GraphDevices,
        devices_for as devices_for,
        fastest_device_for as fastest_device_for,
    )
    from rlx.serving.pool import Pool as Pool, PoolDevice as PoolDevice
    from rlx.ops.custom import register_custom_op as register_custom_op
    from rlx.runtime.compiled import CompiledGraph as CompiledGraph, run_slots as run_slots
    from rlx.runtime.device_bench import DeviceBenchResult as DeviceBenchResult
    from rlx.runtime.profile import Profile as Profile, ProfileRow as ProfileRow
    from rlx.runtime.expert_placement import MoeResidencyStats as MoeResidencyStats
    from rlx.runtime.session import Session as Session, compile as compile
    from rlx.sizes.dim import Dim as Dim

# isort: on

# Where public names come from when they are first used: a program pays for what it uses.
_NAMES = {
    "rlx.cost": "",
    "rlx.importers.gguf": "",
    "rlx.importers.safetensors": "",
    "rlx.lm": "",
    "rlx.onnx": "",
    "rlx.ops": "",
    "rlx.signal": "",
    "rlx.prewarm": "open_ahead",
    "rlx.backends.base": "Backend CompileOptions DeviceInfo",
    "rlx.backends.executable": "Capabilities Executable GpuBuffer",
    "rlx.backends.registry": "register_backend",
    "rlx.resource_limits": "limits",
    "rlx.compiler.choice": "Choice",
    "rlx.compiler.device_choice": "choose",
    "rlx.compiler.cache_stats": "CacheStats cache_stats",
    "rlx.compiler.compile_cache": "clear_cache",
    "rlx.compiler.model_file": "load_model save_model",
    "rlx.compiler.progress": "CancelToken Progress",
    "rlx.cost.estimate": "estimate_graph_cost pick_best_device",
    "rlx.cost.gate": "FusionBenefit IoFusionGate fusion_benefit",
    "rlx.cost.io_profile": "GraphIoOptions GraphIoProfile profile_graph_io profile_graph_io_outputs",
    "rlx.cost.model": "BackendCostModel",
    "rlx.device.candidates": "DeviceCandidate",
    "rlx.device.names": (
        "Device available_devices host_sync_op_kinds is_available parse_device_list"
    ),
    "rlx.device.policy": "Benchmark DevicePolicy",
    "rlx.errors": (
        "BusyError CancelledError ClosedError CompileError DeviceError DeviceFallbackError "
        "DeviceLostError DeviceMemoryError DeviceParseError DeviceUnavailableError "
        "DTypeError FileInUseError GraphError ImportModelError InputError LimitError "
        "ModelFileError ModelNotFoundError NodeValueError RlxError "
        "ShapeError SizesError UnknownNameError UnknownSizeError UnsupportedOpError VerifyError"
    ),
    "rlx.ir.dtype": "DType",
    "rlx.ir.graph": "Graph Node",
    "rlx.ir.view": "graph_param_names",
    "rlx.serving.buckets": "BucketedCompileCache",
    "rlx.serving.caches": "CompileCache",
    "rlx.serving.graph_devices": "GraphDevices devices_for fastest_device_for",
    "rlx.serving.pool": "Pool PoolDevice",
    "rlx.ops.custom": "register_custom_op",
    "rlx.runtime.compiled": "CompiledGraph run_slots",
    "rlx.runtime.device_bench": "DeviceBenchResult",
    "rlx.runtime.profile": "Profile ProfileRow",
    "rlx.runtime.expert_placement": "MoeResidencyStats",
    "rlx.runtime.session": "Session compile",
    "rlx.sizes.dim": "Dim",
}
_homes = lazy_imports.names_of(__name__, _NAMES)
__all__ = sorted([*_homes, "__version__"])

# Services that lower floors ask of higher ones.
lazy_imports.provide("meter", "rlx.calibrate.measurer", "METER")
