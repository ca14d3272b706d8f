/* Grouped products, per type: each row is multiplied by the matrix of its expert. */

#define GROUPED_ROWS RLX_EXPERT_ROWS /* rows of one expert that are computed together */
#define GROUPED_COLUMNS RLX_EXPERT_COLUMNS /* columns at a time, where these rows are not contiguous */

/* The rows of x that one expert gets, times its matrix. `rows` lists them in order. */
static void NAME(rows_of_expert)(const T *x, const int64_t *rows, int64_t count, const void *w, int64_t packed, T *y,
                                 int64_t k, int64_t n, rlx_range own, const rlx_grouped_matmul_out *out)
{
    if (rows[count - 1] - rows[0] == count - 1) {
        NAME(some_columns)(x + rows[0] * k, w, packed, own.first, NULL, y + rows[0] * n + own.first, n, count, k, n,
                           own.last - own.first, 0, out->panel);
        return;
    }
    T *together = out->rows, *made = out->results;
    for (int64_t r = 0; r < count; r++) memcpy(together + r * k, x + rows[r] * k, (size_t)k * sizeof(T));
    for (int64_t j = own.first; j < own.last; j += GROUPED_COLUMNS) {
        const int64_t width = own.last - j < GROUPED_COLUMNS ? own.last - j : GROUPED_COLUMNS;
        NAME(some_columns)(together, w, packed, j, NULL, made, width, count, k, n, width, 0, out->panel);
        for (int64_t r = 0; r < count; r++)
            memcpy(y + rows[r] * n + j, made + r * width, (size_t)width * sizeof(T));
    }
}

static int NAME(kernel_grouped_matmul)(const rlx_call *call)
{
    RLX_ARGUMENTS(grouped_matmul, call);
    const int64_t m = p->m, k = p->k, n = p->n, experts = p->experts;
    const rlx_range own = rlx_share(call, n, MICRO_COLUMNS); /* parts are columns */
    T *y = out->y;
    const int64_t stride = p->packing ? p->packed_stride : k * n * (int64_t)sizeof(T); /* bytes of a matrix */
#define EXPERT(i) (p->index_bytes == 4 ? ((const int32_t *)in->expert)[i] : ((const int64_t *)in->expert)[i])
    for (int64_t i = 0; i < m; i++) {
        const int64_t expert = EXPERT(i);
        if (expert >= experts || (expert < 0 && !p->partial)) return RLX_OUT_OF_RANGE;
        /* Another device computes this row. */
        if (expert < 0) memset(y + i * n + own.first, 0, (size_t)(own.last - own.first) * sizeof(T));
    }
    for (int64_t expert = 0; expert < experts; expert++) {
        int64_t rows[GROUPED_ROWS], count = 0;
        for (int64_t i = 0; i < m; i++) {
            if (EXPERT(i) == expert) rows[count++] = i;
            if (count == 0 || (count < GROUPED_ROWS && i + 1 < m)) continue;
            NAME(rows_of_expert)(in->x, rows, count, (const char *)in->weights + expert * stride, p->packing, y, k, n,
                                 own, out);
            count = 0;
        }
    }
    return RLX_OK;
#undef EXPERT
}

#undef GROUPED_ROWS
#undef GROUPED_COLUMNS
