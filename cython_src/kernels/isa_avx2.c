/* The kernels for x86-64 with AVX2, FMA and F16C, which all that have AVX2 have. Elsewhere the file is an unusable empty table. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "processor.h"
#ifdef RLX_X86_VECTORS
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx2,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx2,fma,f16c")
#endif
static int isa_usable(void) { return rlx_has_avx2(); }
static int isa_has_dots(void) { return rlx_has_dots_avx2(); }
#define ISA avx2
#define VECTOR_BYTES 32
#define MICRO_VECTORS 2
/* The target of kernels that multiply bytes by a dot product: not every processor has it. clang adds none of the
   features above. */
#define DOT_FEATURES "avx2,avxvnni,fma,f16c"
#include <immintrin.h>
#include "all.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "call.h"
static int isa_usable(void) { return 0; }
static const rlx_named_kernel no_kernels[] = {{NULL, NULL}};
static const rlx_named_loop no_loops[] = {{NULL, NULL}};
const rlx_table rlx_table_avx2 = {"avx2", isa_usable, no_kernels, no_loops, 0, 0, isa_usable};
#endif
