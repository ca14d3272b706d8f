"""Many runs with one wait at the end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from rlx.backends.webgpu.device import GpuDevice
from rlx.backends.webgpu.faults import check
from rlx.backends.webgpu.hot import Maker
from rlx.backends.webgpu.mirror import from_device
from rlx.backends.webgpu.submissions import Traffic
from rlx.backends.webgpu.transfers import Several
from rlx.backends.webgpu.work import Batch
from rlx.ir.opdef import Array, TensorType

# Makes one run on the arguments; the function replaces its last submission.
RunWith = Callable[[Sequence[Any], Callable[[], None]], None]


class ManyRuns:
    """Runs on several sets of inputs; the results are staged separately and read back together.

    Args:
        gpu: The device.
        maker: Makes the submissions.
        traffic: What travels in a run.
        types: Shapes and dtypes of the outputs.
    """

    def __init__(
        self, gpu: GpuDevice, maker: Maker, traffic: Traffic, types: Sequence[TensorType]
    ) -> None:
        self._gpu, self._maker, self._traffic, self._types = gpu, maker, traffic, types
        # Staging memory for so many runs, kept for the next call until inputs or outputs of a run change.
        self._kept: Several | None = None

    def run(
        self,
        sets: Sequence[Sequence[Any]],
        batches: list[Batch],
        host_steps: Sequence[Any],
        run_with: RunWith,
    ) -> list[list[Array]]:
        """Runs on every set; as many at a time as there is staging memory for.

        Args:
            sets: Arguments, which fit.
            batches: What a run submits.
            host_steps: What runs on the host behind each batch but the last.
            run_with: Makes one run.

        Returns:
            Fresh arrays: the outputs of every set.
        """
        results: list[list[Array]] = []
        while len(results) < len(sets):
            results += self._run_some(sets[len(results) :], batches, host_steps, run_with)
        return results

    def forget(self) -> None:
        """Frees the staging memory, after a change of inputs, outputs or feeds."""
        if self._kept is not None:
            self._kept.staging.destroy()
            self._kept = None

    def _run_some(
        self,
        sets: Sequence[Sequence[Any]],
        batches: list[Batch],
        host_steps: Sequence[Any],
        run_with: RunWith,
    ) -> list[list[Array]]:
        every = self._traffic.every
        last = self._traffic.submissions(batches, host_steps, every, True, whole=True)[-1]
        sets = sets[: Several.most(self._gpu, last)]
        if self._kept is None or len(self._kept.blocks) != len(sets):
            self.forget()
            self._kept = Several(self._gpu, self._maker, last, len(sets))
        many = self._kept
        for at, arrays in enumerate(sets):
            run_with(arrays, partial(_submit, many, at * many.stride))
        check(many.runner, many.runner.wait())
        places = [many.place(offset) for offset, _ in self._traffic.outputs]
        return [
            [from_device(block[at:], type) for at, type in zip(places, self._types, strict=True)]
            for block in many.blocks
        ]


def _submit(many: Several, place: int) -> None:
    """Submits the last batch of a run, whose results go to ``place`` in the staging memory."""
    check(many.runner, many.runner.submit(place))
