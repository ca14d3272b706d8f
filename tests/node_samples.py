"""Samples of ONNX operators outside of ONNX's own domain: five of each, made by one function per operator."""

from dataclasses import dataclass, field

import numpy as np

COUNT = 5
# operator -> (domain, function of a generator and a number).
MAKERS = {}


@dataclass
class NodeSample:
    """A node with its operands.

    Attributes:
        inputs: Arrays; None for an absent one.
        outputs: See ``onnx_oracle.node_model``.
        weights: Places of operands that are weights.
        attrs: Attributes.
        rtol: Relative tolerance of floats; the absolute one is this times the largest entry.
        steps: How far integers may lie apart.
        valid: What of a result counts: an index for each, or None for all.
        wanted: The results, for operators that ONNX Runtime has on GPUs only.
        peer: Operands for ONNX Runtime that mean the same; None for the inputs.
    """

    inputs: list
    outputs: object = 1
    weights: tuple = ()
    attrs: dict = field(default_factory=dict)
    rtol: float = 2e-5
    steps: int = 0
    valid: tuple | None = None
    wanted: list | None = None
    peer: list | None = None


def of(domain, *ops):
    """Registers a function that makes samples of operators; it is given the operator, too, if there are many."""

    def decorate(make):
        for op in ops:
            call = make if len(ops) == 1 else lambda rng, index, op=op: make(rng, index, op)
            MAKERS[domain, op] = call
        return make

    return decorate


def samples(domain, op):
    """The samples of an operator."""
    return [MAKERS[domain, op](np.random.default_rng(100 + index), index) for index in range(COUNT)]


def normal(rng, *shape, dtype="f4", scale=1.0):
    return (rng.standard_normal(shape) * scale).astype(dtype)


def bytes_of(rng, *shape, dtype="u1"):
    info = np.iinfo(dtype)
    return rng.integers(info.min, info.max + 1, shape).astype(dtype)


def differ(got, wanted, sample, index):
    """Why a result is not that of onnxruntime, or None."""
    if got.dtype != wanted.dtype:
        return f"dtype {got.dtype}, not {wanted.dtype}"
    if got.shape != wanted.shape:
        return f"shape {got.shape}, not {wanted.shape}"
    if sample.valid is not None and sample.valid[index] is not None:
        got, wanted = got[sample.valid[index]], wanted[sample.valid[index]]
    if wanted.dtype.kind in "iub":
        apart = np.abs(got.astype("i8") - wanted.astype("i8"))
        return None if (apart <= sample.steps).all() else f"{apart.max()} steps apart"
    # A bias that hides a key is as good as infinite.
    got, wanted = (
        np.where(np.abs(a) > 1e30, np.copysign(np.inf, a), a).astype(a.dtype) for a in (got, wanted)
    )
    finite = wanted[np.isfinite(wanted)].astype("f8")
    rtol = sample.rtol if wanted.dtype == np.float32 else max(sample.rtol, 3e-3)
    atol = rtol * max(1.0, np.abs(finite).max() if finite.size else 0.0)
    if np.allclose(got, wanted, rtol=rtol, atol=atol, equal_nan=True):
        return None
    apart = np.abs(got.astype("f8") - wanted.astype("f8"))
    return f"apart by {np.nanmax(apart)}, allowed {atol}"
