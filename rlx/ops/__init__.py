"""Every operation as a function over nodes: ``rlx.ops.gelu(x)`` is ``x.graph.gelu(x)``.

Importing this package registers the op records and attaches the builder methods to ``Graph``. Type checkers read
``__init__.pyi`` in place of this file; `script/stubs` makes it of the records.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.opdef import REGISTRY, OpDef
from rlx.late import provided
from rlx.ops.declare import attach

# Not ops but NumPy functions: they make and read the packed weights of the dequant ops.
from rlx.ops.products.block_encoders import quantize_blocks as quantize_blocks
from rlx.ops.products.block_encoders import quantize_groups as quantize_groups
from rlx.ops.products.block_formats import decode_blocks as decode_blocks

# isort: off
# Every module that registers records, in the order in which it does so. A folder is a family. They are imported by name,
# so that tools that read code find them: those that freeze a program, and type checkers.
from rlx.ops import leaves
from rlx.ops.elementwise import records, activations
from rlx.ops.movement import strided, pads, gather, scatter, layout, creation
from rlx.ops.elementwise import random
from rlx.ops.resize import interpolate, plane
from rlx.ops.rows import reduction, softmax, sorting, trees, normalization
from rlx.ops.products import matmul, grouped, joined, quantization, dequant, einsum
from rlx.ops.windows import convolution, fused, transposed, pooling
from rlx.ops.attention import attention, rotary
from rlx.ops.products import half
from rlx.ops.recurrent import recurrence, layers, state_space
from rlx.ops import control
from rlx.ops.spectra import fft, real_fft, frames, welch, frame_peaks, log_mel
from rlx.ops.recurrent import recursive
from rlx.ops.spectra import find_peaks
from rlx.ops import custom
# isort: on

MODULES = (
    leaves, records, activations, strided, pads, gather, scatter, layout, creation, random,
    interpolate, plane, reduction, softmax, sorting, trees, normalization, matmul, grouped,
    joined, quantization, dequant, einsum, convolution, fused, transposed, pooling,
    attention, rotary, half, recurrence, layers, state_space, control, fft, real_fft,
    frames, welch, frame_peaks, log_mel, recursive, find_peaks, custom,
)  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: attach(record) for name, record in REGISTRY.items() if not record.internal
}
# Modules of families are reached through their families alone.
for _module in MODULES:
    if _module.__name__.count(".") > 2:
        del globals()[_module.__name__.rpartition(".")[2]]
# Some ops have the name of a family's package. As an attribute of rlx.ops, such a name is the op.
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)


def include(record: OpDef) -> OpDef:
    """Adds the op of a record that stands above this package: ``Graph.<op>`` and ``rlx.ops.<op>``."""
    _FUNCTIONS[record.name] = globals()[record.name] = attach(record)
    __all__[:] = sorted(_FUNCTIONS)
    return record


def __getattr__(name: str) -> Any:
    from rlx.errors import did_you_mean

    raise AttributeError(f"rlx.ops has no op {name!r}; {did_you_mean(name, _FUNCTIONS)}")


provided("operations")  # some stand above this package, and add themselves
