/* The thread that uses a CompiledGraph now. Only threads that hold the GIL read or write it. */
#ifndef RLX_OWNER_H
#define RLX_OWNER_H

#include <stdint.h>

typedef struct {
    uintptr_t holder; /* the thread, see RLX_ME; 0: nobody */
} rlx_owner;

/* A number that identifies this thread; one instruction where the compiler has a builtin for it. Compilers say that they
   have it for Windows and macOS as well. There it can't be compiled, or reads a register that is no thread's. */
#if defined(__ELF__) && defined(__has_builtin)
#if __has_builtin(__builtin_thread_pointer) && (defined(__x86_64__) || defined(__aarch64__))
#define RLX_ME ((uintptr_t)__builtin_thread_pointer())
#endif
#endif
#ifndef RLX_ME
#define RLX_ME ((uintptr_t)PyThread_get_thread_ident())
#endif

/* No thread has this number. It marks what is closed as in use for good. */
#define RLX_CLOSED ((uintptr_t)-1)

#endif
