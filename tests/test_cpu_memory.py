"""Memory of the CPU backend: aligned, zeroed, private, and in huge pages where it fills them."""

import mmap
import os

import pytest

from rlx import DeviceMemoryError
from rlx.backends.executable import aligned

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
