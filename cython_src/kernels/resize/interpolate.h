/* Resizing along one axis by tables of taps and weights, per type. A tap of weight 0 is not looked at. */

/* Taps of which a sum is made in one go. */
#define TAPS_TOGETHER 8

/* Rows of n elements, n >= VL, by their weights: one row of the result. The last vector overlaps the one before. */
static void NAME(interpolate_rows)(T *y, const T *x, const int32_t *index, const T *weight, int64_t taps,
                                   int64_t row, int64_t n)
{
    int begun = 0;
    for (int64_t t = 0; t < taps;) {
        const T *from[TAPS_TOGETHER];
        T by[TAPS_TOGETHER];
        int64_t some = 0;
        for (; t < taps && some < TAPS_TOGETHER; t++)
            if (weight[t] != 0) from[some] = x + index[t] * row, by[some++] = weight[t];
        if (some == 0) break;
        for (int64_t i = 0, position; i < n; i += VL) {
            /* A sum that goes on must not take what overlaps twice. */
            const int whole = i + VL <= n;
            position = whole ? i : n - VL;
            VEC sum = *(const VEC *)(from[0] + position) * by[0];
            for (int64_t k = 1; k < some; k++) sum += *(const VEC *)(from[k] + position) * by[k];
            if (!begun) *(VEC *)(y + position) = sum;
            else if (whole) *(VEC *)(y + position) += sum;
            else for (int64_t l = i; l < n; l++) y[l] += sum[l - position];
        }
        begun = 1;
    }
    if (!begun) memset(y, 0, (size_t)n * sizeof(T));
}

/* Copies a row of n elements. The last vector overlaps the one before, where there is one. */
static RLX_INLINE void NAME(copy_row)(T *y, const T *x, int64_t n)
{
    for (int64_t i = 0; i < n - VL; i += VL) *(VEC *)(y + i) = *(const VEC *)(x + i);
    if (n >= VL) *(VEC *)(y + n - VL) = *(const VEC *)(x + n - VL);
    else memcpy(y, x, (size_t)n * sizeof(T));
}

#if defined(SINGLE) && defined(PERMUTES)
/* Vectors of results of which the places are looked at once for all rows. */
#define VECTORS_TOGETHER 256

/* Where a vector of entries begins that has all these places, which rise; -1 if none does. */
static RLX_INLINE int32_t NAME(start_of)(const int32_t *position, int64_t n)
{
    const int64_t first = position[0] < n - FLOATS ? position[0] : n - FLOATS;
    return first >= 0 && position[FLOATS - 1] - first < FLOATS ? (int32_t)first : -1;
}

/* Entries of x at places that rise: mostly within one or two vectors of the n entries. `start` is that of start_of. */
static RLX_INLINE vf NAME(entries_at)(const T *x, const int32_t *position, int32_t start, int64_t n)
{
    const vi places = (vi)*(const vec_i32 *)position;
    if (start >= 0) return v_permute(v_load(x + start), places - start);
    const int64_t two = position[0] < n - 2 * FLOATS ? position[0] : n - 2 * FLOATS;
    if (two >= 0 && position[FLOATS - 1] - two < 2 * FLOATS)
        return v_permute_two(v_load(x + two), v_load(x + two + FLOATS), places - (int32_t)two);
    return v_gather(x, places);
}

/* The sum of a vector of results: the tables' rows for each tap are `step` apart. */
static RLX_INLINE vf NAME(sum_of_taps)(const T *x, const int32_t *index, const T *weight, const int32_t *start, int64_t step,
                                       int64_t taps, int64_t n)
{
    vf sum = {0};
    for (int64_t t = 0; t < taps; t++) {
        const vf by = v_load(weight + t * step);
        const vf product = NAME(entries_at)(x, index + t * step, start[t], n) * by;
        sum += v_pick(v_less((vf){0}, v_abs(by)), product, (vf){0});
    }
    return sum;
}

/* The last results of rows, fewer than a vector, by the same arithmetic. */
static void NAME(interpolate_rest)(T *y, const T *x, const rlx_interpolate *p, const int32_t *index, const T *weight,
                                   int64_t rows, int64_t first, int64_t last)
{
    int32_t places[RLX_RESIZE_TAPS * FLOATS], start[RLX_RESIZE_TAPS];
    T by[RLX_RESIZE_TAPS * FLOATS], results[FLOATS];
    for (int64_t t = 0; t < p->taps; t++) {
        for (int64_t l = 0; l < FLOATS; l++) {
            const int64_t from = t * p->count + (first + l < last ? first + l : last - 1);
            places[t * FLOATS + l] = index[from], by[t * FLOATS + l] = weight[from];
        }
        start[t] = NAME(start_of)(places + t * FLOATS, p->n);
    }
    for (int64_t r = 0; r < rows; r++) {
        const T *from = x + r * p->n;
        v_store(results, p->taps == 1 ? NAME(entries_at)(from, places, start[0], p->n)
                                      : NAME(sum_of_taps)(from, places, by, start, FLOATS, p->taps, p->n));
        memcpy(y + r * p->count + first, results, (size_t)(last - first) * sizeof(T));
    }
}

/* Rows of results whose places rise. Both tables have a row for each tap. */
static void NAME(interpolate_rising)(T *y, const T *x, const rlx_interpolate *p, const int32_t *index, const T *weight,
                                        int64_t rows, int64_t first, int64_t last)
{
    const int64_t n = p->n, count = p->count, taps = p->taps, whole = (last - first) / FLOATS;
    const int64_t max_columns = VECTORS_TOGETHER / taps;
    int32_t start[VECTORS_TOGETHER];
    for (int64_t done = 0, some; done < whole; done += some) {
        const int64_t j = first + done * FLOATS;
        some = whole - done < max_columns ? whole - done : max_columns;
        for (int64_t i = 0; i < some; i++)
            for (int64_t t = 0; t < taps; t++) start[i * taps + t] = NAME(start_of)(index + t * count + j + i * FLOATS, n);
        for (int64_t r = 0; r < rows; r++) {
            const T *from = x + r * n;
            T *to = y + r * count + j;
            for (int64_t i = 0; taps == 1 && i < some; i++)
                v_store(to + i * FLOATS, NAME(entries_at)(from, index + j + i * FLOATS, start[i], n));
            for (int64_t i = 0; taps > 1 && i < some; i++) {
                const int64_t position = j + i * FLOATS;
                v_store(to + i * FLOATS, NAME(sum_of_taps)(from, index + position, weight + position, start + i * taps, count,
                                                           taps, n));
            }
        }
    }
    if (first + whole * FLOATS < last) NAME(interpolate_rest)(y, x, p, index, weight, rows, first + whole * FLOATS, last);
}
#undef VECTORS_TOGETHER
#endif

/* Results [first, last) of a row. Tables of few taps are turned: all results' first taps, then the second ones. */
static void NAME(interpolate_row)(T *y, const T *x, const rlx_interpolate *p, const int32_t *index, const T *weight,
                                  int64_t first, int64_t last)
{
    const int64_t taps = p->taps, count = p->count;
    const T outside = (T)p->outside;
    int64_t j = first;
    if (taps > RLX_RESIZE_TAPS) {
        for (; j < last; j++) {
            T sum = 0;
            for (int64_t t = j * taps; t < (j + 1) * taps; t++) {
                const T v = x[index[t] < 0 ? 0 : index[t]];
                sum += weight[t] != 0 ? weight[t] * v : 0;
            }
            y[j] = index[j * taps] < 0 ? outside : sum;
        }
        return;
    }
#define SUMS(TAPS)                                                                                \
    for (; j < last; j++) {                                                                       \
        T sum = 0;                                                                                \
        for (int64_t t = 0; t < TAPS; t++) {                                                      \
            const int32_t position = index[t * count + j];                                        \
            const T by = weight[t * count + j], v = x[position < 0 ? 0 : position];               \
            sum += by != 0 ? by * v : 0;                                                          \
        }                                                                                         \
        y[j] = index[j] < 0 ? outside : sum;                                                      \
    }
    if (taps == 1) for (; j < last; j++) y[j] = index[j] < 0 ? outside : x[index[j]];
    else if (taps == 2) SUMS(2)
    else if (taps == 4) SUMS(4)
    else SUMS(taps)
#undef SUMS
}

/* A row of results from rows of fewer elements than the longest vector has, by the arithmetic of lines. */
static void NAME(interpolate_narrow)(T *y, const T *x, const rlx_interpolate *p, const int32_t *index, const T *weight,
                                     int rising)
{
    const int64_t n = p->inner, all = p->taps * n;
    int32_t places[RLX_RESIZE_TAPS * RLX_VECTOR_ELEMENTS];
    T by[RLX_RESIZE_TAPS * RLX_VECTOR_ELEMENTS];
    const rlx_interpolate line = {.n = p->n * n, .count = n, .taps = p->taps, .outside = p->outside};
    for (int64_t i = 0; i < all; i++) places[i] = (int32_t)(index[i / n] * n + i % n), by[i] = weight[i / n];
#if defined(SINGLE) && defined(PERMUTES)
    if (rising) NAME(interpolate_rising)(y, x, &line, places, by, 1, 0, n);
    else
#endif
        NAME(interpolate_row)(y, x, &line, places, by, 0, n);
}

/* Either neighbouring lines are in step, or inner is 1. */
static int NAME(kernel_interpolate)(const rlx_call *call)
{
    RLX_ARGUMENTS(interpolate, call);
    const int64_t count = p->count, inner = p->inner, taps = p->taps;
    const rlx_block own = inner == 1 ? rlx_share_block(call, p->outer, 1, count, 1, 64)
                                     : rlx_share_block(call, p->outer, count, inner, 1, 64);
#if defined(SINGLE) && defined(PERMUTES)
    if (inner == 1 && p->rising && taps <= RLX_RESIZE_TAPS) {
        NAME(interpolate_rising)((T *)out->y + own.pieces.first * count, (const T *)in->x + own.pieces.first * p->n, p,
                                 in->indices, in->weights, own.pieces.last - own.pieces.first, own.columns.first,
                                 own.columns.last);
        return RLX_OK;
    }
#endif
    const int narrow = inner > 1 && inner < RLX_VECTOR_ELEMENTS && taps > 1 && taps <= RLX_RESIZE_TAPS;
    int rising = 1;
    for (int64_t i = taps; narrow && i < count * taps; i++)
        rising &= ((const int32_t *)in->indices)[i] > ((const int32_t *)in->indices)[i - taps];
    for (int64_t o = own.pieces.first; o < own.pieces.last; o++) {
        const T *x = (const T *)in->x + o * p->n * inner;
        T *y = (T *)out->y + o * count * inner;
        if (inner == 1) {
            NAME(interpolate_row)(y, x, p, in->indices, in->weights, own.columns.first, own.columns.last);
            continue;
        }
        const int64_t position = own.columns.first, width = own.columns.last - position;
        for (int64_t j = own.rows.first; j < own.rows.last; j++) {
            const int32_t *index = (const int32_t *)in->indices + j * taps;
            T *to = y + j * inner + position;
            if (index[0] < 0)
                for (int64_t i = 0; i < width; i++) to[i] = (T)p->outside;
            else if (taps == 1)
                NAME(copy_row)(to, x + index[0] * inner + position, width);
            else if (narrow)
                NAME(interpolate_narrow)(to, x, p, index, (const T *)in->weights + j * taps, rising);
            else
                NAME(interpolate_rows)(to, x + position, index, (const T *)in->weights + j * taps, taps, inner, width);
        }
    }
    return RLX_OK;
}
#undef TAPS_TOGETHER
