"""The record that is an operation, and the registry of records.

An op is one ``OpDef``. Everything else about it is derived from that record: the builder method and
its docstring, inference, verification, the conformance tests, the benchmark cases, the support table.
"""

from __future__ import annotations

import functools
import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from importlib import import_module
from types import MappingProxyType
from typing import Annotated, Any, Protocol, runtime_checkable

import numpy as np

from rlx.dataclasses import dataclass
from rlx.errors import UnknownNameError, did_you_mean
from rlx.ir.dtype import ALL, WIDER, DType
from rlx.ir.kernel_sets import KERNEL_SETS
from rlx.ir.op_index import MODULE_OF
from rlx.ir.shape import Shape
from rlx.ir.variants import Choices

Array = np.ndarray[Any, Any]
# One step of an elementwise program: op, operands (numbers below the count of the region's inputs
# are inputs, the rest earlier steps), dtype of the result, and the number of a "literal" step.
Step = tuple[str, tuple[int, ...], DType, float | int | bool | None]
Attrs = Mapping[str, Any]


@runtime_checkable
class HasArray(Protocol):
    """Anything NumPy can turn into an array."""

    def __array__(self) -> Array: ...


# Values that are known when a graph is built: a number (int and bool are floats to type checkers), an array, a NumPy
# number, or nested lists. Deeper lists work as well; a recursive type would take text, too.
Numbers = float | HasArray | Sequence[float] | Sequence[Sequence[float]]
# Types of parameters in the signatures of records, where a builder takes more than the reference gets: inference makes
# one form of it. The text is the builder's type (`script/stubs` writes it); references are checked with Any.
NodeLike = Annotated[Any, "Operand"]
ValuesLike = Annotated[Any, "Numbers"]
Axes = Annotated[Any, "int | Iterable[int] | None"]
ShapeLike = Annotated[Any, "int | Iterable[int]"]
PerAxis = Annotated[Any, "int | Sequence[int]"]
# The op that picks one result of an operand that has several.
PART = "part"
# The attribute that says which operands are there, of an op where some may be absent.
PRESENT = "present"


@dataclass(frozen=True)
class TensorType:
    """Shape and dtype of one value.

    Example:
        >>> str(TensorType((2, 3), DType.F32))
        'f32[2, 3]'
    """

    shape: Shape
    dtype: DType

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of the dense value."""
        return self.size * self.dtype.itemsize

    def __str__(self) -> str:
        return f"{self.dtype}[{', '.join(map(str, self.shape))}]"


class Emitter(Protocol):
    """The interface that a lowering rule writes to; each backend passes its own emitter to the rules of the ops.

    Values are opaque: those of a node's operands and result, temporaries made with ``temp``, and
    tables (twiddle factors, windows) made with ``table``.
    """

    limits: Mapping[str, int]
    choices: Choices

    def operand(self, index: int) -> Any:
        """The value of the node's operand ``index``."""

    def result(self) -> Any:
        """The value that the node's result is written to; the first of several."""

    def results(self) -> Sequence[Any]:
        """The values of an op with several results, in the order that ``infer`` lists them."""

    def temp(self, type: TensorType) -> Any:
        """A value that lives only between the calls of this node."""

    def table(self, array: Array) -> Any:
        """A constant that the kernel needs, shared between equal arrays."""

    def elementwise(
        self,
        program: Sequence[Any],
        inputs: Sequence[Any],
        output: Any,
        shapes: Sequence[Shape] | None = None,
        unit: int = 1,
    ) -> None:
        """One pass over memory that computes a program of elementwise steps (``ops.elementwise``).

        Args:
            program: The steps.
            inputs: Values read.
            output: The value written.
            shapes: Shape of each input where they are not the node's operands; the result then has
                the shape of ``output``.
            unit: 0 where that has not the rows of the node's result, so that runs of fewer rows compute all
                of it; with ``shapes`` alone.
        """

    def write_into_result(self, index: int, offset: Any) -> bool:
        """Has the call that made an operand write it into the node's result instead, from an element on.

        Returns:
            Whether it does so. It does where nothing else reads the operand, and its kernel can.
        """

    def joins(self, kernel: str, x: Any, more: Any, params: Mapping[str, tuple[Any, ...]]) -> bool:
        """Has a call of a kernel shortly before, whose first operand is x, make the node's result too, if it has room.

        It gets one more operand, which no call computes, and more items of parameters that are tuples.
        """

    def write_rows_into_result(self, index: int, apart: Any, begin: Any) -> bool:
        """Has the call that makes an operand of the node write it into the node's result, where its kernel can.

        Args:
            index: The operand, whose rows along the last axis become a part of those of the result.
            apart: The length of a row of the result.
            begin: The first entry of a row that is written.
        """

    def inline(self, graph: Any, operands: Sequence[Any]) -> list[Any]:
        """Writes the calls of a subgraph with its inputs bound to values; gives its outputs."""

    def choose(self, condition: Any, then: Callable[[], None], other: Callable[[], None]) -> None:
        """Writes two series of calls, of which a run makes one; the CPU only."""

    def repeat(
        self,
        trips: int | None,
        body: Callable[[], None],
        condition: Callable[[], Any] | None = None,
    ) -> None:
        """Writes calls that a run makes again and again.

        Args:
            trips: How often at most; None for no bound.
            body: Writes the calls of one trip.
            condition: Writes the calls that decide whether there is another trip, and gives the bool
                value; the CPU only.
        """

    def call(
        self,
        kernel: str,
        inputs: Sequence[Any],
        outputs: Sequence[Any],
        params: Mapping[str, Any],
        work: int = 0,
        unit: int = 1,
        in_place: tuple[int, ...] = (),
        wgsl: Mapping[str, Any] = MappingProxyType({}),
    ) -> None:
        """One kernel call.

        Args:
            kernel: Name of the kernel. On the CPU ``softmax`` stands for the exported C kernel
                ``softmax_f32`` or ``softmax_b4`` (any dtype of 4 bytes), by the dtype of the first
                input. On WebGPU it is the file ``shaders/rows/softmax.wgsl``.
            inputs: Values read; None for an absent operand.
            outputs: Values written. On the CPU the scratch memory of the kernel's signature follows them by itself.
            params: The kernel's parameters. On the CPU these are the fields of its signature
                (``rlx/abi``), all of them and no others; on WebGPU constants of the same names in upper case.
            work: On WebGPU the number of workgroups; no meaning on the CPU.
            unit: So many consecutive workgroups make the same rows of the result; 0 when consecutive
                workgroups do not make consecutive parts of it.
            in_place: Positions of inputs whose memory results may take over, each of another one: an
                element of them is read by nobody once it is written.
            wgsl: Further constants of a WGSL kernel whose call is otherwise that of the C kernel.
        """


# Rules are functions of a node (rlx.ir.graph.Node). A node holds the record of its operation, so its class is defined
# above this module and can't be named here.
Lower = Callable[[Any, Emitter], None]
Cost = Callable[[Any], float]
Infer = Callable[[Sequence[TensorType], dict[str, Any]], TensorType | tuple[TensorType, ...]]


@dataclass(frozen=True)
class Sample:
    """One case of the conformance tests and of the benchmarks.

    Attributes:
        shapes: Shape of each operand.
        attrs: Attributes of the node.
        dtypes: dtype of each operand; None means the case is repeated over the op's dtypes.
        low: Smallest value of the random operands (or one per operand).
        high: Largest value (or one per operand).
        values: Exact operands instead of random ones.
        bench: Whether the case is large enough to be worth timing.
    """

    shapes: tuple[Shape, ...]
    attrs: Attrs = field(default_factory=dict)
    dtypes: tuple[DType, ...] | None = None
    low: float | tuple[float, ...] = -2.0
    high: float | tuple[float, ...] = 2.0
    values: tuple[Array, ...] | None = None
    bench: bool = False


# Makes the cases of an op.
Samples = Callable[[], Iterable[Sample]]


@dataclass(frozen=True)
class Kernels:
    """The kernels of an op on a device, and the rule that calls them.

    Attributes:
        names: Every kernel that ``lower`` may call; the registry test resolves each.
        lower: Writes the calls. It is not asked for a node whose results have no elements.
    """

    names: tuple[str, ...]
    lower: Lower


# Relative tolerance, by dtype of the result, of a kernel against the float64 reference.
TOLERANCE: Mapping[DType, float] = {
    DType.F64: 1e-12,
    DType.F32: 2e-6,
    DType.F16: 2e-3,
    DType.BF16: 1.6e-2,
}


@dataclass(frozen=True)
class OpDef:
    """One operation.

    Attributes:
        name: The name in graphs and of the builder method.
        doc: The description of its result: the builder's docstring, with shapes and the source of a formula.
        signature: The builder's parameters after the graph; operands are listed in ``operands``.
        operands: Names of the parameters that are tensors, in operand order; a trailing ``*`` means
            a list of them. One whose default is None may be absent; absent ones close up, and
            ``attrs["present"]`` then records which were given.
        infer: Operand types and attributes -> result type, or a tuple of them for an op with several
            results. It also normalises the attributes in place.
        reference: The specification: NumPy arrays and attributes -> the result or a tuple of them,
            float64 inside.
        flops: Floating-point operations of a node; none of one that only moves data.
        cpu: Kernels on the CPU.
        webgpu: Kernels on WebGPU.
        free: Operands whose dtype need not be that of the others (indices, masks). The first operand
            that is not free is the main one.
        expand: Set for a composite: adds the nodes that compute it, from operand nodes and attributes
            by name. A graph never holds a node of such a record.
        dtypes: dtypes of the main operand that the CPU kernels take; ``accepts`` adds those that are
            computed in a wider one.
        webgpu_dtypes: those of them that the WebGPU kernels take.
        webgpu_f16: The WebGPU kernels also take f16 where the adapter has shader-f16 and the compile
            asks for it; otherwise f16 is widened to f32.
        units_f16: Says which nodes of f16 have kernels for matrix units alone; without such units, or where it
            says no, f16 is widened. None where there are no such kernels.
        tolerance: Exceptions to ``TOLERANCE``, each with its reason in a comment of the record.
        bound: Largest ||out - ref|| / ||ref|| of a node, where the error grows with its size; it
            takes the place of the tolerance.
        make_samples: Makes the cases of the conformance tests, which most programs never ask for.
        view: The result is the operand's memory under another shape; no kernel runs.
        elementwise: One result element per operand element: a node may be part of a fused region, and
            ``g.activation`` or ``g.binary`` knows it.
        host_reason: Says why a node has no WebGPU kernel and runs on the host, or None when it has.
        internal: Made by passes only; has no builder method.
    """

    name: str
    doc: str
    signature: inspect.Signature
    operands: tuple[str, ...]
    infer: Infer
    reference: Callable[..., Array]
    flops: Cost = lambda node: 0.0
    free: frozenset[str] = frozenset()
    expand: Callable[..., Any] | None = None
    cpu: Kernels | None = None
    webgpu: Kernels | None = None
    dtypes: frozenset[DType] = ALL
    webgpu_dtypes: frozenset[DType] = frozenset()
    webgpu_f16: bool = False
    units_f16: Callable[[Any], bool] | None = None
    tolerance: Mapping[DType, float] = field(default_factory=dict)
    bound: Cost | None = None
    make_samples: Samples = lambda: ()
    view: bool = False
    elementwise: bool = False
    host_reason: Callable[[Any], str | None] | None = None
    internal: bool = False

    def operand_types(self, inputs: Sequence[Any]) -> Sequence[TensorType]:
        """Returns the types that inference takes: those of the operand nodes; ``part`` takes all results of its operand."""
        return inputs[0].types if self.name == PART else [node.types[0] for node in inputs]

    @functools.cached_property
    def samples(self) -> tuple[Sample, ...]:
        """Cases of the conformance tests."""
        return tuple(self.make_samples())

    @functools.cached_property
    def optional(self) -> tuple[str, ...]:
        """Operands that may be absent."""
        return tuple(text[:-1] for text in self.operands if text.endswith("?"))

    @functools.cached_property
    def operand_kinds(self) -> tuple[tuple[str, str], ...]:
        """Names of the operands, each with "?" where it may be absent, and "*" for a list."""
        return tuple(
            (text.rstrip("?*"), text[-1] if text[-1] in "?*" else "") for text in self.operands
        )

    @functools.cached_property
    def defaults(self) -> tuple[Mapping[str, Any], tuple[str, ...]]:
        """The builder's parameters and their defaults, and those that have none; nothing where it takes any number."""
        parameters = self.signature.parameters.values()
        if any(parameter.kind is not parameter.POSITIONAL_OR_KEYWORD for parameter in parameters):
            return {}, ("",)
        needed = tuple(p.name for p in parameters if p.default is p.empty)
        return {p.name: p.default for p in parameters}, needed

    @functools.cached_property
    def attributes(self) -> Mapping[str, str]:
        """The attributes of a node by name, each with its annotation in the signature.

        ``present`` is one where operands may be absent: it says which are there.
        """
        operands = {text.rstrip("?*") for text in self.operands}
        results = {
            name: parameter.annotation
            for name, parameter in self.signature.parameters.items()
            if name not in operands
        }
        return {**results, PRESENT: "Any"} if self.optional else results

    @functools.cached_property
    def accepts(self) -> frozenset[DType]:
        """Types that the main operand may have: those of the kernels, and those widened to them."""
        return self.dtypes | {narrow for narrow, wide in WIDER.items() if wide in self.dtypes}

    def tolerance_for(self, dtype: DType) -> float:
        """Largest relative error allowed for a result of ``dtype``; 0 means equal."""
        return self.tolerance.get(dtype, TOLERANCE.get(dtype, 0.0))

    def kernels(self, kernel_set: str) -> Kernels | None:
        """The op's kernels in a set; None where it has none."""
        result: Kernels | None = getattr(self, KERNEL_SETS[kernel_set].records)
        return result

    def native_dtypes(self, kernel_set: str, node: Any) -> frozenset[DType]:
        """Types of the main operand that its kernels in a set take as they are, at the sizes of a node."""
        kernels = KERNEL_SETS[kernel_set]
        if kernels.every_dtype:
            return self.dtypes
        by_units = kernels.on_units and self.units_f16 is not None and self.units_f16(node)
        half = kernels.computes_f16 and (self.webgpu_f16 or by_units)
        return self.webgpu_dtypes | ({DType.F16} if half else frozenset())


class Registry(Mapping[str, OpDef]):
    """The records by name. A lookup imports the module of its record, and listing the records imports all modules.

    A record is there before the rest of its module. A thread that looks it up waits until the importing thread is done.
    """

    def __init__(self) -> None:
        self._records: dict[str, OpDef] = {}
        # Records whose modules are imported completely.
        self._complete: dict[str, OpDef] = {}

    def add(self, opdef: OpDef) -> None:
        """Adds a record.

        Raises:
            ValueError: The name is taken.
        """
        if opdef.name in self._records:
            raise ValueError(f"op {opdef.name!r} is registered twice")
        self._records[opdef.name] = opdef

    def __getitem__(self, name: str) -> OpDef:
        result = self._complete.get(name)
        if result is not None:
            return result
        module = MODULE_OF.get(name)
        # This waits for another thread that imports the module, but not for the same thread.
        spec = import_module(module).__spec__ if module is not None else None
        result = self._records[name]
        if not getattr(spec, "_initializing", False):
            self._complete[name] = result
        return result

    def __contains__(self, name: object) -> bool:
        return name in self._records or name in MODULE_OF

    def __iter__(self) -> Iterator[str]:
        self.load_all()
        ours = [name for name in MODULE_OF if name in self._records]
        return iter(ours + [name for name in list(self._records) if name not in MODULE_OF])

    def load_all(self) -> None:
        """Imports every module that has records."""
        for module in dict.fromkeys(MODULE_OF.values()):
            import_module(module)

    def __len__(self) -> int:
        return len(list(iter(self)))


REGISTRY = Registry()

# Why any op can run on the host: WGSL has no f64.
NO_F64 = "f64 is not computed on WebGPU"


def register(opdef: OpDef) -> OpDef:
    """Adds a record to the registry.

    Raises:
        ValueError: The name is taken.
    """
    REGISTRY.add(opdef)
    return opdef


def lookup(name: str) -> OpDef:
    """The record of an op.

    Raises:
        UnknownNameError: There is no such op.
    """
    try:
        return REGISTRY[name]
    except KeyError:
        raise UnknownNameError(
            f"no op is named {name!r}", hint=did_you_mean(name, REGISTRY)
        ) from None


_COMPARISONS = ("eq", "ne", "lt", "le", "gt", "ge")
# The operations that a builder taking the name of one is for.
BUILDER_KINDS: Mapping[str, Callable[[OpDef], bool]] = {
    "binary": lambda op: op.elementwise and len(op.operands) == 2,
    "activation": lambda op: op.elementwise and len(op.operands) == 1,
    "compare": lambda op: op.name in _COMPARISONS,
    "reduce": lambda op: {"axes", "keepdims"} <= set(op.signature.parameters),
}
