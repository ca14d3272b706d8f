/* Matrix products out of micro-kernels: of packed weights, and of matrices as they lie, per type. */

/* Rows times a matrix in panels, of which `width` columns from j0 on are made; j0 begins a panel. */
static void NAME(packed_product)(const T *a, int64_t lda, const T *panels, int64_t j0, const T *bias, T *c,
                                 int64_t ldc, int64_t m, int64_t k, int64_t n, int64_t width, int64_t act)
{
    /* Few rows go by once: every panel is read from its first byte to its last. */
    const int64_t deep = m <= MICRO_ROWS || k == 0 ? k : MICRO_DEPTH;
    int64_t p = 0;
    do {
        const int64_t depth = k - p < deep ? k - p : deep;
        for (int64_t i = 0; i < m; i += MICRO_BLOCK) {
            const int64_t rows = m - i < MICRO_BLOCK ? m - i : MICRO_BLOCK;
            for (int64_t j = 0; j < width; j += MICRO_COLUMNS) {
                const int64_t some = width - j < MICRO_COLUMNS ? width - j : MICRO_COLUMNS;
                const int64_t at = j0 + j, whole = n - at < MICRO_COLUMNS ? n - at : MICRO_COLUMNS;
                const int64_t step = NAME(panel_columns)(whole);
                T start[MICRO_COLUMNS];
                NAME(micro_rows)(a + i * lda + p, lda, 1, panels + at * k + p * step, step, c + i * ldc + j, ldc,
                                 rows, depth, p ? NULL : NAME(micro_start)(start, bias ? bias + j : NULL, some),
                                 some);
                for (int64_t r = i; act && p + depth == k && r < i + rows; r++)
                    NAME(activate)(c + r * ldc + j, some, act);
            }
        }
        p += deep;
    } while (p < k);
}

/* Up to MICRO_COLUMNS columns of the right matrix, `depth` rows of them, as a panel. */
static void NAME(make_panel)(T *panel, const T *b, int64_t ld, int64_t depth, int64_t width, int64_t turned)
{
    const int64_t step = NAME(panel_columns)(width);
    if (!turned) {
        for (int64_t i = 0; i < depth; i++, panel += step, b += ld) {
            memcpy(panel, b, (size_t)width * sizeof(T));
            for (int64_t v = width; v < step; v++) panel[v] = 0;
        }
        return;
    }
    /* A few rows of the panel at a time stay in the first cache while all columns go by. */
    for (int64_t i = 0; i < depth; i += 16, panel += 16 * step) {
        const int64_t rows = depth - i < 16 ? depth - i : 16;
        for (int64_t v = 0; v < step; v++)
            for (int64_t r = 0; r < rows; r++) panel[r * step + v] = v < width ? b[v * ld + i + r] : 0;
    }
}

/* Rows times a matrix whose rows are ldb apart; turned, its columns are. */
static void NAME(loose_product)(const T *a, int64_t lda, const T *b, int64_t ldb, const T *bias, T *c, int64_t ldc,
                                int64_t m, int64_t k, int64_t n, int64_t turned, int64_t act, T *panel)
{
    for (int64_t j = 0; j < n; j += MICRO_COLUMNS) {
        const int64_t width = n - j < MICRO_COLUMNS ? n - j : MICRO_COLUMNS;
        /* For few rows a copy does not pay. */
        const int64_t there = !turned && m <= 2 * MICRO_ROWS && width % VL == 0;
        T room[MICRO_COLUMNS];
        const T *start = NAME(micro_start)(room, bias ? bias + j : NULL, width);
        int64_t p = 0;
        do {
            const int64_t depth = k - p < MICRO_DEPTH ? k - p : MICRO_DEPTH;
            const T *from = turned ? b + j * ldb + p : b + p * ldb + j;
            if (!there) NAME(make_panel)(panel, from, ldb, depth, width, turned);
            NAME(micro_rows)(a + p, lda, 1, there ? from : panel, there ? ldb : NAME(panel_columns)(width), c + j, ldc,
                             m, depth, p ? NULL : start, width);
            p += MICRO_DEPTH;
        } while (p < k);
        for (int64_t r = 0; act && r < m; r++) NAME(activate)(c + r * ldc + j, width, act);
    }
}
