"""Memory of the CPU backend: aligned, zeroed, private, and in huge pages where it fills them."""

import mmap
import os

import numpy as np
import pytest

from rlx import DeviceMemoryError
from rlx.backends.executable import aligned
from rlx.backends.state_memory import write_state
from rlx.importers.mapped import map_file, release_pages, view

HUGE = 1 << 21


@pytest.mark.parametrize(
    "nbytes", [1, 100, HUGE // 2 - 1, HUGE // 2, HUGE + 7, 3 * HUGE - 1, 20 * HUGE]
)
def test_memory_is_zeroed_and_aligned(nbytes):
    memory = aligned(nbytes)
    large = nbytes >= HUGE // 2 and hasattr(mmap, "MADV_HUGEPAGE")
    assert memory.ctypes.data % (HUGE if large else 256) == 0
    assert len(memory) == nbytes
    assert not memory.any()
    memory[:] = 1
    shared = [aligned(nbytes, tight=True, filled=True) for _ in range(9)]
    assert not any(
        block.any() or block.ctypes.data % 256 or len(block) != nbytes for block in shared
    )


def test_states_are_written_where_they_differ(rng):
    memory = np.zeros((3, 1 << 16), np.float32)
    for value in (np.zeros_like(memory), -memory, rng.standard_normal(memory.shape, np.float32)):
        write_state(memory, value)
        assert memory.tobytes() == value.tobytes()  # -0.0 is not 0.0


def test_arrays_of_a_file_stay_what_they_are_without_their_pages(tmp_path, rng):
    values = rng.standard_normal((4, 1 << 16), np.float32)
    (tmp_path / "values").write_bytes(values.tobytes())
    whole = view(map_file(tmp_path / "values", "test"), values.dtype, values.shape, 0)
    assert whole[1:, ::2].sum() == values[1:, ::2].sum()
    release_pages([whole[1:], whole.T, values])
    np.testing.assert_array_equal(whole, values)


def test_absurd_sizes_are_memory_errors():
    for nbytes in (1 << 60, 1 << 70):
        with pytest.raises(DeviceMemoryError, match="no room"):
            aligned(nbytes)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system can't fork")
def test_a_forked_process_writes_to_its_own_copy():
    memory = aligned(HUGE)
    child = os.fork()
    if child == 0:
        memory[:] = 1
        os._exit(0)
    os.waitpid(child, 0)
    assert not memory.any()
