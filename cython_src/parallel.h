/* The pool of threads that share one kernel call, part by part. */
#ifndef RLX_PARALLEL_H
#define RLX_PARALLEL_H

#include "kernels/call.h"

/* How threads share a call; the record of the call points to it. */
struct rlx_split {
    rlx_kernel kernel;          /* the kernel: makes one part, or all of it */
    int64_t parts, threads;     /* number of parts, and of threads that may make them */
    int64_t tasks;              /* tasks of a phase, where a team makes the call (call.h); 0 for parts */
    int64_t spin;               /* whether each thread has a core of its own, and may spin before it sleeps */
    char *scratch[RLX_OUTPUTS]; /* the second thread's memory for a scratch output; NULL for a result */
    int64_t apart;              /* bytes from there to the memory of the next thread */
    int64_t flush;              /* whether subnormal operands count as 0 (RLX_FLOATS_OPERANDS) */
    /* Kernels with independent rows: the number of rows, the word of the parameters that holds it, the number of words;
       and the bytes from one row to the next, 0 for operands that all rows use. For other kernels rows is 0, and the
       kernel asks for its part (call.h). */
    int64_t rows, index, words;
    int64_t in[RLX_INPUTS], out[RLX_OUTPUTS];
};

/* A kernel that has the pool make the parts of its call. The caller works too. If another call uses the pool, or no
   thread can be started, the caller makes everything itself, with the same bits. */
int rlx_parallel(const rlx_call *call);

/* The same on the caller's thread alone. */
int rlx_alone(const rlx_call *call);

/* Copies bytes that do not overlap, on at most so many threads; few bytes are copied by the caller. `spin` is that of
   rlx_split. */
void rlx_parallel_copy(void *to, const void *from, int64_t nbytes, int64_t threads, int64_t spin);

/* Before the first call. */
void rlx_parallel_init(void);

/* Threads of the pool; 0 before the first shared call, and after a fork. */
int64_t rlx_parallel_started(void);

/* Phases that teams have gone through. */
int64_t rlx_parallel_phases(void);

/* Calls that waited long for a thread in the middle of its part: other processes use its processor. */
int64_t rlx_parallel_held_up(void);

#endif
