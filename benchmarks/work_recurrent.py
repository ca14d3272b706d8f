"""Families of recurrent layers: one step of a stream, and whole sequences."""

import numpy as np
from work import F32, Workload, noise, wide

# Gates of a cell, and whether it has a second state.
GATES = {"lstm": 4, "gru": 3}
# Roundings of a sequence of steps; a wrong gate is off by far more.
STEPS = 1e-5


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _lstm_step(x, h, c, r, both):
    n = h.shape[-1]
    i, o, f, g = np.split(x + h @ r.T + both[4 * n :], 4, -1)
    c = _sigmoid(f) * c + _sigmoid(i) * np.tanh(g)
    return _sigmoid(o) * np.tanh(c), c


def _gru_step(x, h, c, r, both):
    n = h.shape[-1]
    product = h @ r.T + both[3 * n :]
    z, reset = np.split(_sigmoid(x[:, : 2 * n] + product[:, : 2 * n]), 2, -1)
    new = np.tanh(x[:, 2 * n :] + reset * product[:, 2 * n :])
    return (1 - z) * new + z * h, c


STEP = {"lstm": _lstm_step, "gru": _gru_step}


def recurrent(rng, cell, steps, batch, inputs, hidden):
    """A layer that starts from a given state; its results are all steps, then the last states.

    A GRU resets after the product, as those of PyTorch and Keras do.
    """
    gates = GATES[cell]
    size = F32(hidden**-0.5)
    weights = {
        "w": noise(rng, 1, gates * hidden, inputs) * F32(inputs**-0.5),
        "r": noise(rng, 1, gates * hidden, hidden) * size,
        "b": noise(rng, 1, 2 * gates * hidden) * size,
    }
    states = ("h0", "c0") if cell == "lstm" else ("h0",)
    arguments = {name: noise(rng, 1, batch, hidden) * F32(0.5) for name in states}
    x = noise(rng, steps, batch, inputs)
    settings = {"linear_before_reset": True} if cell == "gru" else {}

    def build(g, v):
        result = getattr(g, cell)(
            v["x"], v["w"], v["r"], v["b"], **{name: v[name] for name in states}, **settings
        )
        return list(result)

    def reference(outputs):
        w, r, b = (item[0] for item in wide(*weights.values()))
        entered = x.astype(np.float64) @ w.T + b[: gates * hidden]
        h = arguments["h0"][0].astype(np.float64)
        c = arguments["c0"][0].astype(np.float64) if cell == "lstm" else h
        all_h = []
        for part in entered:
            h, c = STEP[cell](part, h, c, r, b)
            all_h.append(h)
        expected = [*all_h, h, c] if cell == "lstm" else [*all_h, h]
        result = np.concatenate([output.reshape(-1) for output in outputs])
        return result, np.concatenate([item.reshape(-1) for item in expected])

    return Workload(
        {"x": x, **weights, **arguments},
        build,
        reference,
        2.0 * steps * batch * gates * hidden * (inputs + hidden),
        weights=("w", "r", "b"),
        peer=(cell, {"hidden": hidden}),
        tolerance=STEPS,
    )
