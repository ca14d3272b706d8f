/* The kernels for whatever the compiler's default target is: the fallback everywhere. */
#include <stddef.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
static int isa_usable(void) { return 1; }
static int isa_has_dots(void) { return 0; }
#define ISA plain
#define VECTOR_BYTES 16
#define MICRO_VECTORS 2
#include "all.h"
