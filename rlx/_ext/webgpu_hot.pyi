from collections.abc import Callable, Sequence
from typing import Any

from rlx._ext.locks import TryLock
from rlx.ir.opdef import Array

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

class Dispatches:
    def __init__(self, rows: Sequence[tuple[int, int, int, int]]) -> None: ...
    def resize(self, grids: Sequence[tuple[int, int]]) -> None: ...

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
    ) -> None: ...
    def resize(
        self,
        uploads: Sequence[tuple[int, int, int, int]],
        moves: Sequence[tuple[int, int, int, int, int]],
        copies: Sequence[tuple[int, int, int, int]],
        staged: int,
        reads: Sequence[tuple[int, int, int]],
    ) -> None: ...
    def submit(self, shift: int = 0) -> int: ...
    def wait(self) -> int: ...
    def run(self) -> int: ...
    def error(self) -> tuple[int, str]: ...

class Entry:
    def __init__(
        self,
        lock: TryLock,
        output_views: tuple[Array, ...],
        failed: Callable[[Any], None],
        slow: Callable[[tuple[Any, ...]], None],
    ) -> None: ...
    def set_runners(
        self,
        on_arguments: Runner | None,
        on_views: Runner | None,
        names: tuple[str, ...],
        slots: tuple[Array, ...],
    ) -> None: ...
    def run_slots(self, *arrays: Any) -> tuple[Array, ...]: ...
    def run_dict(self, inputs: Any) -> list[Array] | None: ...
