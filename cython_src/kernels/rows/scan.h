/* Reductions and running totals that go through a row one element after another. */

/* Position of the extreme element; NaN counts as more extreme than any number. Parameters: outer, n,
   inner, largest, last of equals. */
#define ARG_REDUCTION(SUFFIX, T)                                                                  \
    static int kernel_arg_reduce_##SUFFIX(const rlx_call *call)                                   \
    {                                                                                             \
        const int64_t outer = call->p[0].i, n = call->p[1].i, inner = call->p[2].i;               \
        const int largest = (int)call->p[3].i, last = (int)call->p[4].i;                          \
        const T *x = call->in[0];                                                                 \
        int32_t *y = call->out[0];                                                                \
        for (int64_t o = 0; o < outer; o++, x += n * inner)                                       \
            for (int64_t j = 0; j < inner; j++, y++) {                                            \
                int64_t best = 0;                                                                 \
                T top = x[j];                                                                     \
                for (int64_t i = 1; i < n; i++) {                                                 \
                    const T v = x[i * inner + j];                                                 \
                    const int nan = v != v, top_nan = top != top;                                 \
                    const int beats = nan ? !top_nan : !top_nan && (largest ? v > top : v < top); \
                    const int equal = nan ? top_nan : v == top;                                   \
                    if (beats || (last && equal)) best = i, top = v;                              \
                }                                                                                 \
                *y = (int32_t)best;                                                               \
            }                                                                                     \
        return RLX_OK;                                                                            \
    }
ARG_REDUCTION(f32, float)
ARG_REDUCTION(f64, double)
ARG_REDUCTION(i32, int32_t)
ARG_REDUCTION(u32, uint32_t)
ARG_REDUCTION(i64, int64_t)

/* Running sums or products over the middle of [outer, n, inner]. Parameters: outer, n, inner,
   product, exclusive, reverse. */
#define CUMULATION(SUFFIX, T, TOTAL)                                                               \
    static int kernel_cumulate_##SUFFIX(const rlx_call *call)                                     \
    {                                                                                             \
        const int64_t outer = call->p[0].i, n = call->p[1].i, inner = call->p[2].i;               \
        const int product = (int)call->p[3].i, exclusive = (int)call->p[4].i;                     \
        const int64_t first = call->p[5].i ? n - 1 : 0, step = call->p[5].i ? -inner : inner;     \
        for (int64_t o = 0; o < outer; o++)                                                       \
            for (int64_t j = 0; j < inner; j++) {                                                 \
                const int64_t at = (o * n + first) * inner + j;                                   \
                const T *x = (const T *)call->in[0] + at;                                         \
                T *y = (T *)call->out[0] + at;                                                    \
                TOTAL total = (TOTAL)product;                                                       \
                for (int64_t i = 0; i < n; i++) {                                                 \
                    const TOTAL before = total;                                                    \
                    total = product ? total * x[i * step] : total + x[i * step];                  \
                    y[i * step] = (T)(exclusive ? before : total);                                \
                }                                                                                 \
            }                                                                                     \
        return RLX_OK;                                                                            \
    }
CUMULATION(f32, float, double)
CUMULATION(f64, double, double)
CUMULATION(i32, int32_t, int32_t)
CUMULATION(u32, uint32_t, uint32_t)
CUMULATION(i64, int64_t, int64_t)
