"""From the calls of a schedule to dispatches: their WGSL is rendered.

A start from the compile cache finds it there, and does not import this module.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from rlx import flags
from rlx.backends.base import DeviceInfo, KernelLimitError
from rlx.backends.webgpu.binding_aliasing import joined
from rlx.backends.webgpu.dispatch import (
    UNIFORM,
    Dispatch,
    access_of,
    bound,
    grid,
    padded,
    pattern_of,
)
from rlx.backends.webgpu.elementwise_wgsl import groups, region_source
from rlx.backends.webgpu.loop_bounds import TOO_MANY, excess
from rlx.backends.webgpu.size_table import Resolved, SizeTable
from rlx.backends.webgpu.storage import STORAGE
from rlx.backends.webgpu.wgsl import header, render
from rlx.errors import CompileError, UnknownSizeError, describe
from rlx.ir.dtype import DType
from rlx.ir.graph import Node
from rlx.ir.plan import ARENA, HOST, KernelCall, MemoryPlan, Schedule, Value
from rlx.ir.shape import is_sized, same_size
from rlx.ir.spans import checkpoint, phase
from rlx.lru import Lru

_BINDING = re.compile(r"@binding\((\d+)\) var<storage, (\w+)>")


class _Text(NamedTuple):
    """The WGSL of a call, the excess trips of its loops, and the vectors that it reads from the buffer of sizes."""

    source: str
    excess: int
    vectors: int = 0


# Cache of rendered texts, keyed by everything that rendering depends on.
# Bounds: number of texts, and characters of all of them.
_sources: Lru[Any, _Text] = Lru(1024, 16 << 20)


class SizedTexts:
    """The texts of a graph with sizes that are known only when it runs.

    Args:
        names: The dims.

    Attributes:
        table: The places of the sizes that they read.
        texts: The texts by call.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.table = SizeTable(names)
        self.texts: dict[Any, _Text] = {}

    def copy(self) -> SizedTexts:
        """Returns the same texts, to which others are added."""
        result = copy.copy(self)
        result.table, result.texts = self.table.copy(), dict(self.texts)
        return result


def rendered(
    info: DeviceInfo,
    schedule: Schedule,
    plan: MemoryPlan,
    sized: SizedTexts | None = None,
    bound_as: Sequence[Value] | None = None,
) -> tuple[Dispatch | KernelCall, ...]:
    """Returns the steps of a run, in order: dispatches, and calls on the host.

    Args:
        info: The device.
        schedule: The calls.
        plan: Where their values live: a kernel gets one binding for what shares memory.
        sized: The texts of the graph so far, where it has sizes that are known only when it runs.
        bound_as: The values of the schedule as they are bound, by their ids; those of the schedule itself by default.

    Raises:
        CompileError: A kernel's file does not fit its call, or it binds more buffers than the device allows.
        KernelLimitError: Loops of kernels are too long for a GPU.
        UnknownSizeError: A kernel needs a size as a number.
    """
    per_dimension = info.limits["max-compute-workgroups-per-dimension"]
    # A loop repeats its calls; each is lowered once.
    lowered: dict[int, Dispatch | KernelCall | None] = {}
    too_long: dict[Node, str] = {}
    with phase("render"):
        for call in schedule.calls:
            if id(call) in lowered:
                continue
            checkpoint()
            single = (
                _on_host(call)
                if call.kernel == HOST
                else lower(call, per_dimension, plan, sized, bound_as)
            )
            if isinstance(single, Dispatch):
                _check_bindings(single, info.limits["max-storage-buffers-per-shader-stage"])
                if single.excess:
                    too_long[call.node] = "its loops are longer than a GPU may run"
            lowered[id(call)] = single
    if too_long and sized is not None:
        raise UnknownSizeError(str(_too_long(too_long)))
    if too_long:
        raise _too_long(too_long)
    result = (lowered[id(call)] for call in schedule.calls)
    return tuple(item for item in result if item is not None)


def lower(
    call: KernelCall,
    per_dimension: int,
    plan: MemoryPlan,
    sized: SizedTexts | None = None,
    bound_as: Sequence[Value] | None = None,
) -> Dispatch | None:
    """Renders a call into a dispatch; None for a call without work.

    Args:
        call: The call.
        per_dimension: The device's largest number of workgroups in one dimension.
        plan: Where the values of its schedule live.
        sized: See ``rendered``.
        bound_as: See there.

    Raises:
        CompileError: The kernel's file does not fit the call.
        UnknownSizeError: The kernel needs a size as a number.
    """
    work = groups(call.params) if call.kernel == "elementwise" else call.work
    if same_size(work, 0):
        return None
    values = (*(value for value in call.inputs if value is not None), *call.outputs)
    access = tuple(access_of(value, call) for value in values)
    size = grid(work, per_dimension)
    dtypes = tuple(value.type.dtype for value in values)
    pattern, label = pattern_of(values, plan.slots), f"{call.node.op}/{call.kernel}"
    left = bound(values if bound_as is None else [bound_as[v.id] for v in values], pattern)
    # Cached: the layers of a model repeat their calls, and rendering is most of the cost of a load.
    key = call.kernel, _exact(call.params), dtypes, access, pattern, work, size[0]
    text = _sources.get(key) if sized is None else sized.texts.get(key)
    if text is None:

        def render() -> str:
            return _source(call, dtypes, access, work, size[0])

        plain = Resolved(render(), {}, 0) if sized is None else sized.table.resolved(render)
        source = joined(plain.text, pattern, label)
        if plain.vectors:
            source += SizeTable.declaration(len(left), plain.vectors)
        # Kernels written by users declare no trip counts. Elementwise regions have no loops.
        counted = call.kernel not in ("custom", "elementwise")
        text = _Text(source, excess(source, plain.trips) if counted else 0, plain.vectors)
        if sized is None:
            _sources.put(key, text, len(source))
        else:
            sized.texts[key] = text
    modes = (*(access_of(value, call) for value in left), *([UNIFORM] if text.vectors else []))
    dispatch = Dispatch(call, label, text.source, left, modes, size, work, text.excess)
    if flags.VERIFY.get():
        _verify_bindings(dispatch, plan)
    return dispatch


def _on_host(call: KernelCall) -> KernelCall:
    """A call on the host.

    Raises:
        UnknownSizeError: It has sizes that are known only when the graph runs.
    """
    if any(is_sized(value.type) for value in (*call.inputs, *call.outputs) if value is not None):
        raise UnknownSizeError("a part on the host has known sizes alone", where=call.node.where())
    return call


def _source(
    call: KernelCall, dtypes: tuple[DType, ...], access: tuple[str, ...], work: int, fold: int
) -> str:
    """The whole WGSL text of a call."""
    kernel, params = call.kernel, call.params
    if kernel == "elementwise":
        return header({}, work, fold) + region_source(params, dtypes[:-1], dtypes[-1], access)
    if kernel == "strided_copy" and STORAGE[dtypes[0]].per_word > 1:
        kernel = "strided_copy_narrow"  # elements share words, so they are written by atomics
    types = [STORAGE[dtype].word for dtype in dtypes]
    body = render(kernel, {**params, "access": list(access), "type": types})
    return enabled(params) + header(params, work, fold) + body


# The directives at the start of a WGSL text, by the parameter that asks for them.
_ENABLED = {
    "half": "enable f16;\n",
    "subgroups": "enable subgroups;\n",
    "fragments": "enable f16;\nenable subgroups;\nenable chromium_experimental_subgroup_matrix;\n"
    "requires buffer_view;\n"
    # Places that depend on the number of the subgroup are the same for all of its threads.
    "diagnostic(off, chromium.subgroup_matrix_uniformity);\n",
    "sized": "enable subgroup_size_control;\n",
}


def enabled(params: Mapping[str, Any]) -> str:
    """The directives of a text."""
    asked = "".join(lines for name, lines in _ENABLED.items() if params.get(name))
    return "".join(dict.fromkeys(asked.splitlines(keepends=True)))


def _exact(value: Any) -> Any:
    """Parameters as a hashable key that also distinguishes types: 1, 1.0 and True differ."""
    if isinstance(value, Mapping):
        return tuple((name, _exact(item)) for name, item in value.items())
    if isinstance(value, tuple | list):
        return tuple(_exact(item) for item in value)
    return type(value), repr(value) if isinstance(value, float) else value


def _too_long(reasons: dict[Node, str]) -> KernelLimitError:
    first = next(iter(reasons))
    return KernelLimitError(
        describe(
            f"the loops of {len(reasons)} nodes are longer than a GPU may run",
            where=first.where(),
            expected=f"fewer than {TOO_MANY} trips in each kernel",
            hint="compile for the CPU, or cut the axis into parts",
        ),
        reasons,
    )


def _verify_bindings(dispatch: Dispatch, plan: MemoryPlan) -> None:
    """Checks that the text declares the bound values, and that no writable range overlaps another one.

    Raises:
        CompileError: One of these does not hold.
    """
    declared = [(int(index), mode) for index, mode in _BINDING.findall(dispatch.source)]
    writable = (value for value in dispatch.values if value.kind in ARENA)
    ranges = sorted((plan.slots[value.id].offset, padded(value.type)) for value in writable)
    overlap = any(start + size > end for (start, size), (end, _) in pairwise(ranges))
    if overlap or declared != list(enumerate(dispatch.access[: len(dispatch.values)])):
        problem = "binds memory twice as writable" if overlap else "declares other bindings"
        where, got = dispatch.call.node.where(), (declared, ranges)
        raise CompileError(f"kernel {dispatch.label} {problem}", where=where, got=got)


def _check_bindings(dispatch: Dispatch, limit: int) -> None:
    if len(dispatch.values) > limit:
        raise CompileError(
            f"kernel {dispatch.label} binds more buffers than the device allows",
            where=dispatch.call.node.where(),
            got=len(dispatch.values),
            expected=f"at most {limit} (max-storage-buffers-per-shader-stage)",
            hint="compile with CompileOptions(fuse=False)",
        )
