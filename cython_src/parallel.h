/* The pool of threads that share kernel calls, part by part. */
#ifndef RLX_PARALLEL_H
#define RLX_PARALLEL_H

#include "kernels/call.h"

/* How threads share a call; the record of the call points to it. A call for one thread may be made by any. The words have names
   in split.py, but for the last one, which is the pool's. */
struct rlx_split {
    int64_t parts, threads;       /* number of parts, and of threads that may make them */
    int64_t tasks;                /* tasks of a phase, where a team makes the call (call.h); 0 for parts */
    int64_t flush;                /* whether subnormal operands count as 0 (RLX_FLOATS_OPERANDS) */
    int64_t once;                 /* whether a part changes what it reads, so that it can be made once only */
    int64_t apart;                /* bytes from the scratch memory of a thread to that of the next one */
    /* Kernels with independent rows: the number of rows, the word of the parameters that holds it, the number of words;
       and the bytes from one row to the next, 0 for operands that all rows use. For other kernels rows is 0, and the
       kernel asks for its part (call.h). */
    int64_t rows, index, words;
    int64_t scratch[RLX_OUTPUTS]; /* address of the second thread's memory for a scratch output; 0 for a result */
    int64_t in[RLX_INPUTS], out[RLX_OUTPUTS]; /* bytes of a row */
    int64_t usual; /* nanoseconds of its longest part, at most twice those of the time before; 0 if it was never made */
};

/* Makes calls from the first on until one does not return RLX_OK, which is in `status` then. Returns how many did. The pool
   makes those with a split, and the caller works too; it makes the others, and all while another caller has the pool. The
   bits are the same. */
int64_t rlx_parallel_run(const rlx_call *calls, int64_t count, int *status);

/* Restricts a call to the rows of its part; `params` becomes its parameters. */
void rlx_take_rows(rlx_call *call, int64_t *params, const struct rlx_split *split);

/* Copies bytes that do not overlap, on at most so many threads; few bytes are copied by the caller. */
void rlx_parallel_copy(void *to, const void *from, int64_t nbytes, int64_t threads);

/* Before the first call. */
void rlx_parallel_init(void);

/* Threads of the pool, 0 before the first shared call and after a fork; phases that teams have gone through; and how often a
   thread waited long for another one at its part or task: other processes use its processor. */
typedef struct {
    int64_t started, phases, held_up;
} rlx_pool_counts;

rlx_pool_counts rlx_parallel_counts(void);

#endif
