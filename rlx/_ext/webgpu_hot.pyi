from collections.abc import Callable, Sequence
from typing import Any

from rlx._ext.locks import ReadWriteLock, TryLock
from rlx._ext.program import RunSizes
from rlx.ir.opdef import Array

TOGETHER: int
FUNCTIONS: tuple[str, ...]
ABSENT: dict[str, tuple[str, ...]]
SIZES: dict[str, int]
DAWN_SIZES: dict[str, int]
NUMBERS: dict[str, int]

def stop_all() -> None: ...

class Api:
    def __init__(self, library: str, addresses: Sequence[int], instance: int) -> None: ...
    def send(self, queue: int, commands: int) -> bool: ...
    def read(self, buffer: int, to: Array) -> bool: ...

class HostViews:
    argument_slots: tuple[Array, ...]
    input_views: tuple[Array, ...]
    output_views: tuple[Array, ...]
    words: Array
    stale: bool
    version: int
    staged: Callable[[], Any] | None
    def __init__(
        self,
        argument_slots: tuple[Array, ...],
        input_views: tuple[Array, ...],
        output_views: tuple[Array, ...],
        sizes: RunSizes | None = None,
        words: Sequence[tuple[int, int]] = (),
    ) -> None: ...
    def resize(self, sizes: tuple[int, ...]) -> None: ...
    def settle(self) -> int: ...
    def grids(self, registers: Sequence[tuple[int, int]]) -> list[tuple[int, int]]: ...

class Dispatches:
    def __init__(
        self, rows: Sequence[tuple[int, int, int, int]], grids: Sequence[tuple[int, int]] = ()
    ) -> None: ...

class Runner:
    def __init__(
        self,
        api: Api,
        device: int,
        queue: int,
        dispatches: Dispatches,
        uploads: Sequence[tuple[int, int, int, int]],
        moves: Sequence[tuple[int, int, int, int, int]],
        copies: Sequence[tuple[int, int, int, int]],
        staging: int,
        staged: int,
        reads: Sequence[tuple[int, int, int]],
        upload_buffer: int,
        upload_bytes: int,
        spin_ns: int,
        moved: Array,
        keep: object,
        views: HostViews | None = None,
        lengths: Sequence[tuple[int, int, int, int]] = (),
    ) -> None: ...
    def set_gate(self, gate: ReadWriteLock) -> None: ...
    def submit(self, shift: int = 0) -> int: ...
    def wait(self) -> int: ...
    def run(self) -> int: ...
    def error(self) -> tuple[int, str]: ...

class Entry:
    def __init__(
        self,
        views: HostViews,
        failed: Callable[[Any], None],
        slow: Callable[[tuple[Any, ...]], None],
    ) -> None: ...
    @property
    def served(self) -> int: ...
    def compiled(
        self, lock: TryLock, names: tuple[str, ...]
    ) -> tuple[Callable[..., tuple[Array, ...]], Callable[[Any], list[Array] | None]]: ...
    def set_runners(
        self, on_arguments: Runner | None, on_views: Runner | None, positions: tuple[int, ...]
    ) -> None: ...
    def run_slots(self, *arrays: Any) -> tuple[Array, ...]: ...
    def run_dict(self, inputs: Any) -> list[Array] | None: ...
