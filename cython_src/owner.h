/* Who uses a CompiledGraph now. Only threads that hold the GIL read or write it. */
#ifndef RLX_OWNER_H
#define RLX_OWNER_H

typedef struct {
    unsigned long holder; /* the thread's ident; 0: nobody */
} rlx_owner;

/* No thread has this ident. What is closed stays in use for good, so that nothing gets in. */
#define RLX_CLOSED ((unsigned long)-1)

#endif
