"""Spectra with what is read off them: powers and their strongest bins, log-mel features."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array
from rlx.ir.shape import size
from rlx.ops.spectra.frame_peaks import takes
from rlx.passes.patterns.match import Match, Site, either_way, scalar, scaled, without_inputs


@dataclass(frozen=True)
class Power:
    """re^2 + im^2 of spectra whose rows hold real parts, then imaginary ones.

    Attributes:
        spec: The spectra, ``[..., 2 * block]``.
        bins: Bins that are taken, from the first on.
        inside: The nodes that do it.
    """

    spec: Node
    bins: int
    inside: tuple[Node, ...]

    @property
    def block(self) -> int:
        """The distance from a real part to its imaginary one."""
        return self.spec.shape[-1] // 2


def _power(node: Node) -> Power | None:
    if node.op != "add" or node.dtype is not DType.F32:
        return None
    for first, second in either_way(node):
        re, im = _square(first), _square(second)
        if re is None or im is None or re.inputs != im.inputs:
            continue
        spec = re.inputs[0]
        width = spec.shape[-1]
        if (_from(re), _from(im)) == (0, width // 2) and re.shape == im.shape and width % 2 == 0:
            return Power(spec, node.shape[-1], (re, im, first, second, node))
    return None


def _square(node: Node) -> Node | None:
    """The part of a spectrum that a node is the square of."""
    if node.op == "mul" and node.inputs[0] is node.inputs[1]:
        part = node.inputs[0]
    elif node.op == "pow" and scalar(node.inputs[1]) == 2.0:
        part = node.inputs[0]
    else:
        return None
    return part if part.shape and _from(part) >= 0 else None


def _from(node: Node) -> int:
    """Where a contiguous part of the last axis begins; -1 for what is no such part."""
    if node.op == "narrow" and node.attrs["axis"] == len(node.shape) - 1:
        return int(node.attrs["start"])
    if node.op != "slice" or set(node.attrs["steps"]) != {1}:
        return -1
    if node.shape[:-1] != node.inputs[0].shape[:-1]:
        return -1
    starts = dict(zip(node.attrs["axes"], node.attrs["starts"], strict=True))
    return int(starts.get(len(node.shape) - 1, 0))


# --- the strongest bins ----------------------------------------------------------------------------------


def peaks(node: Node, site: Site) -> Match | None:
    """The k largest of powers that are weighted per bin and averaged over segments: Welch's peaks."""
    if node.op != "ordered" or not node.attrs["largest"] or node.dtype is not DType.F32:
        return None
    found, inside, weights, averaged = node.inputs[0], [node], np.ones(()), False
    bins = found.shape[-1]
    while (power := _power(found)) is None:
        inside.append(found)
        factor = _per_bin(found)
        if factor is not None:
            found, by = factor
            weights = weights * by
        elif found.op == "mean" and not averaged and _over_segments(found):
            found, averaged = found.inputs[0], True
        else:
            return None
    spec = power.spec
    rows = size(spec.shape[:-1])
    segments = spec.shape[-2] if averaged else 1
    if power.bins != bins or not rows or site.blocked(node):
        return None
    each = np.broadcast_to(weights, (bins,)).astype(np.float32)
    results = tuple(site.readers(node))
    if any(reader.op != PART for reader in results):
        return None
    k, shape = node.attrs["k"], node.shape
    attrs = {"k": k, "n_segments": segments}

    def build(g: Graph, at: Mapping[int, Node]) -> list[Node]:
        flat = g.reshape(at[spec.id], (rows, spec.shape[-1]))
        both = g.add_node("spectrum_peaks", [flat, g.constant(each)], attrs)
        parts = (g.add_node(PART, [both], {"index": one.attrs["index"]}) for one in results)
        return [g.reshape(part, shape) for part in parts]

    return Match((*power.inside, *reversed(inside), *results), build, results)


def _per_bin(node: Node) -> tuple[Node, Array] | None:
    """What is multiplied by a constant per bin, or for all of them, and that constant."""
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


# --- transforms of frames --------------------------------------------------------------------------------


def frame_spectra(node: Node, site: Site) -> Match | None:
    """The one-sided transform of tapered frames, which its first pass can read from the signal."""
    return _of_frames(node, node, (), site)


def frame_powers(node: Node, site: Site) -> Match | None:
    """The powers of such a transform, which its last pass can write."""
    found = _power(node)
    if found is None or found.bins != found.block:
        return None
    return _of_frames(node, found.spec, found.inside, site)


def _of_frames(result: Node, node: Node, powers: tuple[Node, ...], site: Site) -> Match | None:
    if node.op != "rfft" or node.attrs["norm"] != "backward":
        return None
    if not site.kernels.every_dtype and node.dtype is not DType.F32:
        return None
    tapered = node.inputs[0]
    found = _tapered(tapered)
    if found is None or found[0].op != "frames" or not size(node.shape):
        return None
    cut, taper = found
    attrs = {"hop": cut.attrs["hop"], "power": bool(powers)}

    def build(g: Graph, at: Mapping[int, Node]) -> Node:
        read = [at[cut.inputs[0].id], at[taper.id]]
        return g.add_node("frame_spectra", read, attrs, result.name)

    return Match((cut, tapered, node, *powers), build)


def frame_peaks(node: Node, site: Site) -> Match | None:
    """Welch's peaks of frames, with or without their means: every sample can be read once."""
    if node.op not in ("welch_peaks", "spectrum_peaks") or not _peaks_of_frames(node, site):
        return None
    path: list[Node] = []
    spec = _flat(node.inputs[0], path)
    if node.op == "spectrum_peaks" and spec.op == "rfft":
        rows = spec.inputs[0]
    elif spec.op == "fft" and not spec.attrs["inverse"]:
        # A real signal in block layout: zeros behind it.
        rows = _without_zeros(spec.inputs[0], path)
    else:
        return None
    tapered = _flat(rows, path)
    found = _tapered(tapered) if spec.attrs["norm"] == "backward" else None
    if found is None:
        return None
    cut, taper = found
    means = _mean_taken_off(cut)
    centred, k = bool(means), node.attrs["k"]
    cut = means[-1].inputs[0] if means else cut
    length = cut.shape[-1] if cut.shape else 0
    if cut.op != "frames" or spec.shape[-1] not in (2 * length, 2 * (length // 2 + 1)):
        return None
    weights = np.full(length // 2 + 1, 2.0, np.float32)
    weights[[0, -1]] = 1.0
    apart = node.op == "spectrum_peaks"
    one_per_bin = not apart or node.inputs[1].shape == weights.shape
    if not one_per_bin or cut.shape[-2] != node.attrs["n_segments"] or not takes(length, k):
        return None
    attrs = {"hop": cut.attrs["hop"], "centred": centred, "k": k, "pairs": not apart}
    results = tuple(site.readers(node)) if apart else (node,)
    if not size(node.shape) or (apart and any(reader.op != PART for reader in results)):
        return None

    def build(g: Graph, at: Mapping[int, Node]) -> list[Node]:
        each = at[node.inputs[1].id] if apart else g.constant(weights)
        operands = [at[cut.inputs[0].id], at[taper.id], each]
        made = g.add_node("frame_peaks", operands, attrs)
        if not apart:
            return [made]
        return [g.add_node(PART, [made], {"index": one.attrs["index"]}) for one in results]

    inside = (cut, *means, tapered, *path, spec, node, *(results if apart else ()))
    ordered = sorted({one.id: one for one in inside}.values(), key=lambda one: one.id)
    return Match(tuple(ordered), build, results)


def _flat(node: Node, path: list[Node]) -> Node:
    """What a node is under other leading dimensions; what makes it that is added to the path."""
    while node.op == "reshape" and node.shape[-1:] == node.inputs[0].shape[-1:]:
        path.append(node)
        node = node.inputs[0]
    return node


def _without_zeros(node: Node, path: list[Node]) -> Node:
    """The first half of a row whose second half is zeros; the row itself where it is not."""
    if node.op != "concat" or len(node.inputs) != 2 or node.attrs["axis"] != len(node.shape) - 1:
        return node
    first, second = node.inputs
    zeros = second.inputs[0] if second.op == "expand" else second
    if first.shape != second.shape or zeros.op != "constant" or np.any(zeros.attrs["value"]):
        return node
    path.append(node)
    return first


def _mean_taken_off(node: Node) -> tuple[Node, ...]:
    """The difference and the mean that is taken off what it is the mean of; nothing where it is not."""
    if node.op != "sub" or node.inputs[1].op != "mean":
        return ()
    mean, last = node.inputs[1], len(node.shape) - 1
    fits = mean.inputs[0] is node.inputs[0] and tuple(mean.attrs["axes"]) == (last,)
    return (node, mean) if fits and mean.attrs["keepdims"] else ()


def _peaks_of_frames(node: Node, site: Site) -> bool:
    return site.fuses("frame_peaks") and node.dtype is DType.F32


def _tapered(node: Node) -> tuple[Node, Node] | None:
    """The frames that are multiplied by one number per sample, and those numbers."""
    if node.op != "mul":
        return None
    for value, taper in either_way(node):
        if taper.shape == node.shape[-1:] and value.shape == node.shape and without_inputs(taper):
            return value, taper
    return None


# --- log-mel features ------------------------------------------------------------------------------------

_RANGE = 8.0
_LEAST = 1e-10


def log_mel(node: Node, site: Site) -> Match | None:
    """(max(L, max(L) - 8) + 4) / 4 with L = log10(max(power @ filters, 1e-10))."""
    shifted, quarter, inside = scaled(node)
    if not _near(quarter, 0.25) or shifted.op != "add":
        return None
    floored = _beside(shifted, 4.0)
    found = _floored(floored) if floored is not None else None
    if floored is None or found is None:
        return None
    level, between, everywhere = found
    logarithm, unit, scaling = scaled(level)
    if logarithm.op != "log" or not _near(unit, 1 / math.log(10)):
        return None
    clamped = logarithm.inputs[0]
    product = _beside(clamped, _LEAST) if clamped.op == "maximum" else None
    power = _power(product.inputs[0]) if product is not None and product.op == "matmul" else None
    if product is None or power is None:
        return None
    filters = product.inputs[1]
    if not without_inputs(filters) or len(filters.shape) != 2 or site.blocked(product):
        return None
    spec, block = power.spec, power.block
    op = {block: "spectrum_mel", block // 2 + 1: "log_mel"}.get(power.bins)
    if op is None:
        return None
    attrs = {"floor_axes": "all" if everywhere else "last"}

    def build(g: Graph, at: Mapping[int, Node]) -> Node:
        read = at[filters.id]
        if read.op == "constant":
            turned = g.constant(np.ascontiguousarray(read.attrs["value"].T), read.dtype)
        else:
            turned = g.transpose(read, (1, 0))  # computed when the param is set
        return g.add_node(op, [at[spec.id], turned], attrs, node.name)

    chain = (product, clamped, logarithm, *scaling, *between, floored, shifted, *inside)
    return Match((*power.inside, *chain), build)


def _floored(node: Node) -> tuple[Node, tuple[Node, ...], bool] | None:
    """L, what finds its floor, and whether that is one for everything, of max(L, max(L) - 8)."""
    if node.op != "maximum":
        return None
    for level, floor in either_way(node):
        if floor.op != "sub" or not _is(floor.inputs[1], _RANGE):
            continue
        top = floor.inputs[0]
        if top.op != "max" or top.inputs[0] is not level or not top.attrs["keepdims"]:
            continue
        axes, last = set(top.attrs["axes"]), len(level.shape) - 1
        rest = size(tuple(n for axis, n in enumerate(level.shape) if axis not in axes))
        if axes == {last} or rest == 1:
            return level, (top, floor), axes != {last}
    return None


def _beside(node: Node, number: float) -> Node | None:
    """The operand of a node whose other operand is this number."""
    for value, other in either_way(node):
        if _is(other, number) and value.shape == node.shape:
            return value
    return None


def _is(node: Node, number: float) -> bool:
    found = scalar(node)
    return found is not None and _near(found, number)


def _near(found: float, number: float) -> bool:
    return math.isclose(found, number, rel_tol=1e-5)
