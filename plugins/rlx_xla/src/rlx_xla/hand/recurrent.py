"""Loops over time, as ``lax.scan``: recurrent layers, filters, selective scan."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jax.numpy as jnp
import numpy as np
from jax import lax

from rlx.abi.recurrent import CELLS
from rlx_xla.products import operands
from rlx_xla.values import XlaTracedArray, arithmetic, lifted


def _wide(value: Any) -> Any:
    """Casts an operand to the dtype of the computation; None for an absent operand."""
    return None if value is None else jnp.asarray(lifted(value))


class _Cell:
    """One step of one direction.

    Args:
        cell: The kind of cell.
        r: The recurrent weights, turned.
        bias: The bias beside the last product of a GRU, or None.
        peep: Three vectors of peepholes, or None.
        clip: The largest operand of an activation; 0 for none.
        coupled: Whether the gate that forgets is the other's complement.
    """

    def __init__(self, cell: str, r: Any, bias: Any, peep: Any, clip: float, coupled: bool) -> None:
        self.cell, self.r, self.bias = cell, r, bias
        self.peep = [0.0] * 3 if peep is None else jnp.split(peep, 3)
        self.clip, self.coupled = clip, coupled

    def _squash(self, v: Any) -> Any:
        return jnp.clip(v, -self.clip, self.clip) if self.clip > 0 else v

    def _sigmoid(self, v: Any) -> Any:
        return lax.logistic(self._squash(v))

    def step(self, x: Any, h: Any, c: Any) -> tuple[Any, Any]:
        """The new state: output and cell."""
        count = CELLS[self.cell]
        parts = jnp.split(x, count, -1)
        product = jnp.split(_product(h, self.r), count, -1)
        return getattr(self, "_" + self.cell)(parts, product, h, c)  # type: ignore[no-any-return]

    def _lstm(self, x: Any, product: Any, h: Any, c: Any) -> tuple[Any, Any]:
        i = self._sigmoid(x[0] + product[0] + self.peep[0] * c)
        f = 1 - i if self.coupled else self._sigmoid(x[2] + product[2] + self.peep[2] * c)
        new_c = f * c + i * jnp.tanh(self._squash(x[3] + product[3]))
        return self._sigmoid(x[1] + product[1] + self.peep[1] * new_c) * jnp.tanh(new_c), new_c

    def _gru(self, x: Any, product: Any, h: Any, c: Any) -> tuple[Any, Any]:
        z, reset = self._sigmoid(x[0] + product[0]), self._sigmoid(x[1] + product[1])
        inner = _product(reset * h, self.r[:, 2 * h.shape[-1] :])
        return (1 - z) * jnp.tanh(self._squash(x[2] + inner)) + z * h, c

    def _gru_linear(self, x: Any, product: Any, h: Any, c: Any) -> tuple[Any, Any]:
        z, reset = self._sigmoid(x[0] + product[0]), self._sigmoid(x[1] + product[1])
        inner = reset * (product[2] + (0.0 if self.bias is None else self.bias))
        return (1 - z) * jnp.tanh(self._squash(x[2] + inner)) + z * h, c

    def _tanh(self, x: Any, product: Any, h: Any, c: Any) -> tuple[Any, Any]:
        return jnp.tanh(self._squash(x[0] + product[0])), c

    def _relu(self, x: Any, product: Any, h: Any, c: Any) -> tuple[Any, Any]:
        return jnp.maximum(self._squash(x[0] + product[0]), 0), c


def _product(a: Any, b: Any) -> Any:
    raw, how = operands(XlaTracedArray(a), XlaTracedArray(b))
    return jnp.matmul(*raw, **how)


def _direction(cell: _Cell, xs: Any, state: tuple[Any, Any], active: Any) -> tuple[Any, Any, Any]:
    """All steps of one direction."""

    def step(state: Any, value: Any) -> Any:
        x, on = value
        h, c = state
        new_h, new_c = cell.step(x, h, c)
        new = jnp.where(on, new_h, h), jnp.where(on, new_c, c)
        return new, jnp.where(on, new_h, 0.0)

    (h, c), y = lax.scan(step, state, (xs, active[:, :, None]))
    return y, h, c


def recurrence(  # noqa: PLR0913 - the reference's own parameters
    xw: Any,
    r: Any,
    bias: Any = None,
    h0: Any = None,
    c0: Any = None,
    p: Any = None,
    seq_lens: Any = None,
    cell: str = "lstm",
    reverse: Any = (0,),
    clip: float = 0.0,
    input_forget: bool = False,
) -> Any:
    """The recurrent part of a layer."""
    xw, r, bias, h0, c0, p = map(_wide, (xw, r, bias, h0, c0, p))
    steps, batch, hidden, real = xw.shape[0], xw.shape[1], r.shape[2], arithmetic().real
    shape = (len(reverse), batch, hidden)
    h0 = jnp.zeros(shape, real) if h0 is None else h0
    c0 = jnp.zeros(shape, real) if c0 is None else c0
    per = xw.reshape(steps, batch, len(reverse), r.shape[1])
    lengths = jnp.full(batch, steps, jnp.int32)
    if seq_lens is not None:
        lengths = jnp.clip(jnp.asarray(lifted(seq_lens)), 0, steps).astype(jnp.int32)
    counted = jnp.arange(steps, dtype=jnp.int32)[:, None]
    active, everyone = counted < lengths, jnp.arange(batch)
    ys, hs, cs = [], [], []
    for d, backwards in enumerate(reverse):
        # The rows of a sequence that runs backwards change places, and their results change back.
        position = jnp.where(active & bool(backwards), lengths - 1 - counted, counted)
        turned = bool(backwards)
        xs = per[position, everyone, d] if turned else per[:, :, d]
        single = _Cell(
            cell,
            r[d].T,
            None if bias is None else bias[d],
            None if p is None else p[d],
            clip,
            input_forget,
        )
        y, h, c = _direction(single, xs, (h0[d], c0[d]), active)
        ys.append(y[position, everyone] if turned else y)
        hs.append(h)
        cs.append(c)
    y = XlaTracedArray(jnp.stack(ys, 1))
    last_h, last_c = XlaTracedArray(jnp.stack(hs)), XlaTracedArray(jnp.stack(cs))
    return (y, last_h, last_c) if cell == "lstm" else (y, last_h)


def rounded_recurrence(xw: Any, r: Any, scales: Any, *rest: Any, **named: Any) -> Any:
    """The same with weights of 8 bits."""
    return recurrence(xw, r * scales[..., None], *rest, **named)


def selective_scan(x: Any, delta: Any, a: Any, b: Any, c: Any, d: Any = None) -> XlaTracedArray:
    """H = exp(delta a) h + delta b x; y = c h."""
    x, delta, a, b, c, d = map(_wide, (x, delta, a, b, c, d))

    def step(h: Any, value: Any) -> Any:
        x, size, b, c = value
        size = size[:, :, None]
        h = jnp.where(h == 0, 0.0, jnp.exp(size * a) * h) + size * b[:, None, :] * x[:, :, None]
        return h, jnp.sum(h * c[:, None, :], -1)

    start = jnp.zeros((x.shape[0], *a.shape), x.dtype)
    _, y = lax.scan(step, start, tuple(jnp.moveaxis(item, 1, 0) for item in (x, delta, b, c)))
    y = jnp.moveaxis(y, 0, 1)
    return XlaTracedArray(y if d is None else y + d * x)


def cascade(x: Any, sections: Sequence[Any], zi: Any, count: Any = None) -> Any:
    """Filters one behind the other: rows ``[rows, n]``, states ``[sections, rows, order]``."""
    order, rows = len(sections[0]) // 2 - 1, x.shape[0]
    # Errors of a filter grow with every sample, and its steps wait for each other whatever they compute in.
    real = arithmetic().real if arithmetic().platform == "tpu" else jnp.float64
    taps = (
        np.asarray(sections, np.float64).reshape(len(sections), 2, order + 1).astype(np.dtype(real))
    )
    state = jnp.zeros((len(sections), rows, order), real) if zi is None else _wide(zi).astype(real)
    length = x.shape[1]
    end: Any = length if count is None else jnp.clip(_wide(count)[0], 0, length)

    def step(state: Any, value: Any) -> Any:
        v, position = value
        y, new = v, []
        for z, (b, a) in zip(state, taps, strict=True):
            out = b[0] * y + (z[:, 0] if order else 0.0)
            if order:
                moved = jnp.concatenate([z[:, 1:], jnp.zeros((rows, 1), real)], 1)
                new.append(moved + jnp.outer(y, b[1:]) - jnp.outer(out, a[1:]))
            else:
                new.append(z)
            y = out
        on = position < end
        return jnp.where(on, jnp.stack(new), state), jnp.where(on, y, 0.0)

    state, y = lax.scan(step, state, (_wide(x).astype(real).T, jnp.arange(length)))
    own = arithmetic().real
    return XlaTracedArray(y.T.astype(own)), XlaTracedArray(state.astype(own))


INSTEAD = {"rlx.ops.recurrent.recursive._cascade": cascade}
RECORDS = {
    "recurrence": recurrence,
    "rounded_recurrence": rounded_recurrence,
    "selective_scan": selective_scan,
}
