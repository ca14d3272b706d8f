"""The first graph: build, compile, run, and look at what was compiled."""

import numpy as np

import rlx

g = rlx.Graph("first")
x = g.input("x", (2, 4))
w, b = g.param("w", (4, 3)), g.param("b", (3,))
g.set_outputs([g.gelu(x @ w + b)])
print(g)

params = {"w": np.eye(4, 3, dtype=np.float32), "b": np.array([0.5, -0.5, 0.0], np.float32)}
with rlx.compile(g, device="cpu", params=params) as cg:
    (y,) = cg.run({"x": np.eye(2, 4, dtype=np.float32)})
    print(y)
    for stage in ("fused", "schedule", "memory"):
        print(cg.as_text(stage))
