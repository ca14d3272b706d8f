/* The thread that uses a CompiledGraph now, and bits that any thread may set.

   Where Python has a GIL, only threads that hold it get here, so that plain loads and stores do. Without one each step is
   a single one for all threads. */
#ifndef RLX_TRY_LOCK_H
#define RLX_TRY_LOCK_H

#include <stdint.h>

typedef struct {
    uintptr_t holder; /* the thread, see RLX_ME; 0: nobody */
} rlx_try_lock;

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

#ifdef Py_GIL_DISABLED
/* Who uses it now. */
static inline uintptr_t rlx_holder(const rlx_try_lock *owner) { return __atomic_load_n(&owner->holder, __ATOMIC_RELAXED); }
/* Takes it for this thread where nobody has it; whether that is so. */
static inline int rlx_acquire(rlx_try_lock *owner)
{
    uintptr_t nobody = 0;
    return __atomic_compare_exchange_n(&owner->holder, &nobody, RLX_ME, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED);
}
/* Leaves it to nobody (0), or closed. */
static inline void rlx_release(rlx_try_lock *owner, uintptr_t to) { __atomic_store_n(&owner->holder, to, __ATOMIC_RELEASE); }
static inline int rlx_bits(const int *bits) { return __atomic_load_n(bits, __ATOMIC_ACQUIRE); }
static inline void rlx_set_bits(int *bits, int some) { __atomic_fetch_or(bits, some, __ATOMIC_ACQ_REL); }
static inline void rlx_clear_bits(int *bits, int some) { __atomic_fetch_and(bits, ~some, __ATOMIC_ACQ_REL); }
#else
static inline uintptr_t rlx_holder(const rlx_try_lock *owner) { return owner->holder; }
static inline int rlx_acquire(rlx_try_lock *owner)
{
    if (owner->holder) return 0;
    owner->holder = RLX_ME;
    return 1;
}
static inline void rlx_release(rlx_try_lock *owner, uintptr_t to) { owner->holder = to; }
static inline int rlx_bits(const int *bits) { return *bits; }
static inline void rlx_set_bits(int *bits, int some) { *bits |= some; }
static inline void rlx_clear_bits(int *bits, int some) { *bits &= ~some; }
#endif

#endif
