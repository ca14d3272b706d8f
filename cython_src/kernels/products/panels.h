/* Matrix products made of micro-kernels, per type: with packed weights, and with matrices as they are. */

/* Returns `depth` rows of a panel of `step` columns that begin `at` elements behind the first. Elements that are not of
   type T are widened to scratch memory. */
static const T *NAME(wide_panel)(const void *panels, int64_t index, int64_t depth, int64_t step, int64_t kind, T *scratch)
{
#ifdef SINGLE
    if (kind == RLX_PACKING_F16) widen_f16(scratch, (const rlx_f16 *)panels + index, depth * step);
    if (kind == RLX_PACKING_BF16) widen_bf16(scratch, (const rlx_bf16 *)panels + index, depth * step);
#endif
    return kind == RLX_PACKING_SAME ? (const T *)panels + index : scratch;
}

#ifdef SINGLE
/* One row times a panel of 16-bit weights, or half of one, widened in registers. Two sums of each column alternate. */
#define HALF_ROW(name, held)                                                                       \
    static RLX_INLINE void row_of_##name(const float *a, const held *b, int64_t depth,             \
                                         const float *bias, float *c, const int vectors)           \
    {                                                                                              \
        wide_f32 even[MICRO_VECTORS] = {{0}}, odd[MICRO_VECTORS] = {{0}};                          \
        _Pragma("GCC unroll 4") for (int v = 0; bias && v < vectors; v++)                          \
            even[v] = *(const VEC *)(bias + v * VL);                                               \
        int64_t i = 0;                                                                             \
        for (; i + 2 <= depth; i += 2, b += 2 * MICRO_COLUMNS)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                              \
            {                                                                                      \
                even[v] += a[i] * widened_##name(b + v * VL);                                      \
                odd[v] += a[i + 1] * widened_##name(b + MICRO_COLUMNS + v * VL);                   \
                RLX_PREFETCH(b + 32 * MICRO_COLUMNS + v * 2 * VL);                                 \
            }                                                                                      \
        _Pragma("GCC unroll 4") for (int v = 0; v < vectors; v++)                                  \
        {                                                                                          \
            if (i < depth) even[v] += a[i] * widened_##name(b + v * VL);                           \
            *(VEC *)(c + v * VL) = even[v] + odd[v];                                               \
        }                                                                                          \
    }                                                                                              \
    static void columns_of_##name(const float *a, const held *b, int64_t depth, const float *bias, float *c, int64_t n) \
    {                                                                                              \
        if (n == MICRO_COLUMNS) row_of_##name(a, b, depth, bias, c, MICRO_VECTORS);                \
        else row_of_##name(a, b, depth, bias, c, MICRO_VECTORS / 2);                               \
    }
HALF_ROW(f16, rlx_f16) HALF_ROW(bf16, rlx_bf16)
#undef HALF_ROW
#endif

/* Rows times `width` columns of a packed matrix, from column j0 on, which begins a panel. Scratch: MICRO_DEPTH rows of
   a panel, for weights that are widened. */
static void NAME(packed_product)(const T *a, int64_t lda, const void *panels, int64_t kind, int64_t j0,
                                 const T *bias, T *c, int64_t ldc, int64_t m, int64_t k, int64_t n,
                                 int64_t width, int64_t act, T *scratch)
{
    /* Few rows: every panel is read once, from its first byte to its last. Weights that are widened for them stay in
       the first-level cache. */
    const int64_t once = kind == RLX_PACKING_SAME ? k : 64;
    const int64_t deep = m <= MICRO_ROWS || k == 0 ? once : MICRO_DEPTH;
    int64_t p = 0, begun = 0;
#ifdef SINGLE
    for (int64_t some; m == 1 && kind != RLX_PACKING_SAME; begun += some) {
        const int64_t left = width - begun, inside = (j0 + begun) % MICRO_COLUMNS, first = j0 + begun - inside;
        some = inside || left < MICRO_COLUMNS ? MICRO_COLUMNS / 2 : MICRO_COLUMNS;
        if (some > left || first + MICRO_COLUMNS > n) break;
        const uint16_t *b = (const uint16_t *)panels + first * k + inside;
        (kind == RLX_PACKING_F16 ? columns_of_f16 : columns_of_bf16)(a, b, k, bias ? bias + begun : NULL, c + begun, some);
        if (act) NAME(activate)(c + begun, some, act);
    }
#endif
    do {
        const int64_t depth = k - p < deep ? k - p : deep;
        /* A small remainder of rows is computed together with the rows before it, and summed in the same order. */
        for (int64_t i = 0, rows; i < m; i += rows) {
            rows = m - i < MICRO_BLOCK + MICRO_ROWS ? m - i : MICRO_BLOCK;
            for (int64_t j = begun; j < width; j += MICRO_COLUMNS) {
                const int64_t some = width - j < MICRO_COLUMNS ? width - j : MICRO_COLUMNS;
                const int64_t index = j0 + j, whole = n - index < MICRO_COLUMNS ? n - index : MICRO_COLUMNS;
                const int64_t step = NAME(panel_columns)(whole);
                T start[MICRO_COLUMNS];
                const T *b = NAME(wide_panel)(panels, index * k + p * step, depth, step, kind, scratch);
                NAME(micro_rows)(a + i * lda + p, lda, b, step, c + i * ldc + j, ldc, rows, depth,
                                 p ? NULL : NAME(micro_start)(start, bias ? bias + j : NULL, some), some,
                                 n > MICRO_COLUMNS);
                for (int64_t r = i; act && p + depth == k && r < i + rows; r++)
                    NAME(activate)(c + r * ldc + j, some, act);
            }
        }
        p += deep;
    } while (p < k);
}

#ifdef SINGLE
typedef float rlx_four __attribute__((vector_size(16), aligned(4)));

/* 4 x 4 elements, transposed in registers, from four rows to rows that are `apart`. */
static RLX_INLINE void turn_rows_f32(float *to, int64_t apart, const float *a, const float *b, const float *c,
                                     const float *d)
{
    const rlx_four r0 = *(const rlx_four *)a, r1 = *(const rlx_four *)b;
    const rlx_four r2 = *(const rlx_four *)c, r3 = *(const rlx_four *)d;
    const rlx_four low = __builtin_shufflevector(r0, r1, 0, 4, 1, 5);
    const rlx_four high = __builtin_shufflevector(r0, r1, 2, 6, 3, 7);
    const rlx_four low2 = __builtin_shufflevector(r2, r3, 0, 4, 1, 5);
    const rlx_four high2 = __builtin_shufflevector(r2, r3, 2, 6, 3, 7);
    *(rlx_four *)to = __builtin_shufflevector(low, low2, 0, 1, 4, 5);
    *(rlx_four *)(to + apart) = __builtin_shufflevector(low, low2, 2, 3, 6, 7);
    *(rlx_four *)(to + 2 * apart) = __builtin_shufflevector(high, high2, 0, 1, 4, 5);
    *(rlx_four *)(to + 3 * apart) = __builtin_shufflevector(high, high2, 2, 3, 6, 7);
}

/* The same from rows that are ld apart. */
static RLX_INLINE void turn_four_f32(float *to, int64_t apart, const float *from, int64_t ld)
{
    turn_rows_f32(to, apart, from, from + ld, from + 2 * ld, from + 3 * ld);
}
#endif

/* Packs `depth` rows of up to MICRO_COLUMNS columns of the right matrix as a panel. */
static void NAME(make_panel)(T *panel, const T *b, int64_t ld, int64_t depth, int64_t width, int64_t transposed)
{
    const int64_t step = NAME(panel_columns)(width);
    if (!transposed) {
        const int64_t last = step - VL;
        for (int64_t i = 0; i < depth; i++, panel += step, b += ld) {
            for (int64_t v = 0; v < last; v += VL) *(VEC *)(panel + v) = *(const VEC *)(b + v);
            *(VEC *)(panel + last) = NAME(load_lanes)(b + last, width - last);
        }
        return;
    }
    int64_t done = 0;
#ifdef SINGLE
    for (; done + 4 <= width; done += 4)
        for (int64_t i = 0; i + 4 <= depth; i += 4)
            turn_four_f32(panel + i * step + done, step, b + done * ld + i, ld);
    for (int64_t i = depth / 4 * 4; i < depth; i++)
        for (int64_t v = 0; v < done; v++) panel[i * step + v] = b[v * ld + i];
#endif
    /* A few rows of the panel at a time, so that they stay in the first-level cache while all columns are read. */
    for (int64_t i = 0; i < depth; i += 16, panel += 16 * step) {
        const int64_t rows = depth - i < 16 ? depth - i : 16;
        for (int64_t v = done; v < step; v++)
            for (int64_t r = 0; r < rows; r++) panel[r * step + v] = v < width ? b[v * ld + i + r] : 0;
    }
}

/* Rows times one column of a matrix whose rows are ldb apart: a vector would have a single lane. */
static void NAME(column_product)(const T *a, int64_t lda, const T *b, int64_t ldb, T start, T *c, int64_t ldc, int64_t m,
                                 int64_t k, int64_t act, T *column)
{
    for (int64_t i = 0; i < k; i++) column[i] = b[i * ldb];
    for (int64_t r = 0, some; r < m; r += some) {
        T made[MICRO_COLUMNS];
        some = m - r < MICRO_COLUMNS ? m - r : MICRO_COLUMNS;
        for (int64_t i = 0; i < some; i++) made[i] = start;
        NAME(add_dots)(a + r * lda, lda, some, k, column, made);
        if (act) NAME(activate)(made, some, act);
        for (int64_t i = 0; i < some; i++) c[(r + i) * ldc] = made[i];
    }
}

/* Rows times n columns of a matrix whose rows are ldb apart, or whose columns are if it is transposed; `beyond` more columns
   follow. The bits of a result depend neither on the rows nor on the other columns. */
static void NAME(loose_columns)(const T *a, int64_t lda, const T *b, int64_t ldb, const T *bias, T *c, int64_t ldc,
                                int64_t m, int64_t k, int64_t n, int64_t beyond, int64_t transposed, int64_t act, T *panel)
{
    /* Packing does not pay for few rows, and for matrices so narrow that their rows are a panel as they are. */
    const int64_t in_place = !transposed && (m <= 2 * MICRO_ROWS || ldb <= MICRO_COLUMNS);
    for (int64_t j = 0; j < n; j += MICRO_COLUMNS) {
        const int64_t width = n - j < MICRO_COLUMNS ? n - j : MICRO_COLUMNS, step = NAME(panel_columns)(width);
        /* Rows that are read in place: whole vectors of the last ones would go beyond the end of the matrix. */
        int64_t whole = in_place ? k : 0;
        if (in_place && j + step > n + beyond) whole -= (j + step - n - beyond + ldb - 1) / ldb;
        if (whole < 0) whole = 0;
        T scratch[MICRO_COLUMNS];
        const T *start = NAME(micro_start)(scratch, bias ? bias + j : NULL, width);
        int64_t p = 0, depth;
        do {
            const int64_t end = p < whole ? whole : k;
            depth = end - p < MICRO_DEPTH ? end - p : MICRO_DEPTH;
            const T *from = transposed ? b + j * ldb + p : b + p * ldb + j;
            if (p >= whole) NAME(make_panel)(panel, from, ldb, depth, width, transposed);
            NAME(micro_rows)(a + p, lda, p < whole ? from : panel, p < whole ? ldb : step, c + j, ldc, m, depth,
                             p ? NULL : start, width, 0);
            p += depth;
        } while (p < k);
        for (int64_t r = 0; act && r < m; r++) NAME(activate)(c + r * ldc + j, width, act);
    }
}

/* Rows times such a matrix. */
static void NAME(loose_product)(const T *a, int64_t lda, const T *b, int64_t ldb, const T *bias, T *c, int64_t ldc,
                                int64_t m, int64_t k, int64_t n, int64_t transposed, int64_t act, T *panel)
{
    /* Not for fewer elements: sums in another order would gain nothing. The rows of a part do not matter, so that its
       bits are the same on any number of threads. */
    const int64_t alone = !transposed && n % VL == 1 && k >= VL && k <= MICRO_DEPTH * MICRO_COLUMNS;
    if (alone) {
        n--;
        NAME(column_product)(a, lda, b + n, ldb, bias ? bias[n] : 0, c + n, ldc, m, k, act, panel);
    }
    NAME(loose_columns)(a, lda, b, ldb, bias, c, ldc, m, k, n, alone, transposed, act, panel);
}
