/* The kernels for x86-64 with AVX-512 F, DQ, BW and VL. Elsewhere the file is an unusable empty table. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "processor.h"
#ifdef RLX_X86_VECTORS
#include <immintrin.h>
#if defined(__clang__)
#pragma clang attribute push(__attribute__((target("avx512f,avx512dq,avx512bw,avx512vl,fma,f16c"))), apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512bw,avx512vl,fma,f16c")
#endif
static int isa_usable(void) { return rlx_has_avx512(); }
static int isa_has_dots(void) { return rlx_has_dots(); }
#define ISA avx512
#define VECTOR_BYTES 64
#define MICRO_VECTORS 4
/* The target of kernels that multiply bytes by a dot product: not every processor has it. clang adds none of the
   features above. */
#define DOT_FEATURES "avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,fma,f16c"
/* The same for products of tiles of bf16 (AMX), whose processors have all of this. */
#define TILE_FEATURES "avx512f,avx512dq,avx512bw,avx512vl,avx512vnni,avx512bf16,amx-tile,amx-bf16,fma,f16c"
#include "all.h"
#if defined(__clang__)
#pragma clang attribute pop
#endif
#else
#include "call.h"
static int isa_usable(void) { return 0; }
static const rlx_named_kernel no_kernels[] = {{NULL, NULL}};
static const rlx_named_loop no_loops[] = {{NULL, NULL}};
const rlx_table rlx_table_avx512 = {"avx512", isa_usable, no_kernels, no_loops, 0, 0, isa_usable};
#endif
