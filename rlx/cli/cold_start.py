"""One first run of a model in a process of its own: what ``rlx bench --cold`` starts, again and again.

It reads what to do from its argument, and prints the milliseconds of each phase as JSON. Nothing is imported before the
clock runs but what the clock needs.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any

# A phase of rlx and the row that it counts for, by the names of its spans; the others are named as their spans.
_ROWS = {
    "wgpu": "adapters",
    "estimate": "choice",
    "pass": "passes",
    "memory plan": "schedule",
    "hash": "cache",
    **dict.fromkeys(("allocate", "link", "load"), "buffers"),
}
# The order in which they are shown; others stand before the last one.
ORDER = (
    *("python", "numpy", "import", "read", "nodes", "verify", "adapters", "device", "choice"),
    "cache",
    *("passes", "schedule", "render", "pipelines", "buffers", "params", "host part", "session"),
    *("compile", "store", "first run"),
)


def main() -> None:
    """Makes one first run."""
    spec = json.loads(sys.argv[1])
    results = {"python": (time.time() - spec["started"]) * 1e3}
    clock = _PhaseClock(results)
    import numpy as np

    clock.lap("numpy")
    with np.load(spec["inputs"]) as stored:
        inputs = {name: stored[str(i)] for i, name in enumerate(spec["names"])}
    clock.restart()
    run = _onnxruntime if spec["contestant"] == "onnxruntime" else _rlx
    run(spec, inputs, clock)
    print(json.dumps(results), flush=True)


class _PhaseClock:
    """Writes down how many milliseconds each phase took."""

    def __init__(self, results: dict[str, float]) -> None:
        self.found = results
        self.restart()

    def restart(self) -> None:
        """Restarts the clock: earlier time counts for nothing."""
        self._last = time.perf_counter_ns()

    def lap(self, phase: str, spans: Sequence[Any] = ()) -> None:
        """Ends a phase. Its spans count for themselves, each without those inside it."""
        now = time.perf_counter_ns()
        rest = now - self._last
        for name, ns in alone(spans).items():
            row = _ROWS.get(name, _ROWS.get(name.partition(" ")[0], name))
            self.found[row] = self.found.get(row, 0.0) + ns / 1e6
            rest -= ns
        self.found[phase] = self.found.get(phase, 0.0) + rest / 1e6
        self.restart()


def alone(spans: Sequence[Any]) -> Mapping[str, int]:
    """Nanoseconds of spans by name, each without the spans inside it; they lie in or behind each other."""
    results: dict[str, int] = {}
    stack: list[Any] = []
    for span in sorted(spans, key=lambda item: (item.start, -item.end)):
        while stack and stack[-1].end <= span.start:
            stack.pop()
        results[span.name] = results.get(span.name, 0) + span.end - span.start
        if stack:
            results[stack[-1].name] -= span.end - span.start
        stack.append(span)
    return results


def _rlx(spec: Mapping[str, Any], inputs: Mapping[str, Any], clock: _PhaseClock) -> None:
    import rlx
    from rlx.ir.spans import phases

    rlx.open_ahead(spec["contestant"])
    _ = rlx.compile, rlx.onnx.Model  # imported when they are first used
    clock.lap("import")
    options = rlx.CompileOptions(threads=spec["threads"])
    with phases() as spans:
        run: Callable[[Any], Any]
        if spec["model"].lower().endswith(".onnx"):
            run = rlx.onnx.Model(spec["model"], device=spec["contestant"], options=options).run
        else:
            graph, _ = import_module("rlx.model_files").load(spec["model"], {})
            run = rlx.compile(graph, spec["contestant"], options=options).run
    clock.lap("read", spans)
    with phases() as spans:
        run(inputs)
    clock.lap("first run", spans)


def peer_session(onnxruntime: Any, spec: Mapping[str, Any]) -> Any:
    """The model of a contestant in onnxruntime, on the CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.inter_op_num_threads = spec["threads"], 1
    options.log_severity_level = 3
    providers = ["CPUExecutionProvider"]
    return onnxruntime.InferenceSession(spec["model"], options, providers=providers)


def _onnxruntime(spec: Mapping[str, Any], inputs: Mapping[str, Any], clock: _PhaseClock) -> None:
    onnxruntime = import_module("onnxruntime")
    clock.lap("import")
    session = peer_session(onnxruntime, spec)
    clock.lap("session")
    session.run(None, dict(inputs))
    clock.lap("first run")


if __name__ == "__main__":
    main()
