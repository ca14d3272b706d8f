/* The kernels for 64-bit ARM, whose processors all have NEON. Elsewhere the file is an unusable empty table. */
#include <math.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include "processor.h"
#ifdef RLX_ARM_VECTORS
#include <arm_neon.h>
static int isa_usable(void) { return 1; }
static int isa_has_dots(void) { return rlx_has_dots(); }
#define ISA neon
#define NEON
#define VECTOR_BYTES 16
#define MICRO_VECTORS 4
/* The targets of kernels that multiply bytes by a dot product, or by a product of small tiles: not every
   processor has these instructions. */
#if defined(__clang__)
#define DOT_FEATURES "dotprod"
#define MMLA_FEATURES "i8mm"
#else
#define DOT_FEATURES "arch=armv8.2-a+dotprod"
#define MMLA_FEATURES "arch=armv8.2-a+i8mm"
#endif
#include "all.h"
#else
#include "call.h"
static int isa_usable(void) { return 0; }
static const rlx_named_kernel no_kernels[] = {{NULL, NULL}};
static const rlx_named_loop no_loops[] = {{NULL, NULL}};
const rlx_table rlx_table_neon = {"neon", isa_usable, no_kernels, no_loops, 0, 0, isa_usable};
#endif
