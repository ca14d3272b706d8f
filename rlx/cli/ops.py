"""``rlx ops``: the devices of each operation, from the records; and the coverage of the conformance suite."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from typing import Any, cast

from rlx.cli import screen
from rlx.ir.opdef import NO_F64, REGISTRY, OpDef
from rlx.ir.shape import READ_SIZE
from rlx.ops.conformance_cases import Case, cases
from rlx.ops.placeholders import LEAVES
from rlx.passes.schedule import host_nodes

# The accepted reasons for the host on WebGPU: f64, a loop of unknown length, a custom op without WGSL.
ALLOWED = (
    NO_F64,
    "the number of trips is only known as it runs",
    "custom op ",
    "the weights of these experts stay on the host",
    "products that widen their weights are made for the CPU alone",
    "products that round an operand to 16 bits are made for the CPU alone",
    "convolutions with channels last are made for the CPU alone",
)


def add_arguments(command: argparse.ArgumentParser) -> None:
    """The options of the command, besides ``--json``."""
    command.add_argument(
        "--coverage", action="store_true", help="list the cases of the conformance suite"
    )


def run(args: argparse.Namespace) -> int:
    """The support table, or with --coverage what the conformance suite runs; 1 when something lacks."""
    if args.coverage:
        screen.show_rows(coverage(), "conformance cases per op and backend", args.json)
        lacking = untested()
        if lacking:
            screen.say(f"rlx ops: no conformance case for {', '.join(lacking)}", error=True)
        return int(bool(lacking))
    rows = support()
    missing = [
        f"{row['op']}: {entry}" for row in rows for entry in cast("list[str]", row["missing"])
    ]
    if not args.json:
        rows = [{k: v for k, v in row.items() if k != "missing"} for row in rows]
    title = "operations, their dtypes and how each device runs them (WebGPU: f64 on the host)"
    screen.show_rows(rows, title, args.json)
    for entry in missing:
        screen.say(f"rlx ops: no WebGPU kernel: {entry}", error=True)
    return int(bool(missing))


def public_ops() -> list[OpDef]:
    """The ops that graphs are built with, by name."""
    return sorted((o for o in REGISTRY.values() if not o.internal), key=lambda o: o.name)


def _reasons(opdef: OpDef) -> dict[str, str]:
    """Why nodes of an op's samples run on the host on WebGPU, and an example of each."""
    results: dict[str, str] = {}
    seen: set[Any] = set()
    for case in cases(only=opdef.name):
        if (key := (case.number < 2, case.dtypes)) in seen and case.number >= 2:
            continue
        seen.add(key)
        graph = case.graph()
        for number, reason in host_nodes(graph, "webgpu").items():
            # No backend has a kernel for it: the compiler cuts the graph there.
            if graph.nodes[number].op != READ_SIZE:
                results.setdefault(reason, str(case))
    return results


def _how(opdef: OpDef, backend: str) -> str:
    if opdef.view:
        return "view"
    if opdef.expand is not None:
        return "of other ops"
    return "native" if opdef.kernels(backend) is not None else "-"


def support() -> list[dict[str, object]]:
    """One row per op: its dtypes, how each device runs it, and what has no kernel."""
    rows: list[dict[str, object]] = []
    for opdef in public_ops():
        reasons = _reasons(opdef)
        missing = [
            f"{reason} ({i})" for reason, i in reasons.items() if not reason.startswith(ALLOWED)
        ]
        host = [reason for reason in reasons if reason != NO_F64]
        webgpu = _how(opdef, "webgpu")
        rows.append(
            {
                "op": opdef.name,
                "dtypes": " ".join(sorted(map(str, opdef.accepts))),
                "cpu": _how(opdef, "cpu"),
                "webgpu": webgpu if not host else f"{webgpu}; on the host: {'; '.join(host)}",
                "missing": missing,
            }
        )
    return rows


def coverage() -> list[dict[str, object]]:
    """One row per op: how many conformance cases run on each backend, and in which dtypes.

    The suite in ``tests/test_conformance.py`` runs exactly these cases.
    """
    rows: list[dict[str, object]] = []
    for opdef in public_ops():
        results = list(_all_cases(opdef))
        native = [case for case in results if not host_nodes(case.graph(), "webgpu")]
        dtypes = {str(dtype) for case in results for dtype in case.dtypes[:1]}
        rows.append(
            {
                "op": opdef.name,
                "reference": len(results),
                "cpu": len(results),
                "webgpu": len(results),
                "webgpu native": len(native),
                "dtypes": " ".join(sorted(dtypes)),
            }
        )
    return rows


def _all_cases(opdef: OpDef) -> Iterator[Case]:
    yield from cases(only=opdef.name)
    yield from cases(only=opdef.name, bench=True)


def untested() -> list[str]:
    """Ops of the registry that no case covers on some backend."""
    return [
        name
        for name, opdef in REGISTRY.items()
        if name not in (*LEAVES, "part") and not any(True for _ in _all_cases(opdef))
    ]
