/* Positions of extremes, and running totals. */

/* Whether v takes the place of `top` in a search for extremes: NaN is more extreme than any number. Without branches, so
   that loops become vectors. */
#define TAKES(v, top, beyond, last)                                                               \
    ((last) ? ((v)beyond##= (top)) | ((v) != (v)) : ((v)beyond(top)) | (((v) != (v)) & ((top) == (top))))

/* A row is cut into pieces of so many elements. The place of its extreme is searched in one of them. */
#define ARG_PIECE 1024

/* The position of the largest or smallest element: the first of equals, or the last. PLACE is an integer of the size of
   T. */
#define ARG_SEARCH(kind, SUFFIX, T, PLACE, beyond)                                                \
    /* Goes on with the rows [first, n) of at most STRIP columns; rows are `step` apart. */        \
    static RLX_INLINE void arg_rows_##kind##_##SUFFIX(T *top, PLACE *place, const T *x, int64_t first, int64_t n, \
                                                      int64_t step, int64_t width, const int last) \
    {                                                                                             \
        for (int64_t i = first; i < n; i++)                                                       \
            for (int64_t j = 0; j < width; j++) {                                                 \
                const T v = x[i * step + j], t = top[j];                                          \
                const PLACE index = place[j];                                                     \
                const int takes = TAKES(v, t, beyond, last);                                      \
                top[j] = takes ? v : t;                                                           \
                place[j] = takes ? (PLACE)i : index;                                              \
            }                                                                                     \
    }                                                                                             \
    /* Of each of at most STRIP columns of n rows. Few columns of several rows are worked on as one row; then each column has \
       several results, of which the most extreme is taken, and of equals the first or the last. */ \
    static RLX_INLINE void arg_strip_##kind##_##SUFFIX(int32_t *y, const T *x, int64_t n, int64_t inner, \
                                                       int64_t width, const int last)             \
    {                                                                                             \
        T top[STRIP];                                                                             \
        PLACE place[STRIP];                                                                       \
        const int64_t fold = width == inner ? rows_together(n, inner) : 1, wide = fold * width, rows = n / fold; \
        for (int64_t j = 0; j < wide; j++) top[j] = x[j], place[j] = 0;                           \
        arg_rows_##kind##_##SUFFIX(top, place, x, 1, rows, fold * inner, wide, last);             \
        if (n % fold)                                                                             \
            arg_rows_##kind##_##SUFFIX(top, place, x, rows, rows + 1, fold * inner, n % fold * inner, last); \
        for (int64_t j = 0; j < wide; j++) place[j] *= (PLACE)fold;                               \
        for (int64_t j = width, c = 0, r = 1; j < wide; j++) {                                    \
            const T v = top[j], t = top[c];                                                       \
            const PLACE index = place[j] + (PLACE)r;                                              \
            const int same = (v == t) | ((v != v) & (t != t));                                    \
            if (same ? (last ? index > place[c] : index < place[c]) : TAKES(v, t, beyond, 0)) top[c] = v, place[c] = index; \
            if (++c == width) c = 0, r++;                                                         \
        }                                                                                         \
        for (int64_t j = 0; j < width; j++) y[j] = (int32_t)place[j];                             \
    }                                                                                             \
    static void arg_columns_##kind##_##SUFFIX(int32_t *y, const T *x, int64_t n, int64_t inner,   \
                                              int64_t width, int last)                            \
    {                                                                                             \
        for (int64_t index = 0; index < width; index += STRIP) {                                  \
            const int64_t wide = width - index < STRIP ? width - index : STRIP;                   \
            if (last) arg_strip_##kind##_##SUFFIX(y + index, x + index, n, inner, wide, 1);       \
            else arg_strip_##kind##_##SUFFIX(y + index, x + index, n, inner, wide, 0);            \
        }                                                                                         \
    }                                                                                             \
    /* The places in rows of n elements that follow each other. */                                \
    static void arg_each_##kind##_##SUFFIX(int32_t *y, const T *x, int64_t rows, int64_t n, int last) \
    {                                                                                             \
        for (int64_t r = 0; r < rows; r++, x += n) {                                              \
            int64_t piece = 0;                                                                    \
            T top = x[0];                                                                         \
            for (int64_t index = 0; index < n; index += ARG_PIECE) {                              \
                const T v = line_##kind##_##SUFFIX(x + index, n - index < ARG_PIECE ? n - index : ARG_PIECE); \
                if (index == 0 || TAKES(v, top, beyond, last)) piece = index, top = v;            \
            }                                                                                     \
            const int64_t end = n - piece < ARG_PIECE ? n : piece + ARG_PIECE;                    \
            y[r] = (int32_t)(last ? place_last_##SUFFIX(x, piece, end, top) : place_first_##SUFFIX(x, piece, end, top)); \
        }                                                                                         \
    }

#define ARG_PLACES(SUFFIX, T, PLACE)                                                              \
    /* How many of `count` elements equal `one`; a NaN equals a NaN here. */                      \
    static RLX_INLINE PLACE same_##SUFFIX(const T *x, T one, const int count)                     \
    {                                                                                             \
        PLACE same = 0;                                                                           \
        for (int l = 0; l < count; l++) same += (x[l] == one) | ((x[l] != x[l]) & (one != one));  \
        return same;                                                                              \
    }                                                                                             \
    /* The first or the last place of `one` among the elements [first, end), one of which equals it. */ \
    static int64_t place_first_##SUFFIX(const T *x, int64_t first, int64_t end, T one)            \
    {                                                                                             \
        while (first + 64 <= end && same_##SUFFIX(x + first, one, 64) == 0) first += 64;          \
        while (first + 16 <= end && same_##SUFFIX(x + first, one, 16) == 0) first += 16;          \
        while (x[first] != one && (x[first] == x[first] || one == one)) first++;                  \
        return first;                                                                             \
    }                                                                                             \
    static int64_t place_last_##SUFFIX(const T *x, int64_t first, int64_t end, T one)             \
    {                                                                                             \
        while (end - 64 >= first && same_##SUFFIX(x + end - 64, one, 64) == 0) end -= 64;         \
        while (end - 16 >= first && same_##SUFFIX(x + end - 16, one, 16) == 0) end -= 16;         \
        while (x[end - 1] != one && (x[end - 1] == x[end - 1] || one == one)) end--;              \
        return end - 1;                                                                           \
    }

#define ARG_REDUCTION(SUFFIX, T, PLACE)                                                           \
    ARG_SEARCH(max, SUFFIX, T, PLACE, >)                                                          \
    ARG_SEARCH(min, SUFFIX, T, PLACE, <)                                                          \
    static int kernel_arg_reduce_##SUFFIX(const rlx_call *call)                                   \
    {                                                                                             \
        RLX_ARGUMENTS(arg_reduce, call);                                                          \
        const int64_t n = p->n, inner = p->inner, size = n * inner;                               \
        const int last = (int)p->last;                                                            \
        void (*const columns)(int32_t *, const T *, int64_t, int64_t, int64_t, int) =             \
            p->largest ? arg_columns_max_##SUFFIX : arg_columns_min_##SUFFIX;                     \
        const rlx_block own = share_lines(call, p->outer, inner);                                 \
        const int64_t first = own.columns.first, width = own.columns.last - first;                \
        const T *x = (const T *)in->x + own.pieces.first * size;                                  \
        int32_t *y = (int32_t *)out->y + own.pieces.first * inner;                                \
        int64_t left = own.pieces.last - own.pieces.first;                                        \
        /* A search of a short row takes as long as that of four vectors. */                      \
        if (lie_apart(p->outer, n, inner, 4 * BESIDE)) {                                          \
            T beside[BUFFER];                                                                     \
            int32_t result[STRIP];                                                                \
            while (left > 0) {                                                                    \
                const int64_t lanes = lines_beside(left, size, inner), count = left < lanes ? left : lanes;\
                bring_##SUFFIX(beside, x, size, size, count, lanes);                              \
                columns(result, beside, n, inner * lanes, inner * lanes, last);                   \
                send_i32(y, result, inner, inner, count, lanes);                                  \
                left -= count, x += count * size, y += count * inner;                             \
            }                                                                                     \
            return RLX_OK;                                                                        \
        }                                                                                         \
        if (inner == 1)                                                                           \
            (p->largest ? arg_each_max_##SUFFIX : arg_each_min_##SUFFIX)(y, x, left, n, last); \
        else                                                                                      \
            for (; left > 0; left--, x += size, y += inner) columns(y + first, x + first, n, inner, width, last); \
        return RLX_OK;                                                                            \
    }
/* The same searches for f32, a vector at a time. */
/* Whether no element of a vector equals `one`. If `one` is NaN this is never known, and elements are compared one by one. */
static RLX_INLINE int differ_f32(const float *x, vf one)
{
    const vf v = v_load(x);
    return v_every(v_less(v, one) | v_less(one, v));
}
static int64_t place_first_f32(const float *x, int64_t first, int64_t end, float one)
{
    while (first + FLOATS <= end && differ_f32(x + first, v_all(one))) first += FLOATS;
    while (x[first] != one && (x[first] == x[first] || one == one)) first++;
    return first;
}
static int64_t place_last_f32(const float *x, int64_t first, int64_t end, float one)
{
    while (end - FLOATS >= first && differ_f32(x + end - FLOATS, v_all(one))) end -= FLOATS;
    while (x[end - 1] != one && (x[end - 1] == x[end - 1] || one == one)) end--;
    return end - 1;
}
ARG_PLACES(f64, double, int64_t)
ARG_PLACES(i32, int32_t, int32_t)
ARG_PLACES(u32, uint32_t, int32_t)
ARG_PLACES(i64, int64_t, int64_t)
ARG_REDUCTION(f32, float, int32_t)
ARG_REDUCTION(f64, double, int64_t)
ARG_REDUCTION(i32, int32_t, int32_t)
ARG_REDUCTION(u32, uint32_t, int32_t)
ARG_REDUCTION(i64, int64_t, int64_t)

/* Running sums or products. JOIN(a, x) goes on with one more element. */
#define RUN_VECTORS 8
#define RUN(name, SUFFIX, T, TOTAL, START, JOIN)                                                  \
    typedef TOTAL totals_##name##_##SUFFIX __attribute__((vector_size(VECTOR_BYTES), aligned(sizeof(TOTAL)), may_alias));\
    typedef T items_##name##_##SUFFIX                                                             \
        __attribute__((vector_size(VECTOR_BYTES / sizeof(TOTAL) * sizeof(T)), aligned(sizeof(T)), may_alias));\
    /* Of so many vectors of `width` columns of n rows, `step` apart; the totals stay in registers. Where columns do not fill \
       the vectors the last ones overlap those before, and compute the same. x may be y. */       \
    static RLX_INLINE void run_block_##name##_##SUFFIX(T *y, const T *x, int64_t n, int64_t step, int64_t width, \
                                                       TOTAL *total, const int exclusive, const int vectors)\
    {                                                                                             \
        enum { LANES_HERE = VECTOR_BYTES / sizeof(TOTAL) };                                       \
        totals_##name##_##SUFFIX sums[RUN_VECTORS], more[RUN_VECTORS];                            \
        int64_t index[RUN_VECTORS];                                                               \
        _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)                                 \
        {                                                                                         \
            index[v] = v * LANES_HERE < width - LANES_HERE ? v * LANES_HERE : width - LANES_HERE; \
            sums[v] = *(totals_##name##_##SUFFIX *)(total + index[v]);                            \
        }                                                                                         \
        for (int64_t i = 0; i < n; i++, x += step, y += step) {                                   \
            _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)                             \
                more[v] = __builtin_convertvector(*(const items_##name##_##SUFFIX *)(x + index[v]), \
                                                  totals_##name##_##SUFFIX);                      \
            _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++)                             \
            {                                                                                     \
                const totals_##name##_##SUFFIX before = sums[v];                                  \
                sums[v] = JOIN(before, more[v]);                                                  \
                *(items_##name##_##SUFFIX *)(y + index[v]) =                                      \
                    __builtin_convertvector(exclusive ? before : sums[v], items_##name##_##SUFFIX);\
            }                                                                                     \
        }                                                                                         \
        _Pragma("GCC unroll 8") for (int v = 0; v < vectors; v++) *(totals_##name##_##SUFFIX *)(total + index[v]) = sums[v]; \
    }                                                                                             \
    /* Of `width` columns of n rows, `step` apart, on from the totals. x may be y. */             \
    static RLX_INLINE void run_columns_##name##_##SUFFIX(T *y, const T *x, int64_t n, int64_t step, int64_t width, \
                                                         TOTAL *total, const int exclusive)       \
    {                                                                                             \
        const int64_t one = VECTOR_BYTES / sizeof(TOTAL), block = RUN_VECTORS * one;              \
        for (; width >= block; width -= block, x += block, y += block, total += block)            \
            run_block_##name##_##SUFFIX(y, x, n, step, block, total, exclusive, RUN_VECTORS);     \
        if (width > 4 * one) run_block_##name##_##SUFFIX(y, x, n, step, width, total, exclusive, RUN_VECTORS);\
        else if (width > 2 * one) run_block_##name##_##SUFFIX(y, x, n, step, width, total, exclusive, 4);\
        else if (width > one) run_block_##name##_##SUFFIX(y, x, n, step, width, total, exclusive, 2);\
        else if (width == one) run_block_##name##_##SUFFIX(y, x, n, step, width, total, exclusive, 1);\
        else                                                                                      \
            for (int64_t i = 0; width && i < n; i++, x += step, y += step)                        \
                for (int64_t j = 0; j < width; j++) {                                             \
                    const TOTAL before = total[j];                                                \
                    total[j] = JOIN(before, x[j]);                                                \
                    y[j] = (T)(exclusive ? before : total[j]);                                    \
                }                                                                                 \
    }                                                                                             \
    static void run_##name##_##SUFFIX(T *y, const T *x, int64_t n, int64_t step, int64_t width,   \
                                      TOTAL *total, int exclusive)                                \
    {                                                                                             \
        if (exclusive) run_columns_##name##_##SUFFIX(y, x, n, step, width, total, 1);             \
        else run_columns_##name##_##SUFFIX(y, x, n, step, width, total, 0);                       \
    }                                                                                             \
    /* Of one row: the total stays in a register. */                                              \
    static void run_row_##name##_##SUFFIX(T *y, const T *x, int64_t n, int64_t step, int exclusive) \
    {                                                                                             \
        TOTAL total = (TOTAL)(START);                                                             \
        for (int64_t i = 0; i < n; i++, x += step, y += step) {                                   \
            const TOTAL before = total;                                                           \
            total = JOIN(before, *x);                                                             \
            *y = (T)(exclusive ? before : total);                                                 \
        }                                                                                         \
    }                                                                                             \
    static void run_lines_##name##_##SUFFIX(T *y, const T *x, int64_t left, int64_t n, int64_t inner, \
                                            rlx_range columns, int exclusive, int reverse, int apart) \
    {                                                                                             \
        TOTAL total[STRIP];                                                                       \
        T beside[BUFFER];                                                                         \
        const int64_t size = n * inner, first = reverse ? n - 1 : 0, sign = reverse ? -1 : 1;     \
        while (left > 0 && apart) {                                                               \
            /* Pieces of the lines go by in the order of the sum. */                              \
            const int64_t lanes = lines_beside(left, size, inner), count = left < lanes ? left : lanes;\
            const int64_t wide = inner * lanes, most = BUFFER / wide;                             \
            for (int64_t j = 0; j < wide; j++) total[j] = (TOTAL)(START);                         \
            for (int64_t done = 0; done < n; done += most) {                                      \
                const int64_t rows = n - done < most ? n - done : most;                           \
                const int64_t index = (reverse ? n - done - rows : done) * inner;                 \
                T *from = beside + (reverse ? (rows - 1) * wide : 0);                             \
                bring_##SUFFIX(beside, x + index, size, rows * inner, count, lanes);              \
                run_##name##_##SUFFIX(from, from, rows, sign * wide, wide, total, exclusive);     \
                send_##SUFFIX(y + index, beside, size, rows * inner, count, lanes);               \
            }                                                                                     \
            left -= count, x += count * size, y += count * size;                                  \
        }                                                                                         \
        for (; left > 0; left--, x += size, y += size) {                                          \
            if (inner == 1) run_row_##name##_##SUFFIX(y + first, x + first, n, sign, exclusive);  \
            for (int64_t index = columns.first; inner > 1 && index < columns.last; index += STRIP) { \
                const int64_t start = first * inner + index, rest = columns.last - index;         \
                const int64_t width = rest < STRIP ? rest : STRIP;                                \
                for (int64_t j = 0; j < width; j++) total[j] = (TOTAL)(START);                    \
                run_##name##_##SUFFIX(y + start, x + start, n, sign * inner, width, total, exclusive); \
            }                                                                                     \
        }                                                                                         \
    }

#define CUMULATION(SUFFIX, T, TOTAL)                                                              \
    RUN(sum, SUFFIX, T, TOTAL, 0, PLUS)                                                           \
    RUN(product, SUFFIX, T, TOTAL, 1, TIMES)                                                      \
    static int kernel_cumulate_##SUFFIX(const rlx_call *call)                                     \
    {                                                                                             \
        RLX_ARGUMENTS(cumulate, call);                                                            \
        const int64_t n = p->n, inner = p->inner;                                                 \
        const rlx_block own = share_lines(call, p->outer, inner);                                 \
        const T *x = (const T *)in->x + own.pieces.first * n * inner;                             \
        T *y = (T *)out->y + own.pieces.first * n * inner;                                        \
        const int64_t left = own.pieces.last - own.pieces.first;                                  \
        /* Each sum waits for the one before: columns that do not fill a vector go side by side. */ \
        const int apart = p->outer >= BESIDE / 2 && inner < (int64_t)(VECTOR_BYTES / sizeof(TOTAL)); \
        const int exclusive = (int)p->exclusive, reverse = (int)p->reverse;                       \
        if (p->product)                                                                           \
            run_lines_product_##SUFFIX(y, x, left, n, inner, own.columns, exclusive, reverse, apart); \
        else                                                                                      \
            run_lines_sum_##SUFFIX(y, x, left, n, inner, own.columns, exclusive, reverse, apart); \
        return RLX_OK;                                                                            \
    }
CUMULATION(f32, float, double)
CUMULATION(f64, double, double)
CUMULATION(i32, int32_t, int32_t)
CUMULATION(u32, uint32_t, uint32_t)
CUMULATION(i64, int64_t, int64_t)
