/* Products by expert: every row by a matrix of its own, per type. */

#define GROUPED_ROWS 48     /* rows of one expert that are made together */
#define GROUPED_COLUMNS 512 /* and columns, where these rows stand apart */

/* Rows of x that have one matrix, times it; `rows` says which, in order. */
static void NAME(rows_of_expert)(const T *x, const int64_t *rows, int64_t count, const void *w, int64_t packed, T *y,
                                 int64_t k, int64_t n, rlx_range own, T *scratch)
{
    if (rows[count - 1] - rows[0] == count - 1) {
        NAME(some_columns)(x + rows[0] * k, w, packed, own.first, NULL, y + rows[0] * n + own.first, n, count, k, n,
                           own.last - own.first, 0, scratch);
        return;
    }
    T *room = scratch + MICRO_DEPTH * MICRO_COLUMNS, *made = room + GROUPED_ROWS * k;
    for (int64_t r = 0; r < count; r++) memcpy(room + r * k, x + rows[r] * k, (size_t)k * sizeof(T));
    for (int64_t j = own.first; j < own.last; j += GROUPED_COLUMNS) {
        const int64_t width = own.last - j < GROUPED_COLUMNS ? own.last - j : GROUPED_COLUMNS;
        NAME(some_columns)(room, w, packed, j, NULL, made, width, count, k, n, width, 0, scratch);
        for (int64_t r = 0; r < count; r++)
            memcpy(y + rows[r] * n + j, made + r * width, (size_t)width * sizeof(T));
    }
}

/* Inputs: x, the matrices, the expert of each row. Parameters: m, k, n, experts, bytes of an index, whether rows
   of negative ones are 0, packed (in panels: of which kind, see panels.h), bytes from one matrix to the next.
   Scratch: a panel, some rows of x and parts of those of the result. */
static int NAME(kernel_grouped_matmul)(const rlx_call *call)
{
    const rlx_param *p = call->p;
    const int64_t m = p[0].i, k = p[1].i, n = p[2].i, experts = p[3].i;
    const rlx_range own = rlx_share(call, n, MICRO_COLUMNS); /* parts are columns */
    T *y = call->out[0];
#define EXPERT(i) (p[4].i == 4 ? ((const int32_t *)call->in[2])[i] : ((const int64_t *)call->in[2])[i])
    for (int64_t i = 0; i < m; i++) {
        const int64_t expert = EXPERT(i);
        if (expert >= experts || (expert < 0 && !p[5].i)) return RLX_INDEX_OUT_OF_RANGE;
        /* A row that is made elsewhere. */
        if (expert < 0) memset(y + i * n + own.first, 0, (size_t)(own.last - own.first) * sizeof(T));
    }
    for (int64_t expert = 0; expert < experts; expert++) {
        int64_t rows[GROUPED_ROWS], count = 0;
        for (int64_t i = 0; i < m; i++) {
            if (EXPERT(i) == expert) rows[count++] = i;
            if (count == 0 || (count < GROUPED_ROWS && i + 1 < m)) continue;
            NAME(rows_of_expert)(call->in[0], rows, count, (const char *)call->in[1] + expert * p[7].i, p[6].i, y, k, n,
                                 own, call->out[1]);
            count = 0;
        }
    }
    return RLX_OK;
#undef EXPERT
}

#undef GROUPED_ROWS
#undef GROUPED_COLUMNS
