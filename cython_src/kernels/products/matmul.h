/* Batched matrix product with bias and activation, per type. */

static void NAME(activate)(T *y, int64_t n, int64_t act)
{
    static const rlx_loop table[] = {
        [RLX_ACT_RELU] = NAME(loop_relu), [RLX_ACT_GELU] = NAME(loop_gelu),
        [RLX_ACT_GELU_APPROX] = NAME(loop_gelu_approx), [RLX_ACT_SILU] = NAME(loop_silu),
        [RLX_ACT_SIGMOID] = NAME(loop_sigmoid), [RLX_ACT_TANH] = NAME(loop_tanh),
        [RLX_ACT_HARD_SWISH] = NAME(loop_hard_swish),
    };
    if (act) table[act](y, y, NULL, NULL, n);
}

/* One row. The right matrix, whose rows are ld apart, is read once and in place. Results of some columns stay in
   registers along k. */
static void NAME(gemv)(const T *a, const T *b, int64_t ld, const T *bias, T *c, int64_t k, int64_t n)
{
    int64_t j = 0;
    for (; j + 4 * VL <= n; j += 4 * VL) {
        VEC s0 = {0}, s1 = {0}, s2 = {0}, s3 = {0};
        if (bias) {
            s0 = *(const VEC *)(bias + j), s1 = *(const VEC *)(bias + j + VL);
            s2 = *(const VEC *)(bias + j + 2 * VL), s3 = *(const VEC *)(bias + j + 3 * VL);
        }
        const T *row = b + j;
        for (int64_t i = 0; i < k; i++, row += ld) {
            const T x = a[i];
            s0 += x * *(const VEC *)row;
            s1 += x * *(const VEC *)(row + VL);
            s2 += x * *(const VEC *)(row + 2 * VL);
            s3 += x * *(const VEC *)(row + 3 * VL);
        }
        *(VEC *)(c + j) = s0, *(VEC *)(c + j + VL) = s1;
        *(VEC *)(c + j + 2 * VL) = s2, *(VEC *)(c + j + 3 * VL) = s3;
    }
    for (; j + VL <= n; j += VL) {
        VEC s = {0};
        if (bias) s = *(const VEC *)(bias + j);
        for (int64_t i = 0; i < k; i++) s += a[i] * *(const VEC *)(b + i * ld + j);
        *(VEC *)(c + j) = s;
    }
    if (j < n && n >= VL) {
        /* The last vector overlaps columns that are done. Every column of a row is then summed in the same order, so
           that equal columns give equal results. */
        j = n - VL;
        VEC s = {0};
        if (bias) s = *(const VEC *)(bias + j);
        for (int64_t i = 0; i < k; i++) s += a[i] * *(const VEC *)(b + i * ld + j);
        *(VEC *)(c + j) = s;
        return;
    }
    for (; j < n; j++) {
        T s = bias ? bias[j] : 0;
        for (int64_t i = 0; i < k; i++) s += a[i] * b[i * ld + j];
        c[j] = s;
    }
}

/* One row times a transposed right matrix [n, k], or rows [n, k] times one column: a dot product for each result. `start`
   is what each sum begins with. */
static void NAME(gemv_transposed)(const T *a, const T *b, T start, T *c, int64_t k, int64_t n)
{
    for (int64_t j = 0; j < n; j++) c[j] = start;
    NAME(add_dots)(b, k, n, k, a, c);
}

#include "products/micro.h"
#include "products/panels.h"

/* Columns [j0, j0 + width) of a product with one matrix of n columns, packed (see panels.h) or row by row. Rows of a
   are k apart. */
static RLX_NOINLINE void NAME(some_columns)(const T *a, const void *b, int64_t packed, int64_t j0, const T *bias, T *c,
                                         int64_t ldc, int64_t m, int64_t k, int64_t n, int64_t width, int64_t act,
                                         T *scratch)
{
    const T *loose = (const T *)b + j0;
    if (bias) bias += j0;
    if (packed) {
        NAME(packed_product)(a, k, b, packed, j0, bias, c, ldc, m, k, n, width, act, scratch);
    } else if (m > 1) {
        NAME(loose_product)(a, k, loose, n, bias, c, ldc, m, k, width, 0, act, scratch);
    } else {
        NAME(gemv)(a, loose, n, bias, c, k, width);
        NAME(activate)(c, width, act);
    }
}

/* The products of a part of a call. bias_at is where the bias begins in its operand. packed_stride counts bytes; the
   steps of the batch axes count matrices. */
static RLX_INLINE void NAME(products)(const rlx_call *call, rlx_block own)
{
    RLX_ARGUMENTS(matmul, call);
    const int64_t m = p->m, k = p->k, n = p->n, act = p->act;
    const int64_t transposed = p->transposed_b, packing = p->packing;
    const T *bias = in->bias ? (const T *)in->bias + p->bias_at : NULL;
    const int64_t i0 = own.rows.first, height = own.rows.last - i0;
    const int64_t j0 = own.columns.first, width = own.columns.last - j0;
    if (bias) bias += j0;
    for (int64_t item = own.pieces.first; item < own.pieces.last; item++) {
        int64_t rest = item, a_at = 0, b_at = 0;
        for (int64_t axis = p->rank - 1; axis >= 0; axis--) {
            a_at += rest % p->dims[axis] * p->a_steps[axis];
            b_at += rest % p->dims[axis] * p->b_steps[axis];
            rest /= p->dims[axis];
        }
        const T *a = (const T *)in->a + (a_at * m + i0) * k;
        const T *b = (const T *)in->b + b_at * k * n;
        T *c = (T *)out->y + (item * m + i0) * n + j0;
        if (n == 1 && !packing) {
            NAME(gemv_transposed)(b, a, bias ? bias[0] : 0, c, k, height);
            NAME(activate)(c, height, act);
            continue;
        }
        if (m >= 4 || (m > 1 && !transposed) || packing) {
            if (packing)
                NAME(packed_product)(a, k, (const char *)in->b + b_at * p->packed_stride, packing, j0, bias, c, n,
                                     height, k, n, width, act, out->panel);
            else
                NAME(loose_product)(a, k, b + j0 * (transposed ? k : 1), transposed ? k : n, bias, c, n, height, k,
                                    width, transposed, act, out->panel);
            continue;
        }
        b += j0 * (transposed ? k : 1);
        for (int64_t i = 0; i < height; i++) {
            if (transposed) NAME(gemv_transposed)(a + i * k, b, 0, c + i * n, k, width);
            else NAME(gemv)(a + i * k, b, n, bias, c + i * n, k, width);
        }
        const int64_t lines = width == n ? 1 : height, line = width == n ? height * n : width;
        for (int64_t i = 0; i < lines; i++) NAME(activate)(c + i * n, line, act);
    }
}

static RLX_NOINLINE void NAME(own_products)(const rlx_call *call)
{
    RLX_ARGUMENTS(matmul, call);
    /* An operand that is not packed is packed by every part that reads it, so parts are columns where there are enough.
       */
    const int64_t tall = p->packing || p->n < 2 * MICRO_COLUMNS ? MICRO_ROWS : p->m;
    /* Halves of panels share one row by few panels of 16-bit weights, which come from memory, more evenly. */
    const int64_t halves = p->m == 1 && p->packing > RLX_PACKING_SAME && p->n % MICRO_COLUMNS == 0;
    NAME(products)(call, rlx_share_tiles(call, p->batch, p->m, p->n, tall, MICRO_COLUMNS >> halves));
}

static int NAME(kernel_matmul)(const rlx_call *call)
{
#ifdef SINGLE
    /* Inlined for a call without parts: small products of small models feel every instruction. */
    RLX_ARGUMENTS(matmul, call);
    if (!RLX_UNLIKELY(call->parts > 1)) {
        NAME(products)(call, (rlx_block){{0, p->batch}, {0, p->m}, {0, p->n}});
        return RLX_OK;
    }
#endif
    NAME(own_products)(call);
    return RLX_OK;
}

#include "products/grouped.h"
