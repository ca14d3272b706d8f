"""Text generation step by step: the keys and values of 12 layers stay on the device, and each step adds a row to them.

A step writes its row into the caches in place, and its attention reads the filled rows alone, so the cost of a step grows with
the text. The host sends a token and its position, and reads one token.
Weights are random: what comes out is nonsense, but the bytes that move are those of a real decoder.
"""

import sys

import numpy as np

import rlx

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 12, 64, 4, 96, 48


def decoder(layers=LAYERS, length=LENGTH):
    """Tokens and the number of those before them in, the next token out; every layer's keys and values are states."""
    g = rlx.Graph("decoder")
    count, size = rlx.Dim("count", min=1, max=length), WIDTH // HEADS
    token, before = g.input("token", (count,), "i32"), g.input("position", (), "i64")
    position = g.read_size(before, max=length - count, name="position")

    def filled(name, new):
        """The rows of a cache so far, with new ones."""
        cache = g.update(g.input(name, (length, HEADS, size)), new, position)
        return g.unsqueeze(g.narrow(cache, 0, 0, position + count), 0)

    x = g.gather(g.param("embedding", (VOCABULARY, WIDTH)), token, axis=0)
    for i in range(layers):
        h = g.rms_norm(x, g.param(f"norm{i}", (WIDTH,)))
        qkv = g.reshape(h @ g.param(f"qkv{i}", (WIDTH, 3 * WIDTH)), (count, 3 * HEADS, size))
        q, k, v = g.split(qkv, (HEADS,) * 3, axis=1)
        keys, values = filled(f"k{i}", k), filled(f"v{i}", v)
        y = g.attention(g.unsqueeze(q, 0), keys, values, kind="causal", layout="bshd")
        x = x + g.reshape(y, (count, WIDTH)) @ g.param(f"out{i}", (WIDTH, WIDTH))
        up = g.silu(x @ g.param(f"up{i}", (WIDTH, 2 * WIDTH)))
        x = x + up @ g.param(f"down{i}", (2 * WIDTH, WIDTH))
    logits = g.narrow(x, 0, count - 1, 1) @ g.param("head", (WIDTH, VOCABULARY))
    g.set_outputs([g.cast(g.argmax(logits, axis=-1), "i32")])
    return g


def weights(graph, seed=0):
    """Random values for every param."""
    rng = np.random.default_rng(seed)
    params = {node.name: node for node in graph.nodes if node.op == "param"}
    return {
        n: (rng.normal(size=p.shape) / np.sqrt(p.shape[0])).astype("f4") for n, p in params.items()
    }


def bind(cg, graph):
    """Binds empty caches to device memory."""
    for name in graph.input_names[2:]:
        cg.bind_gpu_handle(name, np.zeros(graph.named(name).shape, np.float32))


def generate(cg, prompt, most):
    """The tokens that follow a prompt, which one run reads."""
    tokens, position = np.array(prompt, np.int32), 0
    for _ in range(most):
        (token,) = cg.run({"token": tokens, "position": position})
        position += len(tokens)
        yield int(token[0])
        tokens = token


if __name__ == "__main__":
    graph = decoder()
    for device in rlx.available_devices() if len(sys.argv) < 2 else sys.argv[1:]:
        with rlx.compile(graph, device, weights(graph)) as cg:
            bind(cg, graph)
            tokens = generate(cg, [7, 30, 11], LENGTH - 2)
            first, before = next(tokens), cg.bytes_moved
            rest = list(tokens)
            after = cg.bytes_moved
        print(f"{device}: {[first, *rest][:12]} ...")
        for name, a, b in zip(after._fields, after, before, strict=True):
            print(f"  {name}: {(a - b) / len(rest):.0f} bytes a step")
