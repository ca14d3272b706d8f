# The C types of cython_src/kernels/call.h: the one place where Cython learns of them.
from libc.stdint cimport int32_t, int64_t

cdef extern from "call.h" nogil:
    int RLX_INPUTS
    int RLX_OUTPUTS

    # The first parameter of a call that may answer RLX_JUMP.
    ctypedef struct rlx_jump_target:
        int64_t target

    ctypedef struct rlx_python:
        void* function

    ctypedef struct rlx_call:
        int (*fn)(const rlx_call*) noexcept nogil
        void* ins "in"[8]
        void* out[4]
        const void* p
        int32_t part
        int32_t parts
        const void* split

    ctypedef int (*rlx_kernel)(const rlx_call*) noexcept nogil
    ctypedef void (*rlx_loop)(void*, const void*, const void*, const void*, int64_t) noexcept nogil

    ctypedef struct rlx_named_kernel:
        const char* name
        rlx_kernel function

    ctypedef struct rlx_named_loop:
        const char* name
        rlx_loop function

    ctypedef struct rlx_table:
        const char* isa
        int (*usable)() noexcept nogil
        const rlx_named_kernel* kernels
        const rlx_named_loop* loops
        int vector_bytes
        int panel_vectors
        int (*has_dots)() noexcept nogil

    const rlx_table rlx_table_plain
    const rlx_table rlx_table_neon
    const rlx_table rlx_table_avx2
    const rlx_table rlx_table_avx512

    int RLX_OK
    int RLX_OUT_OF_RANGE
    int RLX_JUMP
    int RLX_PYTHON_ERROR
    int RLX_CUSTOM_ERROR

cdef extern from "parallel.h" nogil:
    struct rlx_split:
        pass

    int64_t rlx_parallel_run(const rlx_call*, int64_t, int*) noexcept nogil
    void rlx_parallel_copy(void*, const void*, int64_t, int64_t) noexcept nogil
    void rlx_parallel_init()
    ctypedef struct rlx_pool_counts:
        int64_t started, phases, held_up

    rlx_pool_counts rlx_parallel_counts()

cdef extern from "floats.h" nogil:
    ctypedef unsigned int rlx_floats
    const rlx_floats RLX_FLOATS_IEEE
    const rlx_floats RLX_FLOATS_RESULTS
    rlx_floats rlx_floats_get()
    void rlx_floats_set(rlx_floats)
    rlx_floats rlx_floats_enter(rlx_floats)
