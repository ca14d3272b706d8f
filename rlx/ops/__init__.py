"""Every operation as a function over nodes: ``rlx.ops.gelu(x)`` is ``x.graph.gelu(x)``.

Importing this package registers the op records and attaches the builder methods to ``Graph``.
"""

from __future__ import annotations

import importlib
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.opdef import REGISTRY, OpDef

# Not ops but NumPy functions: they make and read the packed weights of the dequant ops.
from rlx.ops.block_encoders import quantize_blocks as quantize_blocks
from rlx.ops.block_encoders import quantize_groups as quantize_groups
from rlx.ops.block_formats import decode_blocks as decode_blocks
from rlx.ops.record import attach

# One module per family; importing it registers its records.
FAMILIES = (
    "leaves", "elementwise", "activations", "movement", "gather", "scatter", "layout", "creation",
    "random", "resize", "resize_plane", "reduction", "softmax", "sorting", "normalization", "linalg", "products", "joined_products",
    "quantization", "dequant", "einsum", "convolution", "fused_convolution", "transposed", "pooling", "attention", "rotary",
    "half_products", "recurrence", "recurrent", "state_space", "control", "fft", "real_fft", "frames", "welch", "frame_peaks", "mel", "recursive",
    "peaks", "custom",
)  # fmt: skip


def _load(families: Sequence[str]) -> None:
    """Imports the modules of the families, each of which registers its records.

    Raises:
        ValueError: A family is listed twice.
    """
    twice = sorted(name for name, count in Counter(families).items() if count > 1)
    if twice:
        raise ValueError(f"op families are listed twice: {', '.join(twice)}")
    for name in families:
        importlib.import_module(f"rlx.ops.{name}")


_load(FAMILIES)

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: attach(record) for name, record in REGISTRY.items() if not record.internal
}
# Some ops are named like the module they stand in; here the name is the op.
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
