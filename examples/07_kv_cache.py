"""Text generation step by step: the keys and values of 12 layers never leave the device.

Every step writes one position of the caches, and the caches feed the next step by copies on the device.
The host sends nothing and reads one token. Weights are random: what comes out is nonsense, but the bytes that
move are those of a real decoder.
"""

import sys

import numpy as np

import rlx

LAYERS, WIDTH, HEADS, VOCABULARY, LENGTH = 12, 64, 4, 96, 48


def decoder(layers=LAYERS, length=LENGTH):
    """One step: token and position in, the next of each out, with every layer's keys and values."""
    g = rlx.Graph("decoder")
    token, position = g.input("token", (1,), "i32"), g.input("position", (1,), "i32")
    head = (1, HEADS, 1, WIDTH // HEADS)
    places = g.arange(length)
    written = g.reshape(g.eq(places, position), (1, 1, length, 1))
    ahead = g.reshape(
        g.where(g.gt(places, position), np.float32(-1e9), np.float32(0)), (1, 1, 1, length)
    )
    x = g.gather(g.param("embedding", (VOCABULARY, WIDTH)), token, axis=0)
    caches = []
    for index in range(layers):
        h = g.rms_norm(x, g.param(f"norm{index}", (WIDTH,)))
        q, k, v = g.split(h @ g.param(f"qkv{index}", (WIDTH, 3 * WIDTH)), (WIDTH,) * 3, axis=-1)
        stored = []
        for name, new in (("k", k), ("v", v)):
            cache = g.input(f"{name}{index}", (1, HEADS, length, WIDTH // HEADS))
            stored.append(g.where(written, g.reshape(new, head), cache))
        caches += stored
        y = g.attention(g.reshape(q, head), stored[0], stored[1], ahead, kind="bias")
        x = x + g.reshape(y, (1, WIDTH)) @ g.param(f"out{index}", (WIDTH, WIDTH))
        up = g.silu(x @ g.param(f"up{index}", (WIDTH, 2 * WIDTH)))
        x = x + up @ g.param(f"down{index}", (2 * WIDTH, WIDTH))
    logits = x @ g.param("head", (WIDTH, VOCABULARY))
    chosen = g.cast(g.argmax(logits, axis=-1), "i32")
    g.set_outputs([chosen, position + np.int32(1), *caches])
    return g


def weights(graph, seed=0):
    """Random values for every param."""
    rng = np.random.default_rng(seed)
    params = {node.name: node for node in graph.nodes if node.op == "param"}
    return {
        n: (rng.normal(size=p.shape) / np.sqrt(p.shape[0])).astype("f4") for n, p in params.items()
    }


def bind(cg, graph, first):
    """Binds token, position and caches to device memory, and lets the outputs feed them."""
    for name in graph.input_names:
        node = graph.named(name)
        start = [first] if name == "token" else np.zeros(node.shape, node.dtype.numpy)
        cg.bind_gpu_handle(name, np.asarray(start, node.dtype.numpy))
    for out_idx, name in enumerate(graph.input_names):
        cg.set_gpu_handle_feed(name, out_idx)


if __name__ == "__main__":
    graph = decoder()
    for device in rlx.available_devices() if len(sys.argv) < 2 else sys.argv[1:]:
        with rlx.compile(graph, device, weights(graph)) as cg:
            bind(cg, graph, first=7)
            before, tokens = cg.bytes_moved, []
            for _ in range(LENGTH):
                (token,) = cg.run_read_outputs({}, [0])
                tokens.append(int(token[0]))
            after = cg.bytes_moved
        print(f"{device}: {tokens[:12]} ...")
        for name, a, b in zip(after._fields, after, before, strict=True):
            print(f"  {name}: {(a - b) / LENGTH:.0f} bytes a step")
