/* How the arithmetic of this thread treats subnormal numbers: the register that says so, MXCSR or FPCR.

   RLX_FLOATS_RESULTS: results that are subnormal become 0. Operands count as they are, so that comparisons, minima and
   maxima are exact. On ARM no bit does that alone, and its processors lose no time on subnormals: there it is nothing.
   RLX_FLOATS_OPERANDS: subnormal operands count as 0, too.
   RLX_FLOATS_IEEE: neither; round to nearest, no traps. */
#ifndef RLX_FLOATS_H
#define RLX_FLOATS_H

#include <stdint.h>

typedef uint32_t rlx_floats;

#if defined(__x86_64__) || defined(_M_X64)
#include <xmmintrin.h>
#define RLX_FLOATS_IEEE 0x1f80u
#define RLX_FLOATS_RESULTS 0x8000u
#define RLX_FLOATS_OPERANDS 0x8040u
static inline rlx_floats rlx_floats_get(void) { return _mm_getcsr(); }
static inline void rlx_floats_set(rlx_floats floats) { _mm_setcsr(floats); }
#elif defined(__aarch64__) && defined(__GNUC__)
#define RLX_FLOATS_IEEE 0u
#define RLX_FLOATS_RESULTS 0u
#define RLX_FLOATS_OPERANDS (1u << 24)
static inline rlx_floats rlx_floats_get(void)
{
    uint64_t result;
    __asm__ volatile("mrs %0, fpcr" : "=r"(result));
    return (rlx_floats)result;
}
static inline void rlx_floats_set(rlx_floats floats)
{
    const uint64_t saved = floats;
    __asm__ volatile("msr fpcr, %0" : : "r"(saved) : "memory");
}
#else
#define RLX_FLOATS_IEEE 0u
#define RLX_FLOATS_RESULTS 0u
#define RLX_FLOATS_OPERANDS 0u
static inline rlx_floats rlx_floats_get(void) { return 0; }
static inline void rlx_floats_set(rlx_floats floats) { (void)floats; }
#endif

/* Sets the register and gives what it was. */
static inline rlx_floats rlx_floats_enter(rlx_floats floats)
{
    const rlx_floats before = rlx_floats_get();
    rlx_floats_set(floats);
    return before;
}

#endif
