/* Reductions and running totals that visit the elements of a row in order. */

/* The position of the largest or smallest element. NaN is more extreme than any number. */
#define ARG_REDUCTION(SUFFIX, T)                                                                  \
    static int kernel_arg_reduce_##SUFFIX(const rlx_call *call)                                   \
    {                                                                                             \
        RLX_ARGUMENTS(arg_reduce, call);                                                          \
        const int64_t outer = p->outer, n = p->n, inner = p->inner;               \
        const int largest = (int)p->largest, last = (int)p->last;                          \
        const T *x = in->x;                                                                 \
        int32_t *y = out->y;                                                                \
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

/* Running sums or products over the middle of [outer, n, inner]. */
#define CUMULATION(SUFFIX, T, TOTAL)                                                               \
    static int kernel_cumulate_##SUFFIX(const rlx_call *call)                                     \
    {                                                                                             \
        RLX_ARGUMENTS(cumulate, call);                                                            \
        const int64_t outer = p->outer, n = p->n, inner = p->inner;               \
        const int product = (int)p->product, exclusive = (int)p->exclusive;                     \
        const int64_t first = p->reverse ? n - 1 : 0, step = p->reverse ? -inner : inner;     \
        for (int64_t o = 0; o < outer; o++)                                                       \
            for (int64_t j = 0; j < inner; j++) {                                                 \
                const int64_t at = (o * n + first) * inner + j;                                   \
                const T *x = (const T *)in->x + at;                                         \
                T *y = (T *)out->y + at;                                                    \
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
