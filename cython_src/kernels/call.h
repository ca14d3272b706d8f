/* The one shape of every compiled kernel: a call record in, a status out. */
#ifndef RLX_CALL_H
#define RLX_CALL_H

#include <stdint.h>

#include "kernel_signatures.h"

typedef struct rlx_call {
    int (*fn)(const struct rlx_call *);
    void *in[RLX_INPUTS];   /* what is read, in the order of the signature; NULL for an absent operand */
    void *out[RLX_OUTPUTS]; /* what is written, then scratch */
    const void *p;          /* the parameters: the struct of the signature */
    int32_t part, parts;    /* this part of so many of the result is made; 0 of 1 is all of it */
    const struct rlx_split *split; /* who makes the parts (parallel.h); NULL where one thread makes all */
} rlx_call;

/* The arguments of a call by the names of its signature (rlx/abi): parameters p->name, operands in->name and
   out->name. */
#define RLX_ARGUMENTS(kernel, call)                                                               \
    RLX_MAYBE_UNUSED const rlx_##kernel *const p = (call)->p;                                     \
    RLX_MAYBE_UNUSED const rlx_##kernel##_in *const in = (const void *)(call)->in;                \
    RLX_MAYBE_UNUSED const rlx_##kernel##_out *const out = (const void *)(call)->out

#ifdef __GNUC__
#define RLX_UNLIKELY(condition) __builtin_expect(condition, 0)
#define RLX_NOINLINE __attribute__((noinline))
#define RLX_MAYBE_UNUSED __attribute__((unused))
#define RLX_INLINE inline __attribute__((always_inline))
#define RLX_PREFETCH(address) __builtin_prefetch(address)
/* Inside a loop: keeps the compiler from making vectors of it. Scatters of AVX-512 take longer than the stores that
   they replace. */
#define RLX_SCALAR_LOOP __asm__ volatile("")
#else
#define RLX_UNLIKELY(condition) (condition)
#define RLX_NOINLINE
#define RLX_MAYBE_UNUSED
#define RLX_INLINE inline
#define RLX_PREFETCH(address) ((void)0)
#define RLX_SCALAR_LOOP ((void)0)
#endif

typedef struct {
    int64_t first, last; /* the last one is not in it */
} rlx_range;

/* Of the items that a call of several parts makes, those of its part (parallel.c). Kernels whose rows
   have nothing to do with each other need not ask: their calls of fewer rows are made for them. */
extern rlx_range rlx_part(const rlx_call *call, int64_t items, int64_t unit);

/* The items that a call makes. They are made in any order and by any thread: each comes out the same,
   whatever range it is in. Ranges begin at multiples of `unit`, and no range is shorter. */
static inline rlx_range rlx_share(const rlx_call *call, int64_t items, int64_t unit)
{
    if (RLX_UNLIKELY(call->parts > 1)) return rlx_part(call, items, unit);
    return (rlx_range){0, items};
}

/* The same of a result of several pieces: these, else some rows or columns of every one. Rows are
   shared where `tall` of them at a time make more pieces than `wide` columns. */
typedef struct {
    rlx_range pieces, rows, columns;
} rlx_block;

extern void rlx_part_of_block(rlx_block *block, const rlx_call *call, int64_t tall, int64_t wide);

static inline rlx_block rlx_share_block(const rlx_call *call, int64_t pieces, int64_t rows,
                                        int64_t columns, int64_t tall, int64_t wide)
{
    rlx_block block = {{0, pieces}, {0, rows}, {0, columns}};
    if (RLX_UNLIKELY(call->parts > 1)) {
        rlx_block own = block; /* so that the other stays in registers */
        rlx_part_of_block(&own, call, tall, wide);
        block = own;
    }
    return block;
}

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
    int vector_bytes, panel_vectors; /* of a vector, and vectors of a panel of a product (micro.h) */
} rlx_table;

/* RLX_JUMP: the next call is the one that rlx_jump_target names, which the parameters of a jump begin with.
   RLX_PYTHON_ERROR and RLX_CUSTOM_ERROR: a Python function, or the C function of a registered operation, failed. */
enum { RLX_OK = 0, RLX_INDEX_OUT_OF_RANGE = 1, RLX_JUMP = 2, RLX_PYTHON_ERROR = 3, RLX_CUSTOM_ERROR = 4 };

extern const rlx_table rlx_table_plain, rlx_table_avx2, rlx_table_avx512;

#endif
