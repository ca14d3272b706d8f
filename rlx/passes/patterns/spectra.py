"""Patterns of spectra: transforms of frames, powers, the strongest bins, log-mel features."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import is_sized, size
from rlx.ops.spectra.frame_peaks import takes
from rlx.passes.patterns.match import Match, MatchSite, either_way, joined_node
from rlx.passes.patterns.template import (
    Named,
    NodeTemplate,
    Number,
    OneOf,
    Op,
    Outside,
    Reshaped,
    Scaled,
    TemplateMatch,
    first,
)

# --- templates -------------------------------------------------------------------------------------------


def _power(spec: NodeTemplate) -> Op:
    """re^2 + im^2 of a spectrum whose rows hold the real parts, then the imaginary parts."""
    squares = (_square(_part("re", spec)), _square(_part("im", spec)))
    return Op("add", *squares, fits=_is_f32, agree=_are_halves)


def _part(name: str, spec: NodeTemplate) -> NodeTemplate:
    """A contiguous part of the last axis of a spectrum."""
    ops = ("narrow", "slice")
    return OneOf(tuple(Op(op, spec, name=name, fits=lambda item: _start(item) >= 0) for op in ops))


def _square(part: NodeTemplate) -> NodeTemplate:
    return OneOf((Op("mul", part, part), Op("pow", part, Number(2.0))))


def _start(node: Node) -> int:
    """Returns the start of a contiguous part of the last axis; -1 for any other part."""
    last = len(node.shape) - 1
    if node.op == "narrow":
        start = node.attrs["start"]
        return -1 if is_sized(start) or node.attrs["axis"] != last else int(start)
    contiguous = set(node.attrs["steps"]) == {1} and node.shape[:-1] == node.inputs[0].shape[:-1]
    if not contiguous or last < 0:
        return -1
    return int(dict(zip(node.attrs["axes"], node.attrs["starts"], strict=True)).get(last, 0))


def _are_halves(named: Mapping[str, Node]) -> bool:
    """Returns whether two parts of a spectrum are its real parts and as many imaginary parts."""
    re, im, width = named["re"], named["im"], named["spec"].shape[-1]
    return (_start(re), _start(im)) == (0, width // 2) and re.shape == im.shape and width % 2 == 0


def _is_f32(node: Node) -> bool:
    return node.dtype is DType.F32


def _tapered(frames: NodeTemplate) -> Op:
    """Frames times one number per sample, which depends on no input."""
    return Op(
        "mul", frames, Outside("taper", lambda item: item.fixed), name="tapered", agree=_taper_fits
    )


def _taper_fits(named: Mapping[str, Node]) -> bool:
    taper, tapered = named["taper"], named["tapered"]
    rows = named.get("centred", named["frames"])
    return taper.shape == tapered.shape[-1:] and rows.shape == tapered.shape


def _without_scale(node: Node) -> bool:
    return bool(node.attrs["norm"] == "backward")


def _over_last(node: Node) -> bool:
    """Returns whether a reduction is over the last axis, which it keeps."""
    last = len(node.inputs[0].shape) - 1
    return tuple(node.attrs["axes"]) == (last,) and bool(node.attrs["keepdims"])


def _over_last_or_all(node: Node) -> bool:
    """Returns whether a reduction that keeps axes is over the last axis, or over everything."""
    axes, shape = set(node.attrs["axes"]), node.inputs[0].shape
    rest = math.prod(n for axis, n in enumerate(shape) if axis not in axes)
    return bool(node.attrs["keepdims"]) and (axes == {len(shape) - 1} or rest == 1)


def _second_half(node: Node) -> bool:
    """Returns whether a node joins two rows of one length along their last axis."""
    shapes = [operand.shape for operand in node.inputs]
    return bool(node.attrs["axis"] == len(node.shape) - 1) and shapes[0] == shapes[-1]


def _is_zero(node: Node) -> bool:
    zeros = node.inputs[0] if node.op == "expand" else node
    return zeros.op == "constant" and not np.any(zeros.attrs["value"])


_FRAMES = Op("frames", Outside("signal"), name="frames")
# Frames with their means taken off.
_CENTRED = Op("sub", _FRAMES, Op("mean", _FRAMES, fits=_over_last), name="centred")
_TAPERED = _tapered(OneOf((_CENTRED, _FRAMES)))
_FRAME_SPECTRA = Op("rfft", _tapered(_FRAMES), name="spec", fits=_without_scale)
_REAL_SPECTRA = Op("rfft", Reshaped(_TAPERED), name="spec", fits=_without_scale)
# A real signal in block layout: its imaginary parts are zeros behind it.
_ROWS = Reshaped(_TAPERED)
_PADDED = OneOf((Op("concat", _ROWS, Outside("zeros", _is_zero), fits=_second_half), _ROWS))
_COMPLEX_SPECTRA = Op(
    "fft",
    _PADDED,
    name="spec",
    fits=lambda item: _without_scale(item) and not item.attrs["inverse"],
)
_FRAME_PEAKS = OneOf(
    (
        Op(
            "spectrum_peaks", Reshaped(OneOf((_REAL_SPECTRA, _COMPLEX_SPECTRA))), Outside("weights")
        ),
        Op("welch_peaks", Reshaped(_COMPLEX_SPECTRA)),
    )
)

_LEVEL = Scaled(
    Op(
        "log",
        Op(
            "maximum",
            Op(
                "matmul",
                _power(Outside("spec")),
                Outside("filters", lambda item: item.fixed and len(item.shape) == 2),
                name="product",
            ),
            Number(1e-10),
        ),
    ),
    1 / math.log(10),
)
_LOUDEST = Op("max", Outside("level"), name="loudest", fits=_over_last_or_all)
_FLOORED = Op("maximum", Named("level", _LEVEL), Op("sub", _LOUDEST, Number(8.0)))
# (max(L, max(L) - 8) + 4) / 4 with L = log10(max(power @ filters, 1e-10)).
_LOG_MEL = Scaled(Op("add", _FLOORED, Number(4.0)), 0.25)


# --- the strongest bins ----------------------------------------------------------------------------------


def peaks(node: Node, site: MatchSite) -> Match | None:
    """The k largest of powers that are weighted per bin and averaged over segments: Welch's peaks."""
    if not node.attrs["largest"] or not _is_f32(node):
        return None
    value, between, weights, averaged = node.inputs[0], [node], np.ones(()), False
    while (power := first(_power(Outside("spec")), value)) is None:
        between.append(value)
        factor = _per_bin(value)
        if factor is not None:
            value, by = factor
            weights = weights * by
        elif value.op == "mean" and not averaged and _over_segments(value):
            value, averaged = value.inputs[0], True
        else:
            return None
    spec, bins = power.named["spec"], node.inputs[0].shape[-1]
    rows = size(spec.shape[:-1])
    results = tuple(site.readers(node))
    if value.shape[-1] != bins or not rows or site.blocked(node):
        return None
    if any(reader.op != PART for reader in results):
        return None
    each = np.broadcast_to(weights, (bins,)).astype(np.float32)
    attrs = {"k": node.attrs["k"], "n_segments": spec.shape[-2] if averaged else 1}

    def build(g: Graph, indices: Mapping[int, Node]) -> list[Node]:
        flat = g.reshape(indices[spec.id], (rows, spec.shape[-1]))
        both = g.add_node("spectrum_peaks", [flat, g.constant(each)], attrs)
        parts = (g.add_node(PART, [both], {"index": result.attrs["index"]}) for result in results)
        return [g.reshape(part, node.shape) for part in parts]

    return Match(power.joined_by(*between, *results).inside, build, results)


def _per_bin(node: Node) -> tuple[Node, Array] | None:
    """The operand of a product with a constant per bin, or one for all bins, and that constant."""
    if node.op not in ("mul", "div"):
        return None
    for value, other in either_way(node)[: 2 if node.op == "mul" else 1]:
        if other.op != "constant" or value.shape != node.shape or value.op == "constant":
            continue
        number = np.asarray(other.attrs["value"], np.float64)
        if number.size == 1 or number.shape[-1] == number.size == node.shape[-1]:
            return value, number.reshape(-1) if node.op == "mul" else 1 / number.reshape(-1)
    return None


def _over_segments(node: Node) -> bool:
    rank = len(node.inputs[0].shape)
    return tuple(node.attrs["axes"]) == (rank - 2,) and not node.attrs["keepdims"]


def frame_peaks(node: Node, site: MatchSite) -> Match | None:
    """Welch's peaks of frames, with or without their means: every sample can be read once."""
    result = first(_FRAME_PEAKS, node) if site.fuses("frame_peaks") and _is_f32(node) else None
    if result is None or not size(node.shape):
        return None
    frames, spec, k = result.named["frames"], result.named["spec"], node.attrs["k"]
    length = frames.shape[-1]
    weights = np.full(length // 2 + 1, 2.0, np.float32)
    weights[[0, -1]] = 1.0
    apart = node.op == "spectrum_peaks"
    fits = (
        spec.shape[-1] in (2 * length, 2 * (length // 2 + 1))
        and (not apart or node.inputs[1].shape == weights.shape)
        and frames.shape[-2] == node.attrs["n_segments"]
        and takes(length, k)
    )
    results = tuple(site.readers(node)) if apart else (node,)
    if not fits or (apart and any(reader.op != PART for reader in results)):
        return None
    attrs = {
        "hop": frames.attrs["hop"],
        "centred": "centred" in result.named,
        "k": k,
        "pairs": not apart,
    }

    def build(g: Graph, indices: Mapping[int, Node]) -> list[Node]:
        each = indices[node.inputs[1].id] if apart else g.constant(weights)
        operands = [*(indices[result.named[name].id] for name in ("signal", "taper")), each]
        output = g.add_node("frame_peaks", operands, attrs)
        if not apart:
            return [output]
        return [g.add_node(PART, [output], {"index": part.attrs["index"]}) for part in results]

    return Match(result.joined_by(*results).inside, build, results)


# --- transforms of frames --------------------------------------------------------------------------------


def frame_spectra(node: Node, site: MatchSite) -> Match | None:
    """The one-sided transform of tapered frames, which its first pass can read from the signal."""
    return _of_frames(node, site, first(_FRAME_SPECTRA, node))


def frame_powers(node: Node, site: MatchSite) -> Match | None:
    """The powers of such a transform, which its last pass can write."""
    result = first(_power(_FRAME_SPECTRA), node)
    if result is None or 2 * node.shape[-1] != result.named["spec"].shape[-1]:
        return None
    return _of_frames(node, site, result)


def _of_frames(node: Node, site: MatchSite, match: TemplateMatch | None) -> Match | None:
    if match is None:
        return None
    spec, frames = match.named["spec"], match.named["frames"]
    if not size(spec.shape) or not (site.kernels.every_dtype or _is_f32(spec)):
        return None
    attrs = {"hop": frames.attrs["hop"], "power": spec is not node}
    operands = [match.named[name] for name in ("signal", "taper")]
    return Match(match.inside, joined_node("frame_spectra", operands, attrs, node.name))


# --- log-mel features ------------------------------------------------------------------------------------


def log_mel(node: Node, site: MatchSite) -> Match | None:
    """(max(L, max(L) - 8) + 4) / 4 with L = log10(max(power @ filters, 1e-10))."""
    result = first(_LOG_MEL, node)
    if result is None or site.blocked(result.named["product"]):
        return None
    spec, filters, loudest = (result.named[name] for name in ("spec", "filters", "loudest"))
    bins, block = result.named["re"].shape[-1], spec.shape[-1] // 2
    op = {block: "spectrum_mel", block // 2 + 1: "log_mel"}.get(bins)
    if op is None:
        return None
    last = len(loudest.shape) - 1
    attrs = {"floor_axes": "last" if set(loudest.attrs["axes"]) == {last} else "all"}

    def build(g: Graph, indices: Mapping[int, Node]) -> Node:
        read = indices[filters.id]
        if read.op == "constant":
            transposed = g.constant(np.ascontiguousarray(read.attrs["value"].T), read.dtype)
        else:
            transposed = g.transpose(read, (1, 0))  # computed when the param is set
        return g.add_node(op, [indices[spec.id], transposed], attrs, node.name)

    return Match(result.inside, build)
