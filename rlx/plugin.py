"""The API for plug-ins: the protocols of a backend, and the types of graphs and operations.

Names of this module stay from release to release, as those of ``rlx`` do; modules below ``rlx`` may move. The guide
"Plug-in backends" explains each one, and ``rlx.testing`` tests the result.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx import flags
from rlx._ext.locks import TryLock
from rlx.backends.arguments import as_array, as_input, check_args, check_slots
from rlx.backends.base import Backend, CompileOptions, DeviceInfo, KernelLimitError, Program
from rlx.backends.executable import (
    Binding,
    Capabilities,
    Done,
    Executable,
    GpuBuffer,
    HostExecutable,
    Moved,
    Pending,
    RunDict,
    RunSlots,
)
from rlx.backends.registry import register_backend
from rlx.compiler.disk import engine_folder
from rlx.cost.calibration import Calibration, Identity
from rlx.cost.curve import Curve
from rlx.cost.model import BackendCostModel, CalibratedModel, RooflineModel
from rlx.device.names import Device
from rlx.errors import (
    CompileError,
    DeviceLostError,
    DeviceMemoryError,
    DeviceUnavailableError,
    InputError,
    RlxError,
    UnsupportedOpError,
    describe,
)
from rlx.ir.dtype import DType, store, widen
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import REGISTRY as OPS
from rlx.ir.opdef import OpDef, TensorType
from rlx.ir.plan import MemoryPlan, Schedule
from rlx.ops.array_namespace import ReboundReferences
from rlx.ops.declare import bind_reference, call_with, evaluate
from rlx.ops.interpret import interpret
from rlx.ops.tracing import ArrayNamespace, TracedArray, Tracer, is_traced, listed
from rlx.passes.dynamic_batch import DynamicRows, dynamic_rows_of
from rlx.runtime.compiled import CompiledGraph

__all__ = [
    "OPS", "PART", "ArrayNamespace", "Backend", "BackendCostModel", "Binding", "CalibratedModel", "Calibration",
    "Capabilities", "CompileError", "CompileOptions", "CompiledGraph", "Curve", "DType", "Device", "DeviceInfo",
    "DeviceLostError", "DeviceMemoryError", "DeviceUnavailableError", "Done", "DynamicRows", "Executable",
    "GpuBuffer", "Graph", "HostExecutable", "Identity", "InputError", "KernelLimitError", "MemoryPlan", "Moved",
    "Node", "OpDef", "Pending", "Program", "ReboundReferences", "RlxError", "RooflineModel", "RunDict", "RunSlots",
    "Schedule", "TensorType", "TracedArray", "Tracer", "TryLock", "UnsupportedOpError", "as_array", "as_input",
    "bind_reference", "calibration_allowed", "call_with", "check_args", "check_slots", "describe",
    "dynamic_rows_of", "engine_folder", "evaluate", "interpret", "is_traced", "listed", "method_of",
    "register_backend", "store", "widen"
]  # fmt: skip


def calibration_allowed() -> bool:
    """Returns whether a backend may measure a device and keep the figures; ``RLX_CALIBRATION=off`` forbids it.

    Example:
        >>> calibration_allowed() in (True, False)
        True
    """
    return flags.CALIBRATION.get() != "off"


def method_of(compiled: CompiledGraph, name: str) -> Callable[..., Any]:
    """A method of a compiled graph's executable that a plug-in has beyond the protocol.

    A plug-in offers more than rlx knows by functions of its own that take a ``rlx.CompiledGraph``. The graph counts as
    in use only inside calls of rlx: the caller sees to it that no other thread runs it meanwhile.

    Args:
        compiled: The graph.
        name: The method.

    Raises:
        InputError: It is closed, or runs on a device whose executables have no such method.

    Example:
        >>> import rlx
        >>> g = rlx.Graph()
        >>> g.set_outputs([g.input("x", (2,)) * 2.0])
        >>> method_of(rlx.compile(g, "cpu"), "memory")()["params"]
        0
    """
    state = compiled._state
    state.check_open()
    method: Callable[..., Any] | None = getattr(state.executable, name, None)
    if method is None:
        what = f"executables for {compiled.device} have no {name!r}"
        hint = "compile for a device of the plug-in; parts on the host leave no method but those of the protocol"
        raise InputError(what, got=str(compiled.device), hint=hint)
    return method
