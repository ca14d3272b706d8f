"""Recurrent layers with ONNX's meaning: lstm, gru and rnn over one loop (``recurrence``)."""

from __future__ import annotations

import functools
import math
from typing import Any, Literal, get_args

import numpy as np

from rlx.abi.recurrent import CELLS
from rlx.dataclasses import dataclass
from rlx.errors import DTypeError, ShapeError, UnknownNameError, did_you_mean
from rlx.ir.dtype import DType
from rlx.ir.graph import PART, Graph, Node
from rlx.ir.opdef import Array, Sample
from rlx.ops.declare import FLOAT_KERNELS, composite
from rlx.ops.recurrent.recurrence import recurrence

Direction = Literal["forward", "reverse", "bidirectional"]
Layout = Literal["seq_first", "batch_first"]
# True for each direction of a layer that goes from the last step to the first.
DIRECTIONS: dict[str, tuple[int, ...]] = {"forward": (0,), "reverse": (1,), "bidirectional": (0, 1)}
LAYOUTS: tuple[Layout, ...] = get_args(Layout)
ACTIVATIONS = ("tanh", "relu")
# Axis orders between batch_first and seq_first: of x and states in both directions, and of y to batch_first.
_STATE_ORDER = (1, 0, 2)
_Y_ORDER = (2, 0, 1, 3)


def _check_name(op: str, what: str, value: Any, names: Any) -> None:
    if value not in names:
        raise UnknownNameError(
            f"[{op}] no such {what}: {value!r}",
            expected=", ".join(names),
            hint=did_you_mean(str(value), names),
        )


def _shapes(
    sizes: tuple[Any, Any, Any], batch: Any, inputs: Any, batch_first: bool
) -> dict[str, tuple[Any, ...]]:
    """The shapes of a layer's operands besides x; ``sizes`` are directions, gates and hidden units."""
    d, gates, h = sizes
    state = (batch, d, h) if batch_first else (d, batch, h)
    return {
        "w": (d, gates * h, inputs),
        "r": (d, gates * h, h),
        "b": (d, 2 * gates * h),
        "h0": state,
        "c0": state,
        "seq_lens": (batch,),
        "p": (d, 3 * h),
    }


@dataclass(frozen=True)
class _Layer:
    """A recurrent layer: its operands, in the layout that the caller uses, and its settings.

    All but ``op``, for messages, is a parameter of the same name of ``lstm``, ``gru`` or ``rnn``.
    """

    op: str
    cell: str
    x: Node
    w: Node
    r: Node
    b: Node | None
    h0: Node | None
    seq_lens: Node | None
    direction: str
    layout: str
    clip: float
    c0: Node | None = None
    p: Node | None = None
    input_forget: bool = False

    @property
    def batch_first(self) -> bool:
        """True if the batch is the first axis; the loop wants the steps there."""
        return self.layout == "batch_first"

    def check(self) -> None:
        """Checks names, and every operand's shape against x and r.

        Raises:
            UnknownNameError: There is no such direction or layout.
            ShapeError: An operand does not fit.
        """
        _check_name(self.op, "direction", self.direction, DIRECTIONS)
        _check_name(self.op, "layout", self.layout, LAYOUTS)
        x, r = self.x.shape, self.r.shape
        order = "[B, T, I]" if self.batch_first else "[T, B, I]"
        if len(x) != 3 or len(r) != 3:
            expected = f"x {order}, r [D, G * H, H]"
            raise ShapeError(f"[{self.op}] wrong rank", got=f"x {x}, r {r}", expected=expected)
        d, h, gates = len(DIRECTIONS[self.direction]), r[2], CELLS[self.cell]
        batch = x[0] if self.batch_first else x[1]
        for name, shape in _shapes((d, gates, h), batch, x[2], self.batch_first).items():
            node = getattr(self, name)
            if node is not None and node.shape != shape:
                raise ShapeError(
                    f"[{self.op}] {name} has the wrong shape",
                    got=node.shape,
                    expected=f"{shape} for x {x}, {gates} gates of {h} units, {self.direction}",
                )

    def build(self, g: Any) -> tuple[Node, ...]:
        """Adds the layer to a graph: one product for the inputs of all steps, then the loop."""
        self.check()
        xw, candidate_bias = self._inputs(g)
        states = {
            name: g.transpose(node, _STATE_ORDER) if node is not None and self.batch_first else node
            for name, node in (("h0", self.h0), ("c0", self.c0))
        }
        options = {"bias": candidate_bias, **states, "p": self.p, "seq_lens": self._lengths(g)}
        inputs = {name: node for name, node in options.items() if node is not None}
        attrs = {
            "present": tuple(inputs),
            "cell": self.cell,
            "reverse": DIRECTIONS[self.direction],
            "clip": self.clip,
            "input_forget": bool(self.input_forget),
        }
        node = g.add_node("recurrence", [xw, self.r, *inputs.values()], attrs)
        y, *last = (g.add_node(PART, [node], {"index": i}) for i in range(len(node.types)))
        if not self.batch_first:
            return (y, *last)
        return (g.transpose(y, _Y_ORDER), *(g.transpose(item, _STATE_ORDER) for item in last))

    def _inputs(self, g: Any) -> tuple[Node, Node | None]:
        """Returns x's contribution (with biases) to every gate at every step, and a bias that the loop adds itself."""
        columns, wide, hidden = math.prod(self.w.shape[:2]), self.r.shape[1], self.r.shape[2]
        x = g.transpose(self.x, _STATE_ORDER) if self.batch_first else self.x
        xw = g.matmul(x, g.transpose(g.reshape(self.w, (columns, self.w.shape[2]))))
        if self.b is None:
            return xw, None
        outer, inner = g.narrow(self.b, 1, 0, wide), g.narrow(self.b, 1, wide, wide)
        if self.cell != "gru_linear":
            return xw + g.reshape(outer + inner, (columns,)), None
        # The reset gate multiplies the candidate's recurrent bias, so that is added inside the loop.
        gates = g.narrow(outer, 1, 0, 2 * hidden) + g.narrow(inner, 1, 0, 2 * hidden)
        total = g.concat([gates, g.narrow(outer, 1, 2 * hidden, hidden)], 1)
        return xw + g.reshape(total, (columns,)), g.narrow(inner, 1, 2 * hidden, hidden)

    def _lengths(self, g: Any) -> Node | None:
        """``seq_lens`` as i32."""
        lengths = self.seq_lens
        if lengths is None or lengths.dtype is DType.I32:
            return lengths
        if lengths.dtype is not DType.I64:
            raise DTypeError(f"[{self.op}] seq_lens", got=lengths.dtype, expected="i32 or i64")
        # A length that does not fit into 32 bits is cut to the number of steps, not to its low bits.
        steps = self.x.shape[1 if self.batch_first else 0]
        return g.cast(g.clip(lengths, 0, steps), "i32")


def _reference(  # noqa: PLR0913 - the operands of three operations
    cell: str,
    x: Array,
    w: Array,
    r: Array,
    b: Array | None,
    direction: str,
    layout: str,
    h0: Array | None = None,
    c0: Array | None = None,
    **rest: Any,
) -> Any:
    batch_first = layout == "batch_first"
    directions, wide, inputs = w.shape
    hidden = r.shape[2]
    if batch_first:
        x = x.transpose(_STATE_ORDER)
        h0, c0 = (v if v is None else v.transpose(_STATE_ORDER) for v in (h0, c0))
    xw = x @ w.reshape(directions * wide, inputs).T
    bias = None
    if b is not None:
        outer, inner = b[:, :wide].copy(), b[:, wide:].copy()
        if cell == "gru_linear":
            bias = inner[:, 2 * hidden :].copy()
            inner[:, 2 * hidden :] = 0
        xw = xw + (outer + inner).reshape(-1)
    reverse = DIRECTIONS[direction]
    results = recurrence.reference(
        xw, r, bias=bias, h0=h0, c0=c0, cell=cell, reverse=reverse, **rest
    )
    if batch_first:
        return (results[0].transpose(_Y_ORDER), *(s.transpose(_STATE_ORDER) for s in results[1:]))
    return tuple(results)


def _samples(gates: int, names: tuple[str, ...], more: tuple[dict[str, Any], ...]) -> Any:
    """Cases of a layer whose operands after x, w and r are ``names``, all of them optional."""

    def make(
        steps: int, batch: int, inputs: int, hidden: int, args: tuple[str, ...], **attrs: Any
    ) -> Sample:
        d = len(DIRECTIONS[attrs.get("direction", "forward")])
        first = attrs.get("layout") == "batch_first"
        shapes = _shapes((d, gates, hidden), batch, inputs, first)
        shapes["x"] = (batch, steps, inputs) if first else (steps, batch, inputs)
        bench = bool(attrs.pop("bench", False))
        operands = ("x", "w", "r", *args)
        # Larger recurrent weights would make errors grow from step to step.
        high = tuple(0.5 / np.sqrt(hidden) if name == "r" else 0.5 for name in operands)
        absent: dict[str, Any] = {name: None for name in names if name not in args}
        return Sample(
            tuple(shapes[name] for name in operands),
            {**absent, **attrs},
            dtypes=None if not bench else (DType.F32,) * len(operands),
            low=tuple(-value for value in high),
            high=high,
            bench=bench,
        )

    every = tuple(name for name in names if name != "seq_lens")
    results = [
        make(1, 1, 1, 1, ()),
        make(0, 2, 3, 4, ("b",)),
        make(3, 0, 3, 4, ("b", "h0")),
        make(5, 3, 7, 9, ("b",)),
        make(6, 2, 5, 8, every, direction="bidirectional"),
        make(6, 2, 5, 8, every, direction="reverse", layout="batch_first"),
        *(make(4, 3, 6, 7, every, **attrs) for attrs in more),
        make(32, 1, 64, 128, ("b",), bench=True),
    ]
    # Sequences of different lengths, one of them empty.
    d, hidden = 2, 5
    rng = np.random.default_rng(5)
    shapes = ((6, 4, 3), (d, gates * hidden, 3), (d, gates * hidden, hidden))
    values = [rng.uniform(-1, 1, shape).astype(np.float32) for shape in shapes]
    results.append(
        Sample(
            (*shapes, (4,)),
            {**{n: None for n in names if n != "seq_lens"}, "direction": "bidirectional"},
            dtypes=(DType.F32, DType.F32, DType.F32, DType.I32),
            values=(*values, np.array([6, 2, 0, 5], np.int32)),
        )
    )
    return tuple(results)


_layer = functools.partial(
    composite,
    free=("seq_lens",),
    dtypes=FLOAT_KERNELS,
    tolerance={DType.F32: 2e-5},  # the error of a step goes through all later ones
)


@_layer(
    lambda g, **args: _Layer("lstm", "lstm", **args).build(g),
    samples=lambda: _samples(
        4, ("b", "h0", "c0", "seq_lens", "p"), ({"clip": 0.3}, {"input_forget": True})
    ),
)
def lstm(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    h0: Array | None = None,
    c0: Array | None = None,
    seq_lens: Array | None = None,
    direction: Direction = "forward",
    layout: Layout = "seq_first",
    p: Array | None = None,
    clip: float = 0.0,
    input_forget: bool = False,
) -> tuple[Array, Array, Array]:
    """Long short-term memory (Hochreiter & Schmidhuber 1997), with ONNX's gates i, o, f, c.

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, 4 * H, I]``, weights of the inputs.
        r: ``[D, 4 * H, H]``, recurrent weights.
        b: ``[D, 8 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        c0: The same for the cell state.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        p: ``[D, 3 * H]``, peephole weights of the gates i, o, f, or None.
        clip: Largest magnitude of what goes into an activation; 0 for no bound.
        input_forget: Whether the forget gate is 1 - i.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h and c, of the shape of h0.
    """
    rest = {"p": p, "clip": clip, "input_forget": input_forget, "seq_lens": seq_lens}
    return _reference("lstm", x, w, r, b, direction, layout, h0, c0, **rest)


def _gru(g: Graph, linear_before_reset: bool, **args: Any) -> tuple[Node, ...]:
    return _Layer("gru", "gru_linear" if linear_before_reset else "gru", **args).build(g)


@_layer(
    _gru,
    samples=lambda: _samples(
        3, ("b", "h0", "seq_lens"), ({"linear_before_reset": True}, {"clip": 0.3})
    ),
)
def gru(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    h0: Array | None = None,
    seq_lens: Array | None = None,
    direction: Direction = "forward",
    layout: Layout = "seq_first",
    linear_before_reset: bool = False,
    clip: float = 0.0,
) -> tuple[Array, Array]:
    """Gated recurrent unit (arXiv:1406.1078), with ONNX's gates z, r, h.

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, 3 * H, I]``, weights of the inputs.
        r: ``[D, 3 * H, H]``, recurrent weights.
        b: ``[D, 6 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        linear_before_reset: Whether the reset gate acts on the recurrent product (as in cuDNN and
            PyTorch) instead of on the state.
        clip: Largest magnitude of what goes into an activation; 0 for no bound.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h, of the shape of h0.
    """
    cell = "gru_linear" if linear_before_reset else "gru"
    return _reference(cell, x, w, r, b, direction, layout, h0, clip=clip, seq_lens=seq_lens)


def _rnn(g: Graph, activation: str, **args: Any) -> tuple[Node, ...]:
    _check_name("rnn", "activation", activation, ACTIVATIONS)
    return _Layer("rnn", activation, **args).build(g)


@_layer(
    _rnn,
    samples=lambda: _samples(1, ("b", "h0", "seq_lens"), ({"activation": "relu"}, {"clip": 0.3})),
)
def rnn(  # noqa: PLR0913 - the operation's own signature
    x: Array,
    w: Array,
    r: Array,
    b: Array | None = None,
    h0: Array | None = None,
    seq_lens: Array | None = None,
    direction: Direction = "forward",
    layout: Layout = "seq_first",
    activation: Literal["tanh", "relu"] = "tanh",
    clip: float = 0.0,
) -> tuple[Array, Array]:
    """Simple recurrent layer: h = activation(x @ w^T + h @ r^T + biases) (Elman 1990).

    D is 2 for "bidirectional", else 1; H the number of hidden units.

    Args:
        x: ``[T, B, I]``; ``[B, T, I]`` with layout "batch_first".
        w: ``[D, H, I]``, weights of the inputs.
        r: ``[D, H, H]``, recurrent weights.
        b: ``[D, 2 * H]``, biases of the inputs, then the recurrent ones; None for 0.
        h0: ``[D, B, H]`` (batch_first: ``[B, D, H]``), hidden state before the first step, or None.
        seq_lens: Integers ``[B]``: steps of each sequence; None for T. y is 0 after them, and the
            reverse direction begins at the last of them. Without any, the states stay.
        direction: forward, reverse or bidirectional.
        layout: seq_first or batch_first.
        activation: tanh or relu.
        clip: Largest magnitude of what goes into the activation; 0 for no bound.

    Returns:
        y ``[T, D, B, H]`` (batch_first: ``[B, T, D, H]``) and the last h, of the shape of h0.
    """
    return _reference(activation, x, w, r, b, direction, layout, h0, clip=clip, seq_lens=seq_lens)
