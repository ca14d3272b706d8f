/* All kernels of one instruction set. The including file defines ISA (its name), VECTOR_BYTES (bytes of a vector),
   MICRO_VECTORS (vectors of a panel) and the function isa_usable. */
#if !defined(__GNUC__) && !defined(__clang__)
#error "rlx is built with GCC or clang: its kernels are written in their vector types"
#endif
#include "call.h"
#include "floats.h"
#include "generic.h"
#include "elementwise/vecmath.h"
#include "half.h"
#include "lanes.h"
#include "elementwise/functions.h"
#include "elementwise/angles.h"
#include "elementwise/powers.h"

#include "windows/window.h"
#include "rows/lines.h"
#include "rows/reduce.h"
#include "movement/copy.h"
#include "elementwise/elementwise.h"
#include "movement/pad.h"
#include "movement/gather.h"
#include "rows/scan.h"
#include "movement/scatter.h"
#include "rows/sort.h"
#include "selection/positions.h"
#include "selection/suppression.h"
#include "control/control.h"
#include "control/custom.h"

#include "products/byte_methods.h"
#include "products/integers.h"
#include "products/rounded.h"

#define T float
#define SUFFIX f32
#define SINGLE
#include "typed.h"

#define T double
#define SUFFIX f64
#include "typed.h"

#include "windows/pool.h"
#include "spectra/spectral.h"
#include "elementwise/random.h"
#include "products/block_products.h"
#include "products/dequant.h"
#include "windows/round_windows.h"

/* The kernels of all signatures (rlx/abi). "undeclared here" means that the header with the kernel is included neither
   above nor in typed.h, or that the kernel has another name. */
#ifndef DOT_FEATURES
#undef RLX_KERNELS_DOTS
#define RLX_KERNELS_DOTS(K)
#endif
#ifndef MMLA_FEATURES
#undef RLX_KERNELS_MMLA
#define RLX_KERNELS_MMLA(K)
#endif
#ifndef TILE_FEATURES
#undef RLX_KERNELS_TILES
#define RLX_KERNELS_TILES(K)
#endif
#define ENTRY(name) {#name, kernel_##name},
static const rlx_named_kernel kernel_table[] = {
    RLX_KERNELS(ENTRY) RLX_KERNELS_DOTS(ENTRY) RLX_KERNELS_MMLA(ENTRY) RLX_KERNELS_TILES(ENTRY) {NULL, NULL}};
#undef ENTRY

const rlx_table CONCAT(rlx_table_, ISA) = {
    TEXT(ISA), isa_usable, kernel_table, loop_table, VECTOR_BYTES, MICRO_VECTORS, isa_has_dots,
};
