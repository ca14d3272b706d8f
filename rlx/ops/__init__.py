"""Every operation as a function over nodes: ``rlx.ops.gelu(x)`` is ``x.graph.gelu(x)``.

Importing this package registers the op records and attaches the builder methods to ``Graph``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from rlx.ir.opdef import REGISTRY
from rlx.ops import (
    activations,
    attention,
    control,
    convolution,
    creation,
    elementwise,
    fft,
    layout,
    leaves,
    linalg,
    movement,
    normalization,
    pooling,
    products,
    quantization,
    peaks,
    real_fft,
    recursive,
    recurrence,
    recurrent,
    reduction,
    resize,
    rotary,
    scatter,
    softmax,
    sorting,
    spectral,
    state_space,
    transposed,
)
from rlx.ops import (
    custom as custom_ops,
)
from rlx.ops import (
    einsum as einsum_ops,
)
from rlx.ops import (
    gather as gather_ops,
)
from rlx.ops import (
    random as random_ops,
)
from rlx.ops.record import attach

FAMILIES = (
    leaves, elementwise, activations, movement, gather_ops, scatter, layout, creation, random_ops, reduction, softmax, sorting, linalg, products, quantization, einsum_ops, rotary, normalization, attention, control, custom_ops, fft, spectral,
    real_fft, recursive, peaks,
    leaves, elementwise, activations, movement, gather_ops, scatter, layout, creation, random_ops, reduction, softmax, sorting, linalg, products, quantization, einsum_ops, rotary, normalization, attention, fft, spectral,
    convolution, transposed, pooling, resize, recurrence, recurrent, state_space,
)  # fmt: skip

_FUNCTIONS: dict[str, Callable[..., Any]] = {
    name: attach(record) for name, record in REGISTRY.items() if not record.internal
}
# Some ops are named like the module they stand in; here the name is the op.
globals().update(_FUNCTIONS)

__all__ = sorted(_FUNCTIONS)


def __getattr__(name: str) -> Any:
    from rlx.errors import did_you_mean

    raise AttributeError(f"rlx.ops has no op {name!r}; {did_you_mean(name, _FUNCTIONS)}")
