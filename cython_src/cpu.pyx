# The compiled kernels, by name and address, and the pool of threads that makes calls together.
"""Compiled kernels of the CPU backend, for each instruction set."""

from libc.stdint cimport int64_t, uintptr_t

from _types cimport (
    rlx_named_kernel,
    rlx_parallel_copy,
    rlx_parallel_counts,
    rlx_parallel_init,
    rlx_parallel_run,
    rlx_table,
    rlx_table_avx2,
    rlx_table_avx512,
    rlx_table_neon,
    rlx_table_plain,
)

rlx_parallel_init()


def pool():
    """Addresses of ``rlx_parallel_run`` and of ``rlx_parallel_copy`` (parallel.h)."""
    return <uintptr_t><void*>rlx_parallel_run, <uintptr_t><void*>rlx_parallel_copy


def started_threads():
    """Threads that the pool has started in this process; they sleep until there is work."""
    return rlx_parallel_counts().started


def team_phases():
    """Phases that teams of threads have gone through in this process."""
    return rlx_parallel_counts().phases


def held_up_calls():
    """Times that a thread of this process waited long for another one in the middle of its part."""
    return rlx_parallel_counts().held_up


cdef const rlx_table* _table(str isa) except NULL:
    if isa == "plain":
        return &rlx_table_plain
    if isa == "neon":
        return &rlx_table_neon
    if isa == "avx2":
        return &rlx_table_avx2
    if isa == "avx512":
        return &rlx_table_avx512
    raise KeyError(isa)


def isas():
    """Names of the instruction sets usable on this processor, the best first."""
    return [name for name in ("avx512", "avx2", "neon", "plain") if _table(name).usable()]


cdef dict _addresses(const rlx_named_kernel* row):
    """Addresses of functions by name."""
    result = {}
    while row.name != NULL:
        result[row.name.decode()] = <uintptr_t><void*>row.function
        row += 1
    return result


def kernels(str isa):
    """Addresses of the kernels by name, for one instruction set."""
    return _addresses(_table(isa).kernels)


def loops(str isa):
    """Addresses of the elementwise loops by name, for one instruction set."""
    return _addresses(<const rlx_named_kernel*>_table(isa).loops)


cdef extern from "processor.h":
    int rlx_has_mmla() nogil


def variants(str isa):
    """The variants of an instruction set's kernels whose instructions the processor has, the best first.

    "mmla" multiplies tiles of 2 x 8 bytes (ARM's i8mm), "dots" adds up four products of bytes (AVX512_VNNI, AVX_VNNI,
    ARM's dot product).
    """
    return ("mmla",) * bool(rlx_has_mmla()) + ("dots",) * bool(_table(isa).has_dots())


cdef extern from "block_packing.h":
    int64_t rlx_panels_bytes(int scheme, int64_t n, int64_t k) nogil
    void rlx_move_blocks(int scheme, int64_t n, int64_t k, void* panels, void* rows, int back) nogil


def panels_bytes(int scheme, int64_t n, int64_t k):
    """Bytes of the panels of n rows of k quantised weights; 0 for a scheme that is not made into panels."""
    return rlx_panels_bytes(scheme, n, k)


def move_blocks(int scheme, int64_t n, int64_t k, uintptr_t panels, uintptr_t rows, bint back):
    """Packs n rows of k quantised weights into panels, or with ``back`` makes rows of panels; both are addresses."""
    with nogil:
        rlx_move_blocks(scheme, n, k, <void*>panels, <void*>rows, back)


def panel(str isa):
    """``(bytes of a vector, vectors of a panel)`` that products of an instruction set read packed weights in."""
    cdef const rlx_table* table = _table(isa)
    return table.vector_bytes, table.panel_vectors
