"""Every operation as a function over nodes: ``rlx.ops.gelu(x)`` is ``x.graph.gelu(x)``.

Importing this package registers the op records and attaches the builder methods to ``Graph``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.opdef import REGISTRY, OpDef
from rlx.ops.declare import attach

# Not ops but NumPy functions: they make and read the packed weights of the dequant ops.
from rlx.ops.products.block_encoders import quantize_blocks as quantize_blocks
from rlx.ops.products.block_encoders import quantize_groups as quantize_groups
from rlx.ops.products.block_formats import decode_blocks as decode_blocks

# Every module that registers records, in the order in which it does so. A folder is a family.
MODULES = (
    "leaves", "elementwise.records", "elementwise.activations", "movement.strided", "movement.pads", "movement.gather", "movement.scatter",
    "movement.layout", "movement.creation", "elementwise.random", "resize.interpolate", "resize.plane", "rows.reduction",
    "rows.softmax", "rows.sorting", "rows.trees", "rows.normalization", "products.matmul", "products.grouped", "products.joined",
    "products.quantization", "products.dequant", "products.einsum", "windows.convolution", "windows.fused",
    "windows.transposed", "windows.pooling", "attention.attention", "attention.rotary", "products.half",
    "recurrent.recurrence", "recurrent.layers", "recurrent.state_space", "control", "spectra.fft", "spectra.real_fft",
    "spectra.frames", "spectra.welch", "spectra.frame_peaks", "spectra.log_mel", "recurrent.recursive", "spectra.find_peaks",
    "custom",
)  # fmt: skip


def _load(modules: Sequence[str]) -> None:
    """Imports the modules, each of which registers its records.

    Raises:
        ValueError: A module is listed twice.
    """
    twice = sorted(name for name, count in Counter(modules).items() if count > 1)
    if twice:
        raise ValueError(f"modules of ops are listed twice: {', '.join(twice)}")
    for name in modules:
        importlib.import_module(f"rlx.ops.{name}")


_load(MODULES)

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: attach(record) for name, record in REGISTRY.items() if not record.internal
}
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
