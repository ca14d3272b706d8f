"""Peers of ``benchmarks/gpu.py``, each in a process of its own."""

PEERS = ()


def run_peer(peer, names, small):
    return {"absent": "not yet"}
