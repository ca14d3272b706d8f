# The compiled kernels, by name and address, and the pool of threads that makes calls together.
"""Compiled kernels of the CPU backend, for each instruction set."""

from libc.stdint cimport int64_t, uintptr_t
from libc.string cimport memset

from _types cimport (
    rlx_call,
    rlx_kernel,
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


def pool_counts():
    """Threads of the pool, phases of their teams, and waits for a late one, in this process: ``struct rlx_pool_counts``."""
    return rlx_parallel_counts()


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


def call_once(uintptr_t kernel, uintptr_t source, uintptr_t target, uintptr_t params):
    """Calls a kernel of one operand and one result, which needs no scratch memory, on the caller's thread.

    Args:
        kernel: Its address.
        source: Address of the operand.
        target: Address of the result.
        params: Address of its parameters.
    """
    cdef rlx_call call
    memset(&call, 0, sizeof(call))
    call.p, call.parts = <void*>params, 1
    call.ins[0], call.out[0] = <void*>source, <void*>target
    with nogil:
        (<rlx_kernel>kernel)(&call)


def kernels(str isa):
    """Addresses of the kernels by name, for one instruction set."""
    return _addresses(_table(isa).kernels)


def loops(str isa):
    """Addresses of the elementwise loops by name, for one instruction set."""
    return _addresses(<const rlx_named_kernel*>_table(isa).loops)


cdef extern from "processor.h":
    int rlx_has_mmla() nogil
    int rlx_has_tiles() nogil


_variants = {}


def variants(str isa):
    """The variants of an instruction set's kernels whose instructions the processor has, the best first.

    "tiles" multiplies tiles of 16 x 32 elements in bf16 (AMX), "mmla" those of 2 x 8 bytes (ARM's i8mm), "dots" adds up
    four products of bytes (AVX512_VNNI, AVX_VNNI, ARM's dot product).
    """
    if isa not in _variants:  # asking a processor takes long on a virtual machine
        has = {"tiles": rlx_has_tiles(), "mmla": rlx_has_mmla(), "dots": _table(isa).has_dots()}
        _variants[isa] = tuple(name for name, so in has.items() if so)
    return _variants[isa]


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
