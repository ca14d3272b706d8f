"""Recurrent layers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rlx.importers.onnx.call import OnnxCall
from rlx.importers.onnx.handlers import onnx_op
from rlx.importers.onnx.values import RefusedError
from rlx.ir.graph import Node


def _common(call: OnnxCall, defaults: Sequence[str], w: Node, r: Node) -> dict[str, Any]:
    """The attributes that all recurrent layers share; activations have to be the usual ones."""
    direction = call.text("direction", "forward")
    args = [name.lower() for name in call.text_list("activations", ()) or ()]
    hidden = r.shape[-1]
    call.need(
        call.integer("hidden_size", hidden) == hidden,
        f"hidden_size {call.integer('hidden_size')} and weights {r.shape}",
    )
    gates = {"GRU": 3, "RNN": 1}.get(call.node.op, 4)
    call.need(w.shape[1:] == (gates * hidden, call.shape()[-1]), f"weights of shape {w.shape}")
    count = 2 if direction == "bidirectional" else 1
    if args and args != [d.lower() for d in defaults] * count:
        raise RefusedError(f"activations {', '.join(args)}")
    return {
        "direction": direction,
        "layout": "batch_first" if call.integer("layout", 0) else "seq_first",
        "clip": call.real("clip", 0.0),
    }


def _operands(call: OnnxCall) -> dict[str, Any]:
    return {"b": call.opt(3), "seq_lens": call.opt(4), "h0": call.opt(5)}


@onnx_op("LSTM")
def lstm(call: OnnxCall) -> Any:
    """Long short-term memory."""
    return lstm_layer(call, call.x(1), call.x(2))


def lstm_layer(call: OnnxCall, w: Node, r: Node) -> Any:
    """Long short-term memory with weights ``[directions, gates, inputs]``."""
    return call.g.lstm(
        call.x(0), w, r, **_operands(call), c0=call.opt(6), p=call.opt(7),
        input_forget=bool(call.integer("input_forget", 0)),
        **_common(call, ("Sigmoid", "Tanh", "Tanh"), w, r),
    )  # fmt: skip


@onnx_op("GRU")
def gru(call: OnnxCall) -> Any:
    """Gated recurrent units."""
    return call.g.gru(
        call.x(0), call.x(1), call.x(2), **_operands(call),
        linear_before_reset=bool(call.integer("linear_before_reset", 0)),
        **_common(call, ("Sigmoid", "Tanh"), call.x(1), call.x(2)),
    )  # fmt: skip


@onnx_op("RNN")
def rnn(call: OnnxCall) -> Any:
    """The simple layer, with tanh or relu."""
    names = call.text_list("activations", ()) or ("Tanh",)
    first: Any = names[0].lower()
    if first not in ("tanh", "relu"):
        raise RefusedError(f"activation {first}")
    return call.g.rnn(
        call.x(0), call.x(1), call.x(2), **_operands(call), activation=first,
        **_common(call, (first,), call.x(1), call.x(2)),
    )  # fmt: skip
