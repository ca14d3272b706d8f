from typing import Any

from rlx.ir.opdef import Array

def isas() -> list[str]: ...
def kernels(isa: str) -> dict[str, int]: ...
def loops(isa: str) -> dict[str, int]: ...

class Program:
    def __init__(
        self,
        calls: list[tuple[int, list[int], list[int], Array, str]],
        input_views: tuple[Array, ...],
        output_views: tuple[Array, ...],
        keep: object,
    ) -> None: ...
    def run_slots(self, *arrays: Any) -> tuple[Array, ...]: ...
