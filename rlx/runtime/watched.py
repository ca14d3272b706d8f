"""An executable that records its calls as spans, used in place of the plain one during a trace or profile."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from rlx.backends.base import Executable, fill, set_params
from rlx.backends.recorder import Recorder
from rlx.ir.opdef import Array

# Calls that are spans, by the names that the methods of CompiledGraph have.
_CALLS: Mapping[str, str] = {
    "run_slots": "run",
    "run_outputs": "run_read_outputs",
    "submit": "commit_no_wait",
    "wait": "sync_pending",
    "run_on_device": "run_gpu",
    "run_many": "run_pipelined",
    "read_row": "read_output_row",
    "write_input": "bind_handle",
    "read_input": "read_handle",
    "set_param": "set_param",
}
# Number of runs that a call makes, from its arguments.
_RUNS: Mapping[str, Callable[..., int]] = {
    "run_slots": lambda *arrays: 1,
    "run_outputs": lambda *given: 1,
    "run_on_device": lambda *given: 1,
    "submit": lambda *arrays: 1,
    "run_many": len,
}


class WatchedExecutable:
    """Wraps an executable and records its calls as spans.

    Args:
        plain: The executable.
        recorder: Where spans go; kernels too, if the executable can say when they ran.
        moved: Bytes that an executable moved which this one replaces.
    """

    def __init__(
        self, plain: Executable, recorder: Recorder, moved: Mapping[str, int] | None = None
    ) -> None:
        self.plain, self.recorder = plain, recorder
        counts, before = self.plain.bytes_moved._asdict(), moved or {}
        self._base = {name: counts[name] - before.get(name, 0) for name in counts}
        self._record: Callable[[Recorder | None], None] = getattr(plain, "record", _nothing)
        self._record(recorder)
        self._count()

    run_slots: Callable[..., tuple[Array, ...]]  # set below

    # No compiled ways around this class: spans are recorded in Python, so runs are guarded there.
    owned_by = None
    run_named = None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.plain, name)

    def run_fresh(self, given: Sequence[tuple[int, Array]]) -> list[Array]:
        """A run on the input views, which is a span, and copies of its outputs."""
        fill(self.plain, given)
        return [view.copy() for view in self.run_slots()]

    def set_params(self, values: Mapping[str, Array]) -> None:
        """Several params, which are one span; not every executable can set them at once."""
        with self.recorder.span("set_param"):
            set_params(self.plain, values)
        self._count()

    def end(self) -> None:
        """Ends the recording."""
        self._record(None)

    def moved(self) -> dict[str, int]:
        """Bytes moved since the recording began."""
        counts = self.plain.bytes_moved._asdict()
        return {name: counts[name] - self._base[name] for name in counts}

    def _count(self) -> None:
        self.recorder.count("bytes moved", self.moved())


def _spanned(name: str, shown: str) -> Callable[..., Any]:
    """A method that calls the plain executable's within a span."""

    def call(self: WatchedExecutable, *given: Any) -> Any:
        with self.recorder.span(shown):
            found = getattr(self.plain, name)(*given)
        if name in _RUNS:
            self.recorder.runs += _RUNS[name](*given)
        self._count()
        return found

    return call


# Set on the class: functions stored in the object would make a reference cycle and delay its freeing.
for _name, _shown in _CALLS.items():
    setattr(WatchedExecutable, _name, _spanned(_name, _shown))


def _nothing(recorder: Recorder | None) -> None:
    """Used as ``record`` for executables that have none."""
