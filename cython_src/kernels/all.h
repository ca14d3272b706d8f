/* Every kernel, compiled for the instruction set the including file has switched on.
   Before the inclusion: ISA (its name), VECTOR_BYTES, MICRO_VECTORS, and a function isa_usable. */
#include "call.h"
#include "elementwise/vecmath.h"

#include "half.h"
#include "products/blocks.h"
#include "lanes.h"
#include "elementwise/functions.h"

#define CONCAT2(a, b) a##b
#define CONCAT(a, b) CONCAT2(a, b)

#define TEXT2(a) #a
#define TEXT(a) TEXT2(a)

#include "elementwise/elementwise.h"
#include "windows/window.h"
#include "rows/reduce.h"
#include "movement/movement.h"
#include "windows/pool.h"
#include "rows/scan.h"
#include "movement/scatter.h"
#include "rows/sort.h"
#include "control/control.h"
#include "control/custom.h"

#define T float
#define SUFFIX f32
#define SINGLE
#include "typed.h"
#undef T
#undef SUFFIX
#undef SINGLE
#define T double
#define SUFFIX f64
#include "typed.h"
#undef T
#undef SUFFIX

#include "spectra/spectral.h"
#include "elementwise/random.h"
#include "products/integers.h"
#include "products/dequant.h"

/* The kernels. A name that stands here twice is a compile error: UNIQUE makes an enumerator of each. */
#define KERNELS(K) \
    K(region) \
    K(reduce_sum_f32) K(reduce_sum_f64) K(reduce_mean_f32) K(reduce_mean_f64) K(reduce_max_f32) \
    K(reduce_max_f64) K(reduce_min_f32) K(reduce_min_f64) K(reduce_prod_f32) K(reduce_prod_f64) \
    K(reduce_sum_i32) K(reduce_sum_u32) K(reduce_sum_i64) K(reduce_max_i32) K(reduce_max_u32) \
    K(reduce_max_i64) K(reduce_min_i32) K(reduce_min_u32) K(reduce_min_i64) K(reduce_prod_i32) \
    K(reduce_prod_u32) K(reduce_prod_i64) \
    K(arg_reduce_f32) K(arg_reduce_f64) K(arg_reduce_i32) K(arg_reduce_u32) K(arg_reduce_i64) \
    K(cumulate_f32) K(cumulate_f64) K(cumulate_i32) K(cumulate_u32) K(cumulate_i64) K(topk_f32) \
    K(topk_f64) K(topk_i32) K(topk_u32) K(topk_i64) \
    K(strided_copy_b1) K(strided_copy_b2) K(strided_copy_b4) K(strided_copy_b8) K(gather_b1) \
    K(gather_b2) K(gather_b4) K(gather_b8) K(scatter_f32) K(scatter_f64) K(scatter_i32) \
    K(scatter_u32) K(scatter_i64) K(scatter_bool) \
    K(pool_max_f32) K(pool_max_f64) K(pool_max_i32) K(pool_sum_f32) K(pool_sum_f64) \
    K(softmax_f32) K(layer_norm_f32) K(attention_f32) K(gated_product_f32) K(softmax_f64) \
    K(layer_norm_f64) K(attention_f64) K(gated_product_f64) \
    K(matmul_f32) K(matmul_f64) K(grouped_matmul_f32) K(grouped_matmul_f64) K(matmul_integer) \
    K(dequant_matmul_f32) K(dequantize_blocks_u8) \
    K(conv_f32) K(conv_pad_f32) K(conv_few_f32) K(conv_direct_f32) K(conv_depthwise_f32) \
    K(conv_transpose_f32) K(conv_long_f32) K(conv_f64) K(conv_pad_f64) K(conv_few_f64) \
    K(conv_direct_f64) K(conv_transpose_f64) K(conv_depthwise_narrow_f32) \
    K(interpolate_f32) K(recurrence_f32) K(selective_scan_f32) K(interpolate_f64) \
    K(recurrence_f64) K(selective_scan_f64) \
    K(fft_f32) K(rfft_f32) K(welch_peaks_f32) K(log_mel_f32) K(log_mel_backward_f32) \
    K(recursive_f32) K(find_peaks_f32) K(fft_f64) K(rfft_f64) K(recursive_f64) K(find_peaks_f64) \
    K(philox) K(custom) K(jump) K(jump_unless) K(next_trip)
#ifdef VNNI
#define VNNI_KERNELS(K) K(matmul_integer_vnni)
#else
#define VNNI_KERNELS(K)
#endif
#define UNIQUE(name) unique_##name,
enum { KERNELS(UNIQUE) VNNI_KERNELS(UNIQUE) KERNEL_COUNT };
#undef UNIQUE
#define ENTRY(name) {#name, kernel_##name},
static const rlx_named_kernel kernel_table[] = {KERNELS(ENTRY) VNNI_KERNELS(ENTRY) {NULL, NULL}};
#undef ENTRY

const rlx_table CONCAT(rlx_table_, ISA) = {
    TEXT(ISA), isa_usable, kernel_table, loop_table, VECTOR_BYTES, MICRO_VECTORS,
};
