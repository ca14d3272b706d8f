/* The pool of threads that make one kernel call together, part by part. */
#ifndef RLX_PARALLEL_H
#define RLX_PARALLEL_H

#include "kernels/call.h"

/* What a call that is split adds to its record. */
struct rlx_split {
    rlx_kernel kernel;          /* makes one part, or everything */
    int64_t parts, threads;     /* how many there are, and how many threads may make them */
    int64_t spin;               /* whether each of these has a core to look around on before it sleeps */
    char *scratch[RLX_OUTPUTS]; /* what the second thread uses instead of this output; NULL: the output itself */
    int64_t apart;              /* from there to that of the next thread */
    /* Where each part is a call on fewer rows: how many rows there are, which word of the parameters says so, of how
       many words; and the bytes from one row to the next, 0 for what all rows use. Otherwise rows is 0, and
       the kernel asks for its share (call.h). */
    int64_t rows, at, words;
    int64_t in[RLX_INPUTS], out[RLX_OUTPUTS];
};

/* A kernel that has the pool make the parts of its call. Whoever calls it works too. While another
   call has the pool, or no thread can be started, it makes everything itself, to the same bits. */
int rlx_parallel(const rlx_call *call);

/* Before the first call. */
void rlx_parallel_init(void);

/* Threads of the pool now running; 0 before the first call that is split, and after a fork. */
int64_t rlx_parallel_started(void);

#endif
