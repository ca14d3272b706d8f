/* The kernels for whatever the compiler's default target is: the fallback everywhere, built for size. */
#include <stddef.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O2", "tree-vectorize")
#endif
static int isa_usable(void) { return 1; }
#define ISA plain
#define VECTOR_BYTES 16
#define TILE_ROWS 6
#include "all.h"
