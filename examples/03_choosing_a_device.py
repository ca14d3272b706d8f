"""Choosing a device: what is here, what the cost model expects, and what it picks."""

import rlx
from rlx.device import describe_devices
from rlx.runtime.choose import choose

for found in describe_devices():
    print(f"{found.device}: {found.label}, {found.api}")

for n in (16, 256, 2048):
    g = rlx.Graph(f"matmul {n}")
    g.set_outputs([g.input("a", (n, n)) @ g.input("b", (n, n))])
    choice = choose(g)
    print(f"{n} x {n}: {choice.device} ({choice.reason})")
