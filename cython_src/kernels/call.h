/* The signature of every compiled kernel: it takes the record of a call and returns a status. */
#ifndef RLX_CALL_H
#define RLX_CALL_H

#include <stdint.h>

#include "kernel_signatures.h"

typedef struct rlx_call {
    int (*fn)(const struct rlx_call *);
    void *in[RLX_INPUTS];   /* what is read, in the order of the signature; NULL for an absent operand */
    void *out[RLX_OUTPUTS]; /* what is written, then scratch */
    const void *p;          /* the parameters: the struct of the signature */
    int32_t part, parts;    /* the call computes part `part` of `parts` parts of the result; 0 of 1 is all of it */
    struct rlx_split *split; /* how threads share the call (parallel.h); NULL where the caller's thread makes it */
    struct rlx_team *team; /* the threads that make it together, phase by phase; NULL where it is made alone or in parts */
} rlx_call;

/* The arguments of a call by the names of its signature (rlx/abi): parameters p->name, operands in->name and
   out->name. */
#define RLX_ARGUMENTS(kernel, call)                                                               \
    RLX_MAYBE_UNUSED const rlx_##kernel *const p = (call)->p;                                     \
    RLX_MAYBE_UNUSED const rlx_##kernel##_in *const in = (const void *)(call)->in;                \
    RLX_MAYBE_UNUSED const rlx_##kernel##_out *const out = (const void *)(call)->out

#if defined(__GNUC__) || defined(__clang__)
#define RLX_UNLIKELY(condition) __builtin_expect(condition, 0)
#define RLX_NOINLINE __attribute__((noinline))
#define RLX_MAYBE_UNUSED __attribute__((unused))
#define RLX_INLINE inline __attribute__((always_inline))
#define RLX_PREFETCH(address) __builtin_prefetch(address)
/* Inside a loop: keeps the compiler from making vectors of it. Scatters of AVX-512 take longer than the stores that
   they replace. */
#define RLX_SCALAR_LOOP __asm__ volatile("")
/* Before a loop: what one turn writes, no other turn reads, so that the loop can be made of vectors. */
#if defined(__clang__)
#define RLX_INDEPENDENT _Pragma("clang loop vectorize(assume_safety)")
#else
#define RLX_INDEPENDENT _Pragma("GCC ivdep")
#endif
/* Keeps an address in one register. The compiler would keep a register for each constant distance from another one. */
#define RLX_ONE_REGISTER(address) __asm__("" : "+r"(address))
#else
#define RLX_UNLIKELY(condition) (condition)
#define RLX_NOINLINE
#define RLX_MAYBE_UNUSED
#define RLX_INLINE inline
#define RLX_PREFETCH(address) ((void)0)
#define RLX_SCALAR_LOOP ((void)0)
#define RLX_ONE_REGISTER(address) ((void)0)
#define RLX_INDEPENDENT
#endif

typedef struct {
    int64_t first, last; /* `last` is not included */
} rlx_range;

/* The items of this part of a call (parts.c). Kernels with independent rows do not ask: their parts are calls on
   fewer rows. */
extern rlx_range rlx_part(const rlx_call *call, int64_t items, int64_t unit);

/* The items [first, last) that this part computes. Parts run in any order on any thread, and an item comes out the same
   in any part. Each range begins at a multiple of `unit` and is at least that long. */
static inline rlx_range rlx_share(const rlx_call *call, int64_t items, int64_t unit)
{
    if (RLX_UNLIKELY(call->parts > 1)) return rlx_part(call, items, unit);
    return (rlx_range){0, items};
}

/* The same for a result of several matrices (pieces). Pieces are shared if there are enough of them, otherwise rows or
   columns of every piece: rows if tiles of `tall` rows are more than tiles of `wide` columns, never a single row. */
typedef struct {
    rlx_range pieces, rows, columns;
} rlx_block;

typedef void rlx_cut(rlx_block *block, const rlx_call *call, int64_t tall, int64_t wide);
extern rlx_cut rlx_part_of_block, rlx_part_of_tiles;

static RLX_INLINE rlx_block rlx_share_by(rlx_cut *cut, const rlx_call *call, int64_t pieces, int64_t rows, int64_t columns,
                                         int64_t tall, int64_t wide)
{
    rlx_block block = {{0, pieces}, {0, rows}, {0, columns}};
    if (RLX_UNLIKELY(call->parts > 1)) {
        rlx_block own = block; /* a copy, so that `block` itself stays in registers */
        cut(&own, call, tall, wide);
        block = own;
    }
    return block;
}
#define rlx_share_block(...) rlx_share_by(rlx_part_of_block, __VA_ARGS__)

/* The same for products, each of whose results reads a row of one operand and a column of another: a part is a tile,
   since a tile of as many rows as columns reads least. Pieces are shared if there are enough of them. */
#define rlx_share_tiles(...) rlx_share_by(rlx_part_of_tiles, __VA_ARGS__)

/* Calls whose steps need the results of the step before are made by a team: all threads of it run the kernel, and the
   work of each phase is cut into tasks. A phase ends when all of its tasks are made. The tasks of threads that have not
   come, or that are held up before they begin, are made by others, so that nobody waits for a thread to come. All work
   must be in tasks. */
typedef void (*rlx_task)(void *context, int64_t task);

/* How many tasks a phase has. */
extern int64_t rlx_tasks(const rlx_call *call);

/* Makes the tasks of a phase with the rest of the team. Phases count from 0, and every thread goes through all of them. */
extern void rlx_phase(const rlx_call *call, int64_t phase, rlx_task task, void *context);

typedef int (*rlx_kernel)(const rlx_call *);
/* An elementwise loop: n results at d from operands a, b, c. */
typedef void (*rlx_loop)(void *d, const void *a, const void *b, const void *c, int64_t n);

typedef struct {
    const char *name;
    rlx_kernel function;
} rlx_named_kernel;

typedef struct {
    const char *name;
    rlx_loop function;
} rlx_named_loop;

/* Everything compiled for one instruction set. A table ends with a row whose name is NULL. */
typedef struct {
    const char *isa;
    int (*usable)(void);
    const rlx_named_kernel *kernels;
    const rlx_named_loop *loops;
    int vector_bytes, panel_vectors; /* bytes of a vector, and vectors of a panel (products/micro.h) */
    int (*has_dots)(void); /* whether the processor runs its kernels for dot products of bytes */
} rlx_table;

/* RLX_JUMP: the next call is the one that rlx_jump_target names, which the parameters of a jump begin with.
   RLX_PYTHON_ERROR and RLX_CUSTOM_ERROR: a Python function, or the C function of a registered operation, failed. */
enum { RLX_OK = 0, RLX_OUT_OF_RANGE = 1, RLX_JUMP = 2, RLX_PYTHON_ERROR = 3, RLX_CUSTOM_ERROR = 4 };

extern const rlx_table rlx_table_plain, rlx_table_neon, rlx_table_avx2, rlx_table_avx512;

#endif
