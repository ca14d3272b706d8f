/* Reductions over the middle of [outer, n, inner], per type. */

/* START is the result of no elements, TAKE(a, x) adds one, COMBINE(a, b) joins two results, and FINISH ends: it takes a
   result, what a mean is divided by, and 1 over that. Sums are made in PARTs, which are added to a wider TOTAL every 1,024
   elements of a row, or 16 of a column. A line of more than `length` elements is cut into pieces of as many, with a result
   each. */

/* A contiguous row, in 16 lanes. They are joined in halves, in each of which as many of the last elements fit. */
#define HALF_OF_LANES(TOTAL, HALF, START, PART, TAKE, COMBINE)                                    \
    for (int l = 0; l < HALF; l++) joined[l] = COMBINE(joined[l], joined[l + HALF]);              \
    if ((end - i) & HALF) {                                                                       \
        for (int l = 0; l < HALF; l++)                                                            \
            joined[l] = COMBINE(joined[l], (TOTAL)TAKE((PART)(START), x[index + i + l]));         \
        i += HALF;                                                                                \
    }
#define ROW(NAME, T, PART, TOTAL, START, TAKE, COMBINE)                                           \
    static TOTAL line_##NAME(const T *x, int64_t n)                                               \
    {                                                                                             \
        TOTAL total = (TOTAL)(START);                                                             \
        for (int64_t index = 0; index < n; index += 1024) {                                       \
            const int64_t end = n - index < 1024 ? n - index : 1024;                              \
            PART lane[16];                                                                        \
            TOTAL joined[16];                                                                     \
            for (int l = 0; l < 16; l++) lane[l] = (PART)(START);                                 \
            int64_t i = 0;                                                                        \
            for (; i + 16 <= end; i += 16)                                                        \
                for (int l = 0; l < 16; l++) lane[l] = TAKE(lane[l], x[index + i + l]);           \
            for (int l = 0; l < 16; l++) joined[l] = (TOTAL)lane[l];                              \
            HALF_OF_LANES(TOTAL, 8, START, PART, TAKE, COMBINE)                                   \
            HALF_OF_LANES(TOTAL, 4, START, PART, TAKE, COMBINE)                                   \
            HALF_OF_LANES(TOTAL, 2, START, PART, TAKE, COMBINE)                                   \
            HALF_OF_LANES(TOTAL, 1, START, PART, TAKE, COMBINE)                                   \
            total = COMBINE(total, joined[0]);                                                    \
        }                                                                                         \
        return total;                                                                             \
    }

/* The same of f32 in vectors, whose lanes are joined in f64. */
#define ROW_OF_FLOATS(NAME, TAKE)                                                                 \
    static double line_##NAME(const float *x, int64_t n)                                          \
    {                                                                                             \
        double total = 0;                                                                         \
        for (int64_t index = 0; index < n; index += 1024, x += 1024) {                            \
            const int64_t end = n - index < 1024 ? n - index : 1024;                              \
            vf a = {0}, b = a, c = a, d = a;                                                      \
            int64_t i = 0;                                                                        \
            for (; i + 4 * FLOATS <= end; i += 4 * FLOATS) {                                      \
                a = TAKE(a, v_load(x + i)), b = TAKE(b, v_load(x + i + FLOATS));                  \
                c = TAKE(c, v_load(x + i + 2 * FLOATS)), d = TAKE(d, v_load(x + i + 3 * FLOATS)); \
            }                                                                                     \
            for (; i + FLOATS <= end; i += FLOATS) a = TAKE(a, v_load(x + i));                    \
            if (i < end) b = TAKE(b, v_load_some(x + i, end - i));                                \
            total += v_sum_wide((a + b) + (c + d));                                               \
        }                                                                                         \
        return total;                                                                             \
    }

/* Adds n rows of at most MOST_COLUMNS columns, `step` apart, to the totals. */
#define MOST_COLUMNS 1024
#define PART_ROWS 16
#define COLUMNS(NAME, T, PART, TOTAL, START, TAKE, COMBINE)                                       \
    static void columns_##NAME(TOTAL *total, const T *row, int64_t n, int64_t step, int64_t width) \
    {                                                                                             \
        PART part[MOST_COLUMNS];                                                                  \
        for (int64_t i = 0; i < n;) {                                                             \
            const int64_t end = n - i < PART_ROWS ? n : i + PART_ROWS;                            \
            for (int64_t j = 0; j < width; j++) part[j] = (PART)(START);                          \
            for (; i < end; i++, row += step)                                                     \
                for (int64_t j = 0; j < width; j++) part[j] = TAKE(part[j], row[j]);              \
            for (int64_t j = 0; j < width; j++) total[j] = COMBINE(total[j], part[j]);            \
        }                                                                                         \
    }

#define KERNEL(kind, SUFFIX, T, PART, TOTAL, START, TAKE, COMBINE, FINISH)                        \
    /* `width` columns of a few rows, `inner` apart: their PARTs are the results. */              \
    static void reduce_few_##kind##_##SUFFIX(T *y, const T *x, int64_t n, int64_t inner, int64_t width, \
                                             double divisor, double inverse)                      \
    {                                                                                             \
        PART part[MOST_COLUMNS];                                                                  \
        (void)divisor, (void)inverse;                                                             \
        for (int64_t j = 0; j < width; j++) part[j] = TAKE((PART)(START), x[j]);                  \
        for (int64_t i = 1; i < n; i++)                                                           \
            for (int64_t j = 0; j < width; j++) part[j] = TAKE(part[j], x[i * inner + j]);        \
        for (int64_t j = 0; j < width; j++) y[j] = (T)(FINISH((TOTAL)part[j], divisor, inverse)); \
    }                                                                                             \
    /* `width` columns of n rows, `inner` apart. */                                               \
    static void reduce_##kind##_##SUFFIX(T *y, const T *x, int64_t n, int64_t inner, int64_t width, \
                                         double divisor, double inverse)                          \
    {                                                                                             \
        TOTAL total[MOST_COLUMNS];                                                                \
        const int64_t fold = rows_together(n, inner), wide = fold * width, rest = n % fold;       \
        if (fold == 1 && n > 0 && n <= PART_ROWS) {                                               \
            reduce_few_##kind##_##SUFFIX(y, x, n, inner, width, divisor, inverse);                \
            return;                                                                               \
        }                                                                                         \
        for (int64_t j = 0; j < wide; j++) total[j] = (TOTAL)(START);                             \
        columns_##kind##_##SUFFIX(total, x, n / fold, fold * inner, wide);                        \
        if (rest) columns_##kind##_##SUFFIX(total, x + (n - rest) * inner, 1, 0, rest * inner);   \
        for (int64_t j = wide - 1; j >= width; j--) total[j - width] = COMBINE(total[j - width], total[j]); \
        for (int64_t j = 0; j < width; j++) y[j] = (T)(FINISH(total[j], divisor, inverse));       \
    }                                                                                             \
    static int kernel_reduce_##kind##_##SUFFIX(const rlx_call *call)                              \
    {                                                                                             \
        RLX_ARGUMENTS(reduce_##kind, call);                                                       \
        /* Lines of one element are columns of one row. */                                        \
        const int64_t n = p->n, outer = n == 1 ? 1 : p->outer, inner = n == 1 ? p->outer * p->inner : p->inner; \
        const int64_t size = n * inner, length = p->length, pieces = n > length ? (n + length - 1) / length : 1; \
        const double divisor = (double)p->divisor, inverse = 1.0 / divisor;                       \
        const rlx_block own = share_lines(call, outer * pieces, inner);                           \
        T *y = (T *)out->y + own.pieces.first * inner;                                            \
        if (pieces == 1 && lie_apart(outer, n, inner, 2 * BESIDE + 1)) {                          \
            const T *x = (const T *)in->x + own.pieces.first * size;                              \
            int64_t left = own.pieces.last - own.pieces.first;                                    \
            T beside[BUFFER], result[STRIP];                                                      \
            while (left > 0) {                                                                    \
                const int64_t lanes = lines_beside(left, size, inner), count = left < lanes ? left : lanes; \
                bring_##SUFFIX(beside, x, size, size, count, lanes);                              \
                reduce_##kind##_##SUFFIX(result, beside, n, inner * lanes, inner * lanes, divisor, inverse); \
                send_##SUFFIX(y, result, inner, inner, count, lanes);                             \
                left -= count, x += count * size, y += count * inner;                             \
            }                                                                                     \
            return RLX_OK;                                                                        \
        }                                                                                         \
        for (int64_t index = own.pieces.first; index < own.pieces.last; index++, y += inner) {    \
            const int64_t begin = index % pieces * length, some = pieces == 1 || n - begin < length ? n - begin : length; \
            const T *x = (const T *)in->x + index / pieces * size + begin * inner;                \
            if (inner == 1) {                                                                     \
                const TOTAL total = line_##kind##_##SUFFIX(x, some);                              \
                y[0] = (T)(FINISH(total, divisor, inverse));                                      \
            } else {                                                                              \
                for (int64_t from = own.columns.first; from < own.columns.last; from += MOST_COLUMNS) { \
                    const int64_t rest = own.columns.last - from;                                 \
                    const int64_t width = rest < MOST_COLUMNS ? rest : MOST_COLUMNS;              \
                    reduce_##kind##_##SUFFIX(y + from, x + from, some, inner, width, divisor, inverse);    \
                }                                                                                 \
            }                                                                                     \
        }                                                                                         \
        return RLX_OK;                                                                            \
    }

#define REDUCTION(kind, SUFFIX, T, PART, TOTAL, START, TAKE, COMBINE, FINISH)                     \
    ROW(kind##_##SUFFIX, T, PART, TOTAL, START, TAKE, COMBINE)                                    \
    COLUMNS(kind##_##SUFFIX, T, PART, TOTAL, START, TAKE, COMBINE)                                \
    KERNEL(kind, SUFFIX, T, PART, TOTAL, START, TAKE, COMBINE, FINISH)

/* The largest element of a row, or with negated signs the smallest. NaN is larger than any number. */
static float row_extreme(const float *x, int64_t n, int32_t negated)
{
    const float lowest = -INFINITY;
    vf a = v_all(lowest), b = a, c = a, d = a;
    vm bad = v_unordered(a, a);
    int64_t i = 0;
#define SIGNED(index) ((vf)((vi)v_load(x + (index)) ^ negated))
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
static float line_max_f32(const float *x, int64_t n) { return row_extreme(x, n, 0); }
static float line_min_f32(const float *x, int64_t n) { return row_extreme(x, n, (int32_t)0x80000000); }

#define PLUS(a, x) ((a) + (x))
#define PLUS_SQUARE(a, x) ((a) + (x) * (x))
#define PLUS_SIZE_f32(a, x) ((a) + fabsf(x))
#define PLUS_SIZE_f64(a, x) ((a) + fabs(x))
#define PLUS_SIZES(a, x) ((a) + v_abs(x))
/* NaN stays, since comparisons with it are false. Without branches, so that loops become vectors. */
#define EXTREME(a, x, beyond)                                                                     \
    ({                                                                                            \
        const __typeof__(a) held = (a), other = (x);                                              \
        const _Bool stays = (held beyond other) | (held != held);                                 \
        stays ? held : other;                                                                     \
    })
#define LARGER(a, x) EXTREME(a, x, >)
#define SMALLER(a, x) EXTREME(a, x, <)
#define TIMES(a, x) ((a) * (x))
#define PLAIN(a, divisor, inverse) (a)
#define DIVIDE(a, divisor, inverse) ((a) / (divisor))
/* As good where the quotient of doubles is rounded to f32. */
#define BY_INVERSE(a, divisor, inverse) ((a) * (inverse))

#define OF_FLOATS(kind, TAKE, TAKE_LANES, FINISH)                                                 \
    ROW_OF_FLOATS(kind##_f32, TAKE_LANES)                                                         \
    COLUMNS(kind##_f32, float, float, double, 0, TAKE, PLUS)                                      \
    KERNEL(kind, f32, float, float, double, 0, TAKE, PLUS, FINISH)
OF_FLOATS(sum, PLUS, PLUS, PLAIN)
REDUCTION(sum, f64, double, double, double, 0, PLUS, PLUS, PLAIN)
OF_FLOATS(mean, PLUS, PLUS, BY_INVERSE)
REDUCTION(mean, f64, double, double, double, 0, PLUS, PLUS, DIVIDE)
OF_FLOATS(sum_squares, PLUS_SQUARE, PLUS_SQUARE, PLAIN)
REDUCTION(sum_squares, f64, double, double, double, 0, PLUS_SQUARE, PLUS, PLAIN)
OF_FLOATS(sum_abs, PLUS_SIZE_f32, PLUS_SIZES, PLAIN)
REDUCTION(sum_abs, f64, double, double, double, 0, PLUS_SIZE_f64, PLUS, PLAIN)
/* Products of few numbers may leave the range of f32. */
REDUCTION(prod, f32, float, double, double, 1, TIMES, TIMES, PLAIN)
REDUCTION(prod, f64, double, double, double, 1, TIMES, TIMES, PLAIN)
COLUMNS(max_f32, float, float, float, -INFINITY, LARGER, LARGER)
KERNEL(max, f32, float, float, float, -INFINITY, LARGER, LARGER, PLAIN)
COLUMNS(min_f32, float, float, float, INFINITY, SMALLER, SMALLER)
KERNEL(min, f32, float, float, float, INFINITY, SMALLER, SMALLER, PLAIN)
REDUCTION(max, f64, double, double, double, -INFINITY, LARGER, LARGER, PLAIN)
REDUCTION(min, f64, double, double, double, INFINITY, SMALLER, SMALLER, PLAIN)

#define OF_INTEGERS(SUFFIX, T, LEAST, MOST)                                                       \
    REDUCTION(sum, SUFFIX, T, T, T, 0, PLUS, PLUS, PLAIN)                                         \
    REDUCTION(prod, SUFFIX, T, T, T, 1, TIMES, TIMES, PLAIN)                                      \
    REDUCTION(max, SUFFIX, T, T, T, LEAST, LARGER, LARGER, PLAIN)                                 \
    REDUCTION(min, SUFFIX, T, T, T, MOST, SMALLER, SMALLER, PLAIN)
OF_INTEGERS(i32, int32_t, INT32_MIN, INT32_MAX)
OF_INTEGERS(u32, uint32_t, 0, UINT32_MAX)
OF_INTEGERS(i64, int64_t, INT64_MIN, INT64_MAX)
#undef OF_INTEGERS
#undef OF_FLOATS
#undef ROW_OF_FLOATS
#undef KERNEL
#undef COLUMNS
#undef ROW
#undef HALF_OF_LANES
