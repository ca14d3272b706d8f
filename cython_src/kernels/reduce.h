/* Reductions over the middle of [outer, n, inner]. Parameters: outer, n, inner. */

/* START is the value of no elements; COMBINE(acc, x) takes one more, FINISH(acc) ends.
   Rows that lie side by side are reduced in lanes, blocks of 1,024 elements into a wider sum. */
#define REDUCTION(kind, SUFFIX, T, WIDE, START, COMBINE, FINISH)                                  \
    static int kernel_reduce_##kind##_##SUFFIX(const rlx_call *call)                              \
    {                                                                                             \
        const int64_t outer = call->p[0].i, n = call->p[1].i, inner = call->p[2].i;               \
        const T *x = call->in[0];                                                                 \
        T *y = call->out[0];                                                                      \
        for (int64_t o = 0; o < outer; o++, x += n * inner, y += inner)                           \
            if (inner == 1) {                                                                     \
                WIDE total = (WIDE)(START);                                                       \
                for (int64_t at = 0; at < n; at += 1024) {                                        \
                    const int64_t end = n - at < 1024 ? n - at : 1024;                            \
                    T lane[16];                                                                   \
                    for (int l = 0; l < 16; l++) lane[l] = (T)(START);                            \
                    int64_t i = 0;                                                                \
                    for (; i + 16 <= end; i += 16)                                                \
                        for (int l = 0; l < 16; l++) lane[l] = COMBINE(lane[l], x[at + i + l]);   \
                    for (; i < end; i++) lane[0] = COMBINE(lane[0], x[at + i]);                   \
                    _Pragma("GCC unroll 16") for (int l = 0; l < 16; l++)                         \
                        total = COMBINE(total, lane[l]);                                          \
                }                                                                                 \
                y[0] = (T)(FINISH(total, n));                                                     \
            } else {                                                                              \
                for (int64_t at = 0; at < inner; at += 256) {                                     \
                    const int64_t width = inner - at < 256 ? inner - at : 256;                    \
                    WIDE acc[256];                                                                \
                    for (int64_t j = 0; j < width; j++) acc[j] = (WIDE)(START);                   \
                    for (int64_t i = 0; i < n; i++)                                               \
                        for (int64_t j = 0; j < width; j++)                                       \
                            acc[j] = COMBINE(acc[j], x[i * inner + at + j]);                      \
                    for (int64_t j = 0; j < width; j++) y[at + j] = (T)(FINISH(acc[j], n));       \
                }                                                                                 \
            }                                                                                     \
        return RLX_OK;                                                                            \
    }

#define PLUS(a, x) ((a) + (x))
/* NaN wins: a comparison with it is false. */
#define LARGER(a, x) ((a) > (x) || (a) != (a) ? (a) : (x))
#define SMALLER(a, x) ((a) < (x) || (a) != (a) ? (a) : (x))
#define TIMES(a, x) ((a) * (x))
#define PLAIN(a, n) (a)
#define DIVIDE(a, n) ((a) / (double)(n))

REDUCTION(sum, f32, float, double, 0, PLUS, PLAIN)
REDUCTION(sum, f64, double, double, 0, PLUS, PLAIN)
REDUCTION(mean, f32, float, double, 0, PLUS, DIVIDE)
REDUCTION(mean, f64, double, double, 0, PLUS, DIVIDE)
REDUCTION(max, f32, float, float, -INFINITY, LARGER, PLAIN)
REDUCTION(max, f64, double, double, -INFINITY, LARGER, PLAIN)
REDUCTION(min, f32, float, float, INFINITY, SMALLER, PLAIN)
REDUCTION(min, f64, double, double, INFINITY, SMALLER, PLAIN)
REDUCTION(prod, f32, float, double, 1, TIMES, PLAIN)
REDUCTION(prod, f64, double, double, 1, TIMES, PLAIN)

#ifndef ONLY_WIDE
REDUCTION(sum, i32, int32_t, int32_t, 0, PLUS, PLAIN)
REDUCTION(sum, u32, uint32_t, uint32_t, 0, PLUS, PLAIN)
REDUCTION(sum, i64, int64_t, int64_t, 0, PLUS, PLAIN)
REDUCTION(max, i32, int32_t, int32_t, INT32_MIN, LARGER, PLAIN)
REDUCTION(max, u32, uint32_t, uint32_t, 0, LARGER, PLAIN)
REDUCTION(max, i64, int64_t, int64_t, INT64_MIN, LARGER, PLAIN)
REDUCTION(min, i32, int32_t, int32_t, INT32_MAX, SMALLER, PLAIN)
REDUCTION(min, u32, uint32_t, uint32_t, UINT32_MAX, SMALLER, PLAIN)
REDUCTION(min, i64, int64_t, int64_t, INT64_MAX, SMALLER, PLAIN)
REDUCTION(prod, i32, int32_t, int32_t, 1, TIMES, PLAIN)
REDUCTION(prod, u32, uint32_t, uint32_t, 1, TIMES, PLAIN)
REDUCTION(prod, i64, int64_t, int64_t, 1, TIMES, PLAIN)
#endif
