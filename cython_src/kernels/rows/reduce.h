/* Reductions over the middle of [outer, n, inner], per type. */

/* START is the result of no elements, COMBINE(acc, x) adds one, FINISH(acc, n) ends. Contiguous rows are reduced in 16
   lanes; every 1,024 elements are added to a sum of a wider type. */
#define REDUCTION(kind, SUFFIX, T, TOTAL, START, COMBINE, FINISH, ROW, COLUMNS)                    \
    static int kernel_reduce_##kind##_##SUFFIX(const rlx_call *call)                              \
    {                                                                                             \
        RLX_ARGUMENTS(reduce_##kind, call);                                                       \
        const int64_t outer = p->outer, n = p->n, inner = p->inner;                               \
        const T *x = in->x;                                                                       \
        T *y = out->y;                                                                            \
        for (int64_t o = 0; o < outer; o++, x += n * inner, y += inner)                           \
            if (inner == 1) {                                                                     \
                ROW(T, TOTAL, START, COMBINE, FINISH)                                              \
            } else {                                                                              \
                COLUMNS(T, TOTAL, START, COMBINE, FINISH)                                          \
            }                                                                                     \
        return RLX_OK;                                                                            \
    }

#define ROW(T, TOTAL, START, COMBINE, FINISH)                                                      \
    TOTAL total = (TOTAL)(START);                                                                   \
    for (int64_t at = 0; at < n; at += 1024) {                                                    \
        const int64_t end = n - at < 1024 ? n - at : 1024;                                        \
        T lane[16];                                                                               \
        for (int l = 0; l < 16; l++) lane[l] = (T)(START);                                        \
        int64_t i = 0;                                                                            \
        for (; i + 16 <= end; i += 16)                                                            \
            for (int l = 0; l < 16; l++) lane[l] = COMBINE(lane[l], x[at + i + l]);               \
        for (; i < end; i++) lane[0] = COMBINE(lane[0], x[at + i]);                               \
        _Pragma("GCC unroll 16") for (int l = 0; l < 16; l++) total = COMBINE(total, lane[l]);    \
    }                                                                                             \
    y[0] = (T)(FINISH(total, n));

#define COLUMNS(T, TOTAL, START, COMBINE, FINISH)                                                  \
    for (int64_t at = 0; at < inner; at += 256) {                                                 \
        const int64_t width = inner - at < 256 ? inner - at : 256;                                \
        TOTAL acc[256];                                                                            \
        for (int64_t j = 0; j < width; j++) acc[j] = (TOTAL)(START);                               \
        for (int64_t i = 0; i < n; i++)                                                           \
            for (int64_t j = 0; j < width; j++) acc[j] = COMBINE(acc[j], x[i * inner + at + j]);  \
        for (int64_t j = 0; j < width; j++) y[at + j] = (T)(FINISH(acc[j], n));                   \
    }

/* Reduces many columns at a time and four rows of them, so that memory is read as a stream. Every 64 rows are added to
   sums of a wider type. */
#define STREAM(T, TOTAL, START, COMBINE, FINISH)                                                   \
    for (int64_t at = 0; at < inner; at += 1024) {                                                \
        const int64_t width = inner - at < 1024 ? inner - at : 1024;                              \
        const T *row = x + at;                                                                    \
        TOTAL acc[1024];                                                                           \
        T part[1024];                                                                             \
        for (int64_t j = 0; j < width; j++) acc[j] = (TOTAL)(START);                               \
        for (int64_t i = 0; i < n;) {                                                             \
            const int64_t end = n - i < 64 ? n : i + 64;                                          \
            for (int64_t j = 0; j < width; j++) part[j] = (T)(START);                             \
            for (; i + 4 <= end; i += 4, row += 4 * inner)                                        \
                _Pragma("GCC ivdep") for (int64_t j = 0; j < width; j++)                          \
                {                                                                                 \
                    const T a = COMBINE(row[j], row[j + inner]);                                  \
                    const T b = COMBINE(row[j + 2 * inner], row[j + 3 * inner]);                  \
                    const T both = COMBINE(a, b);                                                 \
                    part[j] = COMBINE(part[j], both);                                             \
                }                                                                                 \
            for (; i < end; i++, row += inner)                                                    \
                for (int64_t j = 0; j < width; j++) part[j] = COMBINE(part[j], row[j]);           \
            for (int64_t j = 0; j < width; j++) acc[j] = COMBINE(acc[j], part[j]);                \
        }                                                                                         \
        for (int64_t j = 0; j < width; j++) y[at + j] = (T)(FINISH(acc[j], n));                   \
    }

/* The largest element of a row, or with negated signs the smallest. NaN is larger than any number. */
static float row_extreme(const float *x, int64_t n, int32_t negated)
{
    const float lowest = -INFINITY;
    vf a = v_all(lowest), b = a, c = a, d = a;
    vm bad = v_unordered(a, a);
    int64_t i = 0;
#define SIGNED(at) ((vf)((vi)v_load(x + (at)) ^ negated))
    for (; i + 4 * FLOATS <= n; i += 4 * FLOATS) {
        const vf p = SIGNED(i), q = SIGNED(i + FLOATS);
        const vf r = SIGNED(i + 2 * FLOATS), s = SIGNED(i + 3 * FLOATS);
        bad |= v_unordered(p, q) | v_unordered(r, s);
        a = v_max(p, a), b = v_max(q, b), c = v_max(r, c), d = v_max(s, d);
    }
    for (; i < n && n >= FLOATS; i += FLOATS) { /* the last vector overlaps the one before */
        const vf p = SIGNED(i + FLOATS <= n ? i : n - FLOATS);
        bad |= v_unordered(p, p);
        a = v_max(p, a);
    }
#undef SIGNED
    float top = v_top(v_max(v_max(a, b), v_max(c, d)));
    if (v_any(bad)) top = NAN;
    for (; i < n; i++) {
        const float v = negated ? -x[i] : x[i];
        top = top > v || top != top ? top : v;
    }
    return negated ? -top : top;
}
#define LARGEST(T, TOTAL, START, COMBINE, FINISH) y[0] = row_extreme(x, n, 0);
#define SMALLEST(T, TOTAL, START, COMBINE, FINISH) y[0] = row_extreme(x, n, (int32_t)0x80000000);

#define PLUS(a, x) ((a) + (x))
/* NaN stays, since comparisons with it are false. */
#define LARGER(a, x) ((a) > (x) || (a) != (a) ? (a) : (x))
#define SMALLER(a, x) ((a) < (x) || (a) != (a) ? (a) : (x))
#define TIMES(a, x) ((a) * (x))
#define PLAIN(a, n) (a)
#define DIVIDE(a, n) ((a) / (double)(n))

REDUCTION(sum, f32, float, double, 0, PLUS, PLAIN, ROW, STREAM)
REDUCTION(sum, f64, double, double, 0, PLUS, PLAIN, ROW, COLUMNS)
REDUCTION(mean, f32, float, double, 0, PLUS, DIVIDE, ROW, STREAM)
REDUCTION(mean, f64, double, double, 0, PLUS, DIVIDE, ROW, COLUMNS)
REDUCTION(max, f32, float, float, -INFINITY, LARGER, PLAIN, LARGEST, STREAM)
REDUCTION(min, f32, float, float, INFINITY, SMALLER, PLAIN, SMALLEST, STREAM)

REDUCTION(sum, i32, int32_t, int32_t, 0, PLUS, PLAIN, ROW, COLUMNS)
REDUCTION(sum, u32, uint32_t, uint32_t, 0, PLUS, PLAIN, ROW, COLUMNS)
REDUCTION(sum, i64, int64_t, int64_t, 0, PLUS, PLAIN, ROW, COLUMNS)
REDUCTION(max, i32, int32_t, int32_t, INT32_MIN, LARGER, PLAIN, ROW, COLUMNS)
REDUCTION(min, i32, int32_t, int32_t, INT32_MAX, SMALLER, PLAIN, ROW, COLUMNS)
REDUCTION(min, f64, double, double, INFINITY, SMALLER, PLAIN, ROW, COLUMNS)
REDUCTION(max, f64, double, double, -INFINITY, LARGER, PLAIN, ROW, COLUMNS)
REDUCTION(prod, f32, float, double, 1, TIMES, PLAIN, ROW, COLUMNS)
REDUCTION(prod, f64, double, double, 1, TIMES, PLAIN, ROW, COLUMNS)
REDUCTION(max, u32, uint32_t, uint32_t, 0, LARGER, PLAIN, ROW, COLUMNS)
REDUCTION(max, i64, int64_t, int64_t, INT64_MIN, LARGER, PLAIN, ROW, COLUMNS)
REDUCTION(min, u32, uint32_t, uint32_t, UINT32_MAX, SMALLER, PLAIN, ROW, COLUMNS)
REDUCTION(min, i64, int64_t, int64_t, INT64_MAX, SMALLER, PLAIN, ROW, COLUMNS)
REDUCTION(prod, i32, int32_t, int32_t, 1, TIMES, PLAIN, ROW, COLUMNS)
REDUCTION(prod, u32, uint32_t, uint32_t, 1, TIMES, PLAIN, ROW, COLUMNS)
REDUCTION(prod, i64, int64_t, int64_t, 1, TIMES, PLAIN, ROW, COLUMNS)
#undef COLUMNS
#undef ROW
