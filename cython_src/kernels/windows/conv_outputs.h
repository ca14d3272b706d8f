/* Convolutions in which the lanes of a vector are outputs, per type: windows times packed weights. A window is not copied.
   Its element of channel ch and tap i stands at[ch * taps + i] elements behind its first one, and the same distances hold
   for every window. This fits filters of many elements with enough outputs to fill the lanes, few windows, and windows of
   one element that are apart: there, packing windows takes longer than storing results that come window by window. */

/* Multiplies ROWS windows by `depth` rows of a panel, which are `step` apart, and adds to c or to `start`. Rows of c are
   MICRO_COLUMNS apart. */
#define WINDOWS(ROWS, VECTORS)                                                                     \
    static void NAME(windows_##ROWS##_##VECTORS)(const T *const *from, const int64_t *at, const T *b, int64_t step, \
                                                 T *c, int64_t depth, const T *start)              \
    {                                                                                              \
        VEC acc[ROWS][VECTORS];                                                                    \
        const T *window[ROWS];                                                                     \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
        {                                                                                          \
            window[r] = from[r];                                                                   \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                acc[r][v] = *(const VEC *)((start ? start : c + r * MICRO_COLUMNS) + v * VL);      \
        }                                                                                          \
        for (int64_t i = 0; i < depth; i++, b += step) {                                           \
            VEC right[VECTORS];                                                                    \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
            {                                                                                      \
                right[v] = *(const VEC *)(b + v * VL);                                             \
                if (v * VECTOR_BYTES % 64 == 0) RLX_PREFETCH(b + MICRO_AHEAD * step + v * VL);     \
            }                                                                                      \
            _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                 \
            {                                                                                      \
                const T x = window[r][at[i]];                                                      \
                _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++) acc[r][v] += x * right[v]; \
            }                                                                                      \
        }                                                                                          \
        _Pragma("GCC unroll 8") for (int r = 0; r < ROWS; r++)                                     \
            _Pragma("GCC unroll 4") for (int v = 0; v < VECTORS; v++)                              \
                *(VEC *)(c + r * MICRO_COLUMNS + v * VL) = acc[r][v];                              \
    }
#define ALL_WINDOWS(VECTORS) WINDOWS(1, VECTORS) WINDOWS(2, VECTORS) WINDOWS(4, VECTORS) WINDOWS(6, VECTORS)
ALL_WINDOWS(1) ALL_WINDOWS(2)
#if MICRO_VECTORS == 4
ALL_WINDOWS(3) ALL_WINDOWS(4)
#endif
#undef ALL_WINDOWS
#undef WINDOWS

/* Any number of windows times `depth` rows of a panel of `step` columns. */
static void NAME(windows_by_panel)(const T *const *from, int64_t rows, const int64_t *at, const T *b, int64_t step, T *c,
                                   int64_t depth, const T *start)
{
    typedef void (*micro)(const T *const *, const int64_t *, const T *, int64_t, T *, int64_t, const T *);
#define WINDOWS(VECTORS) \
    {NAME(windows_1_##VECTORS), NAME(windows_2_##VECTORS), NAME(windows_4_##VECTORS), NAME(windows_6_##VECTORS)},
    static const micro table[][4] = {
        WINDOWS(1) WINDOWS(2)
#if MICRO_VECTORS == 4
        WINDOWS(3) WINDOWS(4)
#endif
    };
#undef WINDOWS
    while (rows) {
        /* 8 rows as 4 and 4 are faster than as 6 and 2. */
        const int64_t some = rows >= 6 && rows != 8 ? 6 : rows >= 4 ? 4 : rows >= 2 ? 2 : 1;
        table[step / VL - 1][some / 2](from, at, b, step, c, depth, start);
        rows -= some, from += some, c += some * MICRO_COLUMNS;
    }
}

/* Where windows [first, first + count) of a piece begin. */
static void NAME(window_places)(const NAME(convolution) *f, const NAME(conv_piece) *one, const T **from, int64_t first,
                                int64_t count)
{
    const rlx_window *w = f->w;
    for (int64_t q = first; q < first + count; q++) {
        const int64_t x = q % w->out[2], yz = q / w->out[2] % (w->out[0] * w->out[1]);
        const int64_t step = f->l.phase ? 1 : w->stride[2];
        *from++ = one->planes + q / f->windows * one->image + yz / w->out[1] * w->stride[0] * f->l.depth +
                  yz % w->out[1] * w->stride[1] * f->l.row + x * step;
    }
}

/* Products of `windows` windows with `outputs` outputs, from a row for each window to a row for each output. */
static void NAME(turn_products)(T *to, int64_t apart, const T *from, int64_t outputs, int64_t windows)
{
    int64_t j = 0;
#ifdef SINGLE
    for (; j + 4 <= outputs; j += 4, to += 4 * apart, from += 4) {
        int64_t q = 0;
        for (; q + 4 <= windows; q += 4) turn_four_f32(to + q, apart, from + q * MICRO_COLUMNS, MICRO_COLUMNS);
        for (; q < windows; q++)
            for (int64_t r = 0; r < 4; r++) to[r * apart + q] = from[q * MICRO_COLUMNS + r];
    }
#endif
    for (; j < outputs; j++, to += apart, from++)
        for (int64_t q = 0; q < windows; q++) to[q] = from[q * MICRO_COLUMNS];
}

/* Products of windows [first, first + count) of a piece with outputs [j, j + width) of its group, to where they belong
   in the result, with the epilogue. */
static void NAME(store_windows)(const NAME(convolution) *f, const NAME(conv_piece) *one, const T *products, int64_t first,
                                int64_t count, int64_t j, int64_t width)
{
    const int64_t result = f->w->outputs * f->windows; /* from one image of it to the next */
    for (int64_t v = 0, some; v < count; v += some) {
        const int64_t q = (first + v) % f->windows, at = (first + v) / f->windows * result + j * f->windows + q;
        some = count - v < f->windows - q ? count - v : f->windows - q;
        NAME(turn_products)(one->c + at, f->windows, products + v * MICRO_COLUMNS, width, some);
        if (one->after.residual || one->after.act)
            for (int64_t r = 0; r < width; r++)
                NAME(finish)(one->c + at + r * f->windows, at + r * f->windows, some, one->after);
    }
}

/* Windows of a piece times columns [columns.first, columns.last) of its weights. Rows of a panel stay in the cache while
   a block of windows goes by. */
static void NAME(windows_by_weights)(const NAME(convolution) *f, const NAME(conv_piece) *one, const int64_t *at,
                                     rlx_range windows, rlx_range columns, T *work)
{
    T *products = work, *panel = work + MICRO_BLOCK * MICRO_COLUMNS;
    const T *from[MICRO_BLOCK];
    for (int64_t j = columns.first; j < columns.last; j += MICRO_COLUMNS) {
        const int64_t width = columns.last - j < MICRO_COLUMNS ? columns.last - j : MICRO_COLUMNS;
        const int64_t step = NAME(panel_columns)(width);
        T start[MICRO_COLUMNS] = {0};
        for (int64_t v = 0; one->bias && v < width; v++) start[v] = one->bias[j + v];
        for (int64_t q = windows.first, rows; q < windows.last; q += rows) {
            const int64_t left = windows.last - q;
            rows = left < MICRO_BLOCK ? left : MICRO_BLOCK;
            NAME(window_places)(f, one, from, q, rows);
            int64_t p = 0;
            do {
                const int64_t depth = f->k - p < MICRO_DEPTH ? f->k - p : MICRO_DEPTH;
                const T *b = one->weight + j * f->k + p * step;
                if (!f->packing) NAME(make_panel)(panel, one->weight + j * f->k + p, f->k, depth, width, 1);
                NAME(windows_by_panel)(from, rows, at + p, f->packing ? b : panel, step, products, depth, p ? NULL : start);
                p += MICRO_DEPTH;
            } while (p < f->k);
            NAME(store_windows)(f, one, products, q, rows, j, width);
        }
    }
}

static int NAME(kernel_conv_by_outputs)(const rlx_call *call)
{
    RLX_ARGUMENTS(conv_by_outputs, call);
    NAME(convolution) f = CONVOLUTION(0, p->packing, p->packed_stride);
    int64_t *at = out->at;
    NAME(measure)(&f, p->copied, at);
    for (int64_t ch = 1; ch < f.channels; ch++)
        for (int64_t i = 0; i < f.taps; i++) at[ch * f.taps + i] = ch * f.l.plane + at[i];
    const int64_t image = f.w->channels * f.l.plane, group = f.channels * f.l.plane;
    const rlx_block own = rlx_share_tiles(call, f.pieces, f.together * f.windows, f.m, MICRO_ROWS, MICRO_COLUMNS);
    for (int64_t piece = own.pieces.first; piece < own.pieces.last; piece++) {
        NAME(conv_piece) one = NAME(piece_of)(&f, piece, (rlx_range){0, f.m});
        one.planes = f.x + piece / f.w->groups * f.together * image + piece % f.w->groups * group;
        one.image = image, one.end = f.x + f.w->batch * image;
        const int64_t n = one.images * f.windows;
        const rlx_range windows = {own.rows.first, own.rows.last < n ? own.rows.last : n};
        NAME(windows_by_weights)(&f, &one, at, windows, own.columns, out->work);
    }
    return RLX_OK;
}
