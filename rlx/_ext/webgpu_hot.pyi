from collections.abc import Callable, Sequence
from typing import Any

from rlx.ir.opdef import Array

FUNCTIONS: tuple[str, ...]
SIZES: dict[str, int]

class Api:
    def __init__(self, addresses: Sequence[int]) -> None: ...

class Dispatches:
    def __init__(self, rows: Sequence[tuple[int, int, int, int]]) -> None: ...

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
        porch: int,
        porch_bytes: int,
        spin_ns: int,
        moved: Array,
        keep: object,
    ) -> None: ...
    def submit(self, shift: int = 0) -> int: ...
    def wait(self) -> int: ...
    def run(self) -> int: ...
    def error(self) -> tuple[int, str]: ...

class Entry:
    def __init__(
        self,
        guard: Any,
        input_views: tuple[Array, ...],
        output_views: tuple[Array, ...],
        entered: Callable[[], None],
        failed: Callable[[Any], None],
        take: Callable[[Sequence[Any]], None],
        slow: Callable[[], None],
    ) -> None: ...
    def prepare(self, runner: Runner | None, taken: tuple[Array, ...]) -> None: ...
    def run_slots(self, *arrays: Any) -> tuple[Array, ...]: ...
